//! The rows of the egress log: the start of the proxy, its decisions, the traffic, and the orderly end.
//!
//! A line is a row as JSON with one more member at its end, `chain`: the SHA-256 of the previous line's chain (32
//! zero bytes before the first line) and the bytes of the row. Changing, moving, removing or inserting a line breaks
//! the chain from there on. The chain has no key: rewriting the whole file makes a valid new chain. The run's own
//! record therefore contains the last chain, and [`read_egress_log`] compares it.

use crate::{AddressClass, DenialReason, Digest, Port, RunId};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Version of the stored form of [`EgressRow`]. Readers refuse a larger one.
pub const EGRESS_LOG_FORMAT: u32 = 2;

/// The reason in the log and in the answer to the client when a replay does not dial an allowed destination.
pub const EGRESS_NOT_DIALLED: &str =
    "the rules allow it, but a replay opens no network; `belljar replay --network` does";

/// Whether the decisions of a log were enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// No connection could be made without the proxy.
    #[default]
    Enforced,
    /// There was no sandbox: a program could connect without the proxy, and such a connection is not in the log.
    NotEnforced,
}

impl Enforcement {
    /// The first version of the log that can say it.
    #[must_use]
    pub const fn format(self) -> u32 {
        match self {
            Self::Enforced => 1,
            Self::NotEnforced => 2,
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    const fn is_enforced(&self) -> bool {
        matches!(self, Self::Enforced)
    }
}

/// How a request reached the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressWay {
    /// A tunnel requested with CONNECT.
    Connect,
    /// A plain HTTP request.
    Http,
    /// A tunnel requested over SOCKS.
    Socks,
    /// A connection to a synthetic address, by a program that does not know proxies.
    Transparent,
    /// A DNS lookup inside the sandbox.
    Lookup,
    /// A request inside a tunnel whose TLS the proxy terminates.
    Intercepted,
    /// A request for an ssh signature.
    Ssh,
    Model,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum EgressRefusal {
    /// No rule allows it.
    NotAllowed,
    /// A rule denies it.
    Denied,
    /// A rule allows the host, but on other ports.
    Port {
        /// The ports that are allowed.
        allowed: Vec<Port>,
    },
    /// The name resolves to an address that needs a rule for that address.
    Address {
        class: AddressClass,
    },
    /// The name does not resolve to an address.
    Unresolved,
    /// The bytes are not a request with exactly one meaning.
    Malformed {
        /// What is wrong with the request.
        what: String,
    },
    Token,
    /// `Host` names a different destination than the request line.
    HostMismatch,
    /// The request asked to switch the connection to a protocol other than HTTP.
    Upgrade,
    /// The first bytes in the tunnel are not a TLS handshake.
    NotTls,
    /// The server name in the TLS handshake is not the requested host.
    Sni {
        /// The server name in the handshake; `None` without one.
        found: Option<String>,
    },
    /// A request rule, a budget or a key refused it.
    Request {
        /// The reason, for people.
        what: String,
    },
}

impl From<DenialReason> for EgressRefusal {
    fn from(reason: DenialReason) -> Self {
        match reason {
            DenialReason::NotAllowed => Self::NotAllowed,
            DenialReason::Denied => Self::Denied,
            DenialReason::Port { allowed } => Self::Port { allowed },
            DenialReason::Address { class } => Self::Address { class },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum EgressVerdict {
    /// It may go on.
    Allowed,
    Denied {
        reason: EgressRefusal,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressDecision {
    pub way: EgressWay,
    /// `host:port`. If the request names no valid destination: its bytes, escaped and cut.
    pub destination: String,
    /// The addresses that were checked and may be dialled, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The rule that decided; `None` if no rule applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub verdict: EgressVerdict,
    /// The method; `None` if the request is not readable, as in a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path without its query; `None` if the request is not readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The name of the credential that was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The `seq` of the decision that opened the surrounding tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
}

/// How an allowed request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressEnd {
    /// The address that was connected to; `None` if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Bytes sent to the destination.
    pub sent: u64,
    /// Bytes received from the destination.
    pub received: u64,
    pub duration_ms: u64,
    /// The error that ended it; `None` for an orderly end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EgressRow {
    /// The first row: the proxy was running before the agent started.
    Opened {
        /// At most [`EGRESS_LOG_FORMAT`].
        format: u32,
        run: RunId,
        /// Milliseconds since 1970; all other times are relative to it.
        opened_at_ms: u64,
        /// The digest of the egress rules.
        policy: Digest,
        /// The addresses inside the sandbox that the proxy listened on.
        listeners: Vec<String>,
        #[serde(default, skip_serializing_if = "Enforcement::is_enforced")]
        enforcement: Enforcement,
    },
    /// A decision, written before the first byte is forwarded.
    Decided {
        /// Counted from 1.
        seq: u64,
        at_ms: u64,
        decision: EgressDecision,
        #[serde(default, skip_serializing_if = "Enforcement::is_enforced")]
        enforcement: Enforcement,
    },
    /// The end of an allowed request.
    Finished {
        /// The `seq` of its decision.
        seq: u64,
        at_ms: u64,
        end: EgressEnd,
    },
    /// The last row: the proxy ran until here.
    Closed {
        at_ms: u64,
        /// The number of decisions that allowed.
        allowed: u64,
        /// The number of decisions that refused.
        denied: u64,
    },
}

/// The state of a log's hash chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressChain(Option<Digest>);

const CHAIN: &str = ",\"chain\":\"sha256:";
const HEX: usize = 64;

impl EgressChain {
    /// The state before the first line.
    pub const START: Self = Self(None);

    /// The chain of the last line; `None` before the first.
    #[must_use]
    pub const fn head(&self) -> Option<Digest> {
        self.0
    }

    /// The chain value that follows from adding a row.
    #[must_use]
    fn after(self, row: &[u8]) -> Digest {
        let mut bytes = self.0.map_or([0; 32], Digest::into_bytes).to_vec();
        bytes.extend_from_slice(row);
        Digest::of(&bytes)
    }

    /// The line for a row, with its newline, and the chain after it. `row` must be a non-empty JSON object.
    #[must_use]
    pub fn line(self, row: &str) -> (String, Self) {
        let digest = self.after(row.as_bytes());
        let open = row.strip_suffix('}').unwrap_or(row);
        (format!("{open}{CHAIN}{}\"}}\n", digest.hex()), Self(Some(digest)))
    }

    /// The row of a line without its newline, and the chain after it; `None` when the chain is broken.
    pub(crate) fn row(self, line: &str) -> Option<(String, Self)> {
        let rest = line.strip_suffix("\"}")?;
        let at = rest.len().checked_sub(HEX + CHAIN.len()).filter(|at| rest.is_char_boundary(*at))?;
        let (open, chain) = rest.split_at(at);
        let hex = chain.strip_prefix(CHAIN)?;
        let row = format!("{open}}}");
        let digest = self.after(row.as_bytes());
        (digest.hex() == hex).then_some((row, Self(Some(digest))))
    }
}

/// Whether a log can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressLogState {
    /// From its first row to its last, so a request that is not in it did not happen.
    Complete,
    /// From its first row to its last, of a run without a sandbox: every decision is in it, and connections that did not
    /// use the proxy are not.
    Unenforced,
    /// The log is missing, so nothing is known about egress.
    Absent,
    /// The log starts correctly and stops early, so later traffic is not known.
    Truncated,
    /// The file differs from what was written.
    Edited {
        /// The first wrong line, counted from 1.
        line: usize,
        fault: EgressLogFault,
    },
    /// Written by a newer belljar.
    Newer { format: u32 },
}

impl EgressLogState {
    /// One line for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Complete => "the egress log is complete".to_owned(),
            Self::Unenforced => {
                "not enforced: connections that did not use the proxy are not in the egress log".to_owned()
            }
            Self::Absent => "the egress log is missing".to_owned(),
            Self::Truncated => "the egress log stops before its end".to_owned(),
            Self::Edited { line, fault: EgressLogFault::Head } => format!(
                "the egress log was changed: it ends at line {line} with another chain than the run's own log has"
            ),
            Self::Edited { line, fault } => {
                format!("the egress log was changed at line {line}: {fault:?}")
            }
            Self::Newer { format } => {
                format!("the egress log has version {format}, which a newer belljar wrote")
            }
        }
    }
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressLogFault {
    /// Its chain does not follow from the previous line.
    Chain,
    /// It is not a valid row.
    Row,
    /// The row is not allowed at this place.
    Order,
    /// Its `seq` is not the next one, or names no decision.
    Number,
    /// The counts in the last row differ from the rows.
    Counts,
    /// The last chain differs from the one in the run's record.
    Head,
}

/// A parsed log. Only the rows before the first fault are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressLogReading {
    pub rows: Vec<EgressRow>,
    pub state: EgressLogState,
}

/// Parses and verifies a log. `head` is the chain of the last line according to the run's record, if that has one.
#[must_use]
pub fn read_egress_log(text: &str, head: Option<Digest>) -> EgressLogReading {
    let mut reader =
        LogReader { rows: Vec::new(), chain: EgressChain::START, decided: 0, counts: (0, 0), closed: false };
    let state = reader.read(text, head);
    EgressLogReading { rows: reader.rows, state }
}

struct LogReader {
    rows: Vec<EgressRow>,
    chain: EgressChain,
    decided: u64,
    counts: (u64, u64),
    closed: bool,
}

impl LogReader {
    fn read(&mut self, text: &str, head: Option<Digest>) -> EgressLogState {
        if text.is_empty() && head.is_none() {
            return EgressLogState::Absent;
        }
        let mut line = 0;
        for whole in text.split_inclusive('\n') {
            line += 1;
            // The writer ends every line with a newline; a last line without one was cut off.
            let Some(content) = whole.strip_suffix('\n') else { return cut(line, head) };
            match self.take(content) {
                Ok(()) => {}
                Err(Stop::Newer(format)) => return EgressLogState::Newer { format },
                Err(Stop::Fault(fault)) => return EgressLogState::Edited { line, fault },
            }
        }
        if !self.closed || head.is_some_and(|head| self.chain.head() != Some(head)) {
            return cut(line, head);
        }
        let unenforced = |row: &EgressRow| match row {
            EgressRow::Opened { enforcement, .. } | EgressRow::Decided { enforcement, .. } => {
                *enforcement == Enforcement::NotEnforced
            }
            EgressRow::Finished { .. } | EgressRow::Closed { .. } => false,
        };
        if self.rows.iter().any(unenforced) { EgressLogState::Unenforced } else { EgressLogState::Complete }
    }

    fn take(&mut self, line: &str) -> Result<(), Stop> {
        let (row, chain) = self.chain.row(line).ok_or(Stop::Fault(EgressLogFault::Chain))?;
        if self.rows.is_empty()
            && let Some(format) = newer_format(&row)
        {
            return Err(Stop::Newer(format));
        }
        let row: EgressRow = serde_json::from_str(&row).map_err(|_error| Stop::Fault(EgressLogFault::Row))?;
        self.place(&row).map_err(Stop::Fault)?;
        self.rows.push(row);
        self.chain = chain;
        Ok(())
    }

    /// Checks that a row is allowed at this place.
    fn place(&mut self, row: &EgressRow) -> Result<(), EgressLogFault> {
        let first = self.rows.is_empty();
        match row {
            EgressRow::Opened { .. } if first => Ok(()),
            _ if first || self.closed => Err(EgressLogFault::Order),
            EgressRow::Opened { .. } => Err(EgressLogFault::Order),
            EgressRow::Decided { seq, decision, .. } => {
                self.decided += 1;
                match decision.verdict {
                    EgressVerdict::Allowed => self.counts.0 += 1,
                    EgressVerdict::Denied { .. } => self.counts.1 += 1,
                }
                if *seq == self.decided { Ok(()) } else { Err(EgressLogFault::Number) }
            }
            EgressRow::Finished { seq, .. } if (1..=self.decided).contains(seq) => Ok(()),
            EgressRow::Finished { .. } => Err(EgressLogFault::Number),
            EgressRow::Closed { allowed, denied, .. } => {
                self.closed = true;
                if (*allowed, *denied) == self.counts { Ok(()) } else { Err(EgressLogFault::Counts) }
            }
        }
    }
}

/// A log without its last row or with a different one. If the run's record has the last chain, the log was complete
/// once, so it was changed.
fn cut(line: usize, head: Option<Digest>) -> EgressLogState {
    match head {
        Some(_) => EgressLogState::Edited { line, fault: EgressLogFault::Head },
        None => EgressLogState::Truncated,
    }
}

enum Stop {
    Newer(u32),
    Fault(EgressLogFault),
}

/// The version in a first row, if it is newer than this reader.
fn newer_format(row: &str) -> Option<u32> {
    let row: serde_json::Value = serde_json::from_str(row).ok()?;
    let format = u32::try_from(row.get("format")?.as_u64()?).ok()?;
    (format > EGRESS_LOG_FORMAT).then_some(format)
}

#[cfg(test)]
#[path = "egress_log_tests.rs"]
mod tests;
