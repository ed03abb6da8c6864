//! Frames that the agent sends.

use super::content::{blocks, usage};
use super::control::{agent_request, host_reply};
use super::members::{Flaw, Members};
use super::unique::Unique;
use super::{AgentRequest, Block, CallId, HostReply, MessageId, RequestId, SessionId, Usage};
use crate::observation::ServerSeen;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One parsed line of the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The whole frame as received.
    pub raw: Value,
    /// The part of it that belljar understands.
    pub body: Inbound,
}

/// Why a line is not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is not JSON, or JSON that cannot be trusted: nested too deeply, or with a duplicate member.
    #[error("not a frame: {why}")]
    Syntax {
        /// The parser's error.
        why: String,
    },
    /// It is JSON, but not an object.
    #[error("frame must be a JSON object")]
    NotAnObject,
}

/// The content of a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Inbound {
    /// The start of a turn; sent again at every turn.
    Init(InitFrame),
    /// The agent works, waits, or is done.
    State(SessionState),
    /// Progress of a sub-agent or a background command.
    Task(TaskFrame),
    /// The conversation was compacted.
    Compacted,
    /// A hook from the settings ran.
    Hook {
        /// The event that the hook is for.
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
    Refused {
        tool: Option<String>,
        call: Option<CallId>,
        reason: Option<String>,
    },
    /// The agent retries a request to the model.
    Retry {
        /// The number of the attempt.
        attempt: Option<u64>,
        /// The HTTP status of the model's service.
        status: Option<u64>,
        error: Option<String>,
    },
    /// Another system message.
    System {
        subtype: String,
    },
    /// A message of the model.
    Assistant(AssistantFrame),
    /// Tool results, or a user message that the agent started to process.
    User(UserFrame),
    Result(Box<ResultFrame>),
    /// A part of a message that is still being generated.
    StreamEvent,
    /// A request of the agent.
    Request {
        /// The id that the response must name.
        id: RequestId,
        request: AgentRequest,
    },
    /// The agent's response to a request of belljar.
    Response(HostReply),
    /// The agent withdraws a request.
    Cancel {
        id: RequestId,
    },
    /// A sign of life without content.
    KeepAlive,
    /// How much of the account's rate limit is used. It says nothing about what the agent did.
    RateLimit,
    /// A message of belljar is queued, begun or done with. Repeated messages and results say when a turn begins and ends.
    MessageState,
    /// A type that this version does not know.
    Unknown {
        kind: String,
    },
    /// A known type with an unexpected shape.
    Malformed {
        kind: String,
        why: String,
    },
}

/// What the agent reports about itself at the start of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitFrame {
    pub session: SessionId,
    /// The members that name a version, each with its value. Their names differ between agents.
    pub versions: BTreeMap<String, String>,
    pub model: Option<String>,
    /// The permission mode.
    pub permission_mode: Option<String>,
    /// The working directory.
    pub directory: Option<String>,
    pub tools: Vec<String>,
    pub servers: Vec<ServerSeen>,
    /// Skills that the agent loaded; not the list that the model sees.
    pub skills: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    Running,
    /// It waits for an answer.
    RequiresAction,
    /// It has nothing left to do.
    Idle,
}

/// Progress of something that runs in parallel to the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFrame {
    pub task: String,
    /// The call that started it, if the frame names it.
    pub call: Option<CallId>,
    pub step: TaskStep,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStep {
    Started {
        /// The kind of task, such as `local_agent`.
        kind: Option<String>,
        /// The kind of sub-agent.
        agent: Option<String>,
        description: Option<String>,
    },
    /// It is still running.
    Progressed,
    /// It ended, or a notification was sent.
    Notified {
        /// Such as `completed`.
        status: Option<String>,
    },
}

/// A block of the model's message. The agent sends each block in a frame of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantFrame {
    pub session: Option<SessionId>,
    /// The call of the sub-agent that speaks; `None` is the main agent.
    pub parent: Option<CallId>,
    pub model: Option<String>,
    pub blocks: Vec<Block>,
}

/// A message with the role `user`.
#[derive(Debug, Clone, PartialEq)]
pub struct UserFrame {
    pub session: Option<SessionId>,
    /// The call of the sub-agent that it is for; `None` is the main agent.
    pub parent: Option<CallId>,
    /// Its id; for a replayed message the id that belljar gave it.
    pub message: Option<MessageId>,
    /// Whether it is an echo of a message that belljar sent.
    pub is_replay: bool,
    /// Whether the agent generated it, such as the body of a skill.
    pub is_synthetic: bool,
    pub blocks: Vec<Block>,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultFrame {
    /// Whether it failed. Only this flag says so: a failure of the model's service has the subtype `success`.
    pub is_error: bool,
    /// Such as `success` or `error_during_execution`.
    pub subtype: String,
    pub text: Option<String>,
    pub session: Option<SessionId>,
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

impl Frame {
    /// Parses a line.
    ///
    /// # Errors
    /// When it is not a JSON object, is nested too deeply or names a member twice.
    pub fn parse(line: &str) -> Result<Self, FrameError> {
        let Unique(raw) =
            serde_json::from_str(line).map_err(|error| FrameError::Syntax { why: error.to_string() })?;
        Self::from_value(raw)
    }

    /// Interprets a frame that is already parsed as JSON.
    ///
    /// # Errors
    /// When it is not an object.
    pub fn from_value(raw: Value) -> Result<Self, FrameError> {
        let body = Inbound::of(&raw)?;
        Ok(Self { raw, body })
    }
}

impl Inbound {
    /// Interprets the content of a frame.
    ///
    /// # Errors
    /// When it is not an object.
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
            "rate_limit_event" => Ok(Self::RateLimit),
            "command_lifecycle" => Ok(Self::MessageState),
            _ => Ok(Self::Unknown { kind: kind.to_owned() }),
        };
        read.unwrap_or_else(|why| Self::Malformed { kind: kind.to_owned(), why })
    }
}

fn control_request(frame: Members<'_>) -> Result<Inbound, Flaw> {
    let id = frame.required_id("request_id")?;
    // The id is known, so the agent can get an error response; the frame as a whole is not malformed.
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
        versions: frame.loose_texts_ending_in("_version"),
        model: frame.loose_text("model"),
        permission_mode: frame.loose_text("permissionMode"),
        directory: frame.loose_text("cwd"),
        tools: frame.loose_names("tools"),
        servers: servers(frame),
        skills: frame.loose_names("skills"),
    })
}

fn servers(frame: Members<'_>) -> Vec<ServerSeen> {
    let server = |item: &Value| match item.as_object().map(Members) {
        Some(members) => {
            Some(ServerSeen { name: members.loose_text("name")?, status: members.loose_text("status") })
        }
        None => Some(ServerSeen { name: item.as_str()?.to_owned(), status: None }),
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

/// Millionths of a dollar; `None` if the amount is negative or too large.
fn micros(usd: f64) -> Option<u64> {
    let micros = (usd * 1e6).round();
    // Every integer up to this one is exact as a float.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    (0.0..=9_007_199_254_740_992.0).contains(&micros).then_some(micros as u64)
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
