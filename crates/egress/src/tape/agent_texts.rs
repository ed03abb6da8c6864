//! The agent's own texts: its prompts, the definitions of its tools, and its reminders. They belong to the agent's maker,
//! so that a tape only has their digests. Equal texts have equal digests.

use belljar_contract::{Digest, canonical_json};
use serde_json::{Value, json};

const MARK: &str = "<agent's words: sha256:";
pub(super) const OPEN: &str = "<system-reminder>";
const CLOSE: &str = "</system-reminder>";
/// Tools of MCP servers that the user declared. Their definitions belong to the user.
const SERVER_TOOL: &str = "mcp__";

/// Replaces the agent's own texts in a body by digests.
pub(super) fn without(mut value: Value) -> Value {
    if let Some(system) = value.get_mut("system") {
        digest_texts(system);
    }
    for tool in value.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        digest_tool(tool);
    }
    for message in value.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
        match message.get("role").and_then(Value::as_str) {
            Some("system") => message.get_mut("content").into_iter().for_each(digest_texts),
            _ => message.get_mut("content").into_iter().for_each(digest_reminders),
        }
    }
    value
}

/// Whether a text contains such a digest.
pub(super) fn has_mark(text: &str) -> bool {
    text.contains(MARK)
}

/// A text without such digests; `None` if it has none.
pub(super) fn without_marks(text: &str) -> Option<String> {
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some((before, after)) = rest.split_once(MARK) {
        let Some((_, behind)) = after.split_once('>') else { break };
        found = true;
        out.push_str(before);
        rest = behind;
    }
    out.push_str(rest);
    found.then_some(out)
}

/// The digests in the texts of a document, each with the length of what it replaces.
pub(super) fn marks(value: &Value) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    collect_marks(value, &mut found);
    found
}

/// The length of the texts that the digests in a document replace.
pub(super) fn marked_length(value: &Value) -> usize {
    marks(value).iter().map(|(_, length)| length).sum()
}

fn collect_marks(value: &Value, found: &mut Vec<(String, usize)>) {
    match value {
        Value::String(text) => {
            for after in text.split(MARK).skip(1) {
                let Some((digest, length)) = after.split_once('>').and_then(|(mark, _)| mark.split_once(' '))
                else {
                    continue;
                };
                found.push((digest.to_owned(), length.parse().unwrap_or(0)));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_marks(item, found)),
        Value::Object(members) => members.values().for_each(|item| collect_marks(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mark(text: &str) -> String {
    format!("{MARK}{} {}>", Digest::of(text.as_bytes()).hex(), text.chars().count())
}

/// A text, or blocks with one text each.
fn digest_texts(content: &mut Value) {
    match content {
        Value::String(text) => *text = mark(text),
        Value::Array(blocks) => {
            for text in blocks.iter_mut().filter_map(|block| block.get_mut("text")) {
                digest_texts(text);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
}

fn digest_tool(tool: &mut Value) {
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.starts_with(SERVER_TOOL) {
        return;
    }
    if let Some(members) = tool.as_object_mut() {
        members.shift_remove("name");
    }
    *tool = json!({"name": name, "definition": mark(&canonical_json(tool))});
}

/// Replaces reminders by digests; the texts around them stay.
fn digest_reminders(content: &mut Value) {
    match content {
        Value::String(text) => {
            if let Some(fresh) = outside_of_reminders(text) {
                *text = fresh;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(digest_reminders),
        Value::Object(members) => members.values_mut().for_each(digest_reminders),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text with digests in place of its reminders; `None` if it has none.
pub(super) fn outside_of_reminders(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(OPEN) {
        let (before, reminder) = rest.split_at(at);
        let end = reminder.find(CLOSE).map_or(reminder.len(), |end| end + CLOSE.len());
        out.push_str(before);
        out.push_str(&mark(&reminder[..end]));
        rest = &reminder[end..];
    }
    (rest.len() < text.len()).then(|| out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(system: &str, description: &str, reminder: &str) -> Value {
        json!({
            "system": [{"type": "text", "text": system}],
            "tools": [
                {"name": "Bash", "description": description, "input_schema": {"type": "object"}},
                {"name": "mcp__notes__add", "description": "Adds a note"},
            ],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": format!("<system-reminder>{reminder}</system-reminder>\n")},
                    {"type": "text", "text": "Say hello"}]},
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                    "content": [{"type": "text", "text": format!("out<system-reminder>{reminder}")}]}]},
            ],
        })
    }

    #[test]
    fn digests_replace_the_agents_own_texts() {
        let taken = without(body("You are an agent", "Runs commands", "mind the date"));
        let text = taken.to_string();
        for word in ["You are", "Runs commands", "mind the date", "be brief", "input_schema"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
        for word in ["Say hello", "\"Bash\"", "Adds a note", "out<agent's words: sha256:"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(has_mark(taken["system"][0]["text"].as_str().unwrap()));
        assert!(has_mark(taken["tools"][0]["definition"].as_str().unwrap()));
        assert!(without(json!({"system": "You are"})).to_string().contains("words: sha256:"));
    }

    #[test]
    fn different_texts_have_different_digests() {
        let one = || without(body("a", "b", "c"));
        assert_eq!(one(), one());
        for other in [body("x", "b", "c"), body("a", "x", "c"), body("a", "b", "x")] {
            assert_ne!(without(other), one());
        }
    }
}
