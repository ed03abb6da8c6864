//! Turns from recorded answers: what a model said, as a person can read and edit it.
//!
//! What the format has no word for is left out, and named.

use serde_json::{Value, json};

use super::check::header_problem;
use super::format::{ErrorReply, ScriptBlock, ScriptReply, ScriptUsage, StopReason};
use super::request::last_message_text;

/// Headers that say nothing of an error; the scripted model sends its own.
const OF_EVERY_ANSWER: [&str; 3] = ["cache-control", "content-type", "request-id"];

/// A part of a turn, and what the format could not express of the recorded one.
#[derive(Debug, Clone, PartialEq)]
pub struct FromRecorded<T> {
    pub part: T,
    /// What was left out, each a sentence without its subject's place.
    pub lost: Vec<String>,
}

/// The text that [`super::RequestConditions::last_message_contains`] looks at.
#[must_use]
pub fn last_message(request: &Value) -> String {
    request["messages"].as_array().map(|messages| last_message_text(messages)).unwrap_or_default()
}

impl ScriptReply {
    /// The reply of a message as the API sends it. `asked_for` is the requested model. Ids are made anew.
    #[must_use]
    pub fn recorded(message: &Value, asked_for: &str) -> FromRecorded<Self> {
        let mut lost = Vec::new();
        let mut reply = Self::new();
        for block in message["content"].as_array().into_iter().flatten() {
            reply.content.extend(recorded_block(block, &mut lost));
        }
        if reply.content.is_empty() {
            lost.push("the message is empty; the script has an empty text in its place".to_owned());
            reply = reply.text("");
        }
        let stop = &message["stop_reason"];
        match serde_json::from_value::<Option<StopReason>>(stop.clone()) {
            Ok(Some(reason)) if reason == reply.effective_stop_reason() => {}
            Ok(Some(reason)) => reply = reply.stop_reason(reason),
            Ok(None) | Err(_) => lost.push(format!("the reason to stop {stop} is not one of a script")),
        }
        if message["stop_sequence"].is_string() {
            lost.push("the stop sequence was left out".to_owned());
        }
        reply.usage = recorded_usage(&message["usage"], &mut lost);
        reply.model = message["model"].as_str().filter(|model| *model != asked_for).map(str::to_owned);
        FromRecorded { part: reply, lost }
    }
}

fn recorded_block(block: &Value, lost: &mut Vec<String>) -> Option<ScriptBlock> {
    let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    match text("type").as_str() {
        "text" => Some(ScriptBlock::Text(text("text"))),
        "thinking" => Some(ScriptBlock::Thinking { text: text("thinking"), signature: text("signature") }),
        "tool_use" if !text("name").is_empty() => {
            let input = &block["input"];
            if !input.is_object() {
                lost.push(format!("the arguments of `{}` are no table: {input}", text("name")));
            }
            let input = if input.is_object() { input.clone() } else { json!({}) };
            Some(ScriptBlock::ToolUse { name: text("name"), input, id: None })
        }
        kind => {
            lost.push(format!("a block of the type `{kind}` was left out"));
            None
        }
    }
}

fn recorded_usage(usage: &Value, lost: &mut Vec<String>) -> ScriptUsage {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    if !usage["input_tokens"].is_u64() || !usage["output_tokens"].is_u64() {
        lost.push("the count of tokens is not on the tape; the script reports 0".to_owned());
    }
    if usage["cache_creation"]["ephemeral_1h_input_tokens"].as_u64().is_some_and(|tokens| tokens > 0) {
        lost.push("that tokens are cached for an hour was left out, so the cost is another".to_owned());
    }
    ScriptUsage {
        input_tokens: count("input_tokens"),
        output_tokens: count("output_tokens"),
        cache_creation_input_tokens: count("cache_creation_input_tokens"),
        cache_read_input_tokens: count("cache_read_input_tokens"),
    }
}

impl ErrorReply {
    /// An error from what was recorded of one. `body` is its document, if it is one.
    #[must_use]
    pub fn recorded(status: u16, headers: &[(String, String)], body: Option<&Value>) -> FromRecorded<Self> {
        let mut lost = Vec::new();
        let error = body.map_or(&Value::Null, |body| &body["error"]);
        let sent = if (400..600).contains(&status) { status } else { 500 };
        if sent != status {
            lost.push(format!("a script has no answer of the status {status}; it has {sent}"));
        }
        if !error.is_object() {
            lost.push("the error is not in the form of the API; its text was left out".to_owned());
        }
        let mut out = Self::new(sent, error["message"].as_str().unwrap_or_default());
        out.kind = error["type"].as_str().filter(|kind| *kind != out.effective_kind()).map(str::to_owned);
        for (name, value) in headers.iter().filter(|(name, _)| !OF_EVERY_ANSWER.contains(&name.as_str())) {
            match header_problem(name, value) {
                None => drop(out.headers.insert(name.clone(), value.clone())),
                Some(problem) => lost.push(format!("the header `{name}` was left out: {problem}")),
            }
        }
        FromRecorded { part: out, lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Script, Turn};

    #[test]
    fn what_a_script_can_express_is_kept_and_the_rest_is_named() {
        let message = json!({
            "model": "m-2", "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2},
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "one"},
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
            ],
        });
        let FromRecorded { part, lost } = ScriptReply::recorded(&message, "m-1");
        assert_eq!(lost, [""; 0]);
        assert_eq!((part.stop_reason, part.model.as_deref()), (None, Some("m-2")));
        assert_eq!(
            serde_json::to_value(&part).unwrap()["content"],
            json!([
                {"thinking": {"text": "hm", "signature": "c2ln"}},
                {"text": "one"},
                {"tool_use": {"name": "Bash", "input": {"command": "ls"}}},
            ])
        );
        let odd = json!({"stop_reason": "new_reason", "content": [{"type": "server_tool_use"}]});
        let FromRecorded { part, lost } = ScriptReply::recorded(&odd, "m");
        assert_eq!(lost.len(), 4, "{lost:?}");
        assert_eq!(part.content, [ScriptBlock::Text(String::new())]);
        let headers =
            [("retry-after".to_owned(), "1".to_owned()), ("content-type".to_owned(), "x".to_owned())];
        let body = json!({"error": {"type": "overloaded_error", "message": "later"}});
        let FromRecorded { part, lost } = ErrorReply::recorded(529, &headers, Some(&body));
        assert_eq!((part, lost), (ErrorReply::new(529, "later").retry_after(1), Vec::new()));
        assert_eq!(ErrorReply::recorded(302, &[], None).lost.len(), 2);
    }

    #[test]
    fn fuzz_whatever_was_recorded_becomes_a_script_that_can_be_played() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let message: Value = serde_json::from_slice(bytes)
                .unwrap_or_else(|_| json!({"content": [{"type": String::from_utf8_lossy(bytes)}]}));
            let reply = ScriptReply::recorded(&message, "").part;
            let status = bytes.first().map_or(0, |byte| u16::from(*byte) * 3);
            let name = String::from_utf8_lossy(bytes).into_owned();
            let error = ErrorReply::recorded(status, &[(name.clone(), name)], Some(&message)).part;
            let script = Script::new().turn(Turn::reply(reply)).turn(Turn::error(error));
            assert_eq!(script.check(), Ok(()));
            let text = serde_json::to_vec(&script).unwrap();
            assert_eq!(Script::parse(&text).unwrap(), script);
        });
    }
}
