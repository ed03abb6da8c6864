//! A request of belljar's own to whoever answers for the model: by the same way as the agent's, so that it is paid for
//! out of the same budget, written down in the same log, and carries no credential before the gateway gives it one.

use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Uri};
use serde_json::Value;

use super::answer::{Answer, Asked, HangUp};

/// An answer is a few words; a longer document is none.
const LONGEST: usize = 1 << 20;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnRequestError {
    /// The connection closed.
    #[error("the model gave no answer")]
    Nothing,
    /// The answer broke off, or is too long.
    #[error("the model's answer could not be read")]
    Broken,
    /// It says no.
    #[error("the model's service answered {status}: {message}")]
    Refused {
        /// The status.
        status: u16,
        /// What it says.
        message: String,
    },
    /// It is no message.
    #[error("the model's answer is no message with a text")]
    Form,
}

/// Asks the model once and gives the text of its answer.
///
/// # Errors
/// When there is none.
pub async fn ask(answer: &dyn Answer, request: &Value) -> Result<String, OwnRequestError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let version = HeaderName::from_static("anthropic-version");
    headers.insert(version, HeaderValue::from_static("2023-06-01"));
    let asked = Asked {
        method: Method::POST,
        uri: Uri::from_static("/v1/messages"),
        headers,
        body: Ok(Bytes::from(request.to_string())),
    };
    let response = answer.answer(asked).await.map_err(|HangUp| OwnRequestError::Nothing)?;
    let (head, body) = response.into_parts();
    let read = Limited::new(body, LONGEST).collect().await;
    let bytes = read.map_err(|_broken| OwnRequestError::Broken)?.to_bytes();
    let document: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if !head.status.is_success() {
        let message = document["error"]["message"].as_str().unwrap_or_default();
        let message = message.chars().filter(|letter| !letter.is_control()).take(300).collect();
        return Err(OwnRequestError::Refused { status: head.status.as_u16(), message });
    }
    let blocks = document["content"].as_array().ok_or(OwnRequestError::Form)?;
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    let text: String = texts.collect();
    if text.is_empty() { Err(OwnRequestError::Form) } else { Ok(text) }
}
