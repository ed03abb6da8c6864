//! Records exchanges in the order of their requests.

use super::normaliser::Canonical;
use super::private::has_word;
use super::stream::{self, Changed};
use super::suite::{Normalisers, SuiteChanges};
use super::{Scrub, is_taped};
use crate::gateway::{
    AGENT_ID_HEADER, AnswerEnd, BETA_HEADER, GatewayRequest, Observe, ObserveAnswer, RATE_LIMIT_PREFIX,
    SESSION_ID_HEADER, Unobserved, VERSION_HEADER,
};
use belljar_contract::{
    BodyRef, ConversationKey, Digest, Exchange, ExchangeAnswer, ExchangeEnd, ExchangeRequest, TapeLeak,
    TapeLeaks,
};
use hyper::body::Bytes;
use hyper::{HeaderMap, StatusCode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Request headers that are recorded.
const REQUEST_HEADERS: [&str; 7] =
    [BETA_HEADER, VERSION_HEADER, "content-type", "user-agent", "x-app", AGENT_ID_HEADER, SESSION_ID_HEADER];

/// Response headers that the agent uses; those that identify the account are not among them.
const ANSWER_HEADERS: [&str; 6] =
    ["cache-control", "content-type", "request-id", "retry-after", "retry-after-ms", "x-should-retry"];

/// A longer response makes the recording fail.
const LONGEST_ANSWER: usize = 64 << 20;

/// Stores exchanges.
pub trait KeepExchanges: Send {
    /// Stores the body of a request.
    ///
    /// # Errors
    /// With the reason; the recording has failed then.
    fn request(&mut self, bytes: &[u8]) -> Result<BodyRef, String>;
    /// Stores the body of an answer.
    ///
    /// # Errors
    /// As [`KeepExchanges::request`].
    fn answer(&mut self, bytes: &[u8]) -> Result<BodyRef, String>;
    /// Stores an exchange whose bodies were stored.
    ///
    /// # Errors
    /// As [`KeepExchanges::request`].
    fn exchange(&mut self, exchange: &Exchange) -> Result<(), String>;
}

/// The result of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taped {
    pub exchanges: u64,
    /// Data of the user and the machine that was found in requests.
    pub leaks: TapeLeaks,
    /// What each normaliser of the suite changed.
    pub suite: Vec<SuiteChanges>,
}

/// Observes exchanges and records them with secrets redacted.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<RecorderInner>,
}

struct RecorderInner {
    scrub: Scrub,
    normalisers: Normalisers,
    /// Words that belong to the user or the machine, with their kinds.
    sought: BTreeMap<String, &'static str>,
    state: Mutex<RecorderState>,
}

struct RecorderState {
    keep: Box<dyn KeepExchanges>,
    began: Option<Instant>,
    asked: u64,
    written: u64,
    /// Exchanges that ended before an earlier one.
    waiting: BTreeMap<u64, Exchange>,
    /// Sub-agents by the ids of this run.
    agents: BTreeMap<String, (u32, Digest)>,
    leaks: BTreeSet<TapeLeak>,
    suite: Vec<SuiteChanges>,
    failure: Option<String>,
}

impl Recorder {
    /// Records to `keep`, and notes which requests contain one of the words in `sought`.
    pub fn new(
        keep: Box<dyn KeepExchanges>,
        scrub: Scrub,
        normalisers: Normalisers,
        sought: BTreeMap<String, &'static str>,
    ) -> Self {
        let state = RecorderState {
            keep,
            began: None,
            asked: 0,
            written: 0,
            waiting: BTreeMap::new(),
            agents: BTreeMap::new(),
            leaks: BTreeSet::new(),
            suite: vec![SuiteChanges::default(); normalisers.suite.len()],
            failure: None,
        };
        Self { shared: Arc::new(RecorderInner { scrub, normalisers, sought, state: Mutex::new(state) }) }
    }

    /// The result. All responses have to have ended.
    ///
    /// # Errors
    /// When an exchange could not be recorded.
    pub fn finish(&self) -> Result<Taped, String> {
        let mut state = self.shared.state();
        match state.failure.take() {
            Some(failure) => Err(failure),
            None if state.written == state.asked => Ok(Taped {
                exchanges: state.written,
                leaks: TapeLeaks {
                    sought: self.shared.sought.values().map(|kind| (*kind).to_owned()).collect(),
                    found: std::mem::take(&mut state.leaks),
                },
                suite: std::mem::take(&mut state.suite),
            }),
            None => Err("an exchange is incomplete".to_owned()),
        }
    }
}

impl RecorderInner {
    fn state(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clean(&self, text: &str) -> String {
        let scrubbed = (self.scrub)(text.as_bytes());
        scrubbed.map_or_else(|| text.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn headers(&self, headers: &HeaderMap, wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let known = headers.iter().filter(|(name, _)| wanted(name.as_str()));
        let pair = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
            Some((name.to_string(), self.clean(value.to_str().ok()?)))
        };
        let mut out: Vec<_> = known.filter_map(pair).collect();
        out.sort();
        out
    }
}

impl RecorderState {
    fn agent(&mut self, id: &str, canonical: &Canonical) -> ConversationKey {
        let number = u32::try_from(self.agents.len() + 1).unwrap_or(u32::MAX);
        let known = self.agents.entry(id.to_owned());
        let (number, first) = *known.or_insert_with(|| (number, canonical.first_message));
        ConversationKey::SubAgent { number, first }
    }

    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    fn put(&mut self, exchange: Exchange) {
        self.waiting.insert(exchange.seq, exchange);
        while let Some(next) = self.waiting.remove(&self.written) {
            self.written += 1;
            if let Err(why) = self.keep.exchange(&next) {
                self.fail(why);
            }
        }
    }
}

impl Observe for Recorder {
    fn asked(&self, asked: &GatewayRequest) -> Box<dyn ObserveAnswer> {
        if !is_taped(&asked.method, asked.uri.path()) {
            return Box::new(Unobserved);
        }
        let shared = &self.shared;
        let body = match &asked.body {
            Ok(body) => (shared.scrub)(body).map_or_else(|| body.clone(), Bytes::from),
            Err(fault) => {
                shared.state().fail(fault.to_string());
                return Box::new(Unobserved);
            }
        };
        let text = String::from_utf8_lossy(&body);
        let sought = shared.sought.iter().filter(|(word, _)| has_word(&text, word));
        let kinds: BTreeSet<&'static str> = sought.map(|(_, kind)| *kind).collect();
        let canonical = Canonical::of(&body, &shared.normalisers);
        let since = Instant::now();
        let agent = asked.headers.get(AGENT_ID_HEADER).and_then(|id| id.to_str().ok());
        let mut state = shared.state();
        let began = *state.began.get_or_insert(since);
        let conversation = match agent {
            Some(id) => state.agent(id, &canonical),
            None => ConversationKey::Main,
        };
        match &canonical.suite {
            Ok(changed) => {
                state.suite.iter_mut().zip(changed).for_each(|(suite, values)| suite.add(values.clone()));
            }
            Err(why) => {
                let why = format!("exchange {}: {why}", state.asked);
                state.fail(why);
            }
        }
        let kept = state.keep.request(&canonical.kept).map_err(|why| state.fail(why));
        let request = ExchangeRequest {
            method: asked.method.to_string(),
            path: shared.clean(asked.uri.path_and_query().map_or("/", |path| path.as_str())),
            headers: shared.headers(&asked.headers, |name| REQUEST_HEADERS.contains(&name)),
            delivery: canonical.delivery,
            ids: canonical.ids(),
            body: kept.unwrap_or_else(|()| BodyRef::of(&canonical.kept)),
        };
        let seq = state.asked;
        state.asked += 1;
        let leak = |kind: &str| TapeLeak { exchange: seq, kind: kind.to_owned() };
        state.leaks.extend(kinds.into_iter().map(leak));
        drop(state);
        let exchange = Exchange { seq, at_ms: ms(began, since), conversation, request, answer: None };
        Box::new(ExchangeRecorder {
            shared: Arc::clone(shared),
            exchange: Some(exchange),
            since,
            answer: None,
        })
    }
}

fn ms(since: Instant, at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX)
}

/// A response on its way.
struct ExchangeRecorder {
    shared: Arc<RecorderInner>,
    exchange: Option<Exchange>,
    since: Instant,
    answer: Option<ResponseSoFar>,
}

struct ResponseSoFar {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    chunks: Vec<(u64, u64)>,
}

impl ExchangeRecorder {
    fn end(&mut self, end: ExchangeEnd, at: Instant) {
        let Some(mut exchange) = self.exchange.take() else { return };
        let shared = Arc::clone(&self.shared);
        let change = |text: &str| {
            let scrubbed = (shared.scrub)(text.as_bytes())?;
            Some(String::from_utf8_lossy(&scrubbed).into_owned())
        };
        let passed = self.answer.take().map(|response| {
            let ResponseSoFar { status, headers, body, chunks } = response;
            let (body, chunks) = match stream::change(&body, &chunks, &change) {
                Some(Changed { body, chunks }) => (body, chunks),
                None => {
                    // A body that is not text is scrubbed as bytes.
                    let scrubbed = (shared.scrub)(&body);
                    let chunks = scrubbed.as_ref().map_or(chunks, |bytes| vec![(0, bytes.len() as u64)]);
                    (scrubbed.unwrap_or(body), chunks)
                }
            };
            (status, headers, body, chunks)
        });
        let ended_ms = ms(self.since, at);
        let mut state = self.shared.state();
        if let Some((status, headers, body, chunks)) = passed {
            let kept = state.keep.answer(&body).map_err(|why| state.fail(why));
            let body = kept.unwrap_or_else(|()| BodyRef::of(&body));
            exchange.answer = Some(ExchangeAnswer { status, headers, chunks, end, ended_ms, body });
        }
        state.put(exchange);
    }
}

impl ObserveAnswer for ExchangeRecorder {
    fn head(&mut self, status: StatusCode, headers: &HeaderMap, _at: Instant) {
        let wanted = |name: &str| ANSWER_HEADERS.contains(&name) || name.starts_with(RATE_LIMIT_PREFIX);
        let headers = self.shared.headers(headers, wanted);
        let response =
            ResponseSoFar { status: status.as_u16(), headers, body: Vec::new(), chunks: Vec::new() };
        self.answer = Some(response);
    }

    fn chunk(&mut self, bytes: &Bytes, at: Instant) {
        let Some(answer) = &mut self.answer else { return };
        if answer.body.len() + bytes.len() > LONGEST_ANSWER {
            self.shared.state().fail(format!("a response is longer than {LONGEST_ANSWER} bytes"));
            return;
        }
        answer.body.extend_from_slice(bytes);
        answer.chunks.push((ms(self.since, at), bytes.len() as u64));
    }

    fn ended(mut self: Box<Self>, end: AnswerEnd, at: Instant) {
        let end = match end {
            AnswerEnd::Complete => ExchangeEnd::Complete,
            AnswerEnd::Broken => ExchangeEnd::Broken,
        };
        self.end(end, at);
    }
}

impl Drop for ExchangeRecorder {
    /// Without a reported end, the agent has left, or the connection was closed without a response.
    fn drop(&mut self) {
        self.end(ExchangeEnd::Left, Instant::now());
    }
}
