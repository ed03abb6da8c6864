//! How a conversation with an agent ended, and whether it succeeded.

use crate::{GuestEnd, MessageId, RequestId, TurnOutcome};
use serde::{Deserialize, Serialize};

/// A time limit. The conversation has no clock; its caller watches these limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// For the answer to the handshake.
    Handshake,
    Turn,
    /// For the process to exit after its input was closed.
    Exit,
    /// For the whole run.
    Run,
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversationEnd {
    /// Why it failed; `None` if the last turn ended without an error and the process then exited with 0.
    pub failure: Option<ConversationFailure>,
    pub exit: GuestEnd,
    /// The number of turns that ended.
    pub results: u64,
    /// How many of them failed. Only the last turn decides on success.
    pub failed_results: u64,
    /// How the last turn ended.
    pub last: Option<TurnOutcome>,
    /// Questions that were neither answered nor withdrawn.
    pub unanswered: Vec<RequestId>,
    /// Messages that the agent did not start to process.
    pub untaken: Vec<MessageId>,
    /// Sub-agents whose end was not seen.
    pub running_sub_agents: usize,
    /// Lines that could not be parsed. Their content is missing from the observations, so a check cannot conclude
    /// that something did not happen.
    pub unread: u64,
    /// The number of protocol violations.
    pub flaws: u64,
}

/// Why a conversation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "failure", rename_all = "snake_case", deny_unknown_fields)]
pub enum ConversationFailure {
    /// The process exited with 0, but without a result.
    #[error("the agent ended without a result")]
    NoResult,
    /// The process failed before any turn ended.
    #[error("the agent ended with {exit} before any result")]
    Crashed { exit: GuestEnd },
    /// The process ended during a turn.
    #[error("the agent ended with {exit} in the middle of a turn")]
    TurnUnfinished { exit: GuestEnd },
    /// The last turn failed.
    #[error("the last turn failed: {}", described(.subtype, .text.as_deref()))]
    ResultIsError {
        /// The agent's name for the failure.
        subtype: String,
        text: Option<String>,
        /// The HTTP status of the model's service, if that failed.
        api_error_status: Option<u64>,
    },
    /// The last turn succeeded, but the process failed.
    #[error("the last turn succeeded, but the agent then ended with {exit}")]
    ExitAfterSuccess { exit: GuestEnd },
    #[error("{} not answered", if *count == 1 { "a question of the agent was".to_owned() } else { format!("{count} questions of the agent were") })]
    Unanswered { count: usize },
    #[error("{count} messages were never taken up")]
    MessagesUntaken { count: usize },
    #[error("the agent refused the handshake: {error}")]
    HandshakeRefused {
        /// The agent's error text.
        error: String,
    },
    /// The agent exceeded the number of questions per run.
    #[error("the agent asked more questions than a run may")]
    TooManyQuestions,
    /// A time limit was reached.
    #[error("{}", deadline.describe())]
    Deadline { deadline: Deadline },
}

/// The agent calls a turn `success` that it ended with an error of the model's service as its text.
fn described(subtype: &str, text: Option<&str>) -> String {
    match text {
        Some(text) if subtype == "success" => text.to_owned(),
        Some(text) => format!("{subtype}: {text}"),
        None => subtype.to_owned(),
    }
}

impl Deadline {
    const fn describe(self) -> &'static str {
        match self {
            Self::Handshake => "the agent did not answer the handshake in time",
            Self::Turn => "a turn did not end in time",
            Self::Exit => "the agent did not end in time after its input was closed",
            Self::Run => "the run did not end in time",
        }
    }
}
