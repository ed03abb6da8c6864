//! What the model was asked, kept for judging. Credentials are replaced before an entry exists.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::document::JsonText;
use super::player::{Choice, Player};
use super::request::{MessagesRequest, content_text, last_message_text};

/// Headers whose values never enter the log.
const SECRET_HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-api-key"];

/// Bytes of bodies that one log keeps. A client that sends more is still answered, and its bodies are counted only.
const KEPT_BODY_BYTES: usize = 256 * 1024 * 1024;

/// One request, as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedRequest {
    /// Arrival number, from 0; the position in the log.
    pub index: usize,
    /// HTTP method.
    pub method: String,
    /// Path without the query, with whatever prefix the client's base URL has.
    pub path: String,
    /// Query without the question mark.
    pub query: Option<String>,
    /// Headers in the order of arrival, credentials replaced.
    pub headers: Vec<HeaderSeen>,
    /// The body.
    pub body: BodySeen,
    /// What it was answered with.
    pub answered_by: AnsweredBy,
}

/// A request header, safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderSeen {
    /// Lower-case name.
    pub name: String,
    /// Its value, or the trace of it.
    pub value: HeaderText,
}

/// A header's value as far as a log may know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderText {
    /// The value; bytes that are not UTF-8 are replaced.
    Clear(String),
    /// The header carries a credential, of which only this is kept.
    Secret(Fingerprint),
}

/// The first 64 bits of a SHA-256: enough to tell which of the known credentials was sent, too little to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 8]);

/// A request's body as far as the log keeps it.
#[derive(Debug, Clone, PartialEq)]
pub enum BodySeen {
    /// There was none.
    Empty,
    /// A JSON document.
    Json(JsonText),
    /// Something else.
    NotJson {
        /// Its size.
        bytes: usize,
        /// What the JSON reader said.
        problem: String,
    },
    /// More than the server reads.
    TooLarge,
    /// The client left, or broke the framing, before the end.
    Broken,
    /// The log was full; the request was answered all the same.
    NotKept {
        /// Its size.
        bytes: usize,
    },
}

/// What answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The turn at this position of the script.
    Turn(usize),
    /// The script's text for requests without tools.
    SideReply,
    /// The script's way with requests after the last turn.
    Exhausted,
    /// The error for a request that none of the remaining turns accepts.
    NoTurnAccepts,
    /// The token counter.
    TokenCount,
    /// The greeting at the root.
    Greeting,
    /// An error of this status that no script asked for.
    Refused(u16),
}

/// A finished run of a scripted model.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// All requests, in the order of arrival.
    pub requests: Vec<Arc<LoggedRequest>>,
    /// Positions of the turns that no request took.
    pub unplayed: Vec<usize>,
}

/// The awaited requests did not come in time.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the awaited requests did not come within {waited:?}; {seen} came", seen = .seen.len())]
pub struct WaitTimedOut {
    /// The time that was granted.
    pub waited: Duration,
    /// What had come by then.
    pub seen: Vec<Arc<LoggedRequest>>,
}

impl Fingerprint {
    /// The fingerprint of a header's value.
    pub fn of(value: impl AsRef<[u8]>) -> Self {
        let digest = Sha256::digest(value.as_ref());
        let mut short = [0; 8];
        short.iter_mut().zip(digest.iter()).for_each(|(to, from)| *to = *from);
        Self(short)
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl LoggedRequest {
    /// The clear value of a header; nothing for one that is absent or secret. The name is lower-case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.values(name).find_map(|value| match value {
            HeaderText::Clear(text) => Some(text.as_str()),
            HeaderText::Secret(_) => None,
        })
    }

    /// Whether a secret header was sent with exactly this value (for `authorization` with its scheme).
    pub fn sent_secret(&self, name: &str, expected: &str) -> bool {
        let expected = HeaderText::Secret(Fingerprint::of(expected));
        self.values(name).any(|value| *value == expected)
    }

    /// The body, if it is JSON and was kept.
    pub fn json(&self) -> Option<Value> {
        self.json_text().map(JsonText::value)
    }

    /// The same, as text.
    pub fn json_text(&self) -> Option<&JsonText> {
        match &self.body {
            BodySeen::Json(body) => Some(body),
            BodySeen::Empty
            | BodySeen::NotJson { .. }
            | BodySeen::TooLarge
            | BodySeen::Broken
            | BodySeen::NotKept { .. } => None,
        }
    }

    /// Text of the last message that is not a system note; empty if there is none.
    pub fn last_message(&self) -> String {
        last_message_text(&self.messages())
    }

    /// Results of tools that this request carries, as id of the call and text.
    pub fn tool_results(&self) -> Vec<(String, String)> {
        let messages = self.messages();
        let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
        blocks
            .filter(|block| block["type"] == "tool_result")
            .map(|block| {
                let id = block["tool_use_id"].as_str().unwrap_or_default().to_owned();
                (id, content_text(&block["content"]))
            })
            .collect()
    }

    fn messages(&self) -> Vec<Value> {
        match self.json().and_then(|mut body| body.get_mut("messages").map(Value::take)) {
            Some(Value::Array(messages)) => messages,
            Some(_) | None => Vec::new(),
        }
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &HeaderText> {
        self.headers.iter().filter(move |header| header.name == name).map(|header| &header.value)
    }
}

/// The head of a request, before it has an answer.
#[derive(Debug)]
pub(super) struct Arrival {
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    pub headers: Vec<HeaderSeen>,
    pub body: BodySeen,
    /// Size of the body on the wire, which the log's memory is reckoned by.
    pub body_bytes: usize,
}

/// Headers with their credentials replaced.
pub(super) fn headers_seen(headers: &HeaderMap) -> Vec<HeaderSeen> {
    let seen = headers.iter().map(|(name, value)| HeaderSeen {
        name: name.as_str().to_owned(),
        value: if SECRET_HEADERS.contains(&name.as_str()) {
            HeaderText::Secret(Fingerprint::of(value.as_bytes()))
        } else {
            HeaderText::Clear(String::from_utf8_lossy(value.as_bytes()).into_owned())
        },
    });
    seen.collect()
}

/// The player and the log behind one lock, so that they cannot disagree.
#[derive(Debug)]
pub(super) struct Ledger {
    state: Mutex<State>,
    grew: Condvar,
}

#[derive(Debug)]
struct State {
    player: Player,
    requests: Vec<Arc<LoggedRequest>>,
    room_bytes: usize,
}

impl Ledger {
    pub fn new(player: Player) -> Self {
        Self::with_room(player, KEPT_BODY_BYTES)
    }

    /// A ledger that keeps bodies up to this size in all.
    fn with_room(player: Player, room_bytes: usize) -> Self {
        let state = State { player, requests: Vec::new(), room_bytes };
        Self { state: Mutex::new(state), grew: Condvar::new() }
    }

    /// Logs a request that the script has no part in; returns its number.
    pub fn enter(&self, arrival: Arrival, answered_by: AnsweredBy) -> usize {
        let mut state = self.state();
        let index = state.push(arrival, answered_by);
        drop(state);
        self.grew.notify_all();
        index
    }

    /// Chooses the answer to a messages request and logs it, in one step; returns its number and the choice.
    pub fn play(&self, arrival: Arrival, request: &MessagesRequest) -> (usize, Choice) {
        let mut state = self.state();
        let choice = state.player.choose(request);
        let answered_by = match &choice {
            Choice::Turn { index, turn: _ } => AnsweredBy::Turn(*index),
            Choice::Side { .. } => AnsweredBy::SideReply,
            Choice::ExhaustedReply { .. } | Choice::ExhaustedError { .. } => AnsweredBy::Exhausted,
            Choice::NoneAccepts { .. } => AnsweredBy::NoTurnAccepts,
        };
        let index = state.push(arrival, answered_by);
        drop(state);
        self.grew.notify_all();
        (index, choice)
    }

    pub fn requests(&self) -> Vec<Arc<LoggedRequest>> {
        self.state().requests.clone()
    }

    pub fn unplayed(&self) -> Vec<usize> {
        self.state().player.unplayed()
    }

    /// Waits until the log satisfies a condition; woken by each entry.
    pub fn wait(
        &self,
        within: Duration,
        mut enough: impl FnMut(&[Arc<LoggedRequest>]) -> bool,
    ) -> Result<Vec<Arc<LoggedRequest>>, WaitTimedOut> {
        let began = Instant::now();
        let mut state = self.state();
        loop {
            if enough(&state.requests) {
                return Ok(state.requests.clone());
            }
            let left = within.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(WaitTimedOut { waited: within, seen: state.requests.clone() });
            }
            state = self.grew.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A panic elsewhere cannot leave the state half changed: each change is a single push or flag.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, arrival: Arrival, answered_by: AnsweredBy) -> usize {
        let Arrival { method, path, query, headers, body, body_bytes } = arrival;
        let index = self.requests.len();
        let body = match (body, self.room_bytes.checked_sub(body_bytes)) {
            (BodySeen::Json(body), Some(room_bytes)) => {
                self.room_bytes = room_bytes;
                BodySeen::Json(body)
            }
            (BodySeen::Json(_), None) => BodySeen::NotKept { bytes: body_bytes },
            (body, _) => body,
        };
        let request = LoggedRequest { index, method, path, query, headers, body, answered_by };
        self.requests.push(Arc::new(request));
        index
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::Script;
    use super::*;

    fn empty() -> JsonText {
        JsonText::read("{}".into()).unwrap()
    }

    #[test]
    fn a_full_log_counts_bodies_and_keeps_the_rest() {
        let ledger = Ledger::with_room(Player::new(Script::new()), 10);
        let arrival = |body_bytes| Arrival {
            method: "POST".into(),
            path: "/".into(),
            query: None,
            headers: Vec::new(),
            body: BodySeen::Json(empty()),
            body_bytes,
        };
        for body_bytes in [6, 6, 4, 1] {
            ledger.enter(arrival(body_bytes), AnsweredBy::TokenCount);
        }
        let bodies: Vec<BodySeen> = ledger.requests().iter().map(|request| request.body.clone()).collect();
        let kept = BodySeen::Json(empty());
        assert_eq!(
            bodies,
            [kept.clone(), BodySeen::NotKept { bytes: 6 }, kept, BodySeen::NotKept { bytes: 1 }]
        );
    }
}
