//! Changes texts in responses. Texts that are split over the events of a stream are changed as a whole.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Changes a text; `None` if nothing changes.
pub(super) type Change<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A changed body and the new lengths of its pieces.
pub(super) struct Changed {
    pub body: Vec<u8>,
    pub chunks: Vec<(u64, u64)>,
}

/// Changes the body of a response. `chunks` are the times and lengths of its pieces.
pub(super) fn change(body: &[u8], chunks: &[(u64, u64)], by: Change<'_>) -> Option<Changed> {
    let text = std::str::from_utf8(body).ok()?;
    let mut events: Vec<String> = text.split_inclusive("\n\n").map(str::to_owned).collect();
    let ends: Vec<u64> = events
        .iter()
        .scan(0_u64, |end, event| {
            *end += event.len() as u64;
            Some(*end)
        })
        .collect();
    let mut changed = change_deltas(&mut events, by);
    for event in &mut events {
        if let Some(fresh) = by(event) {
            *event = fresh;
            changed = true;
        }
    }
    if !changed {
        return None;
    }
    let at = |end: u64| {
        let mut sum = 0;
        let within = chunks.iter().find(|(_, length)| {
            sum += length;
            sum >= end
        });
        within.or(chunks.last()).map_or(0, |(ms, _)| *ms)
    };
    let chunks = events.iter().zip(ends).map(|(event, end)| (at(end), event.len() as u64)).collect();
    Some(Changed { body: events.concat().into_bytes(), chunks })
}

/// Joins texts that are split over events, changes them, and splits them at the same places. If the length changes, the
/// first piece gets everything.
fn change_deltas(events: &mut [String], by: Change<'_>) -> bool {
    let mut blocks: BTreeMap<(u64, &'static str), Vec<(usize, String)>> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        let Some((index, field, text)) = data(event).as_ref().and_then(delta) else { continue };
        blocks.entry((index, field)).or_default().push((at, text));
    }
    let mut any = false;
    for ((_, field), pieces) in blocks {
        let whole: String = pieces.iter().map(|(_, text)| text.as_str()).collect();
        let Some(fresh) = by(&whole).filter(|_| pieces.len() > 1) else { continue };
        any = true;
        let mut rest = fresh.as_str();
        let fits = fresh.len() == whole.len();
        for (number, (at, old)) in pieces.iter().enumerate() {
            let cut = match (fits, number) {
                (true, _) if rest.is_char_boundary(old.len().min(rest.len())) => old.len().min(rest.len()),
                (_, 0) => rest.len(),
                _ => 0,
            };
            let (piece, after) = rest.split_at(cut);
            rest = after;
            set_delta(&mut events[*at], field, piece);
        }
    }
    any
}

fn data(event: &str) -> Option<Value> {
    let line = event.lines().find_map(|line| line.strip_prefix("data:"))?;
    serde_json::from_str(line.trim()).ok()
}

fn delta(data: &Value) -> Option<(u64, &'static str, String)> {
    if data.get("type")?.as_str()? != "content_block_delta" {
        return None;
    }
    let (index, delta) = (data.get("index")?.as_u64()?, data.get("delta")?);
    ["text", "partial_json", "thinking"]
        .into_iter()
        .find_map(|field| Some((index, field, delta.get(field)?.as_str()?.to_owned())))
}

fn set_delta(event: &mut String, field: &str, text: &str) {
    let Some(mut data) = data(event) else { return };
    data["delta"][field] = Value::from(text);
    let lines = event.lines().map(|line| match line.starts_with("data:") {
        true => format!("data: {data}\n"),
        false => format!("{line}\n"),
    });
    *event = lines.collect();
}

/// Converts a complete stream to a document, for a client that repeats the request without streaming.
pub(super) fn document(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let mut message: Option<Map<String, Value>> = None;
    let mut blocks: BTreeMap<u64, Value> = BTreeMap::new();
    let mut inputs: BTreeMap<u64, String> = BTreeMap::new();
    let mut ended = false;
    for data in text.split("\n\n").filter_map(data) {
        let index = data.get("index").and_then(Value::as_u64).unwrap_or(0);
        match data.get("type").and_then(Value::as_str)? {
            "message_start" => message = Some(data.get("message")?.as_object()?.clone()),
            "content_block_start" => {
                blocks.insert(index, data.get("content_block")?.clone());
            }
            "content_block_delta" => grow(blocks.get_mut(&index)?, &data, inputs.entry(index).or_default()),
            "message_delta" => {
                let message = message.as_mut()?;
                let news = data.get("delta").and_then(Value::as_object).into_iter().flatten();
                news.for_each(|(name, value)| drop(message.insert(name.clone(), value.clone())));
                let usage = data.get("usage").and_then(Value::as_object).into_iter().flatten();
                let known = message.entry("usage").or_insert_with(|| json!({}));
                usage.for_each(|(name, value)| known[name] = value.clone());
            }
            "message_stop" => ended = true,
            _ => {}
        }
    }
    for (index, text) in inputs.into_iter().filter(|(_, text)| !text.is_empty()) {
        blocks.get_mut(&index)?["input"] = serde_json::from_str(&text).ok()?;
    }
    let mut message = message.filter(|_| ended)?;
    message.insert("content".to_owned(), blocks.into_values().collect());
    Some(Value::Object(message).to_string().into_bytes())
}

/// Converts a complete document to a stream, for a client that repeats the request with streaming.
pub(super) fn events(body: &[u8]) -> Option<Vec<u8>> {
    let Value::Object(mut message) = serde_json::from_slice(body).ok()? else { return None };
    if message.get("type").and_then(Value::as_str) != Some("message") {
        return None;
    }
    let Some(Value::Array(blocks)) = message.insert("content".to_owned(), json!([])) else { return None };
    let reason = message.insert("stop_reason".to_owned(), Value::Null).unwrap_or_default();
    let sequence = message.insert("stop_sequence".to_owned(), Value::Null).unwrap_or_default();
    let usage = message.get("usage").cloned().unwrap_or_else(|| json!({}));
    let mut text = event(&json!({"type": "message_start", "message": message}));
    for (index, block) in blocks.into_iter().enumerate() {
        text.push_str(&block_events(index, block));
    }
    let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
    text.push_str(&event(&json!({"type": "message_delta", "delta": delta, "usage": usage})));
    text.push_str(&event(&json!({"type": "message_stop"})));
    Some(text.into_bytes())
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

fn block_events(index: usize, mut block: Value) -> String {
    let mut deltas = Vec::new();
    for (field, kind) in
        [("text", "text_delta"), ("thinking", "thinking_delta"), ("signature", "signature_delta")]
    {
        if let Some(value) = block.get_mut(field).filter(|value| value.is_string()) {
            let value = std::mem::replace(value, json!(""));
            deltas.push(json!({"type": kind, field: value}));
        }
    }
    if let Some(input) = block.get_mut("input") {
        let input = std::mem::replace(input, json!({}));
        deltas.push(json!({"type": "input_json_delta", "partial_json": input.to_string()}));
    }
    let start = json!({"type": "content_block_start", "index": index, "content_block": block});
    let deltas = deltas
        .into_iter()
        .map(|delta| event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
    let stop = event(&json!({"type": "content_block_stop", "index": index}));
    event(&start) + &deltas.collect::<String>() + &stop
}

fn grow(block: &mut Value, data: &Value, input: &mut String) {
    let Some(delta) = data.get("delta") else { return };
    for field in ["text", "thinking", "signature"] {
        if let Some(more) = delta.get(field).and_then(Value::as_str) {
            let so_far = block.get(field).and_then(Value::as_str).unwrap_or_default();
            block[field] = Value::from(format!("{so_far}{more}"));
        }
    }
    if let Some(more) = delta.get("partial_json").and_then(Value::as_str) {
        input.push_str(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pieces: &[&str]) -> String {
        let event = |data: Value| format!("event: x\ndata: {data}\n\n");
        let mut text =
            event(json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}}));
        text += &event(json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}}));
        for piece in pieces {
            text += &event(json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece}}));
        }
        text += &event(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 2}}));
        text + &event(json!({"type": "message_stop"}))
    }

    #[test]
    fn a_text_is_changed_across_its_pieces() {
        let text = stream(&["{\"command\":\"cat aaa", "bbb\"}"]);
        let by = |text: &str| text.contains("aaabbb").then(|| text.replace("aaabbb", "cccddd"));
        let length = text.len() as u64;
        let changed = change(text.as_bytes(), &[(5, length)], &by).unwrap();
        assert_eq!(changed.body, stream(&["{\"command\":\"cat ccc", "ddd\"}"]).into_bytes());
        assert_eq!(changed.chunks.iter().map(|(_, length)| length).sum::<u64>(), changed.body.len() as u64);
        assert!(changed.chunks.iter().all(|(ms, _)| *ms == 5));
        let longer = |text: &str| text.contains("aaabbb").then(|| text.replace("aaabbb", "[redacted:KEY]"));
        let changed = change(text.as_bytes(), &[(5, length)], &longer).unwrap();
        assert_eq!(changed.body, stream(&["{\"command\":\"cat [redacted:KEY]\"}", ""]).into_bytes());
        assert!(change(text.as_bytes(), &[], &|_| None).is_none());
    }

    #[test]
    fn a_whole_stream_is_a_document() {
        let whole = document(stream(&["{\"a\"", ":1}"]).as_bytes()).unwrap();
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(
            whole["content"],
            json!([{"type": "tool_use", "id": "t", "name": "Bash", "input": {"a": 1}}])
        );
        assert_eq!(whole["usage"], json!({"input_tokens": 1, "output_tokens": 2}));
        assert_eq!(whole["stop_reason"], "tool_use");
        let again = document(&events(&serde_json::to_vec(&json!({
            "type": "message", "id": "m", "usage": {"output_tokens": 2}, "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "hi"}, {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "Bash", "input": {"a": [1]}}],
        })).unwrap()).unwrap());
        let again: Value = serde_json::from_slice(&again.unwrap()).unwrap();
        assert_eq!(again["content"][2]["input"], json!({"a": [1]}));
        assert_eq!(
            (&again["content"][0]["text"], &again["content"][1]["signature"]),
            (&json!("hi"), &json!("s"))
        );
        assert_eq!(again["stop_reason"], "end_turn");
        assert!(events(b"{\"type\": \"error\"}").is_none());
        let text = stream(&[]);
        let cut = text.split_once("event: x\ndata: {\"type\":\"message_stop").unwrap().0;
        assert!(document(cut.as_bytes()).is_none());
    }
}
