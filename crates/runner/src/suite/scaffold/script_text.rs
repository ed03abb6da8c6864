//! Scripts as people read and edit them.

use belljar_egress::script::{RequestConditions, Script, ScriptReply, Sender, Turn};
use serde_json::Value;

/// What fits is on one line.
const WIDTH: usize = 110;

/// A script's text.
pub(crate) fn script_text(script: &Script) -> String {
    let mut out = String::new();
    layout(&serde_json::to_value(script).unwrap_or_default(), 0, &mut out);
    out.push('\n');
    out
}

/// The text of a first script: one call of a tool, then a sentence. Its remarks say what to edit.
pub(crate) fn first_script_text(tool: &str, input: Value) -> String {
    let main = || RequestConditions::any().sender(Sender::Main);
    let call = Turn::reply(ScriptReply::new().tool_use(tool, input)).when(main()).note(
        "The model calls a tool. The agent runs it in the sandbox and sends its result with the next request.",
    );
    let end = Turn::text("Done.").when(main()).note("The model has ended. Add turns above this one.");
    let script = Script::new().note(
        "What the model answers, in order; docs/reference/script.md has every key, and `belljar check FILE` reports \
         every fault. A note is not played.",
    );
    script_text(&script.turn(call).turn(end))
}

/// JSON with the members of what does not fit on a line on lines of their own.
fn layout(value: &Value, depth: usize, out: &mut String) {
    let line = one_line(value);
    let used = out.len() - out.rfind('\n').map_or(0, |at| at + 1);
    let parts: Vec<(Option<&String>, &Value)> = match value {
        Value::Array(items) if depth == 1 || used + line.chars().count() > WIDTH => {
            items.iter().map(|item| (None, item)).collect()
        }
        Value::Object(members) if depth == 0 || used + line.chars().count() > WIDTH => {
            members.iter().map(|(name, item)| (Some(name), item)).collect()
        }
        Value::Array(_)
        | Value::Object(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_) => Vec::new(),
    };
    if parts.is_empty() {
        return out.push_str(&line);
    }
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    out.push(open);
    for (at, (name, item)) in parts.iter().enumerate() {
        out.push_str(if at == 0 { "\n" } else { ",\n" });
        out.push_str(&"  ".repeat(depth + 1));
        if let Some(name) = name {
            out.push_str(&format!("{}: ", Value::from(name.as_str())));
        }
        layout(item, depth + 1, out);
    }
    out.push_str(&format!("\n{}{close}", "  ".repeat(depth)));
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(one_line).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let member = |(name, item): (&String, &Value)| {
                format!("{}: {}", Value::from(name.as_str()), one_line(item))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_first_script_says_what_to_edit_and_can_be_played() {
        let text = first_script_text("Skill", json!({"skill": "hello"}));
        assert_eq!(Script::parse(text.as_bytes()).unwrap().turns.len(), 2, "{text}");
        assert!(text.contains(r#""answer": {"reply": {"content": [{"text": "Done."}]}}"#), "{text}");
    }

    #[test]
    fn fuzz_a_layout_is_the_same_data() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let value = serde_json::from_slice(bytes)
                .unwrap_or_else(|_| json!({"a": [text, {text.clone(): []}], "b": {}, "c": [[], 1.5, null]}));
            let mut out = String::new();
            layout(&value, 0, &mut out);
            assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), value, "{out}");
        });
    }
}
