//! The items of a request's messages.

use super::MOST_ITEMS;
use crate::script::Skimmed;
use belljar_contract::{ModelItem, input_digests, text_digest};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// Removes the reminders that the agent adds to a text; `None` if there are none.
pub(super) type Bare = fn(&str) -> Option<String>;

/// The items of a body, at most a few more than [`MOST_ITEMS`]; none if it is not a messages request.
pub(super) fn items(body: &[u8], redact: &dyn Fn(&mut Value), bare: Bare) -> Vec<ModelItem> {
    let mut out = Vec::new();
    for message in messages(body).map(|(messages, _)| messages).unwrap_or_default() {
        if out.len() > MOST_ITEMS {
            break;
        }
        out.extend(message_items(message, redact, bare));
    }
    out
}

/// The messages of a body, and how many lists of them it has; `None` if it is not a messages request.
pub(super) fn messages(body: &[u8]) -> Option<(Vec<Value>, usize)> {
    match serde_json::from_slice(body) {
        Ok(RequestMessages { messages: Some(Value::Array(messages)), lists }) => Some((messages, lists)),
        Ok(RequestMessages { .. }) | Err(_) => None,
    }
}

/// The items of a message, at most a few more than [`MOST_ITEMS`].
pub(super) fn message_items(mut message: Value, redact: &dyn Fn(&mut Value), bare: Bare) -> Vec<ModelItem> {
    let role = message["role"].as_str().unwrap_or_default().to_owned();
    if role != "user" && role != "assistant" {
        return Vec::new();
    }
    redact(&mut message["content"]);
    match message["content"].take() {
        Value::String(text) => text_item(&role, &text).into_iter().collect(),
        Value::Array(blocks) => {
            let items = blocks.iter().filter_map(|block| item(&role, block, bare));
            items.take(MOST_ITEMS + 1).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn text_item(role: &str, text: &str) -> Option<ModelItem> {
    let text = text_digest(text);
    Some(if role == "assistant" { ModelItem::Said { text } } else { ModelItem::Text { text } })
}

fn item(role: &str, block: &Value, bare: Bare) -> Option<ModelItem> {
    match (role, block["type"].as_str()?) {
        (_, "text") => text_item(role, block["text"].as_str()?),
        ("assistant", "tool_use") => {
            let empty = Map::new();
            let input = block["input"].as_object().unwrap_or(&empty);
            Some(ModelItem::Called { call: block["id"].as_str()?.to_owned(), input: input_digests(input) })
        }
        ("user", "tool_result") => {
            let text = result_text(&block["content"]);
            Some(ModelItem::Returned {
                call: block["tool_use_id"].as_str()?.to_owned(),
                bare: bare(&text).map(|text| text_digest(&text)),
                text: text_digest(&text),
                is_error: block["is_error"] == true,
            })
        }
        _ => None,
    }
}

/// The text of a tool result, which is a text or a list of blocks. Frames are read in the same way.
fn result_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            items.iter().filter_map(|item| item["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

/// The messages of a body. The rest, mostly definitions of tools, must be JSON and is skipped.
struct RequestMessages {
    /// The last list of this name, which is the one that counts.
    messages: Option<Value>,
    lists: usize,
}

impl<'de> Deserialize<'de> for RequestMessages {
    fn deserialize<D: Deserializer<'de>>(body: D) -> Result<Self, D::Error> {
        struct MessagesVisitor;
        impl<'de> Visitor<'de> for MessagesVisitor {
            type Value = RequestMessages;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RequestMessages, A::Error> {
                let (mut messages, mut lists) = (None, 0);
                while let Some(name) = members.next_key::<Cow<'_, str>>()? {
                    match name.as_ref() {
                        "messages" => {
                            lists += 1;
                            messages = Some(members.next_value()?);
                        }
                        _ => {
                            members.next_value::<Skimmed>()?;
                        }
                    }
                }
                Ok(RequestMessages { messages, lists })
            }
        }
        body.deserialize_map(MessagesVisitor)
    }
}
