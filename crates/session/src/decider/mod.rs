//! Deciders, which answer the agent's questions.
//!
//! The deciders of a chain are asked in order; the first that can answer does, and gives its reason. If a decider's rule
//! matches a question but cannot be evaluated (its label does not exist, its expression does not fit the input), the chain
//! stops: the question must not fall through to a more permissive decider. For a question without an answer the chain
//! returns rules to paste that would answer it. To add a kind of decider, add a file beside this one and a line below.

mod command_line;
mod expression;
mod external;
mod first;
mod given;
mod label;
mod model;
mod parity;
mod paste;
mod policy;
mod rule;
mod rule_table;
mod scripted;

pub use command_line::{AnswerFlagError, allow_tool_rule, deny_tool_rule, parse_answer_flag};
pub use expression::{EvaluationError, Expression, ExpressionError};
pub use external::{ExternalReply, ExternalRequest, ReplyError};
pub use first::First;
pub use given::{GivenAnswers, given_answers, given_answers_by};
pub use label::{LabelError, LabelReading, choose};
pub use model::{ModelQuestion, ModelReplyError};
pub use parity::Parity;
pub use paste::quoted as yaml_quoted;
pub use policy::{parse_policy, policy_schema, rule_schema};
pub use rule::{Rule, parse_rules};
pub use scripted::{Ruled, Scripted, SourcedRule};

use crate::question::{Answer, Question};

/// A source of answers.
pub trait Decider {
    /// Answers the question, passes it on or fails.
    fn decide(&self, question: &Question) -> Decision;
}

/// The result of asking one decider.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Answered(Answer),
    /// The next decider is asked. A note says which rule nearly matched.
    NoOpinion {
        /// Shown to the user if the question stays unanswered.
        note: Option<String>,
    },
    /// A rule of this decider matches but cannot be evaluated. No further decider is asked.
    Broken {
        why: String,
        mend: Mend,
    },
}

/// What would have a question answered at which a decider broke off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mend {
    /// A rule for the question, which is asked before this decider.
    AddRule,
    /// Another text of the rule that decided, as this sentence says: a rule after it is never asked.
    ChangeRule(String),
}

/// A question that no decider answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no decider answered a question about {about}")]
pub struct Unanswered {
    /// The subject of the question.
    pub about: &'static str,
    /// The notes of the deciders, in their order.
    pub notes: Vec<String>,
    /// Lines for the `answers` of a scenario that would answer the question, if further rules can.
    pub paste: Option<String>,
}

/// A chain of deciders.
#[derive(Default)]
pub struct Chain(Vec<Box<dyn Decider>>);

impl Chain {
    #[must_use]
    pub fn then(mut self, decider: impl Decider + 'static) -> Self {
        self.0.push(Box::new(decider));
        self
    }

    /// Returns the first answer.
    ///
    /// # Errors
    /// If no decider answers, with their notes and rules that would help.
    pub fn decide(&self, question: &Question) -> Result<Answer, Unanswered> {
        let mut notes = Vec::new();
        let mut paste = paste::lines(question);
        for decider in &self.0 {
            match decider.decide(question) {
                Decision::Answered(answer) => return Ok(answer),
                Decision::NoOpinion { note } => notes.extend(note),
                Decision::Broken { why, mend } => {
                    notes.push(why);
                    if let Mend::ChangeRule(how) = mend {
                        notes.push(how);
                        paste = None;
                    }
                    break;
                }
            }
        }
        Err(Unanswered { about: question.about(), notes, paste })
    }
}

#[cfg(test)]
#[path = "decider_tests.rs"]
mod tests;
