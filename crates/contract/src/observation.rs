//! What was seen of a conversation with an agent, one thing at a time and in one order.
//!
//! Observations are for the record. They hold what the model wrote and what tools returned, so a record redacts them
//! as it writes them.

use crate::{AskedQuestion, CallId, MessageId, RequestId, SessionId, SessionState, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Observation {
    /// The handshake was answered.
    Ready {
        /// Commands the agent knows.
        commands: Vec<String>,
        /// Models it can use.
        models: Vec<String>,
        /// Kinds of sub-agents it has.
        agents: Vec<String>,
    },
    /// A conversation began, the first or another one.
    ConversationBegan {
        /// Which.
        session: SessionId,
        /// The agent's version.
        version: Option<String>,
        /// The model.
        model: Option<String>,
        /// The mode of permissions.
        permission_mode: Option<String>,
        /// Tools.
        tools: Vec<String>,
        /// MCP servers.
        servers: Vec<ServerSeen>,
        /// Skills.
        skills: Vec<String>,
    },
    /// A message was sent.
    MessageSent {
        /// Which.
        message: MessageId,
        /// Its text.
        text: String,
    },
    /// The agent took a message up, into a turn of its own or into the one that was running.
    MessageTaken {
        /// Which.
        message: MessageId,
    },
    /// The agent said whether it works.
    StateChanged {
        /// How it is now.
        state: SessionState,
    },
    /// The model said something.
    Said {
        /// Who.
        by: Speaker,
        /// What.
        text: String,
    },
    /// The agent wrote a text itself, in the model's place: an error, the output of a command of its own.
    Noted {
        /// Who.
        by: Speaker,
        /// What.
        text: String,
    },
    /// The model thought something.
    Thought {
        /// Who.
        by: Speaker,
        /// What.
        text: String,
    },
    /// A tool was called; whether it ran is another matter.
    ToolCalled {
        /// Who called.
        by: Speaker,
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it was given.
        input: Map<String, Value>,
    },
    /// A call came back.
    ToolReturned {
        /// Who had called.
        by: Speaker,
        /// The call.
        call: CallId,
        /// The tool, unless the call was never seen.
        tool: Option<String>,
        /// What it returned, as text.
        text: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// A sub-agent began.
    SubAgentStarted {
        /// Its id.
        task: String,
        /// The call that began it.
        call: Option<CallId>,
        /// The kind of sub-agent.
        agent: Option<String>,
        /// A line about it.
        description: Option<String>,
    },
    /// A sub-agent ended.
    SubAgentEnded {
        /// Its id.
        task: String,
        /// The call that began it.
        call: Option<CallId>,
        /// As in `completed`.
        status: Option<String>,
    },
    /// A skill was put to use.
    SkillActivated {
        /// As it was called.
        skill: String,
        /// How.
        way: SkillWay,
        /// Who did.
        by: Speaker,
        /// The call; none where a message did it.
        call: Option<CallId>,
    },
    /// The agent read a skill's text out to the model.
    SkillLoaded {
        /// Its folder, by which one skill with several names is known.
        directory: String,
        /// Its name, if the folder is one that was declared.
        skill: Option<String>,
    },
    /// The conversation was made shorter.
    Compacted,
    /// The agent asked something.
    Asked {
        /// Its question.
        request: RequestId,
        /// What kind of question.
        about: String,
        /// The tool that wants to run, where one does.
        tool: Option<String>,
        /// The call that the question is about.
        call: Option<CallId>,
        /// Who asks.
        by: Speaker,
        /// What the user is asked, where it is a choice.
        questions: Vec<AskedQuestion>,
    },
    /// It was answered.
    Answered {
        /// The question.
        request: RequestId,
        /// What was answered, in a word or two.
        answer: String,
        /// What was chosen or said, one for each question of a choice.
        chosen: Vec<String>,
        /// Who decided.
        by: String,
        /// Why.
        reason: String,
    },
    /// A hook of the settings ran.
    HookRan {
        /// When it is called, as in `PreToolUse`.
        event: String,
        /// Its name.
        name: String,
        /// The agent's word for how it went.
        outcome: Option<String>,
        /// Its status.
        exit_code: Option<i64>,
        /// What it wrote.
        text: String,
    },
    /// The agent refused a call by its own rules.
    CallRefused {
        /// The tool.
        tool: Option<String>,
        /// The call.
        call: Option<CallId>,
        /// Why.
        reason: Option<String>,
    },
    /// The agent asked the model again after a failure.
    Retried {
        /// Which attempt.
        attempt: Option<u64>,
        /// The status of the model's service.
        status: Option<u64>,
        /// What went wrong.
        error: Option<String>,
    },
    /// Nobody answered; the run ends for it.
    Unanswered {
        /// The question.
        request: RequestId,
        /// What those who were asked had to say.
        notes: Vec<String>,
        /// Lines for the `answers` of a scenario that would answer it.
        paste: Option<String>,
    },
    /// The agent withdrew a question.
    Withdrawn {
        /// Which.
        request: RequestId,
    },
    /// A request of belljar's came back.
    RequestSettled {
        /// What was wanted.
        request: String,
        /// What it was refused with.
        error: Option<String>,
    },
    /// A turn ended.
    TurnEnded(TurnOutcome),
    /// Something came after the end of a turn that belongs into one.
    AfterResult {
        /// The type of frame.
        frame: String,
    },
    /// A frame came of a type that is not known here. Newer agents say more.
    UnknownFrame {
        /// The type.
        frame: String,
    },
    /// Something was not as the protocol has it.
    Flawed(ProtocolFlaw),
}

/// An MCP server, as the agent finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSeen {
    /// Its name.
    pub name: String,
    /// The agent's word for it, as in `connected`.
    pub status: Option<String>,
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "agent", rename_all = "snake_case", deny_unknown_fields)]
pub enum Speaker {
    /// The agent itself.
    Main,
    /// A sub-agent.
    SubAgent {
        /// The call that began it.
        call: CallId,
    },
}

/// How a skill was put to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillWay {
    /// By the tool made for it.
    Tool,
    /// Its text was read as a file.
    Read,
    /// A shell command named its text.
    ShellRead,
    /// A shell command named another file of it.
    Script,
    /// A message began with its name.
    Message,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnOutcome {
    /// Whether it failed.
    pub is_error: bool,
    /// The agent's word for it.
    pub subtype: String,
    /// The last text.
    pub text: Option<String>,
    /// The status of the model's service, where that failed.
    pub api_error_status: Option<u64>,
    /// Why it ended.
    pub terminal_reason: Option<String>,
    /// Steps of the model.
    pub turns: Option<u64>,
    /// Tokens of this turn.
    pub usage: Option<Usage>,
    /// Money since the process began, in millionths of a US dollar.
    pub total_cost_micros_usd: Option<u64>,
    /// Tools that were refused.
    pub denied_tools: Vec<String>,
    /// The answer in the shape that was asked for.
    pub structured: Option<Value>,
}

/// What was not as the protocol has it. None of these is passed over in silence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "flaw", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProtocolFlaw {
    /// A line was no frame.
    UnreadLine {
        /// Why not.
        why: String,
    },
    /// A frame of a known type in an unknown shape.
    MalformedFrame {
        /// The type.
        frame: String,
        /// What is wrong.
        why: String,
    },
    /// A question of a kind that is not known, or not understood; it was refused.
    UnknownQuestion {
        /// The question.
        request: RequestId,
        /// Its subtype.
        subtype: String,
        /// What is wrong.
        why: String,
    },
    /// A question with the id of one that waits or was settled; it was not looked at.
    RepeatedQuestion {
        /// The id.
        request: RequestId,
    },
    /// More questions than the run may ask.
    TooManyQuestions,
    /// A response to nothing that was requested, or a second one.
    StrayResponse {
        /// The id.
        request: RequestId,
    },
    /// The withdrawal of nothing that waits.
    StrayWithdrawal {
        /// The id.
        request: RequestId,
    },
    /// The result of a call that was never seen.
    StrayResult {
        /// The call.
        call: CallId,
    },
    /// Something was too long for the record, and only its beginning was kept.
    NotKept {
        /// How long it was.
        bytes: u64,
    },
    /// A frame after the process had ended.
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
