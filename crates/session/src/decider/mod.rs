//! Who answers the agent's questions.
//!
//! A chain of deciders is asked in order; the first that has an opinion answers, and says why. One that has an opinion
//! but cannot form it (a label that does not exist, an expression that does not fit the input) stops the chain: the
//! question must not fall through to a more generous one. A question without an answer comes back with the lines to paste
//! that would answer it. A new kind of decider is a file beside this one and a line below.

mod command_line;
mod expression;
mod external;
mod first;
mod label;
mod model;
mod parity;
mod paste;
mod policy;
mod rule;
mod rule_table;
mod scripted;

pub use command_line::{AnswerFlagError, parse_answer_flag};
pub use expression::{EvaluationError, Expression, ExpressionError};
pub use external::{ExternalReply, ExternalRequest, ReplyError};
pub use first::First;
pub use label::{LabelError, LabelReading, choose};
pub use model::{ModelQuestion, ModelReplyError};
pub use parity::Parity;
pub use policy::{parse_policy, policy_schema, rule_schema};
pub use rule::{Rule, parse_rules};
pub use scripted::{Scripted, SourcedRule};

use crate::question::{Answer, Question};

/// Someone who may have an answer.
pub trait Decider {
    /// What it makes of a question.
    fn decide(&self, question: &Question) -> Decision;
}

/// What a decider makes of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// This is the answer.
    Answered(Answer),
    /// Ask the next. A note says what was nearly an answer.
    NoOpinion {
        /// For the one who reads why the question stayed open.
        note: Option<String>,
    },
    /// The question is this decider's, and it cannot answer it. Nobody else is asked.
    Broken { why: String },
}

/// A question that no decider answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no decider answered a question about {about}")]
pub struct Unanswered {
    /// What it was about.
    pub about: &'static str,
    /// What the deciders had to say, in their order.
    pub notes: Vec<String>,
    /// Lines for the `answers` of a scenario that would answer it, where there are any.
    pub paste: Option<String>,
}

/// Deciders in their order.
#[derive(Default)]
pub struct Chain(Vec<Box<dyn Decider>>);

impl Chain {
    #[must_use]
    pub fn then(mut self, decider: impl Decider + 'static) -> Self {
        self.0.push(Box::new(decider));
        self
    }

    /// The first answer.
    ///
    /// # Errors
    /// When there is none; with what would help.
    pub fn decide(&self, question: &Question) -> Result<Answer, Unanswered> {
        let mut notes = Vec::new();
        for decider in &self.0 {
            match decider.decide(question) {
                Decision::Answered(answer) => return Ok(answer),
                Decision::NoOpinion { note } => notes.extend(note),
                Decision::Broken { why } => {
                    notes.push(why);
                    break;
                }
            }
        }
        Err(Unanswered { about: question.about(), notes, paste: paste::lines(question) })
    }
}

#[cfg(test)]
#[path = "decider_tests.rs"]
mod tests;
