//! Counters that decide how a conversation ended.

use belljar_contract::{
    ConversationEnd, ConversationFailure, GuestEnd, MessageId, RequestId, ResultFrame, TurnOutcome,
};

/// Counters that decide how a conversation ended.
#[derive(Debug, Default)]
pub(super) struct Tally {
    turn_is_open: bool,
    results: u64,
    failed_results: u64,
    last: Option<TurnOutcome>,
    failure: Option<ConversationFailure>,
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

    /// Records why the run failed; the first reason counts.
    pub fn fail(&mut self, failure: ConversationFailure) {
        self.failure.get_or_insert(failure);
    }

    pub fn end(
        self,
        exit: GuestEnd,
        untaken: Vec<MessageId>,
        unanswered: Vec<RequestId>,
        running_sub_agents: usize,
    ) -> ConversationEnd {
        let failure = self.failure_at(exit, untaken.len(), unanswered.len());
        let Self { turn_is_open: _, results, failed_results, last, failure: _, unread, flaws } = self;
        ConversationEnd {
            failure,
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

    fn failure_at(&self, exit: GuestEnd, untaken: usize, unanswered: usize) -> Option<ConversationFailure> {
        let failure = match (&self.failure, &self.last, exit) {
            (Some(failure), _, _) => failure.clone(),
            (None, None, GuestEnd::Code(0)) => ConversationFailure::NoResult,
            (None, None, exit) => ConversationFailure::Crashed { exit },
            (None, Some(_), exit) if self.turn_is_open => ConversationFailure::TurnUnfinished { exit },
            (None, Some(last), _) if last.is_error => ConversationFailure::ResultIsError {
                subtype: last.subtype.clone(),
                text: last.text.clone(),
                api_error_status: last.api_error_status,
            },
            (None, Some(_), exit) if exit != GuestEnd::Code(0) => {
                ConversationFailure::ExitAfterSuccess { exit }
            }
            (None, Some(_), _) if unanswered > 0 => ConversationFailure::Unanswered { count: unanswered },
            (None, Some(_), _) if untaken > 0 => ConversationFailure::MessagesUntaken { count: untaken },
            (None, Some(_), _) => return None,
        };
        Some(failure)
    }
}

pub(super) fn outcome(frame: ResultFrame) -> TurnOutcome {
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
        is_error,
        subtype,
        text,
        api_error_status,
        terminal_reason,
        turns,
        usage,
        total_cost_micros_usd,
        denied_tools,
        structured,
    }
}
