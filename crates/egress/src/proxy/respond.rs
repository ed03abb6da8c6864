//! Relays a host's response to the client, and resets the connection if the response is incomplete.

use super::gate::ByteCounts;
use super::head::{Head, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::{Response, StatusCode};
use std::io;
use std::sync::atomic::Ordering;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::WriteHalf;

/// Headers that concern one connection and are not forwarded.
pub(super) const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// What happens to the client's connection after a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterResponse {
    KeepAlive,
    Close,
    /// The connection is reset, so that an incomplete response does not look complete.
    Reset,
}

/// Why a response is missing or incomplete.
pub(super) enum ResponseError {
    Missing(String),
    Interrupted(String),
}

/// How the client learns where the response ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    NoBody,
    Length,
    Chunks,
    UntilClose,
}

/// Relays the host's response.
pub(super) async fn send_response(
    writer: &mut WriteHalf<'_>,
    head: &Head,
    response: Response<Incoming>,
    moved: &ByteCounts,
) -> Result<AfterResponse, ResponseError> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ResponseError::Missing("it switched protocols".to_owned()));
    }
    let (parts, mut body) = response.into_parts();
    let bodiless =
        head.method == "HEAD" || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let sending = match (bodiless, body.size_hint().exact(), head.version) {
        (true, _, _) => Sending::NoBody,
        (false, Some(_), _) => Sending::Length,
        (false, None, Version::Http11) => Sending::Chunks,
        (false, None, Version::Http10) => Sending::UntilClose,
    };
    let after = if sending != Sending::UntilClose && head.keeps_alive() {
        AfterResponse::KeepAlive
    } else {
        AfterResponse::Close
    };
    let text = response_head(&parts, body.size_hint().exact(), sending, &after);
    moved.received.fetch_add(text.len() as u64, Ordering::Relaxed);
    let broken =
        |error: io::Error| ResponseError::Interrupted(format!("the client's connection failed: {error}"));
    writer.write_all(&text).await.map_err(broken)?;
    loop {
        let frame = match body.frame().await {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Err(ResponseError::Interrupted(error.to_string())),
            None => break,
        };
        let Ok(content) = frame.into_data() else { continue };
        if content.is_empty() {
            continue;
        }
        moved.received.fetch_add(content.len() as u64, Ordering::Relaxed);
        if sending == Sending::Chunks {
            let framed = [format!("{:x}\r\n", content.len()).as_bytes(), &content, b"\r\n"].concat();
            writer.write_all(&framed).await.map_err(broken)?;
        } else {
            writer.write_all(&content).await.map_err(broken)?;
        }
    }
    if sending == Sending::Chunks {
        writer.write_all(b"0\r\n\r\n").await.map_err(broken)?;
    }
    Ok(after)
}

fn response_head(
    parts: &hyper::http::response::Parts,
    length: Option<u64>,
    sending: Sending,
    after: &AfterResponse,
) -> Vec<u8> {
    let reason = parts.status.canonical_reason().unwrap_or("Unknown");
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", parts.status.as_str()).into_bytes();
    let named: Vec<String> = parts
        .headers
        .get_all("connection")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|token| token.trim().to_ascii_lowercase()))
        .collect();
    for (name, value) in &parts.headers {
        let framing = name == "content-length" && sending != Sending::NoBody;
        if framing || HOP_BY_HOP.contains(&name.as_str()) || named.iter().any(|token| token == name.as_str())
        {
            continue;
        }
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    match (sending, length) {
        (Sending::Length, Some(length)) => head.extend(format!("content-length: {length}\r\n").into_bytes()),
        (Sending::Chunks, _) => head.extend(b"transfer-encoding: chunked\r\n"),
        (Sending::NoBody | Sending::Length | Sending::UntilClose, _) => {}
    }
    head.extend(match after {
        AfterResponse::KeepAlive => &b"connection: keep-alive\r\n\r\n"[..],
        AfterResponse::Close | AfterResponse::Reset => b"connection: close\r\n\r\n",
    });
    head
}
