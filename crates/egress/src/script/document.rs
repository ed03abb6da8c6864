//! A JSON document as text. A parsed tree would be several times as large, and is rarely needed.

use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// Escapes and line breaks that JSON does not need, and that would hide a text from a search.
const NEEDLESS: [&str; 4] = ["\\u", "\\/", "\n", "\r"];

/// A JSON document on one line, without needless escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(String);

impl JsonText {
    /// Keeps a document unchanged, or rewrites it if it has needless escapes. The JSON parser limits the depth.
    pub(super) fn read(bytes: Bytes) -> Result<Self, serde_json::Error> {
        match String::from_utf8(bytes.into()) {
            Ok(text) if !NEEDLESS.iter().any(|needless| text.contains(needless)) => {
                serde_json::from_str::<Skimmed>(&text)?;
                Ok(Self(text))
            }
            Ok(text) => Ok(Self(serde_json::from_str::<Value>(&text)?.to_string())),
            // The JSON parser reports what is wrong, and where.
            Err(odd) => Ok(Self(serde_json::from_slice::<Value>(odd.as_bytes())?.to_string())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn value(&self) -> Value {
        // The text was parsed before.
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// A document that was parsed and not kept. Unlike serde's `IgnoredAny`, this checks the depth and the texts.
#[derive(Debug, Default)]
pub(crate) struct Skimmed {
    /// The number of elements, if it is an array.
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
    fn needless_escapes_and_line_breaks_are_rewritten() {
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
    fn invalid_json_is_rejected() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        let odd = [&b""[..], b"{", b"{} {}", b"\"\xff\"", br#""\ud800""#, b"[01]", b"1e999", deep.as_bytes()];
        for odd in odd {
            assert!(JsonText::read(Bytes::copy_from_slice(odd)).is_err(), "{odd:?}");
        }
    }
}
