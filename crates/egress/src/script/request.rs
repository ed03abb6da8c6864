//! Parses the parts of a request that decide about its response.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::document::Skimmed;
use super::matching::{Sender, Tools};

/// The parts of a `/v1/messages` request that decide about its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessagesRequest {
    pub model: String,
    pub last_message: String,
    pub tools: Tools,
    pub sender: Sender,
    pub delivery: Delivery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    Stream,
    Whole,
}

/// Why a body is not a messages request; the client sees the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotMessages {
    #[error("the request body must be a JSON object")]
    NotAnObject,
    #[error("messages: a list with at least one message is required")]
    NoMessages,
}

impl MessagesRequest {
    /// Parses a JSON document. It is lenient about everything that does not matter here: scripts do not test the validity of
    /// the agent's requests.
    pub fn read(body: &str, sender: Sender) -> Result<Self, NotMessages> {
        let Ok(RequestMembers { messages, tools, stream, model }) = serde_json::from_str(body) else {
            return Err(NotMessages::NotAnObject);
        };
        let messages = messages.as_array().filter(|messages| !messages.is_empty());
        Ok(Self {
            model: model.as_str().unwrap_or("scripted-model").to_owned(),
            last_message: last_message_text(messages.ok_or(NotMessages::NoMessages)?),
            tools: if tools.items > 0 { Tools::Present } else { Tools::Absent },
            sender,
            delivery: if stream.as_bool() == Some(true) { Delivery::Stream } else { Delivery::Whole },
        })
    }
}

/// The members of a body that matter. All others, most of an agent's request, are skipped. The parser is written by hand
/// because it differs from a derived one: the last of two members with the same name counts, and an array is rejected.
#[derive(Default)]
struct RequestMembers {
    messages: Value,
    tools: Skimmed,
    stream: Value,
    model: Value,
}

impl<'de> Deserialize<'de> for RequestMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for RequestMembers {
    type Value = Self;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Self, A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "messages" => self.messages = members.next_value()?,
                "tools" => self.tools = members.next_value()?,
                "stream" => self.stream = members.next_value()?,
                "model" => self.model = members.next_value()?,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(self)
    }
}

/// Text of the last message of the user or the model. The agent appends notes with the role `system`, which do not show
/// where the conversation is.
pub(super) fn last_message_text(messages: &[Value]) -> String {
    let is_note = |message: &&Value| message.get("role").and_then(Value::as_str) == Some("system");
    let last = messages.iter().rev().find(|message| !is_note(message));
    last.and_then(|message| message.get("content")).map(content_text).unwrap_or_default()
}

/// All text in a message's content, one line per block. A tool result contains content itself; the JSON parser limits the
/// depth.
pub(super) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(block_text).collect::<Vec<_>>().join("\n"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn block_text(block: &Value) -> String {
    let field = |name: &str| block.get(name);
    match field("type").and_then(Value::as_str) {
        Some("text") => field("text").and_then(Value::as_str).unwrap_or_default().to_owned(),
        Some("tool_result") => field("content").map(content_text).unwrap_or_default(),
        Some(_) | None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_of_two_members_counts_and_an_array_is_rejected() {
        let body = r#"{"model": "a", "messages": [{"role": "user", "content": "x"}], "model": "b"}"#;
        assert_eq!(MessagesRequest::read(body, Sender::Main).map(|read| read.model), Ok("b".to_owned()));
        for other in ["[]", r#"[[{"role": "user", "content": "x"}], [], true, "a"]"#, "null", "\"messages\""]
        {
            assert_eq!(MessagesRequest::read(other, Sender::Main), Err(NotMessages::NotAnObject), "{other}");
        }
        assert_eq!(MessagesRequest::read("{}", Sender::Main), Err(NotMessages::NoMessages));
    }

    #[test]
    fn the_last_message_is_the_last_one_that_is_not_a_system_note() {
        let messages = [
            json!({"role": "user", "content": "first"}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "content": [{"type": "text", "text": "out"}]},
                {"type": "tool_result", "content": "err"},
                {"type": "image", "source": {}},
                {"type": "text", "text": "more"},
            ]}),
            json!({"role": "system", "content": "note"}),
        ];
        assert_eq!(last_message_text(&messages), "out\nerr\n\nmore");
        assert_eq!(last_message_text(&[json!({"role": "system", "content": "note"})]), "");
        assert_eq!(last_message_text(&[json!(7)]), "");
    }

    #[test]
    fn a_body_is_read_leniently_but_not_without_messages() {
        let read = |body: Value| MessagesRequest::read(&body.to_string(), Sender::Main);
        assert_eq!(read(json!([])), Err(NotMessages::NotAnObject));
        assert_eq!(read(json!({})), Err(NotMessages::NoMessages));
        assert_eq!(read(json!({"messages": []})), Err(NotMessages::NoMessages));
        let odd = read(json!({"messages": [null], "tools": 3, "stream": "yes", "model": 1})).unwrap();
        assert_eq!(odd.tools, Tools::Absent);
        assert_eq!(odd.delivery, Delivery::Whole);
        assert_eq!(odd.model, "scripted-model");
    }
}
