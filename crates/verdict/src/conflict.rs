//! Checks that cannot hold together, refused before anything runs.

use belljar_contract::decode::{Fault, Faults, Key};
use belljar_contract::text_glob_matches;
use serde_json::Value;

/// A key as it is written, and its value.
pub(crate) struct Written<'a> {
    pub key: &'a Key,
    pub value: Value,
}

/// Keys that say the opposite of each other where they have the same value.
const OPPOSITES: [(&str, &str); 10] = [
    ("tool_called", "tool_not_called"),
    ("subagent_tool_used", "tool_not_called"),
    ("subagent_tool_used", "subagent_tool_absent"),
    ("tool_result_contains", "tool_result_not_contains"),
    ("tool_result_matches", "tool_result_not_matches"),
    ("transcript_contains", "transcript_not_contains"),
    ("transcript_matches", "transcript_not_matches"),
    ("file_exists", "file_absent"),
    ("user_visible_artifact", "file_absent"),
    ("skill_triggered", "no_skill_triggered"),
];

/// Adds a fault for every pair that contradicts itself.
pub(crate) fn find(all: &[Written<'_>], faults: &mut Faults<'_>) {
    for (at, second) in all.iter().enumerate() {
        for first in &all[..at] {
            let Some(why) = contradiction(first, second).or_else(|| contradiction(second, first)) else {
                continue;
            };
            let (one, other) = (&first.key.text, &second.key.text);
            let fault = Fault::new(format!("`{one}` and `{other}` cannot both hold: {why}"))
                .help("leave one of them out");
            let related = faults.place(&first.key.span).label("contradicts this");
            faults.push("contradiction", &second.key.span, fault);
            if let Some(last) = faults.list.last_mut() {
                last.related = vec![related];
            }
        }
    }
}

/// Why two keys exclude each other, in this order only.
fn contradiction(one: &Written<'_>, other: &Written<'_>) -> Option<&'static str> {
    match (one.key.text.as_str(), other.key.text.as_str()) {
        ("questions_count_max", _) if one.value == 0 && needs_a_question(other) => {
            Some("no question may be asked, and one must be")
        }
        ("no_hook_blocked", "hook_blocked") => Some("no hook may block a tool, and one must"),
        ("no_delete_in_outputs", "allow_outputs_delete") => Some("the deletion is forbidden and allowed"),
        ("no_delete_in_outputs", "allow_delete_in") => {
            let named =
                other.value.as_array().is_some_and(|names| names.iter().any(|name| name == "outputs"));
            named.then_some("the deletion is forbidden and allowed")
        }
        ("tool_calls_max", "tool_called") if one.value == 0 => Some("no tool may be called, and one must be"),
        ("dispatch_count_max", "subagent_dispatched" | "subagent_tool_used" | "subagent_output_contains")
            if one.value == 0 =>
        {
            Some("no sub-agent may be started, and one must be")
        }
        (first, second) if one.value == other.value && OPPOSITES.contains(&(first, second)) => {
            Some("what must be there may not be there")
        }
        // The name of a tool that must be called, and a pattern of tools that may not.
        ("tool_called", "tool_not_called")
        | ("subagent_tool_used", "tool_not_called" | "subagent_tool_absent")
            if one.value.as_str().zip(other.value.as_str()).is_some_and(|(name, pattern)| {
                !name.contains(['*', '?']) && text_glob_matches(pattern, name)
            }) =>
        {
            Some("what must be there may not be there")
        }
        ("result", "result") => (one.value != other.value).then_some("a run is a success or an error"),
        _ => None,
    }
}

fn needs_a_question(written: &Written<'_>) -> bool {
    match written.key.text.as_str() {
        "question_asked" | "question_options" => true,
        "gate_answer_count_min" => written.value != 0,
        "gate_answers_delivered" => written.value == false,
        "tool_called" => written.value == "AskUserQuestion",
        _ => false,
    }
}
