//! Parts of a file that another crate reads: the tree without its places.

use belljar_contract::decode::{Decode, Faults, Kind, Node};
use serde_json::{Value, json};

/// A list whose items another crate decodes.
#[derive(Debug, Clone)]
pub struct NodeList(pub Vec<Node>);

impl Decode for NodeList {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        node.items().map(|items| Self(items.to_vec())).or_else(|| faults.mismatch(node, "a list"))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "object"}})
    }
}

/// A list whose items are read elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct DataList(pub Value);

impl Decode for DataList {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match &node.kind {
            Kind::Array(_) => Some(Self(node.to_value())),
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
