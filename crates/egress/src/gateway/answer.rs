//! Who answers a request: the seam between the one front end and what stands behind it.
//!
//! A script, the live model and, wrapped around either, whatever watches the exchange ([`super::Observed`]) are all an
//! [`Answer`]. The front end has read the request whole and within bounds; it sees to the framing of the answer, to
//! its deadline, and to a break of the connection where the body breaks.

use std::pin::Pin;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode, Uri};
use serde_json::json;

/// A request, read to its end.
#[derive(Debug)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, or why there is none.
    pub body: Result<Bytes, BodyFault>,
}

/// Why the body of a request was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// Larger than is read.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// The largest that is read.
        limit: usize,
    },
    /// The client left, or broke the framing, before the end.
    #[error("the request body broke off")]
    Broken,
    /// The bodies of the requests under way leave no room.
    #[error("too many large requests are under way at once")]
    NoRoom,
    /// It did not come in time.
    #[error("the request body did not come in time")]
    Late,
}

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, Broken>;

/// An answer under way.
pub type Answering = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, HangUp>> + Send>>;

/// Answers requests.
pub trait Answer: Send + Sync {
    /// Answers one. The future and the body are dropped when the client leaves.
    fn answer(&self, asked: Asked) -> Answering;
}

/// A body that ends without an end; the client's connection does too, after what came before is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The connection closes.
    #[error("the answer breaks off")]
    Close,
    /// The connection is reset.
    #[error("the answer is reset")]
    Reset,
}

/// There is no answer; the connection closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection closes without an answer")]
pub struct HangUp;

/// Whether the client is to come again with the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// The client's own rules decide.
    AsUsual,
    /// It would be answered the same. The agent's library obeys the header that says so.
    Never,
}

/// An error in the API's own shape.
pub(crate) fn error_answer(
    status: StatusCode,
    kind: &str,
    message: &str,
    again: Again,
) -> Response<AnswerBody> {
    let document = json!({"type": "error", "error": {"type": kind, "message": message}}).to_string();
    let mut response = document_answer(status, Bytes::from(document));
    if again == Again::Never {
        let name = HeaderName::from_static("x-should-retry");
        response.headers_mut().insert(name, HeaderValue::from_static("false"));
    }
    response
}

/// A JSON document with a length.
pub(crate) fn document_answer(status: StatusCode, document: Bytes) -> Response<AnswerBody> {
    let body = Full::new(document).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
