//! The egress log's writer. Every service of a run writes to the same one.
//!
//! A decision is with the kernel before the caller goes on. A row that could not be written is remembered for good:
//! from then on nothing is decided, so that nothing leaves unseen, and the log, which lacks its last row, says that it
//! is not complete.

use belljar_contract::{
    Digest, EGRESS_LOG_FORMAT, EgressChain, EgressDecision, EgressEnd, EgressRefusal, EgressRow,
    EgressVerdict, RunId,
};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Replaces secrets in a text.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The first row's content, and how long the log may become.
#[derive(Debug, Clone)]
pub struct LogOpening {
    /// The run.
    pub run: RunId,
    /// Milliseconds since 1970.
    pub opened_at_ms: u64,
    /// The digest of the rules.
    pub policy: Digest,
    /// Where is listened, inside.
    pub listeners: Vec<String>,
    /// Bytes. Whoever is watched can make lines at will, and must not be able to fill the disk with them.
    pub limit: u64,
}

/// Bytes of a log that are enough for about a million decisions.
pub const LOG_LIMIT: u64 = 512 * 1024 * 1024;

/// Why a row is not in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The sink refused it, now or before.
    #[error("the egress log cannot be written: {0}")]
    Write(String),
    /// It is as long as it may become.
    #[error("the egress log has reached its limit of {0} bytes")]
    Limit(u64),
    /// The last row has been written.
    #[error("the egress log is closed")]
    Closed,
}

/// What a closed log says, for the run's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSummary {
    /// Decisions that allowed.
    pub allowed: u64,
    /// Decisions that refused.
    pub denied: u64,
    /// The chain of the last line.
    pub head: Option<Digest>,
}

/// A log that is being written.
pub struct EgressLog {
    began: Instant,
    redact: Redact,
    state: Mutex<State>,
}

struct State {
    sink: Box<dyn Write + Send>,
    chain: EgressChain,
    room: u64,
    limit: u64,
    allowed: u64,
    denied: u64,
    failure: Option<LogError>,
}

impl EgressLog {
    /// Writes the first row.
    ///
    /// # Errors
    /// When it cannot be written; nothing may be started then.
    pub fn open(
        sink: impl Write + Send + 'static,
        opening: LogOpening,
        redact: Redact,
    ) -> Result<Arc<Self>, LogError> {
        let LogOpening { run, opened_at_ms, policy, listeners, limit } = opening;
        let mut state = State {
            sink: Box::new(sink),
            chain: EgressChain::START,
            room: limit,
            limit,
            allowed: 0,
            denied: 0,
            failure: None,
        };
        state.write(&EgressRow::Opened {
            format: EGRESS_LOG_FORMAT,
            run,
            opened_at_ms,
            policy,
            listeners,
        })?;
        Ok(Arc::new(Self { began: Instant::now(), redact, state: Mutex::new(state) }))
    }

    /// Writes a decision down and gives its number. When it returns, the row is with the kernel.
    ///
    /// # Errors
    /// When it could not be written; what was to be allowed must be refused then.
    pub fn decide(&self, decision: EgressDecision) -> Result<u64, LogError> {
        let decision = self.redacted(decision);
        let at_ms = self.at_ms();
        let mut state = self.state();
        let allowed = u64::from(decision.verdict == EgressVerdict::Allowed);
        let seq = state.allowed + state.denied + 1;
        state.write(&EgressRow::Decided { seq, at_ms, decision })?;
        state.allowed += allowed;
        state.denied += 1 - allowed;
        Ok(seq)
    }

    /// Writes down what became of a decision.
    ///
    /// # Errors
    /// When it could not be written.
    pub fn finish(&self, seq: u64, mut end: EgressEnd) -> Result<(), LogError> {
        end.failure = end.failure.map(|text| (self.redact)(&text));
        let at_ms = self.at_ms();
        self.state().write(&EgressRow::Finished { seq, at_ms, end })
    }

    /// Why nothing is decided any more, where that is so.
    pub fn failure(&self) -> Option<LogError> {
        self.state().failure.clone()
    }

    /// Writes the last row. Later decisions fail.
    ///
    /// # Errors
    /// When it, or any row before, could not be written: the log is not complete.
    pub fn close(&self) -> Result<LogSummary, LogError> {
        let at_ms = self.at_ms();
        let mut state = self.state();
        let (allowed, denied) = (state.allowed, state.denied);
        state.write(&EgressRow::Closed { at_ms, allowed, denied })?;
        state.failure = Some(LogError::Closed);
        Ok(LogSummary { allowed, denied, head: state.chain.head() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; were it so, the failure to write would be kept in it all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at_ms(&self) -> u64 {
        milliseconds(self.began.elapsed())
    }

    /// The decision with every free text redacted. Words of the format are ours and stay.
    fn redacted(&self, decision: EgressDecision) -> EgressDecision {
        let text = |text: String| (self.redact)(&text);
        let maybe = |value: Option<String>| value.map(text);
        let EgressDecision { way, destination, addresses, rule, verdict, method, path, credential, within } =
            decision;
        let verdict = match verdict {
            EgressVerdict::Allowed => EgressVerdict::Allowed,
            EgressVerdict::Denied { reason } => EgressVerdict::Denied {
                reason: match reason {
                    EgressRefusal::Malformed { what } => EgressRefusal::Malformed { what: text(what) },
                    EgressRefusal::Sni { found } => EgressRefusal::Sni { found: maybe(found) },
                    EgressRefusal::Request { what } => EgressRefusal::Request { what: text(what) },
                    wordless @ (EgressRefusal::NotAllowed
                    | EgressRefusal::Denied
                    | EgressRefusal::Port { .. }
                    | EgressRefusal::Address { .. }
                    | EgressRefusal::Unresolved
                    | EgressRefusal::Token
                    | EgressRefusal::HostMismatch
                    | EgressRefusal::Upgrade
                    | EgressRefusal::NotTls) => wordless,
                },
            },
        };
        EgressDecision {
            way,
            destination: text(destination),
            addresses,
            rule,
            verdict,
            method: maybe(method),
            path: maybe(path),
            credential,
            within,
        }
    }
}

impl State {
    fn write(&mut self, row: &EgressRow) -> Result<(), LogError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let written = self.append(row);
        if let Err(error) = &written {
            self.failure = Some(error.clone());
        }
        written
    }

    fn append(&mut self, row: &EgressRow) -> Result<(), LogError> {
        let row = serde_json::to_string(row).map_err(|error| LogError::Write(error.to_string()))?;
        let (line, chain) = self.chain.line(&row);
        self.room = self.room.checked_sub(line.len() as u64).ok_or(LogError::Limit(self.limit))?;
        let failed = |error: io::Error| LogError::Write(error.to_string());
        self.sink.write_all(line.as_bytes()).map_err(failed)?;
        self.sink.flush().map_err(failed)?;
        self.chain = chain;
        Ok(())
    }
}

/// Whole milliseconds, for a row.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
