//! Requests of the agent, and its responses to belljar's requests.

use super::members::{Flaw, Members};
use super::{CallId, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A request of the agent that waits for an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentRequest {
    /// Whether a tool may run.
    CanUseTool(PermissionRequest),
    /// A registered hook fired.
    HookCallback(HookCall),
    /// A message to an MCP server that belljar serves.
    McpMessage(McpMessage),
    /// An MCP server asks the user for data.
    Elicitation(ElicitationRequest),
    /// A tool asks to show a dialog.
    Dialog(DialogRequest),
    /// A subtype that this version does not know.
    Unknown { subtype: String },
    /// A known subtype with an unexpected shape.
    Malformed { subtype: String, why: String },
}

/// The agent asks whether a tool may run.
#[derive(Debug, Clone, PartialEq)]
pub struct PermissionRequest {
    pub tool: String,
    /// The input that the tool would get.
    pub input: Map<String, Value>,
    /// The call, if the agent names it.
    pub call: Option<CallId>,
    /// The sub-agent that asks; `None` is the main agent.
    pub agent: Option<String>,
    /// The tool's own description of the call.
    pub description: Option<String>,
    /// Changes to the rules that the agent suggests, as it wrote them.
    pub suggestions: Vec<Value>,
    /// The path that caused the request.
    pub blocked_path: Option<String>,
    pub reason: Option<String>,
}

impl PermissionRequest {
    /// A request of the main agent that says no more than the tool and its input.
    #[must_use]
    pub fn of(tool: &str, input: Map<String, Value>) -> Self {
        Self {
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
}

/// One question of an `AskUserQuestion`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedQuestion {
    /// The text, which is also the key of its answer.
    pub question: String,
    /// A short heading.
    pub header: String,
    /// The choices; empty for free text.
    pub options: Vec<AskedOption>,
    /// Whether several may be chosen.
    #[serde(rename = "multiSelect")]
    pub multi_select: bool,
}

/// A choice of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedOption {
    /// The label, which is the answer if it is chosen.
    pub label: String,
    pub description: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HookCall {
    /// The id under which the hook was registered.
    pub callback: String,
    /// The event's name, as in `PreToolUse`.
    pub event: String,
    /// The input of the hook.
    pub input: Map<String, Value>,
}

/// A JSON-RPC message for an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct McpMessage {
    pub server: String,
    pub message: Value,
}

/// An MCP server asks the user for data.
#[derive(Debug, Clone, PartialEq)]
pub struct ElicitationRequest {
    pub server: String,
    /// The text for the user.
    pub message: String,
    /// The JSON schema of the expected answer.
    pub schema: Option<Value>,
}

/// A tool asks to show a dialog.
#[derive(Debug, Clone, PartialEq)]
pub struct DialogRequest {
    pub kind: String,
    pub payload: Value,
}

/// The agent's response to a request of belljar.
#[derive(Debug, Clone, PartialEq)]
pub struct HostReply {
    pub request: RequestId,
    /// The body, or the agent's error text.
    pub outcome: Result<Value, String>,
}

impl PermissionRequest {
    /// The questions, if the tool is the one that asks the user.
    ///
    /// # Errors
    /// If the questions cannot be parsed or two have the same text: answers are keyed by the text.
    #[must_use]
    pub fn questions(&self) -> Option<Result<Vec<AskedQuestion>, String>> {
        (self.tool == "AskUserQuestion").then(|| questions(Members(&self.input)))
    }
}

fn questions(input: Members<'_>) -> Result<Vec<AskedQuestion>, Flaw> {
    let asked: Vec<AskedQuestion> =
        input.loose_list("questions").iter().map(question).collect::<Result<_, _>>()?;
    if asked.is_empty() {
        return Err("`questions` is empty".to_owned());
    }
    for (index, one) in asked.iter().enumerate() {
        if asked.iter().take(index).any(|earlier| earlier.question == one.question) {
            return Err(format!("{:?} is asked twice, and answers are matched by the text", one.question));
        }
    }
    Ok(asked)
}

fn question(value: &Value) -> Result<AskedQuestion, Flaw> {
    let members = value.as_object().map(Members).ok_or("a question is not an object")?;
    let text = members.required_text("question")?;
    if text.trim().is_empty() {
        return Err("`question` is empty".to_owned());
    }
    let option = |value: &Value| {
        let members = value.as_object().map(Members).ok_or("an option is not an object")?;
        let label = members.required_text("label")?.to_owned();
        Ok::<_, Flaw>(AskedOption {
            label,
            description: members.loose_text("description").unwrap_or_default(),
        })
    };
    Ok(AskedQuestion {
        question: text.to_owned(),
        header: members.loose_text("header").unwrap_or_default(),
        options: members.loose_list("options").iter().map(option).collect::<Result<_, _>>()?,
        multi_select: members.optional_bool("multiSelect")?.unwrap_or(false),
    })
}

pub(super) fn agent_request(request: Members<'_>) -> Result<AgentRequest, Flaw> {
    let subtype = request.required_text("subtype")?;
    let read = match subtype {
        "can_use_tool" => permission(request).map(AgentRequest::CanUseTool),
        "hook_callback" => hook_call(request).map(AgentRequest::HookCallback),
        "mcp_message" => mcp_message(request).map(AgentRequest::McpMessage),
        "elicitation" | "side_question" => elicitation(request).map(AgentRequest::Elicitation),
        "request_user_dialog" => dialog(request).map(AgentRequest::Dialog),
        _ => Ok(AgentRequest::Unknown { subtype: subtype.to_owned() }),
    };
    Ok(read.unwrap_or_else(|why| AgentRequest::Malformed { subtype: subtype.to_owned(), why }))
}

fn permission(request: Members<'_>) -> Result<PermissionRequest, Flaw> {
    Ok(PermissionRequest {
        tool: request.required_text("tool_name")?.to_owned(),
        input: request.required_object("input")?.0.clone(),
        call: request.optional_id("tool_use_id")?,
        agent: request.optional_text("agent_id")?.map(str::to_owned),
        description: request.loose_text("description"),
        suggestions: request.loose_list("permission_suggestions").to_vec(),
        blocked_path: request.loose_text("blocked_path"),
        reason: request.loose_text("decision_reason"),
    })
}

fn hook_call(request: Members<'_>) -> Result<HookCall, Flaw> {
    let input = request.required_object("input")?;
    Ok(HookCall {
        callback: request.required_text("callback_id")?.to_owned(),
        event: input.required_text("hook_event_name")?.to_owned(),
        input: input.0.clone(),
    })
}

fn mcp_message(request: Members<'_>) -> Result<McpMessage, Flaw> {
    let server = request.required_text("server_name")?.to_owned();
    let message = request.get("message").ok_or("`message` is missing")?.clone();
    Ok(McpMessage { server, message })
}

fn elicitation(request: Members<'_>) -> Result<ElicitationRequest, Flaw> {
    let server = request.loose_text_of(&["mcp_server_name", "server"]);
    let message = request.loose_text_of(&["message", "prompt"]).ok_or("`message` is missing")?;
    let schema = request.get("requested_schema").or_else(|| request.get("requestedSchema"));
    Ok(ElicitationRequest { server: server.unwrap_or_default(), message, schema: schema.cloned() })
}

fn dialog(request: Members<'_>) -> Result<DialogRequest, Flaw> {
    let kind = request.loose_text_of(&["dialog_kind", "dialogKind"]).ok_or("`dialog_kind` is missing")?;
    Ok(DialogRequest { kind, payload: request.get("payload").cloned().unwrap_or_default() })
}

pub(super) fn host_reply(response: Members<'_>) -> Result<HostReply, Flaw> {
    let request = response.required_id("request_id")?;
    let outcome = match response.required_text("subtype")? {
        "success" => Ok(response.get("response").cloned().unwrap_or_default()),
        "error" => Err(response.loose_text("error").unwrap_or_default()),
        other => return Err(format!("`subtype` must be `success` or `error`, not `{other}`")),
    };
    Ok(HostReply { request, outcome })
}
