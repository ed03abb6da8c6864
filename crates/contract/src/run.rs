//! A run as stored and as read from disk.

use crate::{AgentName, BackendKind, Digest, EventRecord, InstanceKey, LimitKind, Purpose, RunId, RunName};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of a run's directory: its files, and the form of each except the events. Readers refuse a larger one.
pub const RUN_FORMAT: u32 = 1;

/// Data that is known when a run starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHead {
    /// [`RUN_FORMAT`].
    pub format: u32,
    /// [`crate::EVENT_FORMAT`].
    pub event_format: u32,
    pub id: RunId,
    /// The name that commands accept while it runs.
    pub name: RunName,
    pub agent: AgentName,
    /// The key of the project's state.
    pub instance: InstanceKey,
    pub backend: BackendKind,
    pub purpose: Purpose,
    /// Milliseconds since 1970.
    pub started_at_ms: u64,
    /// Versions of the components: `belljar`, the backend's program, the agent.
    pub versions: BTreeMap<String, String>,
    /// Facts about the machine.
    pub host: BTreeMap<String, Value>,
    /// The digest of the plan. It covers literals, which the plan below does not show.
    pub plan_digest: Digest,
    /// The plan as it was shown.
    pub plan: Value,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case", deny_unknown_fields)]
pub enum RunStatus {
    /// The command ended with this status.
    Exited { code: i32 },
    /// The command was ended by this signal.
    Killed { signal: i32 },
    /// The run reached a limit and was ended.
    LimitReached { limit: LimitKind },
    /// The run was asked to stop.
    Stopped,
    /// The command was never started.
    NotStarted { why: String },
}

/// The tokens that answers of a model report, and the price of them. Of a script or a tape nothing is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelUsage {
    /// Tokens read, without those of the cache.
    pub input_tokens: u64,
    /// Tokens read from the cache or written to it.
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// In millionths of a US dollar; `None` if a model's price is not known.
    pub cost_micros_usd: Option<u64>,
}

/// Resources that a run used. `None` means "not measured", never "nothing".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Tokens that the model read.
    pub input_tokens: Option<u64>,
    /// Tokens that the model wrote.
    pub output_tokens: Option<u64>,
    /// Cost in millionths of a US dollar.
    pub cost_micros_usd: Option<u64>,
    pub cpu_ms: Option<u64>,
    /// The peak memory use.
    pub peak_memory_bytes: Option<u64>,
    /// The usage that the model's answers report, live, scripted or replayed; `None` if an answer reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ModelUsage>,
}

/// Data that is known when a run has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// [`RUN_FORMAT`].
    pub format: u32,
    pub status: RunStatus,
    pub duration_ms: u64,
    pub metrics: Metrics,
    /// The number of events in the log.
    pub events: u64,
    /// The chain value after the last event.
    pub chain: Digest,
}

/// A run that was read from disk. Verdicts treat it like a live one.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub head: RunHead,
    /// The events, up to the first one that cannot be trusted.
    pub events: Vec<EventRecord>,
    /// The result; `None` if the run did not end in order.
    pub result: Option<RunResult>,
    pub completeness: Completeness,
}

/// Whether a log is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// The chain is valid up to the last event, that event is the end of the run, and the result agrees.
    Complete,
    /// The run is still active, or was interrupted. The existing lines are as they were written.
    Incomplete { why: Missing },
    /// A line was changed, or lines were removed.
    Tampered {
        /// The first wrong line, counted from 1; one past the last line if lines were removed.
        line: u64,
    },
}

/// What an incomplete log lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Log,
    /// The end of its last line: the writer was interrupted.
    EndOfLine,
    /// The end of the run.
    EndOfRun,
    /// The result, which is written after the end of the run.
    Result,
}

impl Missing {
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Missing::Log => "there is no log",
            Missing::EndOfLine => "the last line of the log is cut off",
            Missing::EndOfRun => "the log does not reach the end of the run",
            Missing::Result => "the result was not written",
        }
    }
}
