//! Answers from a tape.
//!
//! A request takes the first answer that was recorded for the same canonical body in the same conversation and has not
//! been given yet; when all have been given, the last is given again: a failure that was recorded comes first, and a
//! client that asks twice hears the same twice. Choosing and marking are one step under one lock, so that what runs side
//! by side takes nothing twice.

use super::drift::{self, Drift, DriftKind};
use super::normal::{Canonical, Normaliser, read_kept};
use super::served::{self, Wanted};
use super::{AGENT_ID_HEADER, Scrub, is_taped};
use crate::gateway::{Again, Answer, AnswerBody, Answering, Asked, HangUp, document_answer, error_answer};
use belljar_contract::{BodyRef, ConversationKey, Exchange};
use hyper::body::Bytes;
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Recorded requests that a drifted one is compared with.
const COMPARED: usize = 12;
/// Drifts that are told.
const DRIFTS: usize = 50;

/// Where the bodies of a tape are.
pub trait TapeBodies: Send + Sync {
    /// A body.
    ///
    /// # Errors
    /// When it cannot be read.
    fn body(&self, body: BodyRef) -> io::Result<Cow<'_, [u8]>>;
}

/// What becomes of a request that the tape does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDrift {
    /// It is refused, and so is everything after it: the run ends at once.
    Fail,
    /// It gets the answer to the nearest recorded one. The run can no longer pass.
    Continue,
    /// The model itself answers.
    Live,
}

/// How fast answers are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As fast as they are taken.
    Fast,
    /// With the silences that were recorded.
    AsRecorded,
}

/// What a replay is made from.
pub struct ReplaySetup {
    /// The exchanges.
    pub exchanges: Vec<Exchange>,
    /// Their bodies.
    pub bodies: Arc<dyn TapeBodies>,
    /// What the tape makes alike.
    pub normalisers: Vec<Normaliser>,
    /// Takes this run's secrets out, as was done with those of the recorded one.
    pub scrub: Scrub,
    /// What becomes of a drift.
    pub on_drift: OnDrift,
    /// How fast answers are given.
    pub pace: Pace,
    /// The model itself, for [`OnDrift::Live`].
    pub live: Option<Arc<dyn Answer>>,
}

/// How a replay went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReplayReport {
    /// Exchanges on the tape.
    pub exchanges: u64,
    /// Requests that got the answer that was recorded for them.
    pub exact: u64,
    /// Those among them that had been answered before.
    pub repeated: u64,
    /// Requests that the tape does not have.
    pub drifts: Vec<Drift>,
    /// How many more of those there were.
    pub more_drifts: u64,
    /// Exchanges that nobody asked for.
    pub unconsumed: Vec<Unconsumed>,
}

impl ReplayReport {
    /// Whether everything went as on the tape.
    #[must_use]
    pub fn is_faithful(&self) -> bool {
        self.drifts.is_empty() && self.unconsumed.is_empty()
    }
}

/// An exchange that nobody asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unconsumed {
    /// Its number.
    pub exchange: u64,
    /// Whose it was.
    pub conversation: String,
}

/// Answers from a tape.
#[derive(Clone)]
pub struct Replay {
    shared: Arc<Shared>,
}

struct Shared {
    setup: ReplaySetup,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    requests: u64,
    given: BTreeSet<usize>,
    /// Sub-agents of this run, by their ids.
    agents: BTreeMap<String, ConversationKey>,
    /// What the recorded run called differently.
    ids: BTreeMap<String, String>,
    refusal: Option<String>,
    report: ReplayReport,
}

/// What a request gets.
enum Decision {
    Recorded(usize),
    Refused(String),
    Live,
}

impl Replay {
    /// Answers from a tape.
    pub fn new(setup: ReplaySetup) -> Self {
        let report = ReplayReport { exchanges: setup.exchanges.len() as u64, ..ReplayReport::default() };
        let state = State { report, ..State::default() };
        Self { shared: Arc::new(Shared { setup, state: Mutex::new(state) }) }
    }

    /// How it went so far.
    pub fn report(&self) -> ReplayReport {
        let state = self.shared.state();
        let mut report = state.report.clone();
        let left = self.shared.setup.exchanges.iter().enumerate().filter(|(at, _)| !state.given.contains(at));
        report.unconsumed = left
            .map(|(_, exchange)| Unconsumed {
                exchange: exchange.seq,
                conversation: words(&exchange.conversation),
            })
            .collect();
        report
    }
}

fn words(conversation: &ConversationKey) -> String {
    match conversation {
        ConversationKey::Main => "main".to_owned(),
        ConversationKey::SubAgent { number, .. } => format!("sub-agent {number}"),
    }
}

impl Answer for Replay {
    fn answer(&self, asked: Asked) -> Answering {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if !is_taped(&asked.method, asked.uri.path()) {
                return Ok(beside(&asked.method, asked.uri.path()));
            }
            let body = match &asked.body {
                Ok(body) => (shared.setup.scrub)(body).map_or_else(|| body.clone(), Bytes::from),
                Err(fault) => {
                    let status = StatusCode::BAD_REQUEST;
                    return Ok(error_answer(
                        status,
                        "invalid_request_error",
                        &fault.to_string(),
                        Again::Never,
                    ));
                }
            };
            let canonical = Canonical::of(&body, &shared.setup.normalisers);
            let agent = asked.headers.get(AGENT_ID_HEADER).and_then(|id| id.to_str().ok()).map(str::to_owned);
            match shared.decide(&canonical, agent.as_deref()) {
                Decision::Recorded(at) => shared.give(at, &canonical),
                Decision::Refused(why) => Ok(refused(&why)),
                Decision::Live => match &shared.setup.live {
                    Some(live) => live.answer(asked).await,
                    None => Ok(refused("there is no model to ask")),
                },
            }
        })
    }
}

/// The agent's library obeys the header that says not to come again.
fn refused(why: &str) -> Response<AnswerBody> {
    let message = format!("the replay drifted from its tape: {why}");
    error_answer(StatusCode::BAD_REQUEST, "invalid_request_error", &message, Again::Never)
}

/// What is not on any tape: a look whether someone is there.
fn beside(method: &Method, path: &str) -> Response<AnswerBody> {
    if path == "/" && [Method::GET, Method::HEAD].contains(method) {
        return document_answer(StatusCode::OK, Bytes::from_static(b"{}"));
    }
    error_answer(StatusCode::NOT_FOUND, "not_found_error", "this is not served here", Again::Never)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, canonical: &Canonical, agent: Option<&str>) -> Decision {
        let mut state = self.state();
        let request = state.requests;
        state.requests += 1;
        if let Some(why) = &state.refusal {
            return Decision::Refused(why.clone());
        }
        let conversation = match agent {
            None => Some(ConversationKey::Main),
            Some(id) => self.conversation(&mut state, id, canonical),
        };
        if let Some(at) = self.recorded(&state, conversation.as_ref(), canonical) {
            let fresh = state.given.insert(at);
            state.report.exact += 1;
            state.report.repeated += u64::from(!fresh);
            self.learn(&mut state, at, canonical);
            return Decision::Recorded(at);
        }
        let nearest = self.nearest(&state, conversation.as_ref(), agent.is_some(), canonical);
        let drift = self.tell(request, conversation.as_ref(), nearest.as_ref(), canonical, agent.is_some());
        let why = sentence(&drift);
        if state.report.drifts.len() < DRIFTS {
            state.report.drifts.push(drift);
        } else {
            state.report.more_drifts += 1;
        }
        match (self.setup.on_drift, nearest) {
            (OnDrift::Live, _) => Decision::Live,
            (OnDrift::Continue, Some((at, _))) => {
                state.given.insert(at);
                Decision::Recorded(at)
            }
            (OnDrift::Continue, None) => Decision::Refused(why),
            (OnDrift::Fail, _) => {
                state.refusal = Some(why.clone());
                Decision::Refused(why)
            }
        }
    }

    /// The recorded sub-agent that one of this run stands for: known by its id, or by its first message.
    fn conversation(&self, state: &mut State, id: &str, canonical: &Canonical) -> Option<ConversationKey> {
        if let Some(known) = state.agents.get(id) {
            return Some(known.clone());
        }
        let opening = canonical.first_message;
        let digest = canonical.digest;
        let taken: BTreeSet<&ConversationKey> = state.agents.values().collect();
        let free: BTreeSet<&ConversationKey> = self
            .setup
            .exchanges
            .iter()
            .map(|exchange| &exchange.conversation)
            .filter(|key| matches!(key, ConversationKey::SubAgent { first, .. } if *first == opening))
            .filter(|key| !taken.contains(key))
            .collect();
        let asked_the_same = |key: &&&ConversationKey| {
            let mut own = self.setup.exchanges.iter().filter(|exchange| exchange.conversation == ***key);
            own.any(|exchange| exchange.request.body.digest == digest)
        };
        let key = free.iter().find(asked_the_same).or_else(|| free.first()).map(|key| (**key).clone())?;
        state.agents.insert(id.to_owned(), key.clone());
        Some(key)
    }

    /// The answer that was recorded for this very request.
    fn recorded(
        &self,
        state: &State,
        conversation: Option<&ConversationKey>,
        canonical: &Canonical,
    ) -> Option<usize> {
        let (conversation, digest) = (conversation?, canonical.digest);
        let same: Vec<usize> = self
            .setup
            .exchanges
            .iter()
            .enumerate()
            .filter(|(_, exchange)| exchange.conversation == *conversation)
            .filter(|(_, exchange)| exchange.request.body.digest == digest)
            .map(|(at, _)| at)
            .collect();
        let as_wanted = |at: &&usize| self.setup.exchanges[**at].request.delivery == canonical.delivery;
        let free = |at: &&usize| !state.given.contains(at);
        same.iter()
            .filter(free)
            .find(as_wanted)
            .or_else(|| same.iter().find(free))
            .or_else(|| same.iter().rfind(as_wanted))
            .or_else(|| same.last())
            .copied()
    }

    /// Remembers what this run calls by other names.
    fn learn(&self, state: &mut State, at: usize, present: &Canonical) {
        for recorded in &self.setup.exchanges[at].request.ids {
            let same = |((kind, number), _): &(&(Normaliser, usize), &String)| {
                kind.name() == recorded.normaliser && *number as u64 == recorded.number
            };
            let Some((_, new)) = present.ids.iter().find(same) else { continue };
            if *new != recorded.id {
                state.ids.insert(recorded.id.clone(), new.clone());
            }
        }
    }

    /// The recorded request with the fewest differences, among those that are due.
    fn nearest(
        &self,
        state: &State,
        conversation: Option<&ConversationKey>,
        is_sub_agent: bool,
        present: &Canonical,
    ) -> Option<(usize, Value)> {
        let due = |wanted: &dyn Fn(&ConversationKey) -> bool| -> Vec<usize> {
            let all = self.setup.exchanges.iter().enumerate();
            let own =
                all.filter(|(at, exchange)| !state.given.contains(at) && wanted(&exchange.conversation));
            own.map(|(at, _)| at).take(COMPARED).collect()
        };
        let candidates = match conversation {
            Some(key) => due(&|found| found == key),
            None => due(&|found| is_sub_agent == matches!(found, ConversationKey::SubAgent { .. })),
        };
        let compared = candidates.into_iter().filter_map(|at| {
            let body = self.setup.bodies.body(self.setup.exchanges[at].request.body).ok()?;
            let recorded = read_kept(&body);
            // A turn more or less outweighs any difference within one.
            let turns = |of: &Value| of["messages"].as_array().map_or(0, Vec::len);
            let distance = turns(&recorded).abs_diff(turns(&present.value));
            let differences = drift::pointers(&recorded, &present.value).len();
            Some(((distance, differences, at), recorded))
        });
        compared.min_by_key(|(rank, _)| *rank).map(|((_, _, at), found)| (at, found))
    }

    fn tell(
        &self,
        request: u64,
        conversation: Option<&ConversationKey>,
        nearest: Option<&(usize, Value)>,
        present: &Canonical,
        is_sub_agent: bool,
    ) -> Drift {
        let conversation = match (conversation, is_sub_agent) {
            (Some(key), _) => words(key),
            (None, true) => "a sub-agent that was not recorded".to_owned(),
            (None, false) => "main".to_owned(),
        };
        let Some((at, recorded)) = nearest else {
            return Drift {
                request,
                conversation,
                nearest: None,
                kind: DriftKind::Unmatched,
                covered_by: Vec::new(),
                differences: Vec::new(),
                more: 0,
            };
        };
        let (kind, covered_by, differences, more) =
            drift::tell(recorded, (&present.value, &present.told), &self.setup.normalisers);
        let nearest = Some(self.setup.exchanges[*at].seq);
        Drift { request, conversation, nearest, kind, covered_by, differences, more }
    }

    fn give(&self, at: usize, canonical: &Canonical) -> Result<Response<AnswerBody>, HangUp> {
        let Some(recorded) = &self.setup.exchanges[at].answer else { return Err(HangUp) };
        let body = match self.setup.bodies.body(recorded.body) {
            Ok(body) => body.into_owned(),
            Err(error) => return Ok(refused(&error.to_string())),
        };
        let ids = self.state().ids.clone();
        let change = |text: &str| {
            let mut fresh: Option<String> = None;
            for (old, new) in ids.iter().filter(|(old, _)| text.contains(old.as_str())) {
                fresh = Some(fresh.unwrap_or_else(|| text.to_owned()).replace(old, new));
            }
            fresh
        };
        let wanted = Wanted { delivery: canonical.delivery, pace: self.setup.pace };
        Ok(served::answer(recorded, body, wanted, &change))
    }
}

/// A drift in a line.
fn sentence(drift: &Drift) -> String {
    let what = drift.kind.words();
    match drift.differences.first() {
        Some(first) => format!("{what} in {} at {}", drift.conversation, first.pointer),
        None => format!("{what} in {}", drift.conversation),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
