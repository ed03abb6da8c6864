//! One request to an engine: HTTP over its unix socket, a connection each.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::Path;
use std::time::Duration;

/// More than any answer that is waited for here.
const ANSWER_LIMIT: usize = 16 << 20;

/// What is sent along.
#[derive(Debug)]
pub(super) enum Sent {
    Nothing,
    Json(serde_json::Value),
    Tar(Vec<u8>),
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null)
    }

    /// What the engine says went wrong.
    pub fn words(&self) -> String {
        match self.json().get("message").and_then(serde_json::Value::as_str) {
            Some(message) => message.trim().to_owned(),
            None => String::from_utf8_lossy(&self.body).trim().chars().take(2000).collect(),
        }
    }
}

/// Asks and waits for the whole answer.
pub(super) fn ask(
    socket: &Path,
    method: Method,
    target: &str,
    sent: Sent,
    within: Duration,
) -> io::Result<Answer> {
    let (kind, body) = match sent {
        Sent::Nothing => (None, Bytes::new()),
        Sent::Json(value) => (Some("application/json"), value.to_string().into()),
        Sent::Tar(bytes) => (Some("application/x-tar"), bytes.into()),
    };
    let mut request = Request::builder().method(method).uri(target).header("Host", "engine");
    if let Some(kind) = kind {
        request = request.header("Content-Type", kind);
    }
    let request = request.body(Full::new(body)).map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exchange = async {
        let stream = tokio::net::UnixStream::connect(socket).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // It moves the bytes of the exchange; how it ends is told by the exchange.
        tokio::spawn(async { connection.await.ok() });
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await;
        Ok(Answer { status, body: body.map_err(io::Error::other)?.to_bytes().to_vec() })
    };
    runtime.block_on(async { tokio::time::timeout(within, exchange).await })?
}

/// A word as part of a query or a path.
pub(super) fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b':' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_answer() {
        let answer = |body: &str| Answer { status: 404, body: body.as_bytes().to_vec() };
        assert_eq!(answer(r#"{"message":"no such image\n"}"#).words(), "no such image");
        assert_eq!(answer("not json").words(), "not json");
        assert!(!answer("").is_good());
    }

    #[test]
    fn queries() {
        assert_eq!(escaped(r#"{"a":["b c"]}"#), "%7B%22a%22:%5B%22b%20c%22%5D%7D");
    }
}
