//! Closed sets of words.

use super::{Fault, Faults, Kind, Node, choices, shown};
use crate::nearest::nearest;
use serde_json::{Value, json};

/// The text of `node` if it is one of `words`.
pub fn choice_text<'a>(
    node: &'a Node,
    expected: &str,
    words: &[&str],
    faults: &mut Faults<'_>,
) -> Option<&'a str> {
    let Kind::String(text) = &node.kind else {
        return faults.mismatch(node, &format!("{expected}: {}", choices(words)));
    };
    if words.contains(&text.as_str()) {
        return Some(text);
    }
    let mut fault = Fault::new(format!("expected {expected}, found `{}`", shown(text)))
        .help(format!("write {}", choices(words)));
    if let Some(near) = nearest(text, words.iter().copied()) {
        fault = fault.label(format!("did you mean `{near}`?"));
    }
    faults.invalid(node, fault)
}

/// The JSON Schema of a set of words.
#[must_use]
pub fn choice_schema(words: &[&str]) -> Value {
    json!({"enum": words})
}
