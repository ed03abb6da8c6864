//! A credential and the one place that it goes to.

use belljar_contract::{Destination, SCRUBBED_MIN, Secret};
use hyper::header::{self, HeaderName, HeaderValue};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A piece of a credential's value.
#[derive(Debug, Clone)]
pub enum ValuePart {
    /// Public text, such as `Bearer `.
    Text(String),
    /// The secret.
    Secret(Arc<Secret>),
}

/// What a credential is made of, as it was declared.
#[derive(Debug)]
pub struct CredentialSpec {
    /// What logs call it.
    pub name: String,
    /// Where it goes, and nowhere else.
    pub destination: Destination,
    /// The header it is put in.
    pub header: String,
    /// The header's value.
    pub value: Vec<ValuePart>,
}

/// Why a credential cannot be bound. No value is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// Not a header, or one that the transport owns.
    #[error("the credential {name} cannot be put in the header `{header}`")]
    Header {
        /// The credential.
        name: String,
        /// The header.
        header: String,
    },
    /// The value cannot stand in a header.
    #[error(
        "the value of the credential {name} cannot stand in a header: it has a line break or a control character"
    )]
    Value {
        /// The credential.
        name: String,
    },
    /// It has no secret in it, or an empty one.
    #[error("the credential {name} has no value")]
    Empty {
        /// The credential.
        name: String,
    },
    /// It could not be kept out of what comes back.
    #[error(
        "the value of the credential {name} is shorter than {SCRUBBED_MIN} characters, or too long to be kept out of answers"
    )]
    Unsearchable {
        /// The credential.
        name: String,
    },
}

/// A credential, ready to be sent.
#[derive(Debug)]
pub(super) struct BoundCredential {
    pub name: String,
    pub destination: Destination,
    pub header: HeaderName,
    /// Marked as sensitive, so that it is not printed and not indexed by HTTP/2.
    pub value: HeaderValue,
    pub secrets: Vec<Arc<Secret>>,
}

/// Headers that belong to the connection, not to the request.
const OWNED_BY_TRANSPORT: [HeaderName; 7] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
];

impl BoundCredential {
    pub fn new(spec: CredentialSpec) -> Result<Self, CredentialError> {
        let CredentialSpec { name, destination, header, value } = spec;
        let known = HeaderName::from_bytes(header.as_bytes()).ok();
        let Some(header) = known.filter(|known| !OWNED_BY_TRANSPORT.contains(known)) else {
            return Err(CredentialError::Header { name, header });
        };
        let mut bytes = Zeroizing::new(Vec::new());
        let mut secrets = Vec::new();
        for part in value {
            match part {
                ValuePart::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                ValuePart::Secret(secret) => {
                    bytes.extend_from_slice(secret.expose());
                    secrets.push(secret);
                }
            }
        }
        if secrets.is_empty() || secrets.iter().any(|secret| secret.is_empty()) {
            return Err(CredentialError::Empty { name });
        }
        let Ok(mut value) = HeaderValue::from_bytes(&bytes) else {
            return Err(CredentialError::Value { name });
        };
        value.set_sensitive(true);
        Ok(Self { name, destination, header, value, secrets })
    }
}
