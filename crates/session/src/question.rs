//! The agent's questions and the possible answers.

use belljar_contract::{
    AfterDeny, AgentRequest, AskedQuestion, DialogReply, DialogRequest, ElicitationReply, ElicitationRequest,
    HookCall, HookReply, McpMessage, PermissionReply, PermissionRequest, Reply,
};
use serde_json::{Map, Value, json};

/// A question for the deciders.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// May this tool run?
    Permission(PermissionRequest),
    /// The agent asks the user, one thing or several at once.
    Choice {
        request: PermissionRequest,
        /// The questions; no two have the same text.
        questions: Vec<AskedQuestion>,
    },
    /// The agent asks the user in a form that belljar cannot read; it can only be refused.
    Unreadable {
        request: PermissionRequest,
        why: String,
    },
    Hook(HookCall),
    /// A message for an MCP server that is served from outside this crate.
    Mcp(McpMessage),
    /// An MCP server asks the user.
    Elicitation(ElicitationRequest),
    /// A tool wants a dialog shown.
    Dialog(DialogRequest),
}

/// An answer with its source and reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub value: AnswerValue,
    pub by: By,
    /// The reason, in one line.
    pub reason: String,
    /// The scope of a permission to fetch, if a rule sets one.
    pub grant: Option<Grant>,
}

/// The source of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// A rule of the scenario.
    Scenario,
    /// A rule of the answer-policy file.
    Policy,
    /// An answer on the command line.
    CommandLine,
    /// The scenario's setting for tools that no rule names.
    Parity,
    /// The first option, because nothing else answered.
    First,
    /// An external program.
    External,
    /// A model other than the agent's.
    Model,
    Person,
    /// belljar itself: a registered hook or a declared server.
    Belljar,
}

/// The scope of a permission to fetch from a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// This URL only.
    Once,
    /// The whole domain.
    Domain,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AnswerValue {
    /// The tool may run.
    Allow {
        /// A replacement for the agent's input.
        input: Option<Map<String, Value>>,
        /// The suggested permission changes to accept.
        permissions: Vec<Value>,
    },
    /// The tool may not run.
    Deny {
        /// The message to the model; must not be empty.
        message: String,
        then: AfterDeny,
    },
    /// One answer for each question, in order.
    Choices(Vec<Chosen>),
    Hook(HookReply),
    /// A JSON-RPC response; `None` for a notification.
    Mcp(Option<Value>),
    /// The reply to an MCP server.
    Elicitation(ElicitationReply),
    /// How the dialog ended.
    Dialog(DialogReply),
    /// There is no answer; the agent receives this error.
    Error(String),
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// Labels of its options.
    Labels(Vec<String>),
    /// Text other than an option's label.
    Text(String),
}

/// Why an answer is not valid for its question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("a question about {question} cannot be answered with {answer}")]
    Mismatch { question: &'static str, answer: &'static str },
    /// A denial without a message would reach the model as a protocol error.
    #[error("the message of a denial must not be empty")]
    EmptyMessage,
    #[error("the answer changes permissions in a way that the agent did not suggest")]
    NotSuggested,
    #[error("expected {wanted} answers, one for each question, found {given}")]
    Count { wanted: usize, given: usize },
    #[error("{question:?} has no option {label:?}")]
    NoSuchLabel { question: String, label: String },
    #[error("{question:?} takes {takes} of its options, found {given}")]
    LabelCount { question: String, takes: &'static str, given: usize },
    #[error("the answer to {question:?} is empty")]
    EmptyText { question: String },
}

impl By {
    /// All sources.
    pub const ALL: [Self; 9] = [
        Self::Scenario,
        Self::Policy,
        Self::CommandLine,
        Self::Parity,
        Self::First,
        Self::External,
        Self::Model,
        Self::Person,
        Self::Belljar,
    ];

    /// The name in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scenario => "scenario",
            Self::Policy => "policy",
            Self::CommandLine => "command-line",
            Self::Parity => "parity",
            Self::First => "first",
            Self::External => "external",
            Self::Model => "model",
            Self::Person => "person",
            Self::Belljar => "belljar",
        }
    }

    /// Whether the same question always gets the same answer.
    #[must_use]
    pub const fn is_reproducible(self) -> bool {
        match self {
            Self::Scenario | Self::Policy | Self::CommandLine | Self::Parity | Self::Belljar => true,
            Self::First | Self::External | Self::Model | Self::Person => false,
        }
    }

    /// Whether a replay gets it from the scenario and not from the tape.
    #[must_use]
    pub const fn is_decided_again(self) -> bool {
        match self {
            Self::Scenario | Self::Parity | Self::Belljar => true,
            Self::Policy | Self::CommandLine | Self::First | Self::External | Self::Model | Self::Person => {
                false
            }
        }
    }
}

impl Question {
    /// The question of a control request; an error for one that belljar does not support.
    pub(crate) fn from_request(request: AgentRequest) -> Result<Self, (String, String)> {
        Ok(match request {
            AgentRequest::CanUseTool(request) => match request.questions() {
                None => Self::Permission(request),
                Some(Ok(questions)) => Self::Choice { request, questions },
                Some(Err(why)) => Self::Unreadable { request, why },
            },
            AgentRequest::HookCallback(call) => Self::Hook(call),
            AgentRequest::McpMessage(message) => Self::Mcp(message),
            AgentRequest::Elicitation(request) => Self::Elicitation(request),
            AgentRequest::Dialog(request) => Self::Dialog(request),
            AgentRequest::Unknown { subtype } => {
                let why = format!("unsupported control request subtype: {subtype}");
                return Err((subtype, why));
            }
            AgentRequest::Malformed { subtype, why } => return Err((subtype, why)),
        })
    }

    /// The tool call in question.
    #[must_use]
    pub fn tool_request(&self) -> Option<&PermissionRequest> {
        match self {
            Self::Permission(request) | Self::Choice { request, .. } | Self::Unreadable { request, .. } => {
                Some(request)
            }
            Self::Hook(_) | Self::Mcp(_) | Self::Elicitation(_) | Self::Dialog(_) => None,
        }
    }

    /// The kind of question, for messages.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        match self {
            Self::Permission(_) => "a permission",
            Self::Choice { .. } => "a choice",
            Self::Unreadable { .. } => "an unreadable choice",
            Self::Hook(_) => "a hook",
            Self::Mcp(_) => "an MCP message",
            Self::Elicitation(_) => "an elicitation",
            Self::Dialog(_) => "a dialog",
        }
    }

    /// The reply to the agent that carries an answer.
    ///
    /// # Errors
    /// If the answer is not valid for the question. The agent silently misreads most such answers, so they are rejected
    /// here.
    pub fn reply(&self, value: &AnswerValue) -> Result<Reply, AnswerError> {
        let mismatch = || AnswerError::Mismatch { question: self.about(), answer: value.about() };
        match (self, value) {
            (_, AnswerValue::Error(why)) => Ok(Reply::Error(why.clone())),
            (
                Self::Permission(_) | Self::Choice { .. } | Self::Unreadable { .. },
                AnswerValue::Deny { message, then },
            ) => {
                if message.trim().is_empty() {
                    return Err(AnswerError::EmptyMessage);
                }
                Ok(Reply::Permission(PermissionReply::Deny { message: message.clone(), then: *then }))
            }
            (Self::Permission(request), AnswerValue::Allow { input, permissions }) => {
                if permissions.iter().any(|wanted| !request.suggestions.contains(wanted)) {
                    return Err(AnswerError::NotSuggested);
                }
                let input = input.as_ref().unwrap_or(&request.input).clone();
                Ok(Reply::Permission(PermissionReply::Allow { input, permissions: permissions.clone() }))
            }
            (Self::Choice { request, questions }, AnswerValue::Choices(chosen)) => {
                let input = answered_input(request, questions, chosen)?;
                Ok(Reply::Permission(PermissionReply::Allow { input, permissions: Vec::new() }))
            }
            (Self::Hook(_), AnswerValue::Hook(reply)) => Ok(Reply::Hook(reply.clone())),
            (Self::Mcp(_), AnswerValue::Mcp(response)) => Ok(Reply::Mcp(response.clone())),
            (Self::Elicitation(_), AnswerValue::Elicitation(reply)) => Ok(Reply::Elicitation(reply.clone())),
            (Self::Dialog(_), AnswerValue::Dialog(reply)) => Ok(Reply::Dialog(reply.clone())),
            (
                Self::Permission(_)
                | Self::Choice { .. }
                | Self::Unreadable { .. }
                | Self::Hook(_)
                | Self::Mcp(_)
                | Self::Elicitation(_)
                | Self::Dialog(_),
                AnswerValue::Allow { .. }
                | AnswerValue::Deny { .. }
                | AnswerValue::Choices(_)
                | AnswerValue::Hook(_)
                | AnswerValue::Mcp(_)
                | AnswerValue::Elicitation(_)
                | AnswerValue::Dialog(_),
            ) => Err(mismatch()),
        }
    }
}

impl AnswerValue {
    /// The labels or text of the answer, one for each question of a choice.
    pub(crate) fn chosen(&self) -> Vec<String> {
        match self {
            Self::Choices(chosen) => chosen
                .iter()
                .map(|one| match one {
                    Chosen::Labels(labels) => labels.join(", "),
                    Chosen::Text(text) => text.clone(),
                })
                .collect(),
            Self::Allow { .. }
            | Self::Deny { .. }
            | Self::Hook(_)
            | Self::Mcp(_)
            | Self::Elicitation(_)
            | Self::Dialog(_)
            | Self::Error(_) => Vec::new(),
        }
    }

    /// The kind of answer, for messages.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        match self {
            Self::Allow { input: None, .. } => "allow",
            Self::Allow { input: Some(_), .. } => "allow with another input",
            Self::Deny { then: AfterDeny::GoOn, .. } => "deny",
            Self::Deny { then: AfterDeny::Interrupt, .. } => "deny and interrupt",
            Self::Choices(_) => "choices",
            Self::Hook(_) => "a hook's reply",
            Self::Mcp(_) => "an MCP response",
            Self::Elicitation(_) => "an elicitation's reply",
            Self::Dialog(_) => "a dialog's reply",
            Self::Error(_) => "an error",
        }
    }
}

/// The tool's input with the answers, which the agent looks up by the questions' texts.
fn answered_input(
    request: &PermissionRequest,
    questions: &[AskedQuestion],
    chosen: &[Chosen],
) -> Result<Map<String, Value>, AnswerError> {
    if questions.len() != chosen.len() {
        return Err(AnswerError::Count { wanted: questions.len(), given: chosen.len() });
    }
    let mut answers = Map::new();
    for (question, chosen) in questions.iter().zip(chosen) {
        answers.insert(question.question.clone(), json!(chosen.text_for(question)?));
    }
    let mut input = request.input.clone();
    input.insert("answers".to_owned(), Value::Object(answers));
    Ok(input)
}

impl Chosen {
    fn text_for(&self, asked: &AskedQuestion) -> Result<String, AnswerError> {
        let question = || asked.question.clone();
        match self {
            Self::Text(text) if text.trim().is_empty() => {
                Err(AnswerError::EmptyText { question: question() })
            }
            Self::Text(text) => Ok(text.clone()),
            Self::Labels(labels) => {
                let known = |label: &String| asked.options.iter().any(|option| option.label == *label);
                if let Some(label) = labels.iter().find(|label| !known(label)) {
                    return Err(AnswerError::NoSuchLabel { question: question(), label: label.clone() });
                }
                match (labels.len(), asked.multi_select) {
                    (1, _) | (2.., true) => Ok(labels.join(", ")),
                    (given, true) => {
                        Err(AnswerError::LabelCount { question: question(), takes: "one or more", given })
                    }
                    (given, false) => {
                        Err(AnswerError::LabelCount { question: question(), takes: "one", given })
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::By;

    /// The one that follows in the list; a new one does not compile before it has a place.
    fn after(by: By) -> Option<By> {
        Some(match by {
            By::Scenario => By::Policy,
            By::Policy => By::CommandLine,
            By::CommandLine => By::Parity,
            By::Parity => By::First,
            By::First => By::External,
            By::External => By::Model,
            By::Model => By::Person,
            By::Person => By::Belljar,
            By::Belljar => return None,
        })
    }

    #[test]
    fn every_source_is_in_the_list() {
        let all: Vec<By> = std::iter::successors(Some(By::Scenario), |by| after(*by)).collect();
        assert_eq!(all, By::ALL);
    }
}
