//! How a conversation with an agent ended, and whether that is a success.

use crate::{GuestEnd, MessageId, RequestId, TurnOutcome};
use serde::{Deserialize, Serialize};

/// A time that someone watches. The conversation has no clock of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// For the answer to the handshake.
    Handshake,
    /// For one turn.
    Turn,
    /// For the process to end after its input was closed.
    Exit,
    /// For everything.
    Run,
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversationEnd {
    /// Why it is no success; none is a success: its last turn ended without error, and the process then ended with 0.
    pub failure: Option<ConversationFailure>,
    /// How the process ended.
    pub exit: GuestEnd,
    /// How many turns ended.
    pub results: u64,
    /// How many of them failed; only the last decides.
    pub failed_results: u64,
    /// How the last one ended.
    pub last: Option<TurnOutcome>,
    /// Questions that were neither answered nor withdrawn.
    pub unanswered: Vec<RequestId>,
    /// Messages that the agent never took up.
    pub untaken: Vec<MessageId>,
    /// Sub-agents that were not seen to end.
    pub running_sub_agents: usize,
    /// Lines that could not be read. What was in them is not in the observations, so "did not happen" cannot be said.
    pub unread: u64,
    /// Things that were not as the protocol has them.
    pub flaws: u64,
}

/// Why a conversation is no success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "failure", rename_all = "snake_case", deny_unknown_fields)]
pub enum ConversationFailure {
    /// The process ended in order and no turn ever did.
    #[error("the agent ended without a result")]
    NoResult,
    /// The process ended before any turn did.
    #[error("the agent ended with {exit} before any result")]
    Crashed {
        /// How.
        exit: GuestEnd,
    },
    /// The process ended in the middle of a turn.
    #[error("the agent ended with {exit} in the middle of a turn")]
    TurnUnfinished {
        /// How.
        exit: GuestEnd,
    },
    /// The last turn failed.
    #[error("the last turn failed: {subtype}{}", .text.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
    ResultIsError {
        /// The agent's word for it.
        subtype: String,
        /// Its text.
        text: Option<String>,
        /// The status of the model's service, where that failed.
        api_error_status: Option<u64>,
    },
    /// The last turn ended well, the process did not.
    #[error("the last turn succeeded, but the agent then ended with {exit}")]
    ExitAfterSuccess {
        /// How.
        exit: GuestEnd,
    },
    /// A question was left without an answer.
    #[error("{count} of the agent's questions were not answered")]
    Unanswered {
        /// How many.
        count: usize,
    },
    /// A message was never taken up.
    #[error("{count} messages were never taken up")]
    MessagesUntaken {
        /// How many.
        count: usize,
    },
    /// The handshake was refused.
    #[error("the agent refused the handshake: {error}")]
    HandshakeRefused {
        /// With what.
        error: String,
    },
    /// The agent asked without end.
    #[error("the agent asked more questions than a run may")]
    TooManyQuestions,
    /// A time was up.
    #[error("{}", deadline.describe())]
    Deadline {
        /// Which.
        deadline: Deadline,
    },
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
