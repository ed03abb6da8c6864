//! The message in a response, streamed or not.

use belljar_contract::{ServedBlock, ServedMessage, input_forms, text_digest};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// How many characters are kept of a text that is cut off.
const OPEN_TEXT: usize = 256 << 10;

/// A block, assembled from its pieces.
#[derive(Default)]
struct Raw {
    block: Value,
    text: String,
    is_complete: bool,
}

/// The message in a response's body, which may be incomplete.
pub(super) fn read(body: &[u8], redact: &dyn Fn(&mut Value)) -> Option<ServedMessage> {
    if let Ok(Value::Object(document)) = serde_json::from_slice::<Value>(body) {
        return whole(&document, redact);
    }
    let text = String::from_utf8_lossy(body);
    let mut message: Option<ServedMessage> = None;
    let mut blocks: BTreeMap<u64, Raw> = BTreeMap::new();
    for data in text.split("\n\n").filter_map(data) {
        let index = data["index"].as_u64().unwrap_or(0);
        match data["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let id = data["message"]["id"].as_str()?.to_owned();
                message = Some(ServedMessage { id, ..ServedMessage::default() });
            }
            "content_block_start" => {
                blocks.insert(index, Raw { block: data["content_block"].clone(), ..Raw::default() });
            }
            "content_block_delta" => {
                let piece = ["text", "partial_json", "thinking"]
                    .iter()
                    .find_map(|field| data["delta"][*field].as_str());
                if let (Some(raw), Some(piece)) = (blocks.get_mut(&index), piece) {
                    raw.text.push_str(piece);
                }
            }
            "content_block_stop" => {
                if let Some(raw) = blocks.get_mut(&index) {
                    raw.is_complete = true;
                }
            }
            "message_delta" => {
                if let Some(message) = &mut message {
                    message.stop = data["delta"]["stop_reason"].as_str().map(str::to_owned);
                }
            }
            _ => {}
        }
    }
    let mut message = message?;
    message.blocks = blocks.into_values().map(|raw| served(raw, redact)).collect();
    clean(&mut message.id, redact);
    Some(message)
}

fn data(event: &str) -> Option<Value> {
    let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
    serde_json::from_str(&lines.map(str::trim_start).collect::<Vec<_>>().join("\n")).ok()
}

fn whole(document: &Map<String, Value>, redact: &dyn Fn(&mut Value)) -> Option<ServedMessage> {
    let mut id = document.get("id")?.as_str()?.to_owned();
    clean(&mut id, redact);
    let blocks = document.get("content")?.as_array()?.iter();
    let raw = |block: &Value| {
        let text = block["text"].as_str().or(block["thinking"].as_str()).unwrap_or_default().to_owned();
        Raw { block: block.clone(), text, is_complete: true }
    };
    Some(ServedMessage {
        id,
        stop: document.get("stop_reason").and_then(Value::as_str).map(str::to_owned),
        blocks: blocks.map(|block| served(raw(block), redact)).collect(),
    })
}

fn served(raw: Raw, redact: &dyn Fn(&mut Value)) -> ServedBlock {
    let Raw { block, mut text, is_complete } = raw;
    let kind = block["type"].as_str().unwrap_or_default();
    match kind {
        "text" => {
            if text.is_empty() {
                text = block["text"].as_str().unwrap_or_default().to_owned();
            }
            clean(&mut text, redact);
            let open = (!is_complete).then(|| text.chars().take(OPEN_TEXT).collect());
            ServedBlock::Text { text: text_digest(&text), open }
        }
        "thinking" => {
            clean(&mut text, redact);
            ServedBlock::Thinking { text: text_digest(&text) }
        }
        "tool_use" if is_complete => tool_use(&block, &text, redact),
        other => ServedBlock::Other { kind: other.chars().take(64).collect() },
    }
}

fn tool_use(block: &Value, pieces: &str, redact: &dyn Fn(&mut Value)) -> ServedBlock {
    let input = match pieces {
        "" => Some(block["input"].clone()),
        pieces => serde_json::from_str(pieces).ok(),
    };
    let word = |name: &str| {
        let mut text = block[name].as_str().unwrap_or_default().to_owned();
        clean(&mut text, redact);
        text
    };
    let (Some(Value::Object(input)), call) = (input, word("id")) else {
        return ServedBlock::Other { kind: "tool_use without an input".to_owned() };
    };
    let mut input = Value::Object(input);
    redact(&mut input);
    let tool = word("name");
    let input = input.as_object().map(|input| input_forms(&tool, input)).unwrap_or_default();
    ServedBlock::ToolUse { call, tool, input }
}

fn clean(text: &mut String, redact: &dyn Fn(&mut Value)) {
    let mut value = Value::String(std::mem::take(text));
    redact(&mut value);
    *text = if let Value::String(text) = value { text } else { value.to_string() };
}
