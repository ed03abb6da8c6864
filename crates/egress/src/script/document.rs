//! A JSON document as text. A tree of it would be several times as large, and hardly anyone looks at one.

use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// What a writer of JSON need not escape or break, and what would keep a search for a text from finding it.
const NEEDLESS: [&str; 4] = ["\\u", "\\/", "\n", "\r"];

/// A JSON document on one line, its texts without needless escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(String);

impl JsonText {
    /// Takes a document as it came, or writes it anew where it is not as wanted. Depth is bounded by the JSON reader.
    pub(super) fn read(bytes: Bytes) -> Result<Self, serde_json::Error> {
        match String::from_utf8(bytes.into()) {
            Ok(text) if !NEEDLESS.iter().any(|needless| text.contains(needless)) => {
                serde_json::from_str::<Skimmed>(&text)?;
                Ok(Self(text))
            }
            Ok(text) => Ok(Self(serde_json::from_str::<Value>(&text)?.to_string())),
            // The JSON reader says what is wrong, and where.
            Err(odd) => Ok(Self(serde_json::from_slice::<Value>(odd.as_bytes())?.to_string())),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The document.
    pub fn value(&self) -> Value {
        // It was read before.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// A document that was read and not kept. serde's own way to pass over one looks neither at depth nor at texts.
#[derive(Debug, Default)]
pub(crate) struct Skimmed {
    /// How many it has, if it is a list.
    pub items: usize,
}

impl<'de> Deserialize<'de> for Skimmed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self::default())
    }
}

impl<'de> Visitor<'de> for Skimmed {
    type Value = Self;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON document")
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {
            self.items += 1;
        }
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plain_document_stays_as_it_is() {
        let text = r#"{"a": [1.50,"\"\\\n\t ä"],"b":{}}"#;
        let read = JsonText::read(text.into()).unwrap();
        assert_eq!(read.as_str(), text);
        assert_eq!(read.value(), json!({"a": [1.5, "\"\\\n\t ä"], "b": {}}));
    }

    #[test]
    fn needless_escapes_and_breaks_are_written_anew() {
        for (written, expected) in [
            (r#"{"key":"\u0073ecret"}"#, r#"{"key":"secret"}"#),
            (r#"["a\/b"]"#, r#"["a/b"]"#),
            ("{\"a\":\r\n 1}", r#"{"a":1}"#),
            (r#""\u001b[1m""#, r#""\u001b[1m""#),
        ] {
            assert_eq!(JsonText::read(written.into()).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        let odd = [&b""[..], b"{", b"{} {}", b"\"\xff\"", br#""\ud800""#, b"[01]", b"1e999", deep.as_bytes()];
        for odd in odd {
            assert!(JsonText::read(Bytes::copy_from_slice(odd)).is_err(), "{odd:?}");
        }
    }
}
