//! What the agent says.

use super::content::{blocks, usage};
use super::control::{agent_request, host_reply};
use super::members::{Flaw, Members};
use super::unique::Unique;
use super::{AgentRequest, Block, CallId, HostReply, MessageId, RequestId, SessionId, Usage};
use crate::observation::ServerSeen;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the agent, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// All of it, as it came.
    pub raw: Value,
    /// What of it is understood.
    pub body: Inbound,
}

/// Why a line is no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is no JSON, or JSON that cannot be trusted: too deep, or with a member named twice.
    #[error("not a frame: {why}")]
    Syntax {
        /// What the reader says.
        why: String,
    },
    /// It is JSON, but no object.
    #[error("a frame is a JSON object")]
    NotAnObject,
}

/// What a frame says.
#[derive(Debug, Clone, PartialEq)]
pub enum Inbound {
    /// A turn begins; said again at every turn.
    Init(InitFrame),
    /// The agent is at work, waits, or is done.
    State(SessionState),
    /// News of a sub-agent or a background command.
    Task(TaskFrame),
    /// The conversation was made shorter.
    Compacted,
    /// A hook of the settings ran.
    Hook {
        /// When it is called.
        event: String,
        /// Its name.
        name: String,
        /// How it went.
        outcome: Option<String>,
        /// Its status.
        exit_code: Option<i64>,
        /// What it wrote.
        text: String,
    },
    /// A call was refused by the agent's own rules.
    Refused {
        /// The tool.
        tool: Option<String>,
        /// The call.
        call: Option<CallId>,
        /// Why.
        reason: Option<String>,
    },
    /// The model is asked again.
    Retry {
        /// Which attempt.
        attempt: Option<u64>,
        /// The status of the model's service.
        status: Option<u64>,
        /// What went wrong.
        error: Option<String>,
    },
    /// Another note of the system.
    System {
        /// Its subtype.
        subtype: String,
    },
    /// The model spoke.
    Assistant(AssistantFrame),
    /// Tools answered, or a message was taken up.
    User(UserFrame),
    /// A turn ended.
    Result(Box<ResultFrame>),
    /// A part of a message that is still being written.
    StreamEvent,
    /// The agent asks.
    Request {
        /// What its answer must name.
        id: RequestId,
        /// What it asks.
        request: AgentRequest,
    },
    /// The agent answers.
    Response(HostReply),
    /// The agent no longer wants an answer.
    Cancel {
        /// To what.
        id: RequestId,
    },
    /// Nothing; the line is alive.
    KeepAlive,
    /// A type that this version does not know.
    Unknown {
        /// The type.
        kind: String,
    },
    /// A type that it knows, in a shape that it does not.
    Malformed {
        /// The type.
        kind: String,
        /// What is wrong.
        why: String,
    },
}

/// What the agent says about itself when a turn begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitFrame {
    /// The conversation.
    pub session: SessionId,
    /// The agent's version.
    pub version: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The mode of permissions.
    pub permission_mode: Option<String>,
    /// Where it works.
    pub directory: Option<String>,
    /// Tools.
    pub tools: Vec<String>,
    /// MCP servers.
    pub servers: Vec<ServerSeen>,
    /// Skills; not the list that the model sees.
    pub skills: Vec<String>,
}

/// Whether the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// It does.
    Running,
    /// It waits for an answer.
    RequiresAction,
    /// It is done with all it was told.
    Idle,
}

/// News of something that runs beside the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFrame {
    /// Its id.
    pub task: String,
    /// The call that began it, where the frame names it.
    pub call: Option<CallId>,
    /// What happened.
    pub step: TaskStep,
}

/// What happened to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStep {
    /// It began.
    Started {
        /// What kind of task, as in `local_agent`.
        kind: Option<String>,
        /// The kind of sub-agent.
        agent: Option<String>,
        /// A line about it.
        description: Option<String>,
    },
    /// It went on.
    Progressed,
    /// It ended, or a piece of news was told.
    Notified {
        /// As in `completed`.
        status: Option<String>,
    },
}

/// A block of the model's message. The agent says each block in a frame of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantFrame {
    /// The conversation.
    pub session: Option<SessionId>,
    /// The call of the sub-agent that speaks; none is the main agent.
    pub parent: Option<CallId>,
    /// The model's name.
    pub model: Option<String>,
    /// The blocks.
    pub blocks: Vec<Block>,
}

/// A message in the user's place.
#[derive(Debug, Clone, PartialEq)]
pub struct UserFrame {
    /// The conversation.
    pub session: Option<SessionId>,
    /// The call of the sub-agent that it is for; none is the main agent.
    pub parent: Option<CallId>,
    /// Its id; for a replayed message the one that belljar gave it.
    pub message: Option<MessageId>,
    /// Whether it is an echo of a message that was sent.
    pub is_replay: bool,
    /// Whether the agent made it up, as the body of a skill.
    pub is_synthetic: bool,
    /// The blocks.
    pub blocks: Vec<Block>,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultFrame {
    /// Whether it failed. Nothing else says so: a failure of the model's service is of subtype `success`.
    pub is_error: bool,
    /// As in `success` or `error_during_execution`.
    pub subtype: String,
    /// The last text.
    pub text: Option<String>,
    /// The conversation.
    pub session: Option<SessionId>,
    /// The status of the model's service, where that failed.
    pub api_error_status: Option<u64>,
    /// Why the turn ended.
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

impl Frame {
    /// Reads a line.
    ///
    /// # Errors
    /// When it is no JSON object, is nested too deeply or names a member twice.
    pub fn parse(line: &str) -> Result<Self, FrameError> {
        let Unique(raw) =
            serde_json::from_str(line).map_err(|error| FrameError::Syntax { why: error.to_string() })?;
        Self::from_value(raw)
    }

    /// Reads a frame that is JSON already.
    ///
    /// # Errors
    /// When it is no object.
    pub fn from_value(raw: Value) -> Result<Self, FrameError> {
        let body = Inbound::of(&raw)?;
        Ok(Self { raw, body })
    }
}

impl Inbound {
    /// Reads what a frame says.
    ///
    /// # Errors
    /// When it is no object.
    pub fn of(raw: &Value) -> Result<Self, FrameError> {
        let Value::Object(object) = raw else { return Err(FrameError::NotAnObject) };
        Ok(Self::read(Members(object)))
    }

    fn read(frame: Members<'_>) -> Self {
        let kind = match frame.required_text("type") {
            Ok(kind) => kind,
            Err(why) => return Self::Malformed { kind: String::new(), why },
        };
        let read = match kind {
            "system" => system(frame),
            "assistant" => assistant(frame).map(Self::Assistant),
            "user" => user(frame).map(Self::User),
            "result" => result(frame).map(|result| Self::Result(Box::new(result))),
            "stream_event" => Ok(Self::StreamEvent),
            "control_request" => control_request(frame),
            "control_response" => frame.required_object("response").and_then(host_reply).map(Self::Response),
            "control_cancel_request" => frame.required_id("request_id").map(|id| Self::Cancel { id }),
            "keep_alive" => Ok(Self::KeepAlive),
            _ => Ok(Self::Unknown { kind: kind.to_owned() }),
        };
        read.unwrap_or_else(|why| Self::Malformed { kind: kind.to_owned(), why })
    }
}

fn control_request(frame: Members<'_>) -> Result<Inbound, Flaw> {
    let id = frame.required_id("request_id")?;
    // With an id the agent can be told that it was not understood, so the flaw stays inside.
    let request = frame.required_object("request").and_then(agent_request);
    let request = request.unwrap_or_else(|why| AgentRequest::Malformed { subtype: String::new(), why });
    Ok(Inbound::Request { id, request })
}

fn system(frame: Members<'_>) -> Result<Inbound, Flaw> {
    let subtype = frame.required_text("subtype")?;
    match subtype {
        "init" => init(frame).map(Inbound::Init),
        "session_state_changed" => match frame.required_text("state")? {
            "running" => Ok(Inbound::State(SessionState::Running)),
            "requires_action" => Ok(Inbound::State(SessionState::RequiresAction)),
            "idle" => Ok(Inbound::State(SessionState::Idle)),
            other => Err(format!("`state` is `{other}`")),
        },
        "task_started" => {
            let step = TaskStep::Started {
                kind: frame.loose_text("task_type"),
                agent: frame.loose_text("subagent_type"),
                description: frame.loose_text("description"),
            };
            task(frame, step)
        }
        "task_progress" => task(frame, TaskStep::Progressed),
        "task_notification" => task(frame, TaskStep::Notified { status: frame.loose_text("status") }),
        "compact_boundary" => Ok(Inbound::Compacted),
        "hook_response" => Ok(Inbound::Hook {
            event: frame.loose_text("hook_event").unwrap_or_default(),
            name: frame.loose_text("hook_name").unwrap_or_default(),
            outcome: frame.loose_text("outcome"),
            exit_code: frame.get("exit_code").and_then(Value::as_i64),
            text: ["output", "stdout", "stderr"]
                .iter()
                .filter_map(|key| frame.loose_text(key))
                .collect::<Vec<_>>()
                .join("\n"),
        }),
        "permission_denied" => Ok(Inbound::Refused {
            tool: frame.loose_text("tool_name"),
            call: frame.optional_id("tool_use_id")?,
            reason: frame.loose_text("message").or_else(|| frame.loose_text("decision_reason")),
        }),
        "api_retry" => Ok(Inbound::Retry {
            attempt: frame.loose_number("attempt"),
            status: frame.loose_number("error_status"),
            error: frame.loose_text("error"),
        }),
        other => Ok(Inbound::System { subtype: other.to_owned() }),
    }
}

fn task(frame: Members<'_>, step: TaskStep) -> Result<Inbound, Flaw> {
    let task = frame.required_text("task_id")?.to_owned();
    Ok(Inbound::Task(TaskFrame { task, call: frame.optional_id("tool_use_id")?, step }))
}

fn init(frame: Members<'_>) -> Result<InitFrame, Flaw> {
    Ok(InitFrame {
        session: frame.required_id("session_id")?,
        version: frame.loose_text("claude_code_version"),
        model: frame.loose_text("model"),
        permission_mode: frame.loose_text("permissionMode"),
        directory: frame.loose_text("cwd"),
        tools: frame.loose_names("tools"),
        servers: servers(frame),
        skills: frame.loose_names("skills"),
    })
}

fn servers(frame: Members<'_>) -> Vec<ServerSeen> {
    let server = |item: &Value| match item {
        Value::Object(object) => {
            let members = Members(object);
            Some(ServerSeen { name: members.loose_text("name")?, status: members.loose_text("status") })
        }
        other => Some(ServerSeen { name: other.as_str()?.to_owned(), status: None }),
    };
    frame.loose_list("mcp_servers").iter().filter_map(server).collect()
}

fn assistant(frame: Members<'_>) -> Result<AssistantFrame, Flaw> {
    let message = frame.required_object("message")?;
    Ok(AssistantFrame {
        session: frame.optional_id("session_id")?,
        parent: frame.optional_id("parent_tool_use_id")?,
        model: message.loose_text("model"),
        blocks: blocks(message)?,
    })
}

fn user(frame: Members<'_>) -> Result<UserFrame, Flaw> {
    Ok(UserFrame {
        session: frame.optional_id("session_id")?,
        parent: frame.optional_id("parent_tool_use_id")?,
        message: frame.optional_id("uuid")?,
        is_replay: frame.optional_bool("isReplay")?.unwrap_or(false),
        is_synthetic: frame.optional_bool("isSynthetic")?.unwrap_or(false),
        blocks: blocks(frame.required_object("message")?)?,
    })
}

fn result(frame: Members<'_>) -> Result<ResultFrame, Flaw> {
    let denied = frame.loose_list("permission_denials").iter();
    Ok(ResultFrame {
        is_error: frame.required_bool("is_error")?,
        subtype: frame.loose_text("subtype").unwrap_or_default(),
        text: frame.loose_text("result"),
        session: frame.optional_id("session_id")?,
        api_error_status: frame.loose_number("api_error_status"),
        terminal_reason: frame.loose_text("terminal_reason"),
        turns: frame.loose_number("num_turns"),
        usage: usage(frame),
        total_cost_micros_usd: frame.get("total_cost_usd").and_then(Value::as_f64).and_then(micros),
        denied_tools: denied.filter_map(|one| one["tool_name"].as_str().map(str::to_owned)).collect(),
        structured: frame.get("structured_output").cloned(),
    })
}

/// Millionths, if the sum is one that can be paid.
fn micros(usd: f64) -> Option<u64> {
    let micros = (usd * 1e6).round();
    // Up to here every whole number is exact.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    (0.0..=9_007_199_254_740_992.0).contains(&micros).then_some(micros as u64)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
