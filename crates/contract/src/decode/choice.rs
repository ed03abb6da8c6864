//! Keys with a closed set of values.

use super::{Fault, Faults, Kind, Node, choices, shown};
use crate::nearest::nearest;
use serde_json::{Value, json};

/// The text of `node` if it is one of `values`.
pub fn choice_text<'a>(
    node: &'a Node,
    expected: &str,
    values: &[&str],
    faults: &mut Faults<'_>,
) -> Option<&'a str> {
    let Kind::String(text) = &node.kind else {
        return faults.mismatch(node, &format!("{expected}: {}", choices(values)));
    };
    if values.contains(&text.as_str()) {
        return Some(text);
    }
    let mut fault = Fault::new(format!("expected {expected}, found `{}`", shown(text)))
        .help(format!("write {}", choices(values)));
    if let Some(near) = nearest(text, values.iter().copied()) {
        fault = fault.label(format!("did you mean `{near}`?"));
    }
    faults.invalid(node, fault)
}

/// The JSON Schema of a closed set of values.
#[must_use]
pub fn choice_schema(values: &[&str]) -> Value {
    json!({"enum": values})
}
