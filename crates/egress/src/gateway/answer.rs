//! The interface between the HTTP front end and the backend that answers requests.
//!
//! A script, a tape, the live model and, wrapped around them, an observer ([`super::Observed`]) all implement
//! [`Responder`]. The front end has read the complete request within its limits. It takes care of the framing of the
//! response, of its deadline, and of cutting the connection if the body fails.

use std::pin::Pin;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode, Uri};
use serde_json::json;

/// A completely read request.
#[derive(Debug)]
pub struct GatewayRequest {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The body, or why it could not be read.
    pub body: Result<Bytes, BodyFault>,
}

/// Why the body of a request could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// The body is larger than the limit.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// The client closed the connection, or broke the framing, before the end.
    #[error("the request body is incomplete")]
    Broken,
    /// The bodies of all current requests together are too large.
    #[error("too many large requests at once")]
    NoRoom,
    #[error("the request body was not received in time")]
    Late,
}

pub type AnswerBody = UnsyncBoxBody<Bytes, Broken>;

/// The future of a response.
pub type AnswerFuture = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, HangUp>> + Send>>;

/// Answers requests in place of the model's API.
pub trait Responder: Send + Sync {
    /// Answers one request. The future and the body are dropped when the client closes the connection.
    fn answer(&self, asked: GatewayRequest) -> AnswerFuture;
}

/// An incomplete body. Everything before the break is sent; then the connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("the response is cut off")]
    Close,
    #[error("the response is reset")]
    Reset,
}

/// The connection is closed without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection is closed without a response")]
pub struct HangUp;

/// Whether the client should retry the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// The client's own rules decide.
    AsUsual,
    /// The result would be the same. The agent's library obeys the header that says so.
    Never,
}

/// An error in the format of the API.
pub(crate) fn error_answer(
    status: StatusCode,
    kind: &str,
    message: &str,
    retry: Retry,
) -> Response<AnswerBody> {
    let document = json!({"type": "error", "error": {"type": kind, "message": message}}).to_string();
    let mut response = document_answer(status, Bytes::from(document));
    if retry == Retry::Never {
        let name = HeaderName::from_static("x-should-retry");
        response.headers_mut().insert(name, HeaderValue::from_static("false"));
    }
    response
}

/// A JSON document with a content length.
pub(crate) fn document_answer(status: StatusCode, document: Bytes) -> Response<AnswerBody> {
    let body = Full::new(document).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
