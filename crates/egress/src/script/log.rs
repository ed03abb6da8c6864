//! The requests that a scripted model received, for later checks. Credentials are replaced before a request is kept.

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

/// Total size of the bodies that one log keeps. Further requests are answered, and only the size of their bodies is kept.
const KEPT_BODY_BYTES: usize = 64 * 1024 * 1024;

/// How many requests one log keeps. Processes in the sandbox can send any number; further ones are answered and counted.
const KEPT_REQUESTS: usize = 10_000;

#[derive(Debug, Clone, PartialEq)]
pub struct LoggedRequest {
    /// Position in the log, from 0.
    pub index: usize,
    pub method: String,
    /// Path without the query, including a prefix of the client's base URL.
    pub path: String,
    /// Query without the question mark.
    pub query: Option<String>,
    /// Headers in order, with credentials replaced.
    pub headers: Vec<HeaderSeen>,
    pub body: BodySeen,
    pub answered_by: AnsweredBy,
}

/// A request header without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderSeen {
    pub name: String,
    pub value: HeaderText,
}

/// A header's value, or a fingerprint of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderText {
    /// The value; bytes that are not UTF-8 are replaced.
    Clear(String),
    /// The header carries a credential, of which only this is kept.
    Secret(Fingerprint),
}

/// The first 64 bits of a SHA-256: enough to recognise a known credential, too little to reveal one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 8]);

/// The part of a request's body that is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum BodySeen {
    Empty,
    Json(JsonText),
    NotJson {
        bytes: usize,
        /// The error of the JSON parser.
        problem: String,
    },
    TooLarge,
    /// The client closed the connection, or broke the framing, before the end.
    Broken,
    /// The log was full; the request was answered nevertheless.
    NotKept {
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
    /// The script's response to requests after the last turn.
    Exhausted,
    /// The error for a request that none of the remaining turns accepts.
    NoTurnAccepts,
    TokenCount,
    /// The response to a health check.
    Greeting,
    /// An error with this status that is not part of the script.
    Refused(u16),
}

/// The result of a scripted model.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// The requests in the order of arrival, up to the limit of the log.
    pub requests: Vec<Arc<LoggedRequest>>,
    /// Positions of the turns that were not played.
    pub unplayed: Vec<usize>,
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("the expected requests did not arrive within {waited:?}; {seen} arrived", seen = .seen.len())]
pub struct WaitTimedOut {
    pub waited: Duration,
    /// The requests that had arrived.
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
    /// The value of a header; `None` if it is absent or secret. The name is lower-case.
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

    /// The body as text, if it is JSON and was kept.
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

    /// The tool results in this request, as id of the call and text.
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

/// A request before it is answered.
#[derive(Debug)]
pub(super) struct Arrival {
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    pub headers: Vec<HeaderSeen>,
    pub body: BodySeen,
    /// Size of the body, which counts towards the limit of the log.
    pub body_bytes: usize,
}

/// The headers with credentials replaced.
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

/// The player and the log behind one lock, so that they always agree.
#[derive(Debug)]
pub(super) struct Ledger {
    state: Mutex<LedgerState>,
    grew: Condvar,
}

#[derive(Debug)]
struct LedgerState {
    player: Player,
    requests: Vec<Arc<LoggedRequest>>,
    /// How many requests arrived, kept or not.
    arrived: usize,
    room_bytes: usize,
}

impl Ledger {
    pub fn new(player: Player) -> Self {
        Self::with_room(player, KEPT_BODY_BYTES)
    }

    /// A ledger that keeps bodies up to this total size.
    fn with_room(player: Player, room_bytes: usize) -> Self {
        let state = LedgerState { player, requests: Vec::new(), arrived: 0, room_bytes };
        Self { state: Mutex::new(state), grew: Condvar::new() }
    }

    /// Logs a request that the script does not answer; returns its number.
    pub fn enter(&self, arrival: Arrival, answered_by: AnsweredBy) -> usize {
        let mut state = self.state();
        let index = state.push(arrival, answered_by);
        drop(state);
        self.grew.notify_all();
        index
    }

    /// Chooses the response to a messages request and logs it, in one step; returns its number and the choice.
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

    /// Waits until the log satisfies a condition, which is checked after each entry.
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
    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    fn push(&mut self, arrival: Arrival, answered_by: AnsweredBy) -> usize {
        let Arrival { method, path, query, headers, body, body_bytes } = arrival;
        let index = self.arrived;
        self.arrived += 1;
        if self.requests.len() >= KEPT_REQUESTS {
            return index;
        }
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
    fn requests_without_end_are_answered_and_not_kept() {
        let ledger = Ledger::new(Player::new(Script::new()));
        let arrival = || Arrival {
            method: "GET".into(),
            path: "/".into(),
            query: None,
            headers: Vec::new(),
            body: BodySeen::Empty,
            body_bytes: 0,
        };
        let last = (0..KEPT_REQUESTS + 5).map(|_| ledger.enter(arrival(), AnsweredBy::Greeting)).last();
        assert_eq!(last, Some(KEPT_REQUESTS + 4), "each has its number");
        assert_eq!(ledger.requests().len(), KEPT_REQUESTS);
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
