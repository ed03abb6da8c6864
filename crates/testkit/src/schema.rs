//! A small checker of JSON Schema.

#![expect(clippy::unwrap_used, reason = "a schema that is not one fails the test")]

use serde_json::Value;

/// Whether a value conforms to a schema, as far as the schemas of this repository go. Patterns and formats are not compared.
///
/// # Panics
/// When the schema uses another keyword.
#[must_use]
pub fn conforms(schema: &Value, value: &Value) -> bool {
    if let Some(all_or_nothing) = schema.as_bool() {
        return all_or_nothing;
    }
    let schema = schema.as_object().unwrap();
    schema.iter().all(|(keyword, wanted)| match keyword.as_str() {
        "$schema" | "title" | "description" | "pattern" | "format" | "propertyNames" => true,
        "type" => match wanted.as_array() {
            Some(types) => types.iter().any(|name| is_a(name.as_str().unwrap(), value)),
            None => is_a(wanted.as_str().unwrap(), value),
        },
        "const" => value == wanted,
        "if" => {
            let branch = if conforms(wanted, value) { "then" } else { "else" };
            schema.get(branch).is_none_or(|schema| conforms(schema, value))
        }
        "then" | "else" => schema.contains_key("if"),
        "enum" => wanted.as_array().unwrap().contains(value),
        "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
        "exclusiveMinimum" => value.as_f64().is_none_or(|number| number > wanted.as_f64().unwrap()),
        "minItems" => value.as_array().is_none_or(|list| list.len() as u64 >= wanted.as_u64().unwrap()),
        "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= wanted.as_u64().unwrap()),
        "minProperties" => {
            value.as_object().is_none_or(|table| table.len() as u64 >= wanted.as_u64().unwrap())
        }
        "maxProperties" => {
            value.as_object().is_none_or(|table| table.len() as u64 <= wanted.as_u64().unwrap())
        }
        "items" => value.as_array().is_none_or(|list| list.iter().all(|item| conforms(wanted, item))),
        "required" => {
            let has = |key: &Value| value.get(key.as_str().unwrap()).is_some();
            !value.is_object() || wanted.as_array().unwrap().iter().all(has)
        }
        "properties" => value.as_object().is_none_or(|table| {
            table.iter().all(|(key, value)| wanted.get(key).is_none_or(|schema| conforms(schema, value)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|table| {
            let known = schema.get("properties").and_then(Value::as_object);
            let mut others =
                table.iter().filter(|(key, _)| known.is_none_or(|known| !known.contains_key(*key)));
            match wanted.as_bool() {
                Some(false) => others.next().is_none(),
                Some(true) | None => others.all(|(_, value)| conforms(wanted, value)),
            }
        }),
        "oneOf" => wanted.as_array().unwrap().iter().filter(|schema| conforms(schema, value)).count() == 1,
        other => panic!("the keyword {other}"),
    })
}

fn is_a(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("type {other}"),
    }
}
