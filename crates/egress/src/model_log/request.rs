//! The items of a request's messages.

use super::MOST_ITEMS;
use crate::script::Skimmed;
use belljar_contract::{ModelItem, input_digests, text_digest};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// A text without the reminders that the agent adds to it; none where it has none.
pub(super) type Bare = fn(&str) -> Option<String>;

/// The items of a body, not many more than [`MOST_ITEMS`]; none where it is not a request for a message.
pub(super) fn items(body: &[u8], redact: &dyn Fn(&mut Value), bare: Bare) -> Vec<ModelItem> {
    let Ok(Body { messages: Some(Value::Array(messages)) }) = serde_json::from_slice(body) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for mut message in messages {
        if out.len() > MOST_ITEMS {
            break;
        }
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        if role != "user" && role != "assistant" {
            continue;
        }
        redact(&mut message["content"]);
        match message["content"].take() {
            Value::String(text) => out.extend(text_item(&role, &text)),
            Value::Array(blocks) => {
                let items = blocks.iter().filter_map(|block| item(&role, block, bare));
                out.extend(items.take(MOST_ITEMS + 1));
            }
            _ => {}
        }
    }
    out
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

/// A result's content is a text, or a list of blocks of which the texts count; as the frames are read.
fn result_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            items.iter().filter_map(|item| item["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// What is read of a body. The rest, mostly definitions of tools, must be JSON and is not kept.
struct Body {
    messages: Option<Value>,
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(body: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Body;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Body, A::Error> {
                let mut messages = None;
                while let Some(name) = members.next_key::<Cow<'_, str>>()? {
                    match name.as_ref() {
                        "messages" => messages = Some(members.next_value()?),
                        _ => {
                            members.next_value::<Skimmed>()?;
                        }
                    }
                }
                Ok(Body { messages })
            }
        }
        body.deserialize_map(Members)
    }
}
