//! Asks the deciders one question without an agent.

use belljar_contract::{AskedOption, AskedQuestion, PermissionRequest};
use belljar_session::decider::{Chain, First, Parity, Rule, Scripted, Unanswered};
use belljar_session::{AnswerValue, By, Chosen, Question};
use serde_json::{Map, Value};

/// A question as an agent could ask it.
#[derive(Debug, Clone)]
pub struct Rehearsal(Question);

/// The answer that the deciders give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehearsed {
    pub what: String,
    /// The decider that answered.
    pub by: &'static str,
    pub reason: String,
}

impl Rehearsal {
    /// A question to the user.
    #[must_use]
    pub fn question(text: &str, header: &str, labels: &[String], multi_select: bool) -> Self {
        let option = |label: &String| AskedOption { label: label.clone(), description: String::new() };
        let asked = AskedQuestion {
            question: text.to_owned(),
            header: header.to_owned(),
            options: labels.iter().map(option).collect(),
            multi_select,
        };
        let request = request("AskUserQuestion", Map::new());
        Self(Question::Choice { request, questions: vec![asked] })
    }

    /// A tool that wants to run.
    #[must_use]
    pub fn tool(name: &str, input: Map<String, Value>) -> Self {
        Self(Question::Permission(request(name, input)))
    }
}

fn request(tool: &str, input: Map<String, Value>) -> PermissionRequest {
    PermissionRequest {
        tool: tool.to_owned(),
        input,
        call: None,
        agent: None,
        description: None,
        suggestions: Vec::new(),
        blocked_path: None,
        reason: None,
    }
}

/// Asks the rules, and then the other deciders.
///
/// # Errors
/// If no decider answers; with a hint.
pub fn rehearse(
    Rehearsal(question): Rehearsal,
    rules: Vec<Rule>,
    strict: bool,
    first: bool,
) -> Result<Rehearsed, Unanswered> {
    let scripted = Scripted::default().with(rules, By::Scenario);
    let mut chain = Chain::default().then(scripted);
    chain = chain.then(if strict { Parity::Strict } else { Parity::Cowork });
    if first {
        chain = chain.then(First);
    }
    let answer = chain.decide(&question)?;
    let what = match &answer.value {
        AnswerValue::Choices(chosen) => chosen
            .iter()
            .map(|one| match one {
                Chosen::Labels(labels) => labels.join(", "),
                Chosen::Text(text) => text.clone(),
            })
            .collect::<Vec<_>>()
            .join("; "),
        other @ (AnswerValue::Allow { .. }
        | AnswerValue::Deny { .. }
        | AnswerValue::Hook(_)
        | AnswerValue::Mcp(_)
        | AnswerValue::Elicitation(_)
        | AnswerValue::Dialog(_)
        | AnswerValue::Error(_)) => other.about().to_owned(),
    };
    Ok(Rehearsed { what, by: answer.by.name(), reason: answer.reason })
}
