//! Parts of a file that another crate decodes.

use belljar_contract::decode::{Decode, Faults, Node};
use serde_json::{Value, json};

/// A list whose items another crate decodes, from the node itself.
#[derive(Debug, Clone, Copy)]
pub struct AnyList;

impl Decode for AnyList {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        node.items().map(|_| Self).or_else(|| faults.mismatch(node, "a list"))
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "object"}})
    }
}
