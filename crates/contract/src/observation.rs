//! Observations of a conversation with an agent, in order.
//!
//! Observations are for the record. They contain the model's texts and the results of tools, so the record redacts
//! them when it writes them.

use crate::{AskedQuestion, CallId, MessageId, RequestId, SessionId, SessionState, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Observation {
    /// The agent answered the handshake.
    Ready {
        /// Commands that the agent knows.
        commands: Vec<String>,
        /// Models that it can use.
        models: Vec<String>,
        /// Kinds of sub-agents that it has.
        agents: Vec<String>,
    },
    /// A conversation started, the first or a later one.
    ConversationBegan {
        session: SessionId,
        version: Option<String>,
        model: Option<String>,
        /// The permission mode.
        permission_mode: Option<String>,
        tools: Vec<String>,
        servers: Vec<ServerSeen>,
        skills: Vec<String>,
    },
    /// A message was sent.
    MessageSent {
        message: MessageId,
        text: String,
    },
    /// The agent started to process a message, in a new turn or in the current one.
    MessageTaken {
        message: MessageId,
    },
    /// The agent reported whether it works.
    StateChanged {
        /// The new state.
        state: SessionState,
    },
    /// A text of the model.
    Said {
        by: Speaker,
        text: String,
    },
    /// A text that the agent wrote in the model's place: an error, or the output of one of its own commands.
    Noted {
        by: Speaker,
        text: String,
    },
    /// Reasoning of the model.
    Thought {
        by: Speaker,
        text: String,
    },
    /// A tool was called; it may not have run.
    ToolCalled {
        by: Speaker,
        call: CallId,
        tool: String,
        input: Map<String, Value>,
    },
    /// A tool call returned.
    ToolReturned {
        /// The caller of the tool.
        by: Speaker,
        call: CallId,
        /// The tool; `None` if the call was not seen.
        tool: Option<String>,
        /// The result as text.
        text: String,
        is_error: bool,
    },
    /// A sub-agent started.
    SubAgentStarted {
        task: String,
        /// The call that started it.
        call: Option<CallId>,
        /// The kind of sub-agent.
        agent: Option<String>,
        /// The agent's description of the task.
        description: Option<String>,
    },
    SubAgentEnded {
        task: String,
        /// The call that started it.
        call: Option<CallId>,
        /// Such as `completed`.
        status: Option<String>,
    },
    /// A skill was used.
    SkillActivated {
        /// Its name as the caller wrote it.
        skill: String,
        way: SkillWay,
        by: Speaker,
        /// The call; `None` if a message used the skill.
        call: Option<CallId>,
    },
    /// The agent gave a skill's text to the model.
    SkillLoaded {
        /// Its directory, which identifies a skill that has several names.
        directory: String,
        /// Its name, if the directory belongs to a declared skill.
        skill: Option<String>,
    },
    /// The conversation was compacted.
    Compacted,
    /// The agent sent a request.
    Asked {
        request: RequestId,
        /// The subtype of the request.
        about: String,
        /// The tool that the agent wants to run, if any.
        tool: Option<String>,
        /// The call that the request is about.
        call: Option<CallId>,
        by: Speaker,
        /// The questions to the user, if the request is a choice.
        questions: Vec<AskedQuestion>,
    },
    /// A request of the agent was answered.
    Answered {
        request: RequestId,
        /// The kind of answer, in a word or two.
        answer: String,
        /// The chosen or given answers, one for each question of a choice.
        chosen: Vec<String>,
        /// The decider's name.
        by: String,
        reason: String,
    },
    /// A hook from the settings ran.
    HookRan {
        /// The event that the hook is for, such as `PreToolUse`.
        event: String,
        name: String,
        /// The agent's name for the result.
        outcome: Option<String>,
        /// The exit status of the hook.
        exit_code: Option<i64>,
        /// The output of the hook.
        text: String,
    },
    /// The agent's own rules refused a call.
    CallRefused {
        tool: Option<String>,
        call: Option<CallId>,
        reason: Option<String>,
    },
    /// The agent repeated a request to the model after a failure.
    Retried {
        /// The number of the attempt.
        attempt: Option<u64>,
        /// The HTTP status of the model's service.
        status: Option<u64>,
        error: Option<String>,
    },
    /// No decider answered; the run ends because of it.
    Unanswered {
        request: RequestId,
        /// What each decider reported.
        notes: Vec<String>,
        /// Lines for the `answers` of a scenario that would answer it.
        paste: Option<String>,
    },
    /// The agent withdrew a question.
    Withdrawn {
        request: RequestId,
    },
    /// The agent responded to a request of belljar.
    RequestSettled {
        /// The subtype of the request.
        request: String,
        /// The agent's error text.
        error: Option<String>,
    },
    TurnEnded(TurnOutcome),
    /// A frame came after the end of a turn, although it belongs to one.
    AfterResult {
        /// The type of frame.
        frame: String,
    },
    /// A frame has a type that this version does not know. Newer agents send more types.
    UnknownFrame {
        frame: String,
    },
    /// The agent violated the protocol.
    Flawed(ProtocolFlaw),
}

/// An MCP server as the agent reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSeen {
    pub name: String,
    /// The agent's name for its state, such as `connected`.
    pub status: Option<String>,
}

/// Which agent speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "agent", rename_all = "snake_case", deny_unknown_fields)]
pub enum Speaker {
    /// The main agent.
    Main,
    SubAgent {
        /// The call that started it.
        call: CallId,
    },
}

/// How a skill was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillWay {
    /// Through the agent's tool for skills.
    Tool,
    /// Its text was read as a file.
    Read,
    /// A shell command named its `SKILL.md`.
    ShellRead,
    /// A shell command named another file of the skill.
    Script,
    /// A message began with its name.
    Message,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnOutcome {
    pub is_error: bool,
    /// The agent's name for the result.
    pub subtype: String,
    pub text: Option<String>,
    /// The HTTP status of the model's service, if that failed.
    pub api_error_status: Option<u64>,
    pub terminal_reason: Option<String>,
    /// The number of model requests.
    pub turns: Option<u64>,
    /// Tokens of this turn.
    pub usage: Option<Usage>,
    /// Cost since the process started, in millionths of a US dollar.
    pub total_cost_micros_usd: Option<u64>,
    /// Tools whose calls were refused.
    pub denied_tools: Vec<String>,
    /// The answer in the requested JSON schema.
    pub structured: Option<Value>,
}

/// A violation of the protocol. Every one is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "flaw", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProtocolFlaw {
    /// A line is not a frame.
    UnreadLine { why: String },
    /// A frame of a known type with an unexpected shape.
    MalformedFrame { frame: String, why: String },
    /// A request of an unknown or malformed subtype. It was refused.
    UnknownQuestion { request: RequestId, subtype: String, why: String },
    /// A request with the id of an earlier one. It was ignored.
    RepeatedQuestion { request: RequestId },
    /// The agent sent more requests than a run allows.
    TooManyQuestions,
    /// A response without a pending request.
    StrayResponse { request: RequestId },
    /// A withdrawal without a pending request.
    StrayWithdrawal { request: RequestId },
    /// A result for a call that was not seen.
    StrayResult { call: CallId },
    /// A text was too long for the record, and only its beginning was kept.
    NotKept {
        /// Its length.
        bytes: u64,
    },
    /// A frame after the process had exited.
    FrameAfterExit,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_observation_is_a_flat_object_and_survives_storage() {
        let call = CallId::new("toolu_1").unwrap();
        let seen = Observation::SkillActivated {
            skill: "notes".to_owned(),
            way: SkillWay::ShellRead,
            by: Speaker::SubAgent { call: call.clone() },
            call: Some(call),
        };
        let stored = json!({
            "kind": "skill_activated", "skill": "notes", "way": "shell_read",
            "by": {"agent": "sub_agent", "call": "toolu_1"}, "call": "toolu_1",
        });
        assert_eq!(json!(seen), stored);
        assert_eq!(serde_json::from_value::<Observation>(stored).unwrap(), seen);
        let flaw = Observation::Flawed(ProtocolFlaw::TooManyQuestions);
        assert_eq!(json!(flaw), json!({"kind": "flawed", "flaw": "too_many_questions"}));
        assert_eq!(serde_json::from_value::<Observation>(json!(flaw)).unwrap(), flaw);
    }
}
