//! Requests to an engine: HTTP over its unix socket, one connection for each. Existing clients for engines bound neither the
//! length of an answer nor the time until its end; both are bounded here.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The longest answer that is read whole.
const ANSWER_LIMIT: usize = 16 << 20;
/// The longest line, and the most bytes of all lines together.
const LINE_LIMIT: usize = 1 << 20;
const STREAM_LIMIT: usize = 256 << 20;
/// How often the caller hears that there is nothing new, and how often that may be in a row.
const BEAT: Duration = Duration::from_secs(1);
const SILENT_BEATS: u32 = 600;

/// The body of a request.
#[derive(Debug)]
pub(super) enum Sent {
    Nothing,
    Json(serde_json::Value),
    Tar(Vec<u8>),
}

/// The answer of an engine.
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

    /// Returns the engine's error message.
    pub fn message(&self) -> String {
        match self.json().get("message").and_then(serde_json::Value::as_str) {
            Some(message) => message.trim().to_owned(),
            None => String::from_utf8_lossy(&self.body).trim().chars().take(2000).collect(),
        }
    }
}

/// A part of an answer that comes line by line.
#[derive(Debug)]
pub(super) enum Heard<'a> {
    Line(&'a serde_json::Value),
    /// Nothing, for a while.
    Silence,
}

/// Asks and waits for the whole answer.
pub(super) fn ask(
    socket: &Path,
    method: Method,
    target: &str,
    sent: Sent,
    within: Duration,
) -> io::Result<Answer> {
    let exchange = async { whole(send(socket, method, target, sent).await?).await };
    runtime()?.block_on(async { tokio::time::timeout(within, exchange).await })?
}

/// Asks for something that takes long, and hands on the answer line by line. The whole may take any time, but neither a
/// silence nor the answer may be too long.
pub(super) fn follow(
    socket: &Path,
    target: &str,
    sent: Sent,
    each: &mut dyn FnMut(Heard<'_>),
) -> io::Result<Answer> {
    runtime()?.block_on(async {
        let answer = watched(send(socket, Method::POST, target, sent), each).await?;
        let status = answer.status();
        if !status.is_success() {
            return watched(whole(answer), each).await;
        }
        let (mut body, mut lines) = (answer.into_body(), JsonLines::default());
        while let Some(frame) = watched(async { body.frame().await.transpose() }, each).await? {
            let bytes = frame.into_data().unwrap_or_default();
            lines.take(&bytes)?.iter().for_each(|line| each(Heard::Line(line)));
        }
        lines.end()?.iter().for_each(|line| each(Heard::Line(line)));
        Ok(Answer { status: status.as_u16(), body: Vec::new() })
    })
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn send(socket: &Path, method: Method, target: &str, sent: Sent) -> io::Result<Response<Incoming>> {
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
    let stream = tokio::net::UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // The task moves the bytes of the exchange; an error on the connection shows in the exchange.
    tokio::spawn(async { connection.await.ok() });
    sender.send_request(request).await.map_err(io::Error::other)
}

async fn whole(answer: Response<Incoming>) -> io::Result<Answer> {
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await;
    Ok(Answer { status, body: body.map_err(io::Error::other)?.to_bytes().to_vec() })
}

/// Waits for one result, and reports every beat that there is none yet.
async fn watched<T, E: Into<Box<dyn Error + Send + Sync>>>(
    awaited: impl Future<Output = Result<T, E>>,
    each: &mut dyn FnMut(Heard<'_>),
) -> io::Result<T> {
    let mut awaited = pin!(awaited);
    for _ in 0..SILENT_BEATS {
        match tokio::time::timeout(BEAT, &mut awaited).await {
            Ok(done) => return done.map_err(io::Error::other),
            Err(_) => each(Heard::Silence),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Joins pieces to lines of JSON.
#[derive(Debug, Default)]
struct JsonLines {
    begun: Vec<u8>,
    total: usize,
}

impl JsonLines {
    fn take(&mut self, bytes: &[u8]) -> io::Result<Vec<serde_json::Value>> {
        self.total = self.total.saturating_add(bytes.len());
        self.begun.extend_from_slice(bytes);
        let ended = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.begun.split_off(ended);
        let lines = parse(&std::mem::replace(&mut self.begun, rest))?;
        if self.begun.len() > LINE_LIMIT || self.total > STREAM_LIMIT {
            return Err(io::Error::other("its answer is too long"));
        }
        Ok(lines)
    }

    fn end(self) -> io::Result<Vec<serde_json::Value>> {
        parse(&self.begun)
    }
}

fn parse(text: &[u8]) -> io::Result<Vec<serde_json::Value>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines.map(|line| serde_json::from_slice(line).map_err(io::Error::from)).collect()
}

/// Escapes a text for a query or a path.
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
    fn the_error_message_of_an_answer() {
        let answer = |body: &str| Answer { status: 404, body: body.as_bytes().to_vec() };
        assert_eq!(answer(r#"{"message":"no such image\n"}"#).message(), "no such image");
        assert_eq!(answer("not json").message(), "not json");
        assert!(!answer("").is_good());
    }

    #[test]
    fn queries() {
        assert_eq!(escaped(r#"{"a":["b c"]}"#), "%7B%22a%22:%5B%22b%20c%22%5D%7D");
    }

    #[test]
    fn lines_come_in_any_pieces() {
        let text = b"{\"a\":1}\r\n\n{\"b\":\"x\\ny\"}\n{\"c\":2}";
        let expected: Vec<_> = [r#"{"a":1}"#, r#"{"b":"x\ny"}"#, r#"{"c":2}"#]
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .into();
        for size in 1..=text.len() {
            let mut lines = JsonLines::default();
            let mut found: Vec<_> = text.chunks(size).flat_map(|piece| lines.take(piece).unwrap()).collect();
            found.extend(lines.end().unwrap());
            assert_eq!(found, expected, "in pieces of {size}");
        }
        let mut cut = JsonLines::default();
        assert_eq!(cut.take(b"{\"a\":").unwrap(), Vec::<serde_json::Value>::new());
        cut.end().unwrap_err();
        JsonLines::default().take(b"no json\n").unwrap_err();
    }

    #[test]
    fn an_endless_answer_is_cut_off() {
        let mut long = JsonLines::default();
        let piece = vec![b'x'; LINE_LIMIT];
        assert_eq!(long.take(&piece).unwrap().len(), 0);
        assert!(long.take(b"x").unwrap_err().to_string().contains("its answer is too long"));
        let mut many = JsonLines { begun: Vec::new(), total: STREAM_LIMIT - 3 };
        many.take(b"{}\n").unwrap();
        many.take(b"{}\n").unwrap_err();
    }
}
