//! Counts the tokens of a response while it is relayed.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use super::document::{Document, WireMessage};
use super::sse::Events;
use super::{TokenCount, WireUsage};
use crate::gateway::messages_api::prices::Speed;

/// A token has at least this many bytes of text. Used for text without a count.
const BYTES_IN_A_TOKEN: u64 = 3;

const MODEL_NAME_CHARS: usize = 128;

/// Counts the tokens of one response.
#[derive(Debug)]
pub(in crate::gateway) enum Meter {
    ClientStream(Box<StreamMeter>),
    Document(Document),
    /// The response cannot be parsed, or contains no token counts.
    Uncounted,
}

/// The result so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::gateway) struct Reading {
    /// The tokens, if the response contained a count.
    pub tokens: Option<TokenCount>,
    /// Whether the response contained its final count. Otherwise the output is estimated from its text.
    pub is_final: bool,
    pub model: Option<String>,
    /// The tier of the response, if it names one.
    pub speed: Option<Speed>,
}

#[derive(Debug, Default)]
pub(in crate::gateway) struct StreamMeter {
    events: Events,
    seen: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    reading: Reading,
    text_bytes: u64,
}

impl Meter {
    pub fn stream() -> Self {
        Self::ClientStream(Box::default())
    }

    pub fn document() -> Self {
        Self::Document(Document::default())
    }

    /// Takes a piece of the response.
    pub fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::ClientStream(meter) => {
                let StreamMeter { events, seen } = &mut **meter;
                events.feed(bytes, |data| seen.event(data));
            }
            Self::Document(document) => document.feed(bytes),
            Self::Uncounted => (),
        }
    }

    /// The result so far; for a document, once it is complete.
    pub fn reading(&self) -> Reading {
        match self {
            Self::ClientStream(meter) => meter.seen.reading(),
            Self::Document(document) => document.message().map(of_message).unwrap_or_default(),
            Self::Uncounted => Reading::default(),
        }
    }

    /// The tokens that the model has read, once a stream has reported them.
    pub fn input_so_far(&self) -> Option<TokenCount> {
        match self {
            Self::ClientStream(meter) => meter.seen.reading.tokens,
            Self::Document(_) | Self::Uncounted => None,
        }
    }
}

fn of_message(message: WireMessage) -> Reading {
    Reading {
        tokens: message.usage.as_ref().map(WireUsage::tokens),
        is_final: message.usage.is_some(),
        model: message.model.map(shortened),
        speed: message.usage.as_ref().and_then(WireUsage::speed),
    }
}

fn shortened(name: String) -> String {
    name.chars().take(MODEL_NAME_CHARS).collect()
}

impl Seen {
    fn event(&mut self, data: &[u8]) {
        // Anything that is not an event of the API is ignored; it is relayed all the same.
        let Ok(event) = serde_json::from_slice::<WireEvent<'_>>(data) else { return };
        match &*event.kind {
            "message_start" => {
                let Some(message) = event.message else { return };
                let started = of_message(message);
                self.count(started.tokens);
                self.reading.model = started.model;
                self.reading.speed = started.speed;
            }
            "message_delta" => {
                self.count(event.usage.as_ref().map(WireUsage::tokens));
                self.reading.is_final |= event.usage.is_some();
                if let Some(speed) = event.usage.as_ref().and_then(WireUsage::speed) {
                    self.reading.speed = Some(speed);
                }
            }
            "content_block_delta" => {
                if let Some(WireDelta { text, thinking, partial_json }) = event.delta {
                    let pieces = [text, thinking, partial_json].into_iter().flatten();
                    self.text_bytes = pieces.fold(self.text_bytes, |sum, piece| sum.saturating_add(piece.0));
                }
            }
            _ => (),
        }
    }

    fn count(&mut self, tokens: Option<TokenCount>) {
        if let Some(tokens) = tokens {
            self.reading.tokens = Some(self.reading.tokens.unwrap_or_default().latest(tokens));
        }
    }

    fn reading(&self) -> Reading {
        let mut reading = self.reading.clone();
        if let (Some(tokens), false) = (&mut reading.tokens, reading.is_final) {
            tokens.output = tokens.output.max(self.text_bytes.div_ceil(BYTES_IN_A_TOKEN));
        }
        reading
    }
}

#[derive(Deserialize)]
struct WireEvent<'d> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'d, str>,
    message: Option<WireMessage>,
    usage: Option<WireUsage>,
    delta: Option<WireDelta>,
}

#[derive(Deserialize)]
struct WireDelta {
    text: Option<TextLength>,
    thinking: Option<TextLength>,
    partial_json: Option<TextLength>,
}

/// The length of a text that is not kept.
struct TextLength(u64);

impl<'d> Deserialize<'d> for TextLength {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Length;
        impl Visitor<'_> for Length {
            type Value = TextLength;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<TextLength, E> {
                Ok(TextLength(text.len() as u64))
            }
        }
        deserializer.deserialize_str(Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-opus-4-8\",",
        "\"usage\":{\"input_tokens\":7,\"output_tokens\":1,\"cache_creation_input_tokens\":30,",
        "\"cache_creation\":{\"ephemeral_5m_input_tokens\":10,\"ephemeral_1h_input_tokens\":20},",
        "\"cache_read_input_tokens\":400,\"speed\":\"standard\"}}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":",
        "{\"type\":\"text_delta\",\"text\":\"größer als du denkst\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},",
        "\"usage\":{\"output_tokens\":5,\"server_tool_use\":{\"web_search_requests\":3}}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );

    fn read(pieces: &[&[u8]]) -> Reading {
        let mut meter = Meter::stream();
        pieces.iter().for_each(|piece| meter.feed(piece));
        meter.reading()
    }

    fn whole() -> TokenCount {
        TokenCount {
            input: 7,
            output: 5,
            cache_creation: 30,
            cache_creation_hour: 20,
            cache_read: 400,
            web_searches: 3,
        }
    }

    #[test]
    fn a_stream_is_counted_the_same_however_it_is_split() {
        let bytes = STREAM.as_bytes();
        let expected = Reading {
            tokens: Some(whole()),
            is_final: true,
            model: Some("claude-opus-4-8".into()),
            speed: Some(Speed::Standard),
        };
        assert_eq!(read(&[bytes]), expected);
        for at in 0..bytes.len() {
            let (before, after) = bytes.split_at(at);
            assert_eq!(read(&[before, after]), expected, "{at}");
        }
        assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn a_stream_that_broke_off_counts_the_text_that_came() {
        let cut = STREAM.find("event: message_delta").unwrap();
        let reading = read(&[&STREAM.as_bytes()[..cut]]);
        // 22 bytes of text.
        assert_eq!(reading.tokens, Some(TokenCount { output: 8, web_searches: 0, ..whole() }));
        assert!(!reading.is_final);
        assert_eq!(read(&[&STREAM.as_bytes()[..20]]), Reading::default());
    }

    #[test]
    fn a_document_is_counted_once_it_is_complete() {
        let text =
            r#"{"type":"message","model":"m","content":[],"usage":{"input_tokens":3,"output_tokens":4}}"#;
        let mut meter = Meter::document();
        meter.feed(&text.as_bytes()[..40]);
        assert_eq!(meter.reading(), Reading::default());
        meter.feed(&text.as_bytes()[40..]);
        let tokens = TokenCount { input: 3, output: 4, ..TokenCount::default() };
        assert_eq!(meter.reading().tokens, Some(tokens));
    }

    #[test]
    fn nonsense_counts_nothing() {
        for text in [
            "data: {\"type\":\"message_start\"}\n\n",
            "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":-1}}}\n\n",
            "data: {\"type\":7}\n\n",
            "data: [\n\n",
            "data: \u{fffd}\n\n",
            "data\n\n",
        ] {
            assert_eq!(read(&[text.as_bytes()]).tokens, None, "{text}");
        }
    }

    #[test]
    fn fuzz_sse_usage() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).with_type::<(Vec<u8>, u8)>().for_each(|(noise, cut)| {
            // Noise alone, and noise inside a real stream.
            let middle = usize::from(*cut) * STREAM.len() / 256;
            let (before, after) = STREAM.as_bytes().split_at(middle);
            for stream in [noise.clone(), [before, noise, after].concat()] {
                let whole = read(&[&stream]);
                let pieces: Vec<&[u8]> = stream.chunks(usize::from(*cut % 7) + 1).collect();
                assert_eq!(read(&pieces), whole);
            }
        });
    }
}
