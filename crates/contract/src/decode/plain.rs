//! Booleans, numbers, strings, lists, and data of any form.

use super::{Decode, Fault, Faults, Kind, Node};
use serde_json::{Number, Value, json};
use std::ops::RangeInclusive;

impl Decode for bool {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::Boolean(value) = node.kind else {
            return faults.mismatch(node, "`true` or `false`");
        };
        Some(value)
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

impl Decode for String {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, "a string");
        };
        Some(text.clone())
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

impl Decode for Number {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Value::Number(number) = node.to_value() else {
            return faults.mismatch(node, "a number");
        };
        Some(number)
    }

    fn schema() -> Value {
        json!({"type": "number"})
    }
}

/// Data of any form.
impl Decode for Value {
    fn decode(node: &Node, _faults: &mut Faults<'_>) -> Option<Self> {
        Some(node.to_value())
    }

    fn schema() -> Value {
        json!({})
    }
}

/// A list. As a field it differs from a `Vec`, which is empty where the key is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct Many<T>(pub Vec<T>);

impl<T: Decode> Decode for Many<T> {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::Array(items) = &node.kind else {
            return faults.mismatch(node, "a list");
        };
        Some(Self(items.iter().filter_map(|item| T::decode(item, faults)).collect()))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

/// A whole number of a range.
pub fn whole_number(
    node: &Node,
    expected: &str,
    range: &RangeInclusive<i64>,
    faults: &mut Faults<'_>,
) -> Option<i64> {
    let Kind::Integer(number) = node.kind else {
        return faults.mismatch(node, expected);
    };
    if range.contains(&number) {
        return Some(number);
    }
    let (least, most) = (range.start(), range.end());
    faults
        .invalid(node, Fault::new(format!("expected {expected} between {least} and {most}, found {number}")))
}

/// The JSON Schema of a whole number of a range.
#[must_use]
pub fn whole_number_schema(range: &RangeInclusive<i64>) -> Value {
    json!({"type": "integer", "minimum": range.start(), "maximum": range.end()})
}
