//! Public keys of hosts, and the verification of their signatures.

use super::wire::Reader;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    EcdsaVerificationAlgorithm, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use belljar_contract::SshPublicKey;

/// A host's public key whose signatures can be verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    public: SshPublicKey,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Ed25519(Vec<u8>),
    Ecdsa(Curve, Vec<u8>),
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Curve {
    P256,
    P384,
    P521,
}

/// Why a host key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyError {
    #[error(
        "signatures of a `{0}` key cannot be verified; use ssh-ed25519, ecdsa-sha2-nistp256, -384 or -521, or ssh-rsa"
    )]
    Unsupported(String),
    #[error("the `{0}` key is malformed")]
    Broken(String),
    #[error("the RSA key has {0} bits, but must have at least 2048")]
    Short(usize),
}

impl Curve {
    const fn word(self) -> &'static str {
        match self {
            Curve::P256 => "nistp256",
            Curve::P384 => "nistp384",
            Curve::P521 => "nistp521",
        }
    }

    /// Bytes of one coordinate.
    const fn width(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
            Curve::P521 => 66,
        }
    }

    const fn verification(self) -> &'static EcdsaVerificationAlgorithm {
        match self {
            Curve::P256 => &ECDSA_P256_SHA256_FIXED,
            Curve::P384 => &ECDSA_P384_SHA384_FIXED,
            Curve::P521 => &ECDSA_P521_SHA512_FIXED,
        }
    }
}

impl HostKey {
    /// # Errors
    /// See [`HostKeyError`].
    pub fn new(public: SshPublicKey) -> Result<Self, HostKeyError> {
        let broken = || HostKeyError::Broken(public.algorithm().to_owned());
        let parts: Vec<&[u8]> = public.parts().collect();
        let kind = match (public.algorithm(), parts.as_slice()) {
            ("ssh-ed25519", [key]) if key.len() == 32 => Kind::Ed25519(key.to_vec()),
            ("ssh-rsa", [exponent, modulus]) => {
                let modulus = positive(modulus).ok_or_else(broken)?;
                if modulus.len() < 256 {
                    return Err(HostKeyError::Short(modulus.len() * 8));
                }
                Kind::Rsa { modulus, exponent: positive(exponent).ok_or_else(broken)? }
            }
            ("ecdsa-sha2-nistp256", parts) => ecdsa(Curve::P256, parts).ok_or_else(broken)?,
            ("ecdsa-sha2-nistp384", parts) => ecdsa(Curve::P384, parts).ok_or_else(broken)?,
            ("ecdsa-sha2-nistp521", parts) => ecdsa(Curve::P521, parts).ok_or_else(broken)?,
            ("ssh-ed25519" | "ssh-rsa", _) => return Err(broken()),
            (other, _) => return Err(HostKeyError::Unsupported(other.to_owned())),
        };
        Ok(Self { public, kind })
    }

    #[must_use]
    pub fn public(&self) -> &SshPublicKey {
        &self.public
    }

    /// Whether the host signed `message`. Signatures with SHA-1 are rejected.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.verified(message, signature).is_some()
    }

    fn verified(&self, message: &[u8], signature: &[u8]) -> Option<()> {
        let mut reader = Reader::new(signature);
        let (algorithm, bytes) = (reader.string()?, reader.string()?);
        reader.end()?;
        match &self.kind {
            Kind::Ed25519(key) => {
                if algorithm != b"ssh-ed25519" {
                    return None;
                }
                UnparsedPublicKey::new(&ED25519, key).verify(message, bytes).ok()
            }
            Kind::Ecdsa(curve, point) => {
                if algorithm != self.public.algorithm().as_bytes() {
                    return None;
                }
                let mut numbers = Reader::new(bytes);
                let (r, s) = (numbers.integer()?, numbers.integer()?);
                numbers.end()?;
                let fixed = [padded(r, curve.width())?, padded(s, curve.width())?].concat();
                UnparsedPublicKey::new(curve.verification(), point).verify(message, &fixed).ok()
            }
            Kind::Rsa { modulus, exponent } => {
                let parameters: &RsaParameters = match algorithm {
                    b"rsa-sha2-256" => &RSA_PKCS1_2048_8192_SHA256,
                    b"rsa-sha2-512" => &RSA_PKCS1_2048_8192_SHA512,
                    _ => return None,
                };
                let whole = padded(bytes, modulus.len())?;
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, message, &whole).ok()
            }
        }
    }
}

fn ecdsa(curve: Curve, parts: &[&[u8]]) -> Option<Kind> {
    match parts {
        [word, point] if *word == curve.word().as_bytes() && point.len() == 2 * curve.width() + 1 => {
            Some(Kind::Ecdsa(curve, point.to_vec()))
        }
        _ => None,
    }
}

/// A positive number without leading zeros.
fn positive(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.first().is_some_and(|byte| byte & 0x80 != 0) {
        return None;
    }
    let start = bytes.iter().position(|byte| *byte != 0)?;
    bytes.get(start..).map(<[u8]>::to_vec)
}

/// Pads a number with leading zeros.
fn padded(bytes: &[u8], width: usize) -> Option<Vec<u8>> {
    let missing = width.checked_sub(bytes.len())?;
    Some([&vec![0; missing][..], bytes].concat())
}
