//! Answers requests from a tape.
//!
//! A request gets the first unused response that was recorded for the same normalised body in the same conversation. When
//! all were used, the last one is repeated: a recorded failure comes first, and a client that asks twice gets the same
//! response twice. Choosing and marking a response are one step under one lock, so that parallel requests cannot take the
//! same one.

mod crossing;

use super::agent_differences::AgentDifferences;
use super::drift::{self, Drift, DriftKind};
use super::normaliser::{Canonical, Normaliser, read_kept};
use super::owned::ChosenParameters;
use super::replay_body::{self, Wanted};
use super::suite::{Normalisers, SuiteChanges};
use super::{Scrub, is_taped};
use crate::gateway::{
    AGENT_ID_HEADER, AnswerBody, AnswerFuture, GatewayRequest, HangUp, Responder, Retry, document_answer,
    error_answer,
};
use belljar_contract::{BodyRef, ConversationKey, Exchange};
use hyper::body::Bytes;
use hyper::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How many recorded requests a drifted one is compared with.
const COMPARED: usize = 12;
/// How many drifts are reported.
const DRIFTS_REPORTED: usize = 50;

/// The stored bodies of a tape.
pub trait TapeBodies: Send + Sync {
    /// # Errors
    /// When it cannot be read.
    fn body(&self, body: BodyRef) -> io::Result<Cow<'_, [u8]>>;

    /// A body from this byte on.
    ///
    /// # Errors
    /// When it cannot be read.
    fn body_from(&self, body: BodyRef, from: u64) -> io::Result<Cow<'_, [u8]>> {
        let from = usize::try_from(from).map_err(io::Error::other)?;
        Ok(Cow::Owned(self.body(body)?.get(from..).unwrap_or_default().to_vec()))
    }

    /// The length of the beginning that two requests share, as far as it is known without reading them.
    fn shared(&self, _one: BodyRef, _other: BodyRef) -> u64 {
        0
    }
}

/// What happens to a request that is not on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDrift {
    /// It is refused, and so are all later ones: the run ends at once.
    Fail,
    /// It gets the response of the nearest recorded request. The run can no longer pass.
    Continue,
    /// The live model answers it.
    Live,
}

/// What of a request must be the same as on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// All of it.
    Whole,
    /// The parts of the user's side. The agent's own parts may differ, as those of another version do; the differences
    /// are reported.
    UserSide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the client reads.
    Fast,
    /// With the recorded delays.
    AsRecorded,
}

/// Everything that a replay needs.
pub struct ReplaySetup {
    pub exchanges: Vec<Exchange>,
    pub bodies: Arc<dyn TapeBodies>,
    /// The normalisers of the tape.
    pub normalisers: Normalisers,
    /// Redacts this run's secrets, as those of the recorded run were.
    pub scrub: Scrub,
    pub matching: Matching,
    /// What of it the user's side chose.
    pub chosen: ChosenParameters,
    pub on_drift: OnDrift,
    pub pace: Pace,
    /// The live model, for [`OnDrift::Live`].
    pub live: Option<Arc<dyn Responder>>,
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// Exchanges on the tape.
    pub exchanges: u64,
    /// Requests that got the response that was recorded for them.
    pub exact: u64,
    /// How many of these differ in the agent's own parts.
    pub crossed: u64,
    /// What differs there.
    pub agent: AgentDifferences,
    /// How many of these repeated an earlier request.
    pub repeated: u64,
    /// How many of these came after one that was recorded later in the same conversation.
    pub reordered: u64,
    /// What each normaliser of the suite changed.
    #[serde(skip)]
    pub suite: Vec<SuiteChanges>,
    /// Requests that are not on the tape.
    pub drifts: Vec<Drift>,
    /// How many further drifts there were.
    pub more_drifts: u64,
    /// Exchanges that were not requested.
    pub unconsumed: Vec<Unconsumed>,
}

impl ReplayReport {
    /// Whether every request was on the tape and every exchange was requested.
    #[must_use]
    pub fn is_faithful(&self) -> bool {
        self.drifts.is_empty() && self.unconsumed.is_empty()
    }
}

/// An exchange that was not requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unconsumed {
    pub exchange: u64,
    pub conversation: String,
}

#[derive(Clone)]
pub struct Replay {
    shared: Arc<ReplayInner>,
}

struct ReplayInner {
    setup: ReplaySetup,
    /// How many parts of the user's side each recorded request has, as far as it was read.
    parts: Vec<OnceLock<usize>>,
    state: Mutex<ReplayState>,
}

#[derive(Default)]
struct ReplayState {
    requests: u64,
    given: BTreeSet<usize>,
    /// Sub-agents of this run, by their ids.
    agents: BTreeMap<String, ConversationKey>,
    /// Recorded ids and the ids of this run that replace them.
    ids: BTreeMap<String, String>,
    refusal: Option<String>,
    report: ReplayReport,
}

/// The response to a request.
enum Decision {
    Recorded(usize),
    Refused(String),
    Live,
}

impl Replay {
    pub fn new(setup: ReplaySetup) -> Self {
        let suite = vec![SuiteChanges::default(); setup.normalisers.suite.len()];
        let exchanges = setup.exchanges.len() as u64;
        let report = ReplayReport { exchanges, suite, ..ReplayReport::default() };
        let state = ReplayState { report, ..ReplayState::default() };
        let parts = setup.exchanges.iter().map(|_| OnceLock::new()).collect();
        Self { shared: Arc::new(ReplayInner { setup, parts, state: Mutex::new(state) }) }
    }

    /// The result so far.
    pub fn report(&self) -> ReplayReport {
        let state = self.shared.state();
        let mut report = state.report.clone();
        let left = self.shared.setup.exchanges.iter().enumerate().filter(|(at, _)| !state.given.contains(at));
        report.unconsumed = left
            .map(|(_, exchange)| Unconsumed {
                exchange: exchange.seq,
                conversation: conversation_name(&exchange.conversation),
            })
            .collect();
        report
    }
}

fn conversation_name(conversation: &ConversationKey) -> String {
    match conversation {
        ConversationKey::Main => "main".to_owned(),
        ConversationKey::SubAgent { number, .. } => format!("sub-agent {number}"),
    }
}

impl Responder for Replay {
    fn answer(&self, asked: GatewayRequest) -> AnswerFuture {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if !is_taped(&asked.method, asked.uri.path()) {
                return Ok(unrecorded(&asked.method, asked.uri.path()));
            }
            let body = match &asked.body {
                Ok(body) => (shared.setup.scrub)(body).map_or_else(|| body.clone(), Bytes::from),
                Err(fault) => {
                    let status = StatusCode::BAD_REQUEST;
                    return Ok(error_answer(
                        status,
                        "invalid_request_error",
                        &fault.to_string(),
                        Retry::Never,
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
                    None => Ok(refused("there is no live model")),
                },
            }
        })
    }
}

/// The response that ends a replay. The agent's library obeys the header that forbids a retry.
fn refused(why: &str) -> Response<AnswerBody> {
    let message = format!("the replay drifted from its tape: {why}");
    error_answer(StatusCode::BAD_REQUEST, "invalid_request_error", &message, Retry::Never)
}

/// The response to a request that is never recorded, such as a health check.
fn unrecorded(method: &Method, path: &str) -> Response<AnswerBody> {
    if path == "/" && [Method::GET, Method::HEAD].contains(method) {
        return document_answer(StatusCode::OK, Bytes::from_static(b"{}"));
    }
    error_answer(StatusCode::NOT_FOUND, "not_found_error", "this path is not served", Retry::Never)
}

impl ReplayInner {
    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, canonical: &Canonical, agent: Option<&str>) -> Decision {
        let mut state = self.state();
        let request = state.requests;
        state.requests += 1;
        // A request that would lose too much was not changed, and drifts.
        for (suite, values) in state.report.suite.iter_mut().zip(canonical.suite.iter().flatten()) {
            suite.add(values.clone());
        }
        if let Some(why) = &state.refusal {
            return Decision::Refused(why.clone());
        }
        let conversation = match agent {
            None => Some(ConversationKey::Main),
            Some(id) => self.conversation(&mut state, id, canonical),
        };
        if let Some(at) = self.recorded(&state, conversation.as_ref(), canonical) {
            let fresh = state.given.insert(at);
            let exchanges = &self.setup.exchanges;
            let overtaken = |later: &usize| exchanges[*later].conversation == exchanges[at].conversation;
            let reordered = fresh && state.given.range(at + 1..).any(overtaken);
            state.report.exact += 1;
            state.report.repeated += u64::from(!fresh);
            state.report.reordered += u64::from(reordered);
            self.cross(&mut state.report, at, canonical);
            self.learn(&mut state, at, canonical);
            return Decision::Recorded(at);
        }
        let nearest = self.nearest(&state, conversation.as_ref(), agent.is_some(), canonical);
        let drift =
            self.describe(request, conversation.as_ref(), nearest.as_ref(), canonical, agent.is_some());
        let why = sentence(&drift);
        if state.report.drifts.len() < DRIFTS_REPORTED {
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

    /// The recorded sub-agent that corresponds to one of this run, found by its id or by its first message.
    fn conversation(
        &self,
        state: &mut ReplayState,
        id: &str,
        canonical: &Canonical,
    ) -> Option<ConversationKey> {
        if let Some(known) = state.agents.get(id) {
            return Some(known.clone());
        }
        let opens = self.opens_like(canonical);
        let digest = canonical.digest;
        let taken: BTreeSet<&ConversationKey> = state.agents.values().collect();
        let free: BTreeSet<&ConversationKey> = self
            .setup
            .exchanges
            .iter()
            .map(|exchange| &exchange.conversation)
            .filter(|key| opens(key))
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

    /// The response that was recorded for this request.
    fn recorded(
        &self,
        state: &ReplayState,
        conversation: Option<&ConversationKey>,
        canonical: &Canonical,
    ) -> Option<usize> {
        let conversation = conversation?;
        let own = self.setup.exchanges.iter().enumerate();
        let own = own.filter(|(_, exchange)| exchange.conversation == *conversation);
        let same = own.clone().filter(|(_, exchange)| exchange.request.body.digest == canonical.digest);
        let same: Vec<usize> = same.map(|(at, _)| at).collect();
        if same.is_empty() && self.setup.matching == Matching::UserSide {
            let own: Vec<usize> = own.map(|(at, _)| at).collect();
            return self.crossed(state, &own, canonical);
        }
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

    /// Remembers ids that differ in this run.
    fn learn(&self, state: &mut ReplayState, at: usize, present: &Canonical) {
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

    /// The unused recorded request with the fewest differences.
    fn nearest(
        &self,
        state: &ReplayState,
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
            let conversation = &self.setup.exchanges[at].conversation;
            let (distance, differences) = self.distance((&recorded, conversation), present);
            Some(((distance, differences, at), recorded))
        });
        compared.min_by_key(|(rank, _)| *rank).map(|((_, _, at), found)| (at, found))
    }

    fn describe(
        &self,
        request: u64,
        conversation: Option<&ConversationKey>,
        nearest: Option<&(usize, Value)>,
        present: &Canonical,
        is_sub_agent: bool,
    ) -> Drift {
        let conversation = match (conversation, is_sub_agent) {
            (Some(key), _) => conversation_name(key),
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
        let (kind, covered_by, differences, more) = match self.setup.matching {
            Matching::Whole => drift::describe(
                recorded,
                (&present.value, &present.readable),
                &self.setup.normalisers.built_in,
            ),
            Matching::UserSide => {
                let conversation = &self.setup.exchanges[*at].conversation;
                self.describe_crossed((recorded, conversation), present)
            }
        };
        let nearest = Some(self.setup.exchanges[*at].seq);
        let covered_by = covered_by.into_iter().map(str::to_owned).collect();
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
        Ok(replay_body::answer(recorded, body, wanted, &change))
    }
}

/// A drift in one line.
fn sentence(drift: &Drift) -> String {
    let what = drift.kind.describe();
    match drift.differences.first() {
        Some(first) => format!("{what} in {} at {}", drift.conversation, first.pointer),
        None => format!("{what} in {}", drift.conversation),
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
