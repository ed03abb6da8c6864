//! Whether answers reached the model.

use super::{Check, Key, check};
use crate::finding::{Finding, count};
use crate::run::Run;
use crate::value::Count;
use belljar_contract::{Delivery, Gate};

pub(super) const KEYS: &[Key] = &[Delivered::KEY, GateAnswersMin::KEY];

check! {
    /// `true`: every answer to a question of the agent came back to the model without an error; a run that asks nothing
    /// holds too, so ask for a question with `gate_answer_count_min`. Needs the whole conversation.
    ///
    /// `false`: at least one answer came back as an error. One that was never seen to come back does not count.
    Delivered(Questions, "gate_answers_delivered", NotNeeded): bool
}
check! {
    /// At least this many calls that ask the user were answered, and the answers reached the model without an error. A
    /// call that asks three questions at once counts one.
    GateAnswersMin(Questions, "gate_answer_count_min", NotNeeded): Count
}

fn text(gate: &Gate<'_>) -> String {
    gate.questions.iter().map(|question| question.question.as_str()).collect::<Vec<_>>().join(" / ")
}

/// The gates that were answered, with the event that shows what became of it.
fn answered<'a>(run: &Run<'a>) -> Vec<(Gate<'a>, u64)> {
    let answered = run.gates().into_iter().filter(|gate| gate.answers.is_some());
    let with_event = |gate: Gate<'a>| (gate.returned_at.unwrap_or(gate.asked_at), gate);
    answered.map(with_event).map(|(at, gate)| (gate, at)).collect()
}

impl Check for Delivered {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let gates = answered(run);
        let failed = gates.iter().find(|(gate, _)| gate.delivery == Delivery::Failed);
        let lost = gates.iter().find(|(gate, _)| gate.delivery == Delivery::Missing);
        match (self.0, failed, lost) {
            (true, Some((gate, at)), _) => {
                Finding::fail("an answer came back as an error").seen(*at, &text(gate))
            }
            (true, None, Some((gate, at))) => {
                run.fails_if_whole("an answer was not seen to reach the model").seen(*at, &text(gate))
            }
            (true, None, None) => {
                let finding = run.holds_if_whole(format!(
                    "{}, all of them reached the model",
                    count(gates.len(), "answer")
                ));
                gates.iter().fold(finding, |finding, (gate, at)| finding.seen(*at, &text(gate)))
            }
            (false, Some((gate, at)), _) => {
                Finding::pass("an answer came back as an error").seen(*at, &text(gate))
            }
            (false, None, _) => run.fails_if_whole("no answer came back as an error"),
        }
    }
}

impl Check for GateAnswersMin {
    fn judge(&self, run: &Run<'_>) -> Finding {
        let delivered = answered(run).into_iter().filter(|(gate, _)| gate.delivery == Delivery::Delivered);
        let delivered: Vec<(u64, String)> = delivered.map(|(gate, at)| (at, text(&gate))).collect();
        let message =
            format!("{} reached the model, at least {} wanted", count(delivered.len(), "answer"), self.0.0);
        if (delivered.len() as u64) < self.0.0 {
            return run.fails_if_whole(message);
        }
        // "At least none" rests on the conversation, not on an answer.
        let finding = if self.0.0 == 0 { run.holds_if_whole(message) } else { Finding::pass(message) };
        delivered.iter().fold(finding, |finding, (seq, text)| finding.seen(*seq, text))
    }
}
