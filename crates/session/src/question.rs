//! What the agent asks, and what can be answered.

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
        /// The tool's call.
        request: PermissionRequest,
        /// What is asked, each with another text.
        questions: Vec<AskedQuestion>,
    },
    /// The agent asks the user in a way that cannot be answered; it can be refused.
    Unreadable {
        /// The tool's call.
        request: PermissionRequest,
        /// Why it cannot.
        why: String,
    },
    /// A hook fired.
    Hook(HookCall),
    /// A message for an MCP server that is served from outside this crate.
    Mcp(McpMessage),
    /// An MCP server asks the user.
    Elicitation(ElicitationRequest),
    /// A tool wants a dialog shown.
    Dialog(DialogRequest),
}

/// An answer, who gave it and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// What.
    pub value: AnswerValue,
    /// Who.
    pub by: By,
    /// Why, in a line.
    pub reason: String,
    /// How far a permission to fetch reaches, where a rule says so.
    pub grant: Option<Grant>,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// A rule of the scenario.
    Scenario,
    /// A rule of the answer-policy file.
    Policy,
    /// An answer on the command line.
    CommandLine,
    /// The scenario's way with tools that no rule names.
    Parity,
    /// The first option, for want of a better.
    First,
    /// A program beside belljar.
    External,
    /// A model beside the agent's.
    Model,
    /// A person.
    Person,
    /// belljar itself: a registered hook or a declared server.
    Belljar,
}

/// How far a permission to fetch from a domain reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// This one address.
    Once,
    /// All of the domain.
    Domain,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerValue {
    /// The tool may run.
    Allow {
        /// With another input than the agent's.
        input: Option<Map<String, Value>>,
        /// Suggestions of the agent's that are taken.
        permissions: Vec<Value>,
    },
    /// It may not.
    Deny {
        /// What the model is told; not empty.
        message: String,
        /// And then?
        then: AfterDeny,
    },
    /// One for each question, in their order.
    Choices(Vec<Chosen>),
    /// What a hook says.
    Hook(HookReply),
    /// A JSON-RPC response; none to a notification.
    Mcp(Option<Value>),
    /// What an MCP server is told.
    Elicitation(ElicitationReply),
    /// How the dialog ended.
    Dialog(DialogReply),
    /// That there is no answer; the agent is told so.
    Error(String),
}

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// Labels of its options.
    Labels(Vec<String>),
    /// Words of one's own.
    Text(String),
}

/// Why an answer does not answer the question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It answers something else.
    #[error("a question about {question} cannot be answered with {answer}")]
    Mismatch {
        /// What was asked.
        question: &'static str,
        /// What was answered.
        answer: &'static str,
    },
    /// A refusal without a word would reach the model as an error of the protocol.
    #[error("a refusal needs a message")]
    EmptyMessage,
    /// Rules that nobody suggested.
    #[error("a change of permissions must be one that the agent suggested")]
    NotSuggested,
    /// Not one answer for each question.
    #[error("{wanted} questions were asked and {given} answers given")]
    Count {
        /// Questions.
        wanted: usize,
        /// Answers.
        given: usize,
    },
    /// A label that is none.
    #[error("{question:?} has no option {label:?}")]
    NoSuchLabel {
        /// The question.
        question: String,
        /// The label.
        label: String,
    },
    /// Too many labels, or none.
    #[error("{question:?} takes {takes}, {given} were given")]
    LabelCount {
        /// The question.
        question: String,
        /// How many it takes.
        takes: &'static str,
        /// How many there are.
        given: usize,
    },
    /// Nothing in it.
    #[error("the answer to {question:?} is empty")]
    EmptyText {
        /// The question.
        question: String,
    },
}

impl By {
    /// Everyone who can answer.
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

    /// As it is recorded.
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

    /// Whether the same question will get the same answer another time.
    #[must_use]
    pub const fn is_reproducible(self) -> bool {
        match self {
            Self::Scenario | Self::Policy | Self::CommandLine | Self::Parity | Self::Belljar => true,
            Self::First | Self::External | Self::Model | Self::Person => false,
        }
    }
}

impl Question {
    /// What the agent wants to know; nothing for what it should not have asked.
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

    /// The call of a tool that it is about.
    #[must_use]
    pub fn tool_request(&self) -> Option<&PermissionRequest> {
        match self {
            Self::Permission(request) | Self::Choice { request, .. } | Self::Unreadable { request, .. } => {
                Some(request)
            }
            Self::Hook(_) | Self::Mcp(_) | Self::Elicitation(_) | Self::Dialog(_) => None,
        }
    }

    /// What it is about, in a word or two.
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

    /// The reply that carries an answer.
    ///
    /// # Errors
    /// When the answer does not fit. The agent takes most such answers for something else without a word, so they
    /// are caught here.
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
    /// What was chosen or said, one for each question of a choice.
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

    /// What it is, in a word or two.
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
    fn whoever_answers_is_in_the_list() {
        let all: Vec<By> = std::iter::successors(Some(By::Scenario), |by| after(*by)).collect();
        assert_eq!(all, By::ALL);
    }
}
