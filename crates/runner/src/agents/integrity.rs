//! The integrity that the registry publishes for an archive.

use aws_lc_rs::digest::{Context, SHA512};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The SHA-512 digest of an archive, as `sha512-` and base64. Weaker digests are not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Integrity(String);

impl Integrity {
    /// Finds the SHA-512 digest in the list of digests of an archive.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // Options behind `?` are reserved by the specification and have no meaning yet.
        let plain = |word: &str| word.split('?').next().unwrap_or_default().to_owned();
        text.split_whitespace()
            .map(plain)
            .find(|word| {
                let digest = word.strip_prefix("sha512-").and_then(|digest| STANDARD.decode(digest).ok());
                digest.is_some_and(|digest| digest.len() == SHA512.output_len())
            })
            .map(Self)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Computes the integrity of bytes as they arrive.
pub(super) struct Measuring(Context);

impl Measuring {
    pub fn new() -> Self {
        Self(Context::new(&SHA512))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Integrity {
        Integrity(format!("sha512-{}", STANDARD.encode(self.0.finish())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha512_counts() {
        let mut measuring = Measuring::new();
        measuring.update(b"a");
        measuring.update(b"b");
        let whole = measuring.finish();
        assert_eq!(Integrity::parse(whole.as_str()), Some(whole.clone()));
        assert_eq!(Integrity::parse(&format!("sha1-x {}?opt", whole.as_str())), Some(whole));
        for text in [
            "",
            "sha1-deadbeef",
            "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
            "sha512-",
            "sha512-YQ==",
        ] {
            assert_eq!(Integrity::parse(text), None, "{text}");
        }
    }
}
