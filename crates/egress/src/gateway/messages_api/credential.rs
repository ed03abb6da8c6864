//! How the provider expects the credential for the model.

use belljar_contract::Secret;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, InvalidHeaderValue};
use zeroize::Zeroizing;

/// The credential that the model's host expects.
#[derive(Debug)]
pub enum ModelCredential {
    /// An API key, sent as `x-api-key`.
    ApiKey(Secret),
    /// A bearer token, sent as `authorization: Bearer`.
    Bearer(Secret),
}

impl ModelCredential {
    /// The header that carries it, marked as sensitive so that it is neither printed nor put in HTTP/2's header table.
    pub(in crate::gateway) fn header(&self) -> Result<(HeaderName, HeaderValue), InvalidHeaderValue> {
        let (name, value) = match self {
            Self::ApiKey(key) => {
                (HeaderName::from_static("x-api-key"), HeaderValue::from_bytes(key.expose()))
            }
            Self::Bearer(token) => {
                let value = Zeroizing::new([b"Bearer ", token.expose()].concat());
                (AUTHORIZATION, HeaderValue::from_bytes(&value))
            }
        };
        let mut value = value?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    /// Whether the bytes contain it.
    pub(in crate::gateway) fn is_in(&self, bytes: &[u8]) -> bool {
        let secret = self.secret().expose();
        !secret.is_empty() && bytes.windows(secret.len()).any(|window| window == secret)
    }

    /// The secret, so that it can be redacted.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        match self {
            Self::ApiKey(secret) | Self::Bearer(secret) => secret,
        }
    }
}
