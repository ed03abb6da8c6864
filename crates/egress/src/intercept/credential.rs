//! Credentials, each bound to one destination.

use belljar_contract::{Destination, SCRUBBED_MIN, Secret};
use hyper::header::{self, HeaderName, HeaderValue};
use std::sync::Arc;
use zeroize::Zeroizing;

/// A part of a credential's value.
#[derive(Debug, Clone)]
pub enum ValuePart {
    /// Public text, such as `Bearer `.
    Text(String),
    Secret(Arc<Secret>),
}

/// A credential for one destination, with the parts of its value.
#[derive(Debug)]
pub struct HostCredential {
    /// The name for logs.
    pub name: String,
    /// The only destination that it is sent to.
    pub destination: Destination,
    /// The header that carries it.
    pub header: String,
    pub value: Vec<ValuePart>,
}

/// Why a credential cannot be bound. The error never contains its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The header name is invalid, or the header belongs to the connection.
    #[error("the credential {name} cannot be put in the header `{header}`")]
    Header { name: String, header: String },
    /// The value is not a valid header value.
    #[error("the value of the credential {name} must not contain line breaks or control characters")]
    Value { name: String },
    /// The value contains no secret, or an empty one.
    #[error("the value of the credential {name} must not be empty")]
    Empty { name: String },
    /// The value could not be redacted from responses.
    #[error(
        "the value of the credential {name} must have at least {SCRUBBED_MIN} characters, and must not be too long to be redacted from responses"
    )]
    Unsearchable { name: String },
}

#[derive(Debug)]
pub(super) struct BoundCredential {
    pub name: String,
    pub destination: Destination,
    pub header: HeaderName,
    /// Marked as sensitive, so that it is neither printed nor put in HTTP/2's header table.
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
    pub fn new(spec: HostCredential) -> Result<Self, CredentialError> {
        let HostCredential { name, destination, header, value } = spec;
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
