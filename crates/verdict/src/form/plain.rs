//! Words, texts, numbers and lists.

use super::{Form, Reader, listed};
use belljar_contract::{Letters, Pattern};
use serde_json::{Number, Value, json};

/// `true` and nothing else: to ask for the opposite is another key, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Yes;

impl Form for Yes {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::Bool(true) => Some(Self),
            Value::Bool(false) => {
                reader.fault_with("only `true` says something here", "leave the key out instead")
            }
            other => reader.expected("`true`", other),
        }
    }

    fn schema() -> Value {
        json!({"const": true})
    }
}

impl Form for bool {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        value.as_bool().or_else(|| reader.expected("`true` or `false`", value))
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

/// A text that is looked for as it is; never empty, because nothing is in everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub String);

impl Form for Text {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::String(text) if text.is_empty() => {
                reader.fault("an empty text is in everything; say what is meant")
            }
            Value::String(text) => Some(Self(text.clone())),
            other => reader.expected("a text", other),
        }
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

impl Form for Pattern {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let Value::String(text) = value else {
            return reader.expected("a pattern", value);
        };
        if text.is_empty() {
            return reader.fault("an empty pattern fits everything; say what is meant");
        }
        match Pattern::new(text, Letters::AnyCase) {
            Ok(pattern) => Some(pattern),
            Err(error) => match error.help() {
                Some(help) => reader.fault_with(error.to_string(), help),
                None => reader.fault(error.to_string()),
            },
        }
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "regex", "minLength": 1})
    }
}

/// A whole number from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub u64);

impl Form for Count {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        value.as_u64().map(Self).or_else(|| reader.expected("a whole number from 0", value))
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0})
    }
}

/// A number from 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decimal(pub f64);

impl Form for Decimal {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let number = value.as_f64().filter(|number| number.is_finite() && *number >= 0.0);
        number.map(Self).or_else(|| reader.expected("a number from 0", value))
    }

    fn schema() -> Value {
        json!({"type": "number", "minimum": 0})
    }
}

/// A closed set of words.
pub(crate) trait Word: Sized + Copy + 'static {
    const ALL: &'static [(&'static str, Self)];
}

/// One of a closed set of words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<W>(pub W);

impl<W: Word> Form for Words<W> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let found = value.as_str().and_then(|text| W::ALL.iter().find(|(word, _)| *word == text));
        match found {
            Some((_, word)) => Some(Self(*word)),
            None => {
                let words: Vec<&str> = W::ALL.iter().map(|(word, _)| *word).collect();
                reader.expected(&format!("one of {}", listed(&words)), value)
            }
        }
    }

    fn schema() -> Value {
        json!({"enum": W::ALL.iter().map(|(word, _)| *word).collect::<Vec<_>>()})
    }
}

/// A text that may be empty.
impl Form for String {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        value.as_str().map(str::to_owned).or_else(|| reader.expected("a text", value))
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// A number that is compared.
impl Form for Number {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        value.as_number().cloned().or_else(|| reader.expected("a number", value))
    }

    fn schema() -> Value {
        json!({"type": "number"})
    }
}

/// Anything at all, taken as it is.
impl Form for Value {
    fn read(value: &Value, _reader: &mut Reader) -> Option<Self> {
        Some(value.clone())
    }

    fn schema() -> Value {
        json!({})
    }
}

impl<T: Form> Form for Vec<T> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let Value::Array(items) = value else {
            return reader.expected("a list", value);
        };
        let mut all = Some(Vec::with_capacity(items.len()));
        for (at, item) in items.iter().enumerate() {
            // Every item is read, so that all faults are told at once.
            let read = reader.at(&format!("[{at}]"), |reader| T::read(item, reader));
            all = all.zip(read).map(|(mut all, read)| {
                all.push(read);
                all
            });
        }
        all
    }

    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

/// A list with something in it.
#[derive(Debug, Clone)]
pub(crate) struct Some1<T>(pub Vec<T>);

impl<T: Form> Form for Some1<T> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let items = Vec::<T>::read(value, reader)?;
        if items.is_empty() { reader.fault("the list is empty; it says nothing") } else { Some(Self(items)) }
    }

    fn schema() -> Value {
        json!({"type": "array", "items": T::schema(), "minItems": 1})
    }
}

/// One value, or a list with something in it.
#[derive(Debug, Clone)]
pub(crate) struct OneOrMore<T>(pub Vec<T>);

impl<T: Form> Form for OneOrMore<T> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        match value {
            Value::Array(_) => Some1::<T>::read(value, reader).map(|some| Self(some.0)),
            single => T::read(single, reader).map(|one| Self(vec![one])),
        }
    }

    fn schema() -> Value {
        json!({"oneOf": [T::schema(), Some1::<T>::schema()]})
    }
}
