//! The wire format of the Messages API: replies as server-sent events or as one JSON document, and errors.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::format::{ErrorReply, ScriptBlock, ScriptReply, ScriptUsage};

/// Context that is needed to encode a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope<'a> {
    /// Number of the request. Ids are derived from it, so that two runs of one script have the same ids.
    pub request: usize,
    /// The requested model.
    pub model: &'a str,
}

/// Id of the response, as sent in the `request-id` header and in errors.
pub(super) fn request_id(request: usize) -> String {
    format!("req_scripted_{request:04}")
}

/// The reply as one JSON document.
pub(super) fn whole(reply: &ScriptReply, envelope: Envelope<'_>) -> Bytes {
    let blocks = reply.content.iter().enumerate().map(|(index, block)| match block {
        ScriptBlock::Text(text) => json!({"type": "text", "text": text}),
        ScriptBlock::Thinking { text, signature } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        ScriptBlock::ToolUse { name, input, id } => {
            json!({"type": "tool_use", "id": tool_id(id, envelope, index), "name": name, "input": input})
        }
    });
    let mut message = message(reply, envelope, &reply.usage);
    message["content"] = blocks.collect();
    message["stop_reason"] = json!(reply.effective_stop_reason());
    bytes(&message)
}

/// The reply as server-sent events, one element per event.
///
/// The order is fixed, because a script may cut after the n-th event: `message_start`, `ping`, then for each block its
/// start, its deltas (one, unless the script splits them; a thinking block has one more for its signature) and its stop,
/// then `message_delta` and `message_stop`.
pub(super) fn events(reply: &ScriptReply, envelope: Envelope<'_>) -> Vec<Bytes> {
    // A real stream does not know its output tokens at the start either; clients use the final count.
    let at_start = ScriptUsage { output_tokens: 1, ..reply.usage };
    let start = json!({"type": "message_start", "message": message(reply, envelope, &at_start)});
    let mut events = vec![event("message_start", &start), event("ping", &json!({"type": "ping"}))];
    for (index, block) in reply.content.iter().enumerate() {
        block_events(&mut events, reply, envelope, (index, block));
    }
    let delta = json!({
        "type": "message_delta",
        "delta": {"stop_reason": reply.effective_stop_reason(), "stop_sequence": null},
        "usage": reply.usage,
    });
    events.push(event("message_delta", &delta));
    events.push(event("message_stop", &json!({"type": "message_stop"})));
    events
}

/// The error as one JSON document.
pub(super) fn error(error: &ErrorReply, request: usize) -> Bytes {
    bytes(&json!({
        "type": "error",
        "error": {"type": error.effective_kind(), "message": error.message},
        "request_id": request_id(request),
    }))
}

/// A token count for a body of this size: four bytes each, as a rule of thumb.
pub(super) fn token_count(body_bytes: usize) -> Bytes {
    bytes(&json!({"input_tokens": body_bytes.div_ceil(4)}))
}

/// The response to health checks.
pub(super) fn greeting() -> Bytes {
    bytes(&json!({"type": "scripted_model"}))
}

fn block_events(
    events: &mut Vec<Bytes>,
    reply: &ScriptReply,
    envelope: Envelope<'_>,
    (index, block): (usize, &ScriptBlock),
) {
    let start = |block: Value| {
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        event("content_block_start", &start)
    };
    let delta = |delta: Value| {
        let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
        event("content_block_delta", &delta)
    };
    let pieces = |text: &str| pieces(text, reply.delta_chars.map(usize::from));
    match block {
        ScriptBlock::Text(text) => {
            events.push(start(json!({"type": "text", "text": ""})));
            let deltas = pieces(text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
            events.extend(deltas.map(delta));
        }
        ScriptBlock::Thinking { text, signature } => {
            events.push(start(json!({"type": "thinking", "thinking": "", "signature": ""})));
            let deltas =
                pieces(text).into_iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            events.extend(deltas.map(delta));
            events.push(delta(json!({"type": "signature_delta", "signature": signature})));
        }
        ScriptBlock::ToolUse { name, input, id } => {
            let id = tool_id(id, envelope, index);
            events.push(start(json!({"type": "tool_use", "id": id, "name": name, "input": {}})));
            let deltas = pieces(&input.to_string())
                .into_iter()
                .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
            events.extend(deltas.map(delta));
        }
    }
    events.push(event("content_block_stop", &json!({"type": "content_block_stop", "index": index})));
}

fn message(reply: &ScriptReply, envelope: Envelope<'_>, usage: &ScriptUsage) -> Value {
    json!({
        "id": format!("msg_scripted_{:04}", envelope.request),
        "type": "message",
        "role": "assistant",
        "model": reply.model.as_deref().unwrap_or(envelope.model),
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage,
    })
}

/// A request gets at most one reply, so that its number and the block's position make a unique id.
fn tool_id(given: &Option<String>, envelope: Envelope<'_>, block: usize) -> String {
    given.clone().unwrap_or_else(|| format!("toolu_scripted_{:04}_{block}", envelope.request))
}

/// Splits a text into pieces of at most `chars` characters; without a limit, it is one piece, even if empty.
fn pieces(text: &str, chars: Option<usize>) -> Vec<String> {
    match chars {
        Some(chars) if !text.is_empty() => {
            let all: Vec<char> = text.chars().collect();
            all.chunks(chars.max(1)).map(|piece| piece.iter().collect()).collect()
        }
        Some(_) | None => vec![text.to_owned()],
    }
}

/// JSON text contains no line breaks outside of strings, and escapes them inside, so that one `data:` line is enough.
fn event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

fn bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::super::format::StopReason;
    use super::*;

    const ENVELOPE: Envelope<'_> = Envelope { request: 7, model: "asked-for" };

    fn parsed(reply: &ScriptReply) -> Vec<Value> {
        let parse = |event: Bytes| {
            let text = String::from_utf8(event.to_vec()).unwrap();
            let (name, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
            let data: Value = serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap();
            assert_eq!(data["type"], name);
            data
        };
        events(reply, ENVELOPE).into_iter().map(parse).collect()
    }

    #[test]
    fn a_streamed_reply_holds_the_same_as_a_whole_one() {
        let input = json!({"command": "printf 'a\nb'", "timeout": 5});
        let reply = ScriptReply::new()
            .thinking("hm\n", "c2ln")
            .text("größer\r\n\u{2028}")
            .tool_use("Bash", input.clone())
            .delta_chars(NonZeroUsize::new(3).unwrap());
        let mut blocks: Vec<Value> = Vec::new();
        let mut partial = String::new();
        for event in parsed(&reply) {
            let push = |blocks: &mut Vec<Value>, key: &str, piece: &Value| {
                let block = blocks.last_mut().unwrap();
                block[key] = json!(format!("{}{}", block[key].as_str().unwrap(), piece.as_str().unwrap()));
            };
            match (event["type"].as_str().unwrap(), event["delta"]["type"].as_str()) {
                ("content_block_start", _) => {
                    assert_eq!(event["index"], blocks.len());
                    blocks.push(event["content_block"].clone());
                }
                (_, Some("text_delta")) => push(&mut blocks, "text", &event["delta"]["text"]),
                (_, Some("thinking_delta")) => push(&mut blocks, "thinking", &event["delta"]["thinking"]),
                (_, Some("signature_delta")) => push(&mut blocks, "signature", &event["delta"]["signature"]),
                (_, Some("input_json_delta")) => {
                    partial.push_str(event["delta"]["partial_json"].as_str().unwrap());
                }
                _ => (),
            }
        }
        assert_eq!(serde_json::from_str::<Value>(&partial).unwrap(), input);
        blocks[2]["input"] = input;
        let whole: Value = serde_json::from_slice(&whole(&reply, ENVELOPE)).unwrap();
        assert_eq!(whole["content"], Value::Array(blocks));
        assert_eq!(whole["stop_reason"], "tool_use");
        assert_eq!(whole["model"], "asked-for");
    }

    #[test]
    fn the_order_of_events_is_the_documented_one() {
        let reply =
            ScriptReply::new().thinking("t", "s").text("").stop_reason(StopReason::MaxTokens).model("mine");
        let events = parsed(&reply);
        let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "message_start",
                "ping",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
            ]
        );
        assert_eq!(events[0]["message"]["model"], "mine");
        assert_eq!(events[0]["message"]["usage"]["output_tokens"], 1);
        assert_eq!(events[9]["delta"]["stop_reason"], "max_tokens");
        assert_eq!(events[9]["usage"]["output_tokens"], 5);
    }

    #[test]
    fn an_error_has_the_type_of_its_status() {
        let kind = |status| {
            let body = error(&ErrorReply::new(status, "m"), 3);
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["request_id"], "req_scripted_0003");
            body["error"]["type"].as_str().unwrap().to_owned()
        };
        assert_eq!(kind(400), "invalid_request_error");
        assert_eq!(kind(401), "authentication_error");
        assert_eq!(kind(418), "invalid_request_error");
        assert_eq!(kind(500), "api_error");
        assert_eq!(kind(529), "overloaded_error");
    }
}
