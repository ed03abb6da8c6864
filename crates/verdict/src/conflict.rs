//! Checks that cannot hold together. They are told before anything runs.

use crate::form::Reader;
use serde_json::Value;

/// A key as it is written, with its item.
pub(crate) struct Written<'a> {
    pub item: usize,
    pub key: &'static str,
    pub value: &'a Value,
}

impl Written<'_> {
    fn place(&self) -> String {
        format!("[{}].{}", self.item, self.key)
    }
}

/// Adds a fault for every pair that contradicts itself.
pub(crate) fn find(all: &[Written<'_>], reader: &mut Reader) {
    for (at, second) in all.iter().enumerate() {
        for first in &all[..at] {
            let Some(why) = contradiction(first, second).or_else(|| contradiction(second, first)) else {
                continue;
            };
            reader.at(&second.place(), |reader| {
                reader.fault_with::<()>(
                    format!("this and `{}` cannot both hold: {why}", first.place()),
                    "leave one of them out",
                )
            });
        }
    }
}

/// Why two keys exclude each other, looked at in this order only.
fn contradiction(one: &Written<'_>, other: &Written<'_>) -> Option<&'static str> {
    let text = |value: &Value, wanted: &str| value.as_str() == Some(wanted);
    match (one.key, other.key) {
        ("questions_count_max", _) if one.value.as_u64() == Some(0) && needs_a_question(other) => {
            Some("no question may be asked, and one must be")
        }
        ("no_hook_blocked", "hook_blocked") => Some("no hook may block a tool, and one must"),
        ("no_delete_in_outputs", "allow_outputs_delete") => Some("the deletion is forbidden and let pass"),
        ("no_delete_in_outputs", "allow_delete_in") => {
            let named =
                other.value.as_array().is_some_and(|names| names.iter().any(|name| text(name, "outputs")));
            named.then_some("the deletion is forbidden and let pass")
        }
        ("result", "result") => (one.value != other.value).then_some("a run is a success or an error"),
        _ => None,
    }
}

fn needs_a_question(written: &Written<'_>) -> bool {
    match written.key {
        "question_asked" | "question_options" => true,
        "gate_answer_count_min" => written.value.as_u64() != Some(0),
        "gate_answers_delivered" => written.value.as_bool() == Some(false),
        "tool_called" => written.value.as_str() == Some("AskUserQuestion"),
        _ => false,
    }
}
