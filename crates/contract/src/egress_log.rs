//! The rows of the egress log: what was watching, what it decided, what then moved, and that it ended in order.
//!
//! A line is a row as JSON with one more member at its end, `chain`: the SHA-256 of the previous line's chain (32 zero
//! bytes before the first) and the bytes of the row. A line that is changed, moved, taken out or put in breaks the chain
//! from there on. The chain has no key: who rewrites the whole file can make a new one, so the last chain belongs into
//! the run's own record as well ([`read_egress_log`] takes it).

use crate::{AddressClass, DenialReason, Digest, Port, RunId};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Version of the stored form of [`EgressRow`]. Readers refuse a larger one.
pub const EGRESS_LOG_FORMAT: u32 = 1;

/// Why something that the rules allow was not dialled, as the log and the client have it.
pub const EGRESS_NOT_DIALLED: &str =
    "the rules allow it, but a replay opens no network; `belljar replay --network` does";

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressWay {
    /// A tunnel asked for with CONNECT.
    Connect,
    /// A request in plain HTTP.
    Http,
    /// A tunnel asked for over SOCKS.
    Socks,
    /// A connection to a door inside, by a program that knows nothing of proxies.
    Door,
    /// A name that was looked up inside.
    Lookup,
    /// A request inside a tunnel whose TLS ends here.
    Intercepted,
    /// A signature for ssh.
    Ssh,
    /// A request to the model.
    Model,
}

/// Why something was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case", deny_unknown_fields)]
pub enum EgressRefusal {
    /// No rule allows it.
    NotAllowed,
    /// A rule denies it.
    Denied,
    /// A rule allows the host, on other ports.
    Port {
        /// Those.
        allowed: Vec<Port>,
    },
    /// The name leads to an address that only a rule for addresses can open.
    Address {
        /// Its class.
        class: AddressClass,
    },
    /// The name has no address.
    Unresolved,
    /// What was sent is not a request that can be understood in one way only.
    Malformed {
        /// What is wrong with it.
        what: String,
    },
    /// The run's token was missing or wrong.
    Token,
    /// `Host` names another destination than the request does.
    HostMismatch,
    /// The connection was to become something else than HTTP.
    Upgrade,
    /// The tunnel's first bytes are not the beginning of TLS.
    NotTls,
    /// The name in the TLS handshake is not the one that was asked for.
    Sni {
        /// The name, where there is one.
        found: Option<String>,
    },
    /// A rule about requests, a budget or a key.
    Request {
        /// In words.
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

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum EgressVerdict {
    /// It may go on.
    Allowed,
    /// It was refused.
    Denied {
        /// Why.
        reason: EgressRefusal,
    },
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressDecision {
    /// How it came.
    pub way: EgressWay,
    /// `host:port`; what was sent instead, escaped and cut, where that names no destination.
    pub destination: String,
    /// The addresses that were checked and may be dialled, in that order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The rule that decided, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What was decided.
    pub verdict: EgressVerdict,
    /// The method of a request that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path of a request that could be read, without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The credential that was added, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The decision that opened the tunnel in which this one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
}

/// What became of something that was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressEnd {
    /// The address that was reached, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Bytes to the world.
    pub sent: u64,
    /// Bytes from the world.
    pub received: u64,
    /// How long it took.
    pub duration_ms: u64,
    /// What went wrong, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EgressRow {
    /// The first row: something was watching, before the agent began.
    Opened {
        /// The version of the rows.
        format: u32,
        /// The run.
        run: RunId,
        /// Milliseconds since 1970; every other time is an offset to it.
        opened_at_ms: u64,
        /// The digest of the rules.
        policy: Digest,
        /// Where it listened, inside.
        listeners: Vec<String>,
    },
    /// A decision, written before the first byte moved.
    Decided {
        /// Counted from 1.
        seq: u64,
        /// When.
        at_ms: u64,
        /// What.
        decision: EgressDecision,
    },
    /// The end of something that was allowed.
    Finished {
        /// The decision's number.
        seq: u64,
        /// When.
        at_ms: u64,
        /// What became of it.
        end: EgressEnd,
    },
    /// The last row: it was watching until here.
    Closed {
        /// When.
        at_ms: u64,
        /// Decisions that allowed.
        allowed: u64,
        /// Decisions that refused.
        denied: u64,
    },
}

/// The state of a log's chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressChain(Option<Digest>);

const CHAIN: &str = ",\"chain\":\"sha256:";
const HEX: usize = 64;

impl EgressChain {
    /// Before the first line.
    pub const START: Self = Self(None);

    /// The chain of the last line, once there is one.
    #[must_use]
    pub const fn head(&self) -> Option<Digest> {
        self.0
    }

    /// Goes on by a row.
    #[must_use]
    fn after(self, row: &[u8]) -> Digest {
        let mut bytes = self.0.map_or([0; 32], Digest::into_bytes).to_vec();
        bytes.extend_from_slice(row);
        Digest::of(&bytes)
    }

    /// The line of a row, with its newline, and the chain behind it. `row` is a JSON object with members.
    #[must_use]
    pub fn line(self, row: &str) -> (String, Self) {
        let digest = self.after(row.as_bytes());
        let open = row.strip_suffix('}').unwrap_or(row);
        (format!("{open}{CHAIN}{}\"}}\n", digest.hex()), Self(Some(digest)))
    }

    /// The row of a line without its newline, and the chain behind it; `None` when the chain is broken.
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

/// What a log is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressLogState {
    /// From its first row to its last: what is not in it did not happen.
    Complete,
    /// There is no log: nothing was watching.
    Absent,
    /// It begins as it should and stops: what came after is not known.
    Truncated,
    /// It is not what was written.
    Edited {
        /// The first line that cannot be right, counted from 1.
        line: usize,
        /// Why.
        fault: EgressLogFault,
    },
    /// Written by a newer belljar.
    Newer {
        /// The version.
        format: u32,
    },
}

impl EgressLogState {
    /// In a line, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Complete => "the log of the ways out is whole".to_owned(),
            Self::Absent => "nothing was watching the ways out".to_owned(),
            Self::Truncated => "the log of the ways out stops before its end".to_owned(),
            Self::Edited { line, fault: EgressLogFault::Head } => format!(
                "the log of the ways out ends after line {line} otherwise than the run's own log says: it was changed"
            ),
            Self::Edited { line, fault } => {
                format!("the log of the ways out was changed at line {line}: {fault:?}")
            }
            Self::Newer { format } => {
                format!("the log of the ways out is of version {format}, which a newer belljar wrote")
            }
        }
    }
}

/// Why a line cannot be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressLogFault {
    /// The chain does not lead to it.
    Chain,
    /// It is no row.
    Row,
    /// It stands where it cannot.
    Order,
    /// A number that does not follow.
    Number,
    /// The counts of the last row are not those of the rows.
    Counts,
    /// The log ends with another chain than the run's record says.
    Head,
}

/// A log as it was read. The rows are those before the first fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressLogReading {
    /// The rows.
    pub rows: Vec<EgressRow>,
    /// What they are worth.
    pub state: EgressLogState,
}

/// Reads a log and tells what it is worth. `head` is the chain of the last line where the run's record has it.
#[must_use]
pub fn read_egress_log(text: &str, head: Option<Digest>) -> EgressLogReading {
    let mut reader =
        Reader { rows: Vec::new(), chain: EgressChain::START, decided: 0, counts: (0, 0), closed: false };
    let state = reader.read(text, head);
    EgressLogReading { rows: reader.rows, state }
}

struct Reader {
    rows: Vec<EgressRow>,
    chain: EgressChain,
    decided: u64,
    counts: (u64, u64),
    closed: bool,
}

impl Reader {
    fn read(&mut self, text: &str, head: Option<Digest>) -> EgressLogState {
        if text.is_empty() && head.is_none() {
            return EgressLogState::Absent;
        }
        let mut line = 0;
        for whole in text.split_inclusive('\n') {
            line += 1;
            // The writer ends every line; a last one without its end was cut off in the middle.
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
        EgressLogState::Complete
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

    /// Whether a row can stand here.
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

/// A log without its end, or with another one. Where the record knows its end, it had one.
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

/// The version of a first row, where it is beyond this reader.
fn newer_format(row: &str) -> Option<u32> {
    let row: serde_json::Value = serde_json::from_str(row).ok()?;
    let format = u32::try_from(row.get("format")?.as_u64()?).ok()?;
    (format > EGRESS_LOG_FORMAT).then_some(format)
}

#[cfg(test)]
#[path = "egress_log_tests.rs"]
mod tests;
