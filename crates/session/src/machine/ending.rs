//! How a conversation ended, and whether that is a success.

use belljar_contract::{MessageId, RequestId, ResultFrame, TurnOutcome};

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A time that someone watches. The machine has no clock of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// Whether it is a success.
    pub verdict: EndingVerdict,
    /// How the process ended.
    pub exit: Exit,
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

/// Whether a conversation is a success.
#[derive(Debug, Clone, PartialEq)]
pub enum EndingVerdict {
    /// Its last turn ended without error, and the process then ended with 0.
    Success,
    /// Anything else.
    Failure(Failure),
}

/// Why a conversation is no success.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The process ended in order and no turn ever did.
    #[error("the agent ended without a result")]
    NoResult,
    /// The process ended before any turn did.
    #[error("the agent ended with {exit} before any result")]
    Crashed {
        /// How.
        exit: Exit,
    },
    /// The process ended in the middle of a turn.
    #[error("the agent ended with {exit} in the middle of a turn")]
    TurnUnfinished {
        /// How.
        exit: Exit,
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
        exit: Exit,
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

impl std::fmt::Display for Exit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(out, "status {code}"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
        }
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

/// What is counted on the way to an ending.
#[derive(Debug, Default)]
pub(super) struct Tally {
    turn_is_open: bool,
    results: u64,
    failed_results: u64,
    last: Option<TurnOutcome>,
    failure: Option<Failure>,
    pub unread: u64,
    pub flaws: u64,
}

impl Tally {
    pub fn turn_opens(&mut self) {
        self.turn_is_open = true;
    }

    pub fn turn_is_closed(&self) -> bool {
        !self.turn_is_open
    }

    /// Whether a turn ended and none has begun since.
    pub fn comes_after_result(&self) -> bool {
        !self.turn_is_open && self.results > 0
    }

    pub fn turn_ends(&mut self, outcome: TurnOutcome) {
        self.turn_is_open = false;
        self.results += 1;
        self.failed_results += u64::from(outcome.is_error);
        self.last = Some(outcome);
    }

    /// The first reason stays.
    pub fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    pub fn end(
        self,
        exit: Exit,
        untaken: Vec<MessageId>,
        unanswered: Vec<RequestId>,
        running_sub_agents: usize,
    ) -> Ending {
        let verdict = self.verdict(exit, untaken.len(), unanswered.len());
        let Self { turn_is_open: _, results, failed_results, last, failure: _, unread, flaws } = self;
        Ending {
            verdict,
            exit,
            results,
            failed_results,
            last,
            unanswered,
            untaken,
            running_sub_agents,
            unread,
            flaws,
        }
    }

    fn verdict(&self, exit: Exit, untaken: usize, unanswered: usize) -> EndingVerdict {
        let failure = match (&self.failure, &self.last, exit) {
            (Some(failure), _, _) => failure.clone(),
            (None, None, Exit::Code(0)) => Failure::NoResult,
            (None, None, exit) => Failure::Crashed { exit },
            (None, Some(_), exit) if self.turn_is_open => Failure::TurnUnfinished { exit },
            (None, Some(last), _) if last.is_error => Failure::ResultIsError {
                subtype: last.subtype.clone(),
                text: last.text.clone(),
                api_error_status: last.api_error_status,
            },
            (None, Some(_), exit) if exit != Exit::Code(0) => Failure::ExitAfterSuccess { exit },
            (None, Some(_), _) if unanswered > 0 => Failure::Unanswered { count: unanswered },
            (None, Some(_), _) if untaken > 0 => Failure::MessagesUntaken { count: untaken },
            (None, Some(_), _) => return EndingVerdict::Success,
        };
        EndingVerdict::Failure(failure)
    }
}

pub(super) fn outcome(frame: &ResultFrame) -> TurnOutcome {
    let ResultFrame {
        is_error,
        subtype,
        text,
        session: _,
        api_error_status,
        terminal_reason,
        turns,
        usage,
        total_cost_micros_usd,
        denied_tools,
        structured,
    } = frame;
    TurnOutcome {
        is_error: *is_error,
        subtype: subtype.clone(),
        text: text.clone(),
        api_error_status: *api_error_status,
        terminal_reason: terminal_reason.clone(),
        turns: *turns,
        usage: *usage,
        total_cost_micros_usd: *total_cost_micros_usd,
        denied_tools: denied_tools.clone(),
        structured: structured.clone(),
    }
}
