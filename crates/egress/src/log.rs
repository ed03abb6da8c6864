//! Writes the egress log. All services of a run write to the same log.
//!
//! A decision is handed to the kernel before the caller continues. If a row cannot be written, the failure is kept and
//! every later decision fails, so that nothing leaves unlogged. Such a log has no last row, which marks it as incomplete.

use belljar_contract::{
    Digest, EgressChain, EgressDecision, EgressEnd, EgressRefusal, EgressRow, EgressVerdict, Enforcement,
    RunId,
};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub type RedactFn = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The content of the first row, and the size limit.
#[derive(Debug, Clone)]
pub struct LogOpening {
    pub run: RunId,
    /// Milliseconds since 1970.
    pub opened_at_ms: u64,
    pub policy: Digest,
    /// Addresses inside the sandbox that the services listen on.
    pub listeners: Vec<String>,
    /// Whether programs can connect without the services that write here.
    pub enforcement: Enforcement,
    /// Limit in bytes. Processes in the sandbox can cause any number of rows, and must not be able to fill the disk.
    pub limit: u64,
}

/// A limit that is enough for about a million decisions.
pub const LOG_LIMIT: u64 = 512 * 1024 * 1024;

/// Why a row was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// This row or an earlier one could not be written.
    #[error("the egress log cannot be written: {0}")]
    Write(String),
    #[error("the egress log has reached its limit of {0} bytes")]
    Limit(u64),
    #[error("the egress log is closed")]
    Closed,
}

/// The result of a closed log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSummary {
    /// Decisions to allow.
    pub allowed: u64,
    /// Decisions to refuse.
    pub denied: u64,
    /// The chain value of the last line.
    pub head: Option<Digest>,
}

pub struct EgressLog {
    began: Instant,
    redact: RedactFn,
    enforcement: Enforcement,
    state: Mutex<LogState>,
}

struct LogState {
    sink: Box<dyn Write + Send>,
    chain: EgressChain,
    room: u64,
    limit: u64,
    allowed: u64,
    denied: u64,
    failure: Option<LogError>,
}

impl EgressLog {
    /// Opens the log and writes its first row.
    ///
    /// # Errors
    /// When the row cannot be written; no service may start then.
    pub fn open(
        sink: impl Write + Send + 'static,
        opening: LogOpening,
        redact: RedactFn,
    ) -> Result<Arc<Self>, LogError> {
        let LogOpening { run, opened_at_ms, policy, listeners, enforcement, limit } = opening;
        let mut state = LogState {
            sink: Box::new(sink),
            chain: EgressChain::START,
            room: limit,
            limit,
            allowed: 0,
            denied: 0,
            failure: None,
        };
        state.write(&EgressRow::Opened {
            format: enforcement.format(),
            run,
            opened_at_ms,
            policy,
            listeners,
            enforcement,
        })?;
        Ok(Arc::new(Self { began: Instant::now(), redact, enforcement, state: Mutex::new(state) }))
    }

    /// Logs a decision and returns its number. When it returns, the kernel has the row.
    ///
    /// # Errors
    /// When the row could not be written; the request must be refused then.
    pub fn decide(&self, decision: EgressDecision) -> Result<u64, LogError> {
        let decision = self.redacted(decision);
        let at_ms = self.at_ms();
        let mut state = self.state();
        let allowed = u64::from(decision.verdict == EgressVerdict::Allowed);
        let seq = state.allowed + state.denied + 1;
        state.write(&EgressRow::Decided { seq, at_ms, decision, enforcement: self.enforcement })?;
        state.allowed += allowed;
        state.denied += 1 - allowed;
        Ok(seq)
    }

    /// Logs how an allowed request ended.
    ///
    /// # Errors
    /// When the row could not be written.
    pub fn finish(&self, seq: u64, mut end: EgressEnd) -> Result<(), LogError> {
        end.failure = end.failure.map(|text| (self.redact)(&text));
        let at_ms = self.at_ms();
        self.state().write(&EgressRow::Finished { seq, at_ms, end })
    }

    /// Why no further decision is possible, if the log failed or is closed.
    pub fn failure(&self) -> Option<LogError> {
        self.state().failure.clone()
    }

    /// Writes the last row. Later decisions fail.
    ///
    /// # Errors
    /// When this row or an earlier one could not be written: the log is incomplete.
    pub fn close(&self) -> Result<LogSummary, LogError> {
        let at_ms = self.at_ms();
        let mut state = self.state();
        let (allowed, denied) = (state.allowed, state.denied);
        state.write(&EgressRow::Closed { at_ms, allowed, denied })?;
        state.failure = Some(LogError::Closed);
        Ok(LogSummary { allowed, denied, head: state.chain.head() })
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        // No code panics while holding the lock; if it did, the recorded failure would still be in the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at_ms(&self) -> u64 {
        milliseconds(self.began.elapsed())
    }

    /// Redacts every free text of a decision. Constants of the format stay.
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

impl LogState {
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

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
