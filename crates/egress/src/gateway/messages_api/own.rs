//! A request of belljar itself to the model. It takes the same path as the agent's requests: it is charged to the same
//! budget, logged in the same log, and gets its credential from the gateway.

use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Uri};
use serde_json::Value;

use super::names::VERSION_HEADER;
use super::usage::TokenCount;
use crate::gateway::answer::{GatewayRequest, HangUp, Responder};
use belljar_contract::OWN_REFUSAL;

/// Limit for the response, which should be a few words.
const LONGEST: usize = 1 << 20;

/// Why the request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnRequestError {
    #[error("the model did not respond")]
    Nothing,
    /// The response is incomplete or too long.
    #[error("the model's response could not be read")]
    Broken,
    #[error("the model's API returned {status}: {message}")]
    Refused { status: u16, message: String },
    /// The gateway did not send the request, or withheld the response.
    #[error("{message}")]
    Withheld { message: String },
    #[error("the model's response is not a message with text")]
    Form,
    /// It refused, was cut off, called a tool, or is another model's.
    #[error("the model's response is not an answer: {why}")]
    NoAnswer { why: String },
}

/// The response to such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnReply {
    pub text: String,
    /// The tokens that the API counted for it.
    pub tokens: TokenCount,
}

/// Asks the model once and returns the text of its response.
///
/// # Errors
/// When the response has no such text.
pub async fn ask(answer: &dyn Responder, request: &Value) -> Result<OwnReply, OwnRequestError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let version = HeaderName::from_static(VERSION_HEADER);
    headers.insert(version, HeaderValue::from_static("2023-06-01"));
    let asked = GatewayRequest {
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
        let message: String = message.chars().filter(|letter| !letter.is_control()).take(300).collect();
        if let Some(message) = message.strip_prefix(OWN_REFUSAL) {
            return Err(OwnRequestError::Withheld { message: message.to_owned() });
        }
        return Err(OwnRequestError::Refused { status: head.status.as_u16(), message });
    }
    let blocks = document["content"].as_array().ok_or(OwnRequestError::Form)?;
    if let Some(why) = no_answer(&document, request) {
        return Err(OwnRequestError::NoAnswer { why });
    }
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    let text: String = texts.collect();
    if text.is_empty() {
        return Err(OwnRequestError::Form);
    }
    let count = |name: &str| document["usage"][name].as_u64().unwrap_or(0);
    let tokens = TokenCount {
        input: count("input_tokens"),
        output: count("output_tokens"),
        cache_creation: count("cache_creation_input_tokens"),
        cache_read: count("cache_read_input_tokens"),
        ..TokenCount::default()
    };
    Ok(OwnReply { text, tokens })
}

/// Why a message is not the finished answer of the model that was asked.
fn no_answer(document: &Value, request: &Value) -> Option<String> {
    let short = |text: &str| text.chars().filter(|letter| !letter.is_control()).take(64).collect::<String>();
    match document["stop_reason"].as_str() {
        None | Some("end_turn" | "stop_sequence") => {}
        Some(other) => return Some(format!("it stopped with `{}`", short(other))),
    }
    let blocks = document["content"].as_array().into_iter().flatten();
    let mut kinds = blocks.filter_map(|block| block["type"].as_str());
    if let Some(kind) = kinds.find(|kind| !["text", "thinking", "redacted_thinking"].contains(kind)) {
        return Some(format!("it has a block `{}`", short(kind)));
    }
    let (asked, found) = (request["model"].as_str()?, document["model"].as_str()?);
    // The API answers with the dated name of what was asked for.
    let dated = found.strip_prefix(asked).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    (!dated).then(|| format!("it is from the model `{}`, and `{}` was asked", short(found), short(asked)))
}
