//! A tape as an HTTP archive (HAR 1.2), which browsers' tools read.

use super::Tape;
use super::show::conversation_label;
use belljar_contract::{Exchange, ExchangeEnd, UtcTime};
use serde_json::{Value, json};
use std::io;

/// The tape does not record the model's address; names in this domain never resolve.
const WHERE: &str = "https://model.invalid";

/// An archive has every request whole, in memory as well.
const REQUESTS_MAX: u64 = 500_000_000;

/// The exchanges of a tape. Texts that the tape holds as digests stay digests.
///
/// # Errors
/// If a body cannot be read, or the requests are too large together.
pub fn har(tape: &Tape) -> io::Result<Value> {
    let bytes: u64 = tape.exchanges.iter().map(|exchange| exchange.request.body.bytes).sum();
    if bytes > REQUESTS_MAX {
        let why =
            format!("its requests have {bytes} bytes as they were sent, and an archive takes {REQUESTS_MAX}");
        return Err(io::Error::other(why));
    }
    let entries: Vec<Value> =
        tape.exchanges.iter().map(|exchange| entry(tape, exchange)).collect::<io::Result<_>>()?;
    Ok(json!({"log": {
        "version": "1.2",
        "creator": {"name": "belljar", "version": tape.head.belljar},
        "pages": [],
        "entries": entries,
        "comment": format!("the tape of {}", tape.head.scenario.name),
    }}))
}

fn entry(tape: &Tape, exchange: &Exchange) -> io::Result<Value> {
    let request = &exchange.request;
    let asked = tape.body(request.body)?;
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        json!({"name": name, "value": value})
    });
    let first = exchange.answer.as_ref().and_then(|answer| answer.chunks.first()).map(|(ms, _)| *ms);
    let whole = exchange.answer.as_ref().map_or(0, |answer| answer.ended_ms);
    let wait = first.unwrap_or(whole).min(whole);
    let mut out = json!({
        "startedDateTime": iso(tape.head.recorded_at_ms.saturating_add(exchange.at_ms)),
        "time": whole,
        "request": {
            "method": request.method,
            "url": format!("{WHERE}{}", request.path),
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": headers(&request.headers),
            "queryString": pairs.collect::<Vec<_>>(),
            "postData": {"mimeType": "application/json", "text": String::from_utf8_lossy(&asked)},
            "headersSize": -1,
            "bodySize": request.body.bytes,
        },
        "response": response(tape, exchange)?,
        "cache": {},
        "timings": {"send": 0, "wait": wait, "receive": whole - wait},
        "comment": conversation_label(&exchange.conversation),
    });
    let error = match exchange.answer.as_ref().map(|answer| answer.end) {
        None => Some("closed without an answer"),
        Some(ExchangeEnd::Broken) => Some("broken off"),
        Some(ExchangeEnd::Left) => Some("not waited for"),
        Some(ExchangeEnd::Complete) => None,
    };
    if let Some(error) = error {
        out["response"]["_error"] = json!(error);
    }
    Ok(out)
}

fn response(tape: &Tape, exchange: &Exchange) -> io::Result<Value> {
    let Some(answer) = &exchange.answer else {
        return Ok(json!({
            "status": 0, "statusText": "", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [],
            "content": {"size": 0, "mimeType": "x-unknown"}, "redirectURL": "", "headersSize": -1, "bodySize": -1,
        }));
    };
    let said = tape.body(answer.body)?;
    let kind = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let stream = !answer.chunks.is_empty() && said.starts_with(b"event:");
    let usual = if stream { "text/event-stream" } else { "application/json" };
    Ok(json!({
        "status": answer.status,
        "statusText": "",
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": headers(&answer.headers),
        "content": {
            "size": said.len(),
            "mimeType": kind.map_or(usual, |(_, value)| value),
            "text": String::from_utf8_lossy(&said),
        },
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": said.len(),
    }))
}

fn headers(all: &[(String, String)]) -> Vec<Value> {
    all.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn iso(ms: u64) -> String {
    let at = UtcTime::from_unix_ms(ms).compact();
    let (day, time) = at.split_once('-').unwrap_or_default();
    let parts = |text: &str, ends: [usize; 2]| {
        let (head, tail) = text.split_at(ends[0].min(text.len()));
        let (middle, last) = tail.split_at(ends[1].min(tail.len()));
        [head.to_owned(), middle.to_owned(), last.to_owned()]
    };
    format!("{}T{}.{:03}Z", parts(day, [4, 2]).join("-"), parts(time, [2, 2]).join(":"), ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_the_format_wants_it() {
        assert_eq!(iso(951_782_399_007), "2000-02-28T23:59:59.007Z");
    }
}
