//! Reads and rewrites the bodies on a tape.

use super::drift::{self, Difference};
use super::normaliser::{each_text, kept_with, read_kept};
use super::private::Private;
use super::stream::{self, Changed};
use belljar_contract::{Digest, canonical_json};
use serde_json::Value;

#[must_use]
pub fn kept_request(bytes: &[u8]) -> Value {
    read_kept(bytes)
}

/// The body of a response as one document, also if it was streamed. `None` if it is incomplete or not a document.
#[must_use]
pub fn kept_answer(bytes: &[u8]) -> Option<Value> {
    let whole = stream::document(bytes);
    serde_json::from_slice(whole.as_deref().unwrap_or(bytes)).ok()
}

/// The places where two documents differ, with both values.
#[must_use]
pub fn differences(left: &Value, right: &Value) -> Vec<Difference> {
    drift::pointers(left, right)
        .into_iter()
        .map(|pointer| drift::difference(left, (right, &Value::Null), pointer))
        .collect()
}

/// The body of a request with private data redacted, as requests of a replay are once the tape lists these kinds.
#[must_use]
pub fn request_without(bytes: &[u8], kinds: &[Private]) -> Vec<u8> {
    kinds.iter().fold(bytes.to_vec(), |bytes, kind| kept_with(&bytes, kind.normaliser()))
}

/// The digest of the first message of a request, which identifies a sub-agent.
#[must_use]
pub fn first_message(request: &[u8]) -> Digest {
    let value = read_kept(request);
    let first = value.pointer("/messages/0").unwrap_or(&Value::Null);
    Digest::of(canonical_json(first).as_bytes())
}

/// The changed body of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedAnswer {
    pub body: Vec<u8>,
    /// Times and lengths of its pieces.
    pub chunks: Vec<(u64, u64)>,
}

/// The body of a response with private data redacted; `None` if nothing changes.
#[must_use]
pub fn answer_without(body: &[u8], chunks: &[(u64, u64)], kinds: &[Private]) -> Option<ChangedAnswer> {
    let change = |text: &str| any_without(text, kinds);
    stream::change(body, chunks, &change).map(|Changed { body, chunks }| ChangedAnswer { body, chunks })
}

/// A text with private data redacted; `None` if it has none.
#[must_use]
pub fn text_without(text: &str, kinds: &[Private]) -> Option<String> {
    kinds
        .iter()
        .fold(None, |so_far: Option<String>, kind| kind.without(so_far.as_deref().unwrap_or(text)).or(so_far))
}

/// Redacts private data in every text of a document; names of members stay.
pub fn value_without(value: &mut Value, kinds: &[Private]) {
    each_text(value, &mut |text| text_without(text, kinds));
}

/// A text inside a document is escaped, so that it is parsed before it is changed.
fn any_without(text: &str, kinds: &[Private]) -> Option<String> {
    let document = |text: &str| {
        let mut value: Value = serde_json::from_str(text).ok().filter(|value: &Value| !value.is_string())?;
        let before = value.clone();
        value_without(&mut value, kinds);
        Some((value != before).then(|| value.to_string()))
    };
    if let Some(found) = document(text) {
        return found;
    }
    let mut changed = false;
    let line = |line: &str| {
        let data = line.strip_prefix("data:").and_then(|data| document(data.trim()));
        let fresh = match data {
            Some(fresh) => fresh.map(|data| format!("data: {data}\n")),
            None => text_without(line, kinds),
        };
        changed |= fresh.is_some();
        fresh.unwrap_or_else(|| line.to_owned())
    };
    let fresh: String = text.split_inclusive('\n').map(line).collect();
    changed.then_some(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn redaction_keeps_a_stream_intact() {
        let event = |data: Value| format!("event: x\ndata: {data}\n\n");
        let delta = |piece: &str| {
            event(json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece}}))
        };
        let text = event(json!({"type": "message_start", "message": {"id": "m"}}))
            + &event(json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}}))
            + &delta("{\"command\": \"mail\\nmaria@")
            + &delta("post.ch\"}")
            + &event(json!({"type": "message_stop"}));
        let chunks = [(1, text.len() as u64)];
        let ChangedAnswer { body, chunks } = answer_without(text.as_bytes(), &chunks, &Private::ALL).unwrap();
        assert_eq!(chunks.iter().map(|(_, length)| length).sum::<u64>(), body.len() as u64);
        let whole = kept_answer(&body).unwrap();
        assert_eq!(whole["content"][0]["input"]["command"], "mail\n[redacted:email]");
        assert!(answer_without(&body, &chunks, &Private::ALL).is_none(), "nothing is left");
        let plain = br#"{"content": [{"type": "text", "text": "a\nmaria@post.ch"}]}"#;
        let ChangedAnswer { body, .. } =
            answer_without(plain, &[(0, plain.len() as u64)], &Private::ALL).unwrap();
        assert_eq!(kept_answer(&body).unwrap()["content"][0]["text"], "a\n[redacted:email]");
    }
}
