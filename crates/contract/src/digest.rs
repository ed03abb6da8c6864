use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A SHA-256 digest, written as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_parts(&[bytes])
    }

    /// The digest of all parts, concatenated.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| hash.update(part));
        Self(hash.finalize().into())
    }

    /// The digest of everything that `reader` returns.
    ///
    /// # Errors
    /// When reading fails.
    pub fn of_reader(reader: &mut impl std::io::Read) -> std::io::Result<Self> {
        let mut hash = Sha256::new();
        let mut buffer = [0; 16 << 10];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(Self(hash.finalize().into())),
                Ok(count) => hash.update(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn into_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The 64 hexadecimal digits without the prefix.
    #[must_use]
    pub fn hex(&self) -> String {
        let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
        self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }

    /// Reads what [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?.as_bytes();
        if hex.len() != 64 {
            return None;
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).filter(|_| !c.is_ascii_uppercase());
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
        }
        Some(Self(out))
    }
}

/// A digest of bytes that are added one after the other. A copy goes on from the same bytes.
#[derive(Clone, Default)]
pub struct DigestSoFar(Sha256);

impl DigestSoFar {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    #[must_use]
    pub fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for DigestSoFar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestSoFar")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Digest::parse(&text).ok_or_else(|| serde::de::Error::custom("expected `sha256:` and 64 digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value_and_round_trip() {
        let digest = Digest::of(b"");
        assert_eq!(digest.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse(&digest.hex()), None, "the algorithm is part of the text");
        assert_eq!(Digest::parse(&digest.to_string().to_uppercase()), None);
    }

    #[test]
    fn a_copy_goes_on_from_the_same_bytes() {
        let mut so_far = DigestSoFar::default();
        so_far.add(b"one ");
        let other = so_far.clone();
        so_far.add(b"two");
        assert_eq!((so_far.digest(), other.digest()), (Digest::of(b"one two"), Digest::of(b"one ")));
    }
}
