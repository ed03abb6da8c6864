//! The decider that takes the first option.

use super::{Decider, Decision, Mend};
use crate::question::{Answer, AnswerValue, By, Chosen, Question};
use belljar_contract::{DialogReply, ElicitationReply};

/// Takes the first option. It does not allow tools.
#[derive(Debug, Clone, Copy)]
pub struct First;

impl Decider for First {
    fn decide(&self, question: &Question) -> Decision {
        let value = match question {
            Question::Choice { questions, .. } => {
                let first = |options: &[belljar_contract::AskedOption]| {
                    options.first().map(|option| Chosen::Labels(vec![option.label.clone()]))
                };
                match questions.iter().map(|asked| first(&asked.options)).collect() {
                    Some(chosen) => AnswerValue::Choices(chosen),
                    None => {
                        return Decision::Broken {
                            why: "a question has no option to take first".to_owned(),
                            mend: Mend::AddRule,
                        };
                    }
                }
            }
            Question::Dialog(_) => AnswerValue::Dialog(DialogReply::Cancelled),
            Question::Elicitation(_) => AnswerValue::Elicitation(ElicitationReply::Decline),
            Question::Permission(_) | Question::Unreadable { .. } | Question::Hook(_) | Question::Mcp(_) => {
                return Decision::NoOpinion { note: None };
            }
        };
        let reason = "no decider had a better answer".to_owned();
        Decision::Answered(Answer { value, by: By::First, reason, grant: None })
    }
}
