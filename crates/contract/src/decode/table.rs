//! Tables with known keys.

use super::{Fault, Faults, Kind, Node, Table};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// What a table's definition says about one key.
pub struct KeySpec {
    /// The key as it is written.
    pub name: &'static str,
    /// Whether the table is refused without it.
    pub required: bool,
    /// The lines of its documentation.
    pub doc: &'static [&'static str],
    /// The JSON Schema of its value.
    pub schema: fn() -> Value,
}

/// The table in `node`, with its keys checked against the known ones.
pub fn known_table<'a>(
    node: &'a Node,
    what: &str,
    keys: &[KeySpec],
    faults: &mut Faults<'_>,
) -> Option<&'a Table> {
    let Kind::Table(table) = &node.kind else {
        return faults.mismatch(node, "a table");
    };
    let names: Vec<&str> = keys.iter().map(|known| known.name).collect();
    let mut misspelt = BTreeSet::new();
    for (key, _) in &table.0 {
        if !names.contains(&key.text.as_str()) && faults.has_room() {
            misspelt.extend(faults.unknown_key(key, what, &names));
        }
    }
    for known in keys.iter().filter(|known| known.required) {
        // A misspelt key was reported above and is not missing as well.
        if table.get(known.name).is_none() && !misspelt.contains(known.name) {
            let fault = Fault::new(format!("{what} lacks `{}`", known.name))
                .label(format!("`{}` belongs here", known.name))
                .help(format!("`{}`: {}", known.name, description(known.doc)));
            faults.push("missing-key", &node.span, fault);
        }
    }
    Some(table)
}

/// A schema as a file of its own.
#[must_use]
pub fn titled(title: &str, mut schema: Value) -> Value {
    let object = schema.as_object_mut().map(std::mem::take).unwrap_or_default();
    let mut out = Map::new();
    out.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    out.insert("title".to_owned(), title.into());
    out.extend(object);
    out.into()
}

/// The lines of a documentation as one.
fn description(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// The JSON Schema of a table.
#[must_use]
pub fn table_schema(doc: &[&str], keys: &[KeySpec]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut schema = (key.schema)();
        schema["description"] = json!(description(key.doc));
        properties.insert(key.name.to_owned(), schema);
    }
    let mut schema = json!({"type": "object"});
    if !doc.is_empty() {
        schema["description"] = json!(description(doc));
    }
    schema["properties"] = Value::Object(properties);
    schema["additionalProperties"] = json!(false);
    let required: Vec<&str> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Defines a table: a struct whose fields are [`Field`](crate::decode::Field)s, with its decoder and its JSON Schema.
///
/// The documentation of a field is its description in the schema. A field whose key is not a name in Rust, or should not be,
/// has the key behind `as`.
///
/// ```
/// use belljar_contract::decode::{Decode, Faults, Node, table};
///
/// table! {
///     /// Where a plugin is.
///     "a plugin"
///     pub struct PluginSpec {
///         /// The directory.
///         source: String,
///         /// Its kind; `local` when absent.
///         kind as "type": Option<String>,
///     }
/// }
///
/// let node = Node::of_value(&serde_json::json!({"source": 7, "typ": "x"}));
/// let mut faults = Faults::new(0, "");
/// assert!(PluginSpec::decode(&node, &mut faults).is_none());
/// let messages: Vec<&str> = faults.list.iter().map(|fault| fault.message.as_str()).collect();
/// assert_eq!(messages, ["unknown key `typ` in a plugin", "expected a string, found a number"]);
/// assert_eq!(PluginSpec::schema()["required"], serde_json::json!(["source"]));
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! decode_table {
    ($(#[doc = $doc:literal])* $what:literal $vis:vis struct $name:ident {
        $( $(#[doc = $field_doc:literal])+ $field:ident $(as $key:literal)? : $type:ty, )*
    }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone)]
        $vis struct $name { $( $(#[doc = $field_doc])+ pub $field: $type, )* }

        impl $name {
            pub(crate) const KEYS: &'static [$crate::decode::KeySpec] = &[ $( $crate::decode::KeySpec {
                name: $crate::decode_table!(@key $field $($key)?),
                required: <$type as $crate::decode::Field>::REQUIRED,
                doc: &[$($field_doc),+],
                schema: <$type as $crate::decode::Field>::field_schema,
            }, )* ];
        }

        impl $crate::decode::Decode for $name {
            fn decode(
                node: &$crate::decode::Node,
                faults: &mut $crate::decode::Faults<'_>,
            ) -> Option<Self> {
                let table = $crate::decode::known_table(node, $what, Self::KEYS, faults)?;
                $( let $field = <$type as $crate::decode::Field>::decode_field(
                    table.get($crate::decode_table!(@key $field $($key)?)), faults); )*
                Some(Self { $( $field: $field?, )* })
            }

            fn schema() -> $crate::decode::Value {
                $crate::decode::table_schema(&[$($doc),*], Self::KEYS)
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}

/// Defines how a closed set of values is decoded.
#[macro_export]
#[doc(hidden)]
macro_rules! decode_choice {
    ($type:ty, $expected:literal, { $( $word:literal => $value:expr ),+ $(,)? }) => {
        impl $crate::decode::Decode for $type {
            fn decode(
                node: &$crate::decode::Node,
                faults: &mut $crate::decode::Faults<'_>,
            ) -> Option<Self> {
                match $crate::decode::choice_text(node, $expected, &[$($word),+], faults)? {
                    $( $word => Some($value), )+
                    _ => None,
                }
            }

            fn schema() -> $crate::decode::Value {
                $crate::decode::choice_schema(&[$($word),+])
            }
        }
    };
}
