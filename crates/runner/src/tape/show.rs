//! Summaries of a tape for people.

use super::Tape;
use belljar_contract::{ConversationKey, ExchangeEnd};
use belljar_egress::tape::{kept_answer, kept_request};
use serde::Serialize;
use serde_json::Value;
use std::io;

/// Characters of a text that are shown.
const SHOWN: usize = 160;

/// A summary of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExchangeView {
    pub exchange: u64,
    pub conversation: String,
    /// The time of the request, in milliseconds since the first.
    pub at_ms: u64,
    /// The last messages of the request.
    pub asked: Vec<String>,
    /// The status of the answer; `None` if the connection was closed.
    pub status: Option<u16>,
    /// Whether the answer was complete.
    pub ended: &'static str,
    /// The answer: texts and calls of tools.
    pub answered: Vec<String>,
    /// Bytes of the request on the tape.
    pub request_bytes: u64,
    pub answer_bytes: u64,
}

/// The name of a conversation for people.
#[must_use]
pub fn conversation_label(key: &ConversationKey) -> String {
    match key {
        ConversationKey::Main => "main".to_owned(),
        ConversationKey::SubAgent { number, .. } => format!("sub-agent {number}"),
    }
}

/// The exchanges of a tape in their order.
///
/// # Errors
/// If a body cannot be read.
pub fn exchange_views(tape: &Tape) -> io::Result<Vec<ExchangeView>> {
    let view = |exchange: &belljar_contract::Exchange| {
        let request = kept_request(&tape.body(exchange.request.body)?);
        let answer = exchange.answer.as_ref();
        let said = answer.map(|answer| tape.body(answer.body)).transpose()?;
        Ok(ExchangeView {
            exchange: exchange.seq,
            conversation: conversation_label(&exchange.conversation),
            at_ms: exchange.at_ms,
            asked: asked(&request),
            status: answer.map(|answer| answer.status),
            ended: match answer.map(|answer| answer.end) {
                None => "closed without an answer",
                Some(ExchangeEnd::Complete) => "complete",
                Some(ExchangeEnd::Broken) => "broken off",
                Some(ExchangeEnd::Left) => "not waited for",
            },
            answered: said.map(|said| answered(&said)).unwrap_or_default(),
            request_bytes: exchange.request.body.bytes,
            answer_bytes: answer.map_or(0, |answer| answer.body.bytes),
        })
    };
    tape.exchanges.iter().map(view).collect()
}

/// The last message that is not the agent's own note.
fn asked(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let last = messages.iter().rev().find(|message| message["role"] == "user");
    last.map(|message| blocks(&message["content"])).unwrap_or_default()
}

fn answered(body: &[u8]) -> Vec<String> {
    match kept_answer(body) {
        Some(message) if message["content"].is_array() => blocks(&message["content"]),
        Some(other) => {
            vec![short(&other["error"]["message"].as_str().map_or(other.to_string(), str::to_owned))]
        }
        None => vec![short(&String::from_utf8_lossy(body))],
    }
}

fn blocks(content: &Value) -> Vec<String> {
    if let Some(text) = content.as_str() {
        return vec![short(text)];
    }
    let line = |block: &Value| {
        let text = |name: &str| block[name].as_str().unwrap_or_default();
        match text("type") {
            // A block that consists of the agent's own texts is not informative.
            "text" if text("text").starts_with("<agent's words:") => None,
            "text" => Some(short(text("text"))),
            "thinking" => Some(format!("(thinks) {}", short(text("thinking")))),
            "tool_use" => Some(format!("{} {}", text("name"), short(&block["input"].to_string()))),
            "tool_result" => {
                let failed = if block["is_error"] == true { "failed: " } else { "" };
                Some(format!("-> {failed}{}", blocks(&block["content"]).join(" ")))
            }
            other => Some(format!("({other})")),
        }
    };
    content.as_array().into_iter().flatten().filter_map(line).collect()
}

fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_request_is_shown_in_a_line_each() {
        let request = json!({"messages": [
            {"role": "user", "content": "first"},
            {"role": "user", "content": [
                {"type": "text", "text": "<agent's words: sha256:00 3>\n"},
                {"type": "tool_result", "content": [{"type": "text", "text": "one\n two"}], "is_error": true}]},
            {"role": "system", "content": "<agent's words: sha256:00 3>"},
        ]});
        assert_eq!(asked(&request), ["-> failed: one two"]);
        let answer = json!({"content": [{"type": "text", "text": "hm"},
            {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]});
        assert_eq!(answered(answer.to_string().as_bytes()), ["hm", r#"Bash {"command":"ls"}"#]);
        assert_eq!(answered(b"data: half"), ["data: half"]);
    }
}
