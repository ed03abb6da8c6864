//! Rules written before the run: of the command line, the scenario and the answer policy.

use super::label::{LabelReading, choose};
use super::rule::{Allowance, Decide, Rule, Then};
use super::{Decider, Decision, Mend};
use crate::question::{Answer, AnswerValue, By, Chosen, Grant, Question};
use belljar_contract::{AfterDeny, AskedQuestion, PermissionRequest};
use serde_json::{Map, Value};

/// Message to the model if a rule denies a call.
const DENIED: &str = "denied by scenario policy";

/// A rule and where it was written.
#[derive(Debug, Clone)]
pub struct SourcedRule {
    pub rule: Rule,
    pub by: By,
    /// Its position among the rules of its source, from 1.
    pub number: usize,
}

/// What rules say about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruled {
    Allowed,
    Denied {
        rule: String,
    },
    /// No rule names the tool.
    Unnamed,
}

/// Rules in order; the first that matches decides. Rules of all sources form one decider, because one gate may have
/// several questions that rules of different sources answer.
#[derive(Debug, Clone, Default)]
pub struct Scripted(Vec<SourcedRule>);

impl Scripted {
    /// Appends the rules of a source.
    #[must_use]
    pub fn with(mut self, rules: Vec<Rule>, by: By) -> Self {
        let numbered = rules.into_iter().zip(1..);
        self.0.extend(numbered.map(|(rule, number)| SourcedRule { rule, by, number }));
        self
    }

    fn for_tool(&self, name: &str) -> Option<(&SourcedRule, &Decide, Option<Grant>)> {
        self.0.iter().find_map(|sourced| match &sourced.rule.then {
            Then::Tool { tool, decide, grant } if tool == name => Some((sourced, decide, *grant)),
            Then::Tool { .. } | Then::Choose { .. } | Then::Say { .. } => None,
        })
    }

    /// What the rules say about a call that may never have been asked about.
    #[must_use]
    pub fn ruled(&self, tool: &str, input: &Map<String, Value>) -> Ruled {
        let Some((SourcedRule { rule: _, by, number }, decide, _)) = self.for_tool(tool) else {
            return Ruled::Unnamed;
        };
        match decide.of(input) {
            Ok(Allowance::Allow) => Ruled::Allowed,
            // The reason in a rule may hold a secret, and this is shown.
            Ok(Allowance::Deny) => Ruled::Denied { rule: format!("rule {number} of {}", by.name()) },
            // The question would have stayed open.
            Err(_unfit) => Ruled::Denied {
                rule: format!("rule {number} of {}, which does not fit its input", by.name()),
            },
        }
    }

    fn permission(&self, request: &PermissionRequest) -> Decision {
        let Some((sourced, decide, grant)) = self.for_tool(&request.tool) else {
            return Decision::NoOpinion { note: None };
        };
        let value = match decide.of(&request.input) {
            Ok(Allowance::Allow) => AnswerValue::Allow { input: None, permissions: Vec::new() },
            Ok(Allowance::Deny) => AnswerValue::Deny { message: DENIED.to_owned(), then: AfterDeny::GoOn },
            Err(why) => {
                let why = format!("the rule for {} does not fit its input: {why}", request.tool);
                return Decision::Broken { why, mend: Mend::ChangeRule(sourced.correction("allow_if")) };
            }
        };
        Decision::Answered(Answer { value, by: sourced.by, reason: sourced.reason(), grant })
    }

    /// Answers all questions of a gate or none: the rest would be left to another decider.
    fn gate(&self, questions: &[AskedQuestion]) -> Decision {
        let mut answers = Vec::new();
        let mut reasons = Vec::new();
        let mut unmatched = Vec::new();
        let mut by = None;
        for asked in questions {
            match self.answer_to(asked) {
                None => unmatched.push(asked.question.as_str()),
                Some((sourced, Err(why))) => {
                    return Decision::Broken { why, mend: Mend::ChangeRule(sourced.correction("choose")) };
                }
                Some((sourced, Ok(chosen))) => {
                    answers.push(chosen);
                    reasons.push(sourced.reason());
                    by = by.max(Some(sourced.by));
                }
            }
        }
        match by {
            Some(by) if unmatched.is_empty() => {
                reasons.dedup();
                let (value, reason) = (AnswerValue::Choices(answers), reasons.join("; "));
                Decision::Answered(Answer { value, by, reason, grant: None })
            }
            Some(_) => {
                let note =
                    format!("no rule answers {unmatched:?}, so the answers to the others were not used");
                Decision::NoOpinion { note: Some(note) }
            }
            None => Decision::NoOpinion { note: None },
        }
    }

    fn answer_to(&self, asked: &AskedQuestion) -> Option<(&SourcedRule, Result<Chosen, String>)> {
        let fits =
            |when: &belljar_contract::Pattern| when.is_match(&asked.question) || when.is_match(&asked.header);
        self.0.iter().find_map(|sourced| {
            let chosen = match &sourced.rule.then {
                Then::Choose { when, labels } if fits(when) => {
                    choose(asked, labels, LabelReading::Scripted).map_err(|error| error.to_string())
                }
                Then::Say { when, text } if fits(when) => Ok(Chosen::Text(text.clone())),
                Then::Choose { .. } | Then::Say { .. } | Then::Tool { .. } => return None,
            };
            Some((sourced, chosen))
        })
    }
}

impl SourcedRule {
    fn reason(&self) -> String {
        match &self.rule.why {
            Some(why) => why.clone(),
            None => format!("rule {} of {}", self.number, self.by.name()),
        }
    }

    /// What to change so that the rule can be evaluated.
    fn correction(&self, key: &str) -> String {
        match (&self.rule.then, self.by) {
            (Then::Choose { when, labels }, By::CommandLine) => {
                format!("correct --answer \"{}={}\"", when.source(), labels.join(", "))
            }
            (_, By::Policy) => format!("change `{key}` of rule {} of the answer policy", self.number),
            (_, _) => format!("change `{key}` of rule {} in the scenario's `answers`", self.number),
        }
    }
}

impl Decider for Scripted {
    fn decide(&self, question: &Question) -> Decision {
        match question {
            Question::Permission(request) => self.permission(request),
            Question::Choice { questions, .. } => self.gate(questions),
            Question::Unreadable { why, .. } => {
                Decision::Broken { why: format!("the agent's question: {why}"), mend: Mend::AddRule }
            }
            Question::Hook(_) | Question::Mcp(_) | Question::Elicitation(_) | Question::Dialog(_) => {
                Decision::NoOpinion { note: None }
            }
        }
    }
}
