//! A model that answers the agent's questions through the run's own gateway, so that it is charged and recorded with
//! the run.

use crate::session::conversation::{ExternalDecider, ModelCalls, ModelLine, Pending};
use belljar_contract::AskedQuestion;
use belljar_session::decider::ModelQuestion;
use belljar_session::{Answer, AnswerValue, By, Chosen, Question};
use serde_json::json;
use std::time::Duration;

/// The default model for answers: fast and cheap.
pub const DECIDER_MODEL: &str = belljar_egress::gateway::CHEAP_MODEL;
/// Enough for an answer: a number or a sentence.
const MOST_TOKENS: u32 = 500;
/// A first reply that is not an answer is retried.
const TRIES: u32 = 2;

/// The configuration of a model decider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelWish {
    /// What the user wants to achieve.
    pub intent: Option<String>,
    pub model: String,
    /// The timeout for each request.
    pub patience: Duration,
}

impl Default for ModelWish {
    fn default() -> Self {
        let patience = Duration::from_secs(600);
        Self { intent: None, model: DECIDER_MODEL.to_owned(), patience }
    }
}

/// A model that answers questions only: it does not decide about permissions of tools.
#[derive(Debug)]
pub struct ModelDecider {
    wish: ModelWish,
    line: ModelLine,
    calls: Option<ModelCalls>,
}

impl ModelDecider {
    /// A decider that is connected when the run begins.
    #[must_use]
    pub fn new(wish: ModelWish) -> Self {
        let (line, calls) = ModelLine::new();
        Self { wish, line, calls: Some(calls) }
    }

    fn choose(&self, asked: &AskedQuestion, transcript: &str) -> Result<Chosen, String> {
        let ModelWish { intent, model, patience } = &self.wish;
        let question = ModelQuestion { asked, intent: intent.as_deref(), transcript };
        let mut messages = vec![json!({"role": "user", "content": question.prompt()})];
        let mut faults = Vec::new();
        for _ in 0..TRIES {
            let request = json!({
                "model": model, "max_tokens": MOST_TOKENS, "system": ModelQuestion::system(), "messages": messages,
            });
            let reply = self.line.ask(request, *patience)?.text;
            match question.read(&reply) {
                Ok(chosen) => return Ok(chosen),
                Err(fault) => {
                    let again =
                        format!("That is not a valid answer: {fault}. Reply in the form that was asked for.");
                    messages.push(json!({"role": "assistant", "content": reply}));
                    messages.push(json!({"role": "user", "content": again}));
                    faults.push(fault.to_string());
                }
            }
        }
        Err(format!("the model {model} gave no answer in {TRIES} tries: {}", faults.join("; ")))
    }
}

impl ExternalDecider for ModelDecider {
    fn decide(&mut self, pending: &Pending) -> Result<Answer, String> {
        let questions = match &pending.question {
            Question::Choice { questions, .. } => questions,
            Question::Permission(_)
            | Question::Unreadable { .. }
            | Question::Elicitation(_)
            | Question::Dialog(_)
            | Question::Hook(_)
            | Question::Mcp(_) => {
                return Err(format!("a model cannot answer {}", pending.question.about()));
            }
        };
        let chosen = questions.iter().map(|asked| self.choose(asked, &pending.transcript));
        let value = AnswerValue::Choices(chosen.collect::<Result<_, _>>()?);
        let reason = format!("answered by the model {}", self.wish.model);
        Ok(Answer { value, by: By::Model, reason, grant: None })
    }

    fn model_calls(&mut self) -> Option<ModelCalls> {
        self.calls.take()
    }
}
