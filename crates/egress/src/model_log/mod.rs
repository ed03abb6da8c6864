//! Writes the model log: the requests to the model and its responses, whether live, scripted or replayed.

mod message;
mod of_tape;
mod remembered;
mod request;

pub use of_tape::{FrameNormaliser, exchanges_of_tape};

use crate::gateway::{
    AGENT_ID_HEADER, AnswerEnd, GatewayRequest, Observe, ObserveAnswer, SESSION_ID_HEADER, Unobserved,
};
use belljar_contract::{
    Digest, EgressChain, ExchangeEnd, MODEL_LOG_FORMAT, ModelAnswer, ModelRequest, ModelRow, RunId,
    without_reminders,
};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, StatusCode};
use remembered::Remembered;
use serde_json::Value;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Redacts every text of a value, in the same way as in the recorded frames.
pub type RedactValue = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// Limit of the log. Processes in the sandbox can send any number of requests, and must not be able to fill the disk.
pub const MODEL_LOG_LIMIT: u64 = 128 << 20;

/// A longer response cannot be compared, and makes the log fail.
const LONGEST_ANSWER: usize = 64 << 20;

/// A request with more items cannot be compared, and makes the log fail.
const MOST_ITEMS: usize = 100_000;

/// How many characters of an id are kept.
const ID_CHARS: usize = 128;

#[derive(Clone)]
pub struct ModelLog {
    shared: Arc<ModelLogInner>,
}

struct ModelLogInner {
    redact: RedactValue,
    /// The start of the run. Times of frames count from it too.
    began: Instant,
    state: Mutex<ModelLogState>,
}

struct ModelLogState {
    sink: Box<dyn Write + Send>,
    chain: EgressChain,
    room: u64,
    exchanges: u64,
    known: Remembered,
    failure: Option<String>,
}

impl ModelLog {
    /// Opens the log and writes its first row.
    pub fn open(sink: impl Write + Send + 'static, run: RunId, began: Instant, redact: RedactValue) -> Self {
        let mut state = ModelLogState {
            sink: Box::new(sink),
            chain: EgressChain::START,
            room: MODEL_LOG_LIMIT,
            exchanges: 0,
            known: Remembered::default(),
            failure: None,
        };
        state.write(&ModelRow::Opened { format: MODEL_LOG_FORMAT, run });
        Self { shared: Arc::new(ModelLogInner { redact, began, state: Mutex::new(state) }) }
    }

    /// Writes the last row and returns its chain value. All responses have to have ended.
    ///
    /// # Errors
    /// When a row is missing, with the reason.
    pub fn close(&self) -> Result<Digest, String> {
        let mut state = self.shared.state();
        let exchanges = state.exchanges;
        state.write(&ModelRow::Closed { exchanges });
        match (state.failure.take(), state.chain.head()) {
            (None, Some(head)) => Ok(head),
            (Some(failure), _) => Err(format!("the model log is incomplete: {failure}")),
            (None, None) => Err("the model log is empty".to_owned()),
        }
    }
}

impl ModelLogInner {
    fn state(&self) -> MutexGuard<'_, ModelLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelLogState {
    /// If a row cannot be written, the failure is kept and no further row is written.
    fn write(&mut self, row: &ModelRow) {
        if self.failure.is_some() {
            return;
        }
        let row = match serde_json::to_string(row) {
            Ok(row) => row,
            Err(error) => return self.fail(error.to_string()),
        };
        let (line, chain) = self.chain.line(&row);
        let Some(room) = self.room.checked_sub(line.len() as u64) else {
            return self.fail(format!("it has reached its limit of {MODEL_LOG_LIMIT} bytes"));
        };
        match self.sink.write_all(line.as_bytes()) {
            Ok(()) => (self.room, self.chain) = (room, chain),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
        self.known = Remembered::default();
    }
}

impl Observe for ModelLog {
    fn asked(&self, asked: &GatewayRequest) -> Box<dyn ObserveAnswer> {
        if asked.method != Method::POST || !asked.uri.path().ends_with("/v1/messages") {
            return Box::new(Unobserved);
        }
        // A failed log stays failed, and takes no further requests.
        if self.shared.state().failure.is_some() {
            return Box::new(Unobserved);
        }
        let at_ms = u64::try_from(self.shared.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mark = |name: &str| {
            let text: String = asked.headers.get(name)?.to_str().ok()?.chars().take(ID_CHARS).collect();
            let mut value = Value::String(text);
            (self.shared.redact)(&mut value);
            value.as_str().map(str::to_owned)
        };
        // A body that could not be read was refused, and has no items.
        let redact = &self.shared.redact;
        let items = asked.body.as_ref().map(|body| request::items(body, &**redact, without_reminders));
        let items = items.unwrap_or_default();
        let mut state = self.shared.state();
        if items.len() > MOST_ITEMS {
            state.fail(format!("a request has more than {MOST_ITEMS} items"));
            return Box::new(Unobserved);
        }
        let exchange = state.exchanges;
        let (repeats, items) = state.known.compact(exchange, items);
        let request =
            ModelRequest { session: mark(SESSION_ID_HEADER), agent: mark(AGENT_ID_HEADER), repeats, items };
        state.write(&ModelRow::Asked { exchange, at_ms, request });
        state.exchanges += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        Box::new(AnswerObserver { shared, exchange, status: None, body: Vec::new(), written: false })
    }
}

/// A response on its way.
struct AnswerObserver {
    shared: Arc<ModelLogInner>,
    exchange: u64,
    status: Option<u16>,
    body: Vec<u8>,
    written: bool,
}

impl AnswerObserver {
    fn end(&mut self, end: ExchangeEnd) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        let answered = self.status.is_some_and(|status| (200..300).contains(&status));
        let message = answered.then(|| message::read(&self.body, &*self.shared.redact)).flatten();
        let answer = ModelAnswer { status: self.status, end, message };
        self.shared.state().write(&ModelRow::Answered { exchange: self.exchange, answer });
    }
}

impl ObserveAnswer for AnswerObserver {
    fn head(&mut self, status: StatusCode, _headers: &HeaderMap, _at: Instant) {
        self.status = Some(status.as_u16());
    }

    fn chunk(&mut self, bytes: &Bytes, _at: Instant) {
        if self.body.len() + bytes.len() > LONGEST_ANSWER {
            self.shared.state().fail(format!("a response is longer than {LONGEST_ANSWER} bytes"));
            return;
        }
        self.body.extend_from_slice(bytes);
    }

    fn ended(mut self: Box<Self>, end: AnswerEnd, _at: Instant) {
        self.end(match end {
            AnswerEnd::Complete => ExchangeEnd::Complete,
            AnswerEnd::Broken => ExchangeEnd::Broken,
        });
    }
}

impl Drop for AnswerObserver {
    /// The agent closed the connection, or the connection was closed without a response.
    fn drop(&mut self) {
        self.end(ExchangeEnd::Left);
    }
}

#[cfg(test)]
mod tests;
