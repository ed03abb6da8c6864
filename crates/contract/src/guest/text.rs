//! Text as the kernel sees it: any bytes except NUL.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An argument, a value or a path: any bytes except NUL. In JSON it is a string if it is UTF-8, otherwise a list of
/// bytes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsText(Vec<u8>);

/// Why bytes are not [`OsText`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("NUL at byte {position}")]
pub struct OsTextError {
    /// The index of the NUL byte.
    pub position: usize,
}

impl OsText {
    /// # Errors
    /// Fails if the bytes contain a NUL.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, OsTextError> {
        let bytes = bytes.into();
        match bytes.iter().position(|byte| *byte == 0) {
            Some(position) => Err(OsTextError { position }),
            None => Ok(OsText(bytes)),
        }
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is an absolute path.
    #[must_use]
    pub fn is_absolute(&self) -> bool {
        self.0.first() == Some(&b'/')
    }
}

impl std::fmt::Debug for OsText {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "\"{}\"", self.0.escape_ascii())
    }
}

/// For messages: invalid UTF-8 is replaced.
impl std::fmt::Display for OsText {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl TryFrom<&str> for OsText {
    type Error = OsTextError;

    fn try_from(text: &str) -> Result<Self, OsTextError> {
        OsText::new(text)
    }
}

impl Serialize for OsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for OsText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = OsText;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a string or a list of bytes, without NUL")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OsText, E> {
        OsText::new(text).map_err(E::custom)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<OsText, E> {
        OsText::new(text).map_err(E::custom)
    }

    /// Does not preallocate the announced length, which is not trusted.
    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<OsText, A::Error> {
        let mut collected = Vec::new();
        while let Some(byte) = bytes.next_element()? {
            collected.push(byte);
        }
        OsText::new(collected).map_err(A::Error::custom)
    }
}
