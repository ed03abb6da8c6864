//! A run, as it is stored and as it is read back.

use crate::{AgentName, BackendKind, Digest, EventRecord, InstanceKey, LimitKind, Purpose, RunId, RunName};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of a run's folder: its files, and the form of each but the events. Readers refuse a larger one.
pub const RUN_FORMAT: u32 = 1;

/// What is known when a run starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHead {
    /// [`RUN_FORMAT`].
    pub format: u32,
    /// [`crate::EVENT_FORMAT`].
    pub event_format: u32,
    /// The run.
    pub id: RunId,
    /// How people call it while it runs.
    pub name: RunName,
    /// The agent.
    pub agent: AgentName,
    /// The project's state.
    pub instance: InstanceKey,
    /// What built the walls.
    pub backend: BackendKind,
    /// What the sandbox was for.
    pub purpose: Purpose,
    /// Milliseconds since 1970.
    pub started_at_ms: u64,
    /// Versions of what took part: `belljar`, the backend's program, the agent.
    pub versions: BTreeMap<String, String>,
    /// What was found out about the machine.
    pub host: BTreeMap<String, Value>,
    /// The digest of the plan; literals count, though the plan below does not show them.
    pub plan_digest: Digest,
    /// The plan as it was shown.
    pub plan: Value,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case", deny_unknown_fields)]
pub enum RunStatus {
    /// The command ended with this status.
    Exited {
        /// Its status.
        code: i32,
    },
    /// The command was ended by this signal.
    Killed {
        /// Its number.
        signal: i32,
    },
    /// A limit ended it.
    LimitReached {
        /// Of what.
        limit: LimitKind,
    },
    /// It was asked to end, and did.
    Stopped,
    /// The command was never started.
    NotStarted {
        /// Why.
        why: String,
    },
}

/// What a run used. `None` is "was not measured", never "nothing".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Tokens that the model read.
    pub input_tokens: Option<u64>,
    /// Tokens that the model wrote.
    pub output_tokens: Option<u64>,
    /// Money, in millionths of a US dollar.
    pub cost_micros_usd: Option<u64>,
    /// Processor time.
    pub cpu_ms: Option<u64>,
    /// The most memory at once.
    pub peak_memory_bytes: Option<u64>,
}

/// What is known when a run has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// [`RUN_FORMAT`].
    pub format: u32,
    /// How it ended.
    pub status: RunStatus,
    /// How long it took.
    pub duration_ms: u64,
    /// What it used.
    pub metrics: Metrics,
    /// How many events the log has.
    pub events: u64,
    /// The chain's value after the last of them.
    pub chain: Digest,
}

/// A run that was read back. A verdict treats it as a live one.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What was known at its start.
    pub head: RunHead,
    /// What happened, as far as it can be trusted.
    pub events: Vec<EventRecord>,
    /// What was known at its end.
    pub result: Option<RunResult>,
    /// Whether the events are all there were.
    pub completeness: Completeness,
}

/// Whether a log is all that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// It is: the chain holds to the last event, which is the end of the run, and the result agrees.
    Complete,
    /// The run is still going on, or was cut short. What is there is as it was written.
    Incomplete {
        /// What is missing.
        why: Missing,
    },
    /// A line is not what was written, or lines are gone.
    Tampered {
        /// The first line that is wrong, from 1; one past the last where lines are gone.
        line: u64,
    },
}

/// What an incomplete log lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The log itself.
    Log,
    /// The end of its last line: the writer was stopped in the middle of it.
    EndOfLine,
    /// The end of the run.
    EndOfRun,
    /// The result, which is written after the end of the run.
    Result,
}

impl Missing {
    /// In words.
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
