//! A line of the event log.
//!
//! ```text
//! {"seq":3,"ms":120,"event":{"kind":"notice","text":"…"},"chain":"<64 hexadecimal digits>"}
//! ```
//! The chain is the SHA-256 of the previous line's chain and of this line's bytes up to `,"chain"`. The first line's
//! previous value is the SHA-256 of `run.json`, and `result.json` contains the last. So a changed byte, a missing line
//! and a line out of order are detected, and so is a truncated end once the run has ended. The chain protects against
//! accidents, not against someone who computes the whole chain again: it has no key.
//!
//! The digest covers the bytes as written, so no canonical form of JSON is needed.

use belljar_contract::{Digest, Event, EventRecord, Logged};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The maximum length of a line in bytes, including its newline. The output of the command is not in the log; the
/// agent's protocol is.
pub const LINE_MAX: usize = 32 << 20;
/// The maximum size of a log in bytes.
pub const LOG_MAX: u64 = 256 << 20;

const BEFORE: &[u8] = b",\"chain\":\"";
const AFTER: &[u8] = b"\"}";
const SUFFIX: usize = BEFORE.len() + 64 + AFTER.len();

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<E> {
    seq: u64,
    ms: u64,
    event: E,
    #[serde(rename = "chain")]
    _chain: IgnoredAny,
}

impl<E> Line<E> {
    fn record(self, event: impl FnOnce(E) -> Logged) -> EventRecord {
        EventRecord { seq: self.seq, offset_ms: self.ms, event: event(self.event) }
    }
}

fn link(previous: &Digest, content: &[u8]) -> Digest {
    Digest::of_parts(&[previous.hex().as_bytes(), content])
}

/// A value as text. Serialising directly to a `String` takes half as long as formatting it.
pub(crate) fn text(value: &Value) -> String {
    // Serialising a value does not fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// A line with its newline, and the chain value after it.
pub(crate) fn encode(previous: &Digest, seq: u64, offset_ms: u64, event: &Value) -> (String, Digest) {
    let mut line = format!(r#"{{"seq":{seq},"ms":{offset_ms},"event":{}"#, text(event));
    let chain = link(previous, line.as_bytes());
    line.push_str(&format!(",\"chain\":\"{}\"}}\n", chain.hex()));
    (line, chain)
}

/// Parses a line without its newline; `None` if it does not match the chain.
pub(crate) fn decode(previous: &Digest, seq: u64, line: &[u8]) -> Option<(EventRecord, Digest)> {
    let (content, suffix) = line.split_at_checked(line.len().checked_sub(SUFFIX)?)?;
    let chain = link(previous, content);
    let written = suffix.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    if written != chain.hex().as_bytes() {
        return None;
    }
    let record = match serde_json::from_slice::<Line<Event>>(line) {
        Ok(line) => line.record(Logged::Known),
        // Perhaps an event of a later version, which is kept as it stands.
        Err(_) => serde_json::from_slice::<Line<Value>>(line).ok()?.record(Logged::from_json),
    };
    (record.seq == seq).then_some((record, chain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_is_bound_to_its_place() {
        let seed = Digest::of(b"run.json");
        let event = Event::Notice { text: "\"}\n\u{7}é".to_owned() };
        let (line, chain) = encode(&seed, 4, 9, &json!(event));
        let line = line.strip_suffix('\n').unwrap().as_bytes();
        assert!(!line.contains(&b'\n'));
        let record = EventRecord { seq: 4, offset_ms: 9, event: Logged::Known(event) };
        assert_eq!(decode(&seed, 4, line), Some((record, chain)));
        assert_eq!(decode(&chain, 4, line), None, "a different previous line");
        assert_eq!(decode(&seed, 5, line), None, "a different number");
        for position in 0..line.len() {
            let mut changed = line.to_vec();
            changed[position] ^= 1;
            assert_eq!(decode(&seed, 4, &changed), None, "byte {position}");
            assert_eq!(decode(&seed, 4, &line[..position]), None, "cut at {position}");
        }
    }
}
