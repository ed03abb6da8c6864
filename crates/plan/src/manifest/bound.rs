//! A limit that has a default, which can be declared away.

use belljar_contract::decode::{Decode, Faults, Kind, Node};
use serde_json::{Value, json};

/// The word for "no limit".
const NONE: &str = "none";

/// A limit as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound<T> {
    /// The word `"none"`: no limit.
    Unlimited,
    AtMost(T),
}

impl<T: Decode> Decode for Bound<T> {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        match &node.kind {
            Kind::String(text) if text == NONE => Some(Self::Unlimited),
            Kind::Null
            | Kind::String(_)
            | Kind::Integer(_)
            | Kind::Float(_)
            | Kind::Boolean(_)
            | Kind::Array(_)
            | Kind::Table(_)
            | Kind::Foreign(_) => T::decode(node, faults).map(Self::AtMost),
        }
    }

    fn schema() -> Value {
        json!({"oneOf": [T::schema(), {"enum": [NONE]}]})
    }
}

impl<T: std::fmt::Display> std::fmt::Display for Bound<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => f.write_str(NONE),
            Self::AtMost(value) => value.fmt(f),
        }
    }
}
