//! ssh public keys, and the data that is looked up for an `ssh` entry at launch.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The path inside of the socket that signs for ssh; the value of `SSH_AUTH_SOCK`.
pub const SSH_AGENT_SOCKET: &str = "/run/belljar/ssh-agent.sock";
/// The maximum size of a key in bytes: twice an RSA key of 16384 bits.
const BLOB_MAX: usize = 4096;
/// The maximum length of an algorithm name in the protocol.
const ALGORITHM_MAX: usize = 64;

/// A validated public key: a known type whose parts fill the blob exactly.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SshPublicKey {
    algorithm: String,
    blob: Vec<u8>,
}

/// Why a text or blob is not a public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshPublicKeyError {
    #[error("expected a public key such as `ssh-ed25519 AAAA…`")]
    Form,
    #[error("the key is not valid base64")]
    Base64,
    /// The parts do not fill the blob exactly.
    #[error("the key is truncated or has trailing data")]
    Blob,
    /// The algorithm in front of the key differs from the one in the key.
    #[error("the key is of the type `{inside}`, not `{written}`")]
    Algorithm {
        /// The algorithm in front of the key.
        written: String,
        /// The algorithm in the key.
        inside: String,
    },
    /// A certificate instead of a key.
    #[error("this is a certificate, not a public key")]
    Certificate,
}

impl SshPublicKey {
    /// Parses a line of a `.pub` file; a comment after the key is dropped.
    ///
    /// # Errors
    /// See [`SshPublicKeyError`].
    pub fn parse(line: &str) -> Result<Self, SshPublicKeyError> {
        let mut fields = line.split_ascii_whitespace();
        let (Some(written), Some(encoded)) = (fields.next(), fields.next()) else {
            return Err(SshPublicKeyError::Form);
        };
        if encoded.len() > BLOB_MAX * 4 / 3 + 4 {
            return Err(SshPublicKeyError::Blob);
        }
        let blob = STANDARD.decode(encoded).ok().ok_or(SshPublicKeyError::Base64)?;
        let key = Self::from_blob(&blob)?;
        if key.algorithm != written {
            return Err(SshPublicKeyError::Algorithm {
                written: written.chars().take(ALGORITHM_MAX).collect::<String>().escape_debug().to_string(),
                inside: key.algorithm,
            });
        }
        Ok(key)
    }

    /// Validates a key in its wire format.
    ///
    /// # Errors
    /// See [`SshPublicKeyError`].
    pub fn from_blob(blob: &[u8]) -> Result<Self, SshPublicKeyError> {
        if blob.len() > BLOB_MAX {
            return Err(SshPublicKeyError::Blob);
        }
        let (algorithm, mut rest) = part(blob).ok_or(SshPublicKeyError::Blob)?;
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-@.".contains(byte);
        if algorithm.is_empty() || algorithm.len() > ALGORITHM_MAX || !algorithm.iter().all(plain) {
            return Err(SshPublicKeyError::Blob);
        }
        let algorithm = String::from_utf8_lossy(algorithm).into_owned();
        if algorithm.contains("-cert-") {
            return Err(SshPublicKeyError::Certificate);
        }
        if rest.is_empty() {
            return Err(SshPublicKeyError::Blob);
        }
        while !rest.is_empty() {
            (_, rest) = part(rest).ok_or(SshPublicKeyError::Blob)?;
        }
        Ok(Self { algorithm, blob: blob.to_vec() })
    }

    /// The algorithm, such as `ssh-ed25519`.
    #[must_use]
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// The key in its wire format.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// The parts after the algorithm, in wire order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = part(&self.blob).map_or(&[][..], |(_, rest)| rest);
        std::iter::from_fn(move || {
            let (value, behind) = part(rest)?;
            rest = behind;
            Some(value)
        })
    }

    /// `SHA256:…`, as ssh prints it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&self.blob)))
    }
}

/// Splits off a part: a length of four bytes and as many bytes.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

impl fmt::Display for SshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, STANDARD.encode(&self.blob))
    }
}

impl fmt::Debug for SshPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm, self.fingerprint())
    }
}

impl Serialize for SshPublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Data that was looked up for an `ssh` entry at launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshFound {
    /// The alias of the entry.
    pub host: String,
    /// The public part of its key.
    pub public_key: SshPublicKey,
    /// The accepted host keys: the declared one, otherwise those of the user's known hosts.
    pub host_keys: Vec<SshPublicKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    #[test]
    fn a_line_is_read_and_written() {
        let key = SshPublicKey::parse(&format!("{KEY} someone@somewhere")).unwrap();
        assert_eq!(key.to_string(), KEY);
        assert_eq!(key.algorithm(), "ssh-ed25519");
        assert_eq!(key.parts().collect::<Vec<_>>(), [(0..32).collect::<Vec<u8>>()]);
        assert_eq!(SshPublicKey::from_blob(key.blob()), Ok(key.clone()));
        // The fingerprint that `ssh-keygen -l` prints.
        assert_eq!(key.fingerprint(), "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA");
    }

    #[test]
    fn incomplete_keys_are_rejected() {
        use SshPublicKeyError::{Algorithm, Base64, Blob, Certificate, Form};
        let parse = |text: &str| SshPublicKey::parse(text).unwrap_err();
        assert_eq!(parse(""), Form);
        assert_eq!(parse("ssh-ed25519"), Form);
        assert_eq!(parse("ssh-ed25519 A*AA"), Base64);
        assert_eq!(parse("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"), Blob);
        assert_eq!(parse("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"), Blob);
        let (_, encoded) = KEY.split_once(' ').unwrap();
        assert!(matches!(parse(&format!("ssh-rsa {encoded}")), Algorithm { .. }));
        assert_eq!(parse(&format!("ssh-ed25519 {}", "A".repeat(BLOB_MAX * 2))), Blob);
        let certificate = [&28_u32.to_be_bytes()[..], b"ssh-rsa-cert-v01@openssh.com"].concat();
        assert_eq!(SshPublicKey::from_blob(&certificate), Err(Certificate));
        assert_eq!(SshPublicKey::from_blob(&[&2_u32.to_be_bytes()[..], b"\n ", &[0; 4]].concat()), Err(Blob));
    }

    #[test]
    fn fuzz_ssh_public_key() {
        let everyday = std::time::Duration::from_millis(200);
        let whole = SshPublicKey::parse(KEY).unwrap();
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            let check = |blob: &[u8]| {
                if let Ok(key) = SshPublicKey::from_blob(blob) {
                    assert_eq!(SshPublicKey::parse(&key.to_string()).unwrap(), key);
                    assert!(key.parts().count() > 0);
                }
            };
            check(bytes);
            check(&[&[0, 0, 0, 3], &b"abc"[..], bytes].concat());
            check(&[whole.blob(), bytes].concat());
            SshPublicKey::parse(&String::from_utf8_lossy(bytes)).ok();
        });
    }
}
