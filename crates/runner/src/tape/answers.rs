//! The answers on a tape, for questions that the scenario's own rules leave open when it is replayed.

use super::origin::RECORDED;
use belljar_session::decider::{Decider, Decision};
use belljar_session::{Answer, Question};
use std::cell::RefCell;

/// Gives each recorded answer once, to the question that it was given to.
#[derive(Debug, Default)]
pub(crate) struct RecordedAnswers(RefCell<Vec<(Question, Answer)>>);

impl RecordedAnswers {
    /// Answers of the scenario are left out: its present rules and settings decide those again.
    pub(super) fn new(mut decided: Vec<(Question, Answer)>) -> Self {
        decided.retain(|(_, answer)| !answer.by.is_decided_again());
        Self(RefCell::new(decided))
    }
}

impl Decider for RecordedAnswers {
    fn decide(&self, question: &Question) -> Decision {
        let mut left = self.0.borrow_mut();
        match left.iter().position(|(asked, _)| is_same(asked, question)) {
            Some(at) => {
                let mut answer = left.remove(at).1;
                answer.reason.insert_str(0, RECORDED);
                Decision::Answered(answer)
            }
            None => Decision::NoOpinion { note: None },
        }
    }
}

/// Whether a question is the recorded one. The ids of calls come from the model, so they are the same in a replay; texts
/// may have been redacted.
fn is_same(recorded: &Question, present: &Question) -> bool {
    match (recorded, present) {
        (Question::Permission(one), Question::Permission(other))
        | (Question::Choice { request: one, .. }, Question::Choice { request: other, .. })
        | (Question::Unreadable { request: one, .. }, Question::Unreadable { request: other, .. }) => {
            let same = if one.call.is_some() { one.call == other.call } else { one.input == other.input };
            one.tool == other.tool && same
        }
        (Question::Elicitation(one), Question::Elicitation(other)) => one == other,
        (Question::Dialog(one), Question::Dialog(other)) => one == other,
        (
            Question::Permission(_)
            | Question::Choice { .. }
            | Question::Unreadable { .. }
            | Question::Hook(_)
            | Question::Mcp(_)
            | Question::Elicitation(_)
            | Question::Dialog(_),
            _,
        ) => false,
    }
}
