//! Parts of a file that another crate reads: the tree without its places.

use crate::decode::{Faults, Shape};
use crate::syntax::{Kind, Node};
use serde_json::{Map, Value, json};

/// The data of `node`.
pub(super) fn value(node: &Node) -> Value {
    match &node.kind {
        // Neither YAML nor JSON gives the last one; it would be a value that nobody takes.
        Kind::Null | Kind::Foreign(_) => Value::Null,
        Kind::String(text) => Value::String(text.clone()),
        Kind::Integer(number) => json!(number),
        Kind::Float(number) => json!(number),
        Kind::Boolean(flag) => Value::Bool(*flag),
        Kind::Array(items) => items.iter().map(value).collect(),
        Kind::Table(table) => Value::Object(
            table.0.iter().map(|(key, node)| (key.text.clone(), value(node))).collect::<Map<_, _>>(),
        ),
    }
}

/// A list whose items are read elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct DataList(pub Value);

impl Shape for DataList {
    fn decode(node: &Node, faults: &mut Faults) -> Option<Self> {
        match &node.kind {
            Kind::Array(_) => Some(Self(value(node))),
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => faults.mismatch(node, "a list"),
        }
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "object"}})
    }
}
