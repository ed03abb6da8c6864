//! Which requests a turn accepts.

use serde::{Deserialize, Serialize};

use super::request::MessagesRequest;

/// Conditions on a request. All given conditions must hold; without any, every request is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestConditions {
    /// The last message that is not a system note contains this text, whether it is a prompt or a tool's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_message_contains: Option<String>,
    /// The requested model's name contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_contains: Option<String>,
    /// The request carries tools, or carries none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Tools>,
    /// The request comes from the main conversation, or from a sub-agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
}

/// Whether a request carries tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tools {
    /// At least one tool is offered to the model.
    Present,
    /// The list is empty or missing, which marks a side request.
    Absent,
}

/// Which conversation a request belongs to, according to the header that marks sub-agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sender {
    /// The header is absent.
    Main,
    /// The header is present.
    SubAgent,
}

impl RequestConditions {
    /// Accepts every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requires a text in the last message that is not a system note.
    #[must_use]
    pub fn last_message_contains(mut self, text: impl Into<String>) -> Self {
        self.last_message_contains = Some(text.into());
        self
    }

    /// Requires a text in the name of the requested model.
    #[must_use]
    pub fn model_contains(mut self, text: impl Into<String>) -> Self {
        self.model_contains = Some(text.into());
        self
    }

    /// Requires tools, or their absence.
    #[must_use]
    pub fn tools(mut self, tools: Tools) -> Self {
        self.tools = Some(tools);
        self
    }

    /// Requires a sender.
    #[must_use]
    pub fn sender(mut self, sender: Sender) -> Self {
        self.sender = Some(sender);
        self
    }

    pub(super) fn accepts(&self, request: &MessagesRequest) -> bool {
        let Self { last_message_contains, model_contains, tools, sender } = self;
        last_message_contains.as_ref().is_none_or(|text| request.last_message.contains(text.as_str()))
            && model_contains.as_ref().is_none_or(|text| request.model.contains(text.as_str()))
            && tools.is_none_or(|tools| request.tools == tools)
            && sender.is_none_or(|sender| request.sender == sender)
    }
}
