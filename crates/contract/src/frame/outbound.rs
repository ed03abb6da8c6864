//! Frames that belljar sends. The agent trusts its input completely, so only these forms are ever written to it.

use super::{MessageId, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One line for the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Outbound {
    /// A message of the user.
    User(UserMessage),
    /// A request of belljar.
    Request {
        /// The id that the response will name.
        id: RequestId,
        request: HostRequest,
    },
    /// The response to a request of the agent.
    Response { id: RequestId, reply: Reply },
}

/// A message of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMessage {
    /// Its id, which the agent repeats when it starts to process the message.
    pub id: MessageId,
    /// Its text; a text that begins with `/` is a command of the agent.
    pub text: String,
}

/// A request to the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum HostRequest {
    /// Starts the conversation.
    Initialize(Box<Initialize>),
    /// Stops the current turn.
    Interrupt,
    /// Changes which calls need a permission from now on.
    SetPermissionMode(PermissionMode),
    /// Uses another model from now on; `None` is the default model.
    SetModel(Option<String>),
    /// Asks for the state of the MCP servers.
    McpStatus,
}

/// The agent's permission modes. The agent itself does not validate the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    /// Asks about every call that is not allowed.
    Default,
    /// Does not ask about edits.
    AcceptEdits,
    /// Plans and changes nothing.
    Plan,
    /// Never asks. Works only if the agent was started in this mode.
    BypassPermissions,
    /// Refuses instead of asking.
    DontAsk,
}

/// What the handshake sets up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Initialize {
    /// Hooks that the agent should call back for.
    pub hooks: Vec<HookSubscription>,
    /// Names of the MCP servers that belljar serves.
    pub servers: Vec<String>,
    /// Text appended to the system prompt.
    pub append_system_prompt: Option<String>,
    /// More members for the request, set by scenarios. The members above take precedence.
    pub further: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSubscription {
    /// The event's name, as in `PreToolUse`.
    pub event: String,
    /// A pattern for tool names in the agent's notation; `None` matches all tools.
    pub matcher: Option<String>,
    /// The id that the callback will name.
    pub callback: String,
    /// How long the agent waits for the answer.
    pub timeout_seconds: Option<u64>,
}

/// A response to the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Permission(PermissionReply),
    Hook(HookReply),
    /// The answer of an MCP server; `None` answers a notification.
    Mcp(Option<Value>),
    /// The answer to an MCP server's question.
    Elicitation(ElicitationReply),
    Dialog(DialogReply),
    /// An error instead of an answer.
    Error(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum PermissionReply {
    Allow {
        /// The input to run it with. Always sent: one version of the agent rejects an answer without it.
        input: Map<String, Value>,
        /// The agent's suggestions that are accepted, as it wrote them.
        permissions: Vec<Value>,
    },
    Deny {
        /// The text that the model gets.
        message: String,
        then: AfterDeny,
    },
}

/// What happens after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterDeny {
    /// The model goes on.
    GoOn,
    Interrupt,
}

/// The answer to a hook call.
#[derive(Debug, Clone, PartialEq)]
pub enum HookReply {
    Nothing,
    /// Decides on the call before the agent asks for a permission.
    PreToolUse {
        permission: HookPermission,
        /// The reason; the model gets it if the call is refused.
        reason: String,
        /// A replacement for the tool's input.
        input: Option<Map<String, Value>>,
    },
    /// Adds text to the model's context.
    AddContext {
        /// The event that the hook was called for.
        event: String,
        text: String,
    },
    /// Blocks the action that the hook was called for.
    Block {
        reason: String,
    },
}

/// A hook's decision on a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPermission {
    /// It runs without a question.
    Allow,
    Deny,
    Ask,
}

/// The answer to an MCP server's question.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationReply {
    Accept(Map<String, Value>),
    Decline,
    Cancel,
}

/// How a dialog ended.
#[derive(Debug, Clone, PartialEq)]
pub enum DialogReply {
    /// The user chose a value.
    Completed(Value),
    /// The user closed the dialog.
    Cancelled,
}

impl Outbound {
    /// The frame as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::User(UserMessage { id, text }) => json!({
                "type": "user",
                "uuid": id,
                "message": {"role": "user", "content": text},
            }),
            Self::Request { id, request } => {
                json!({"type": "control_request", "request_id": id, "request": request.to_json()})
            }
            Self::Response { id, reply: Reply::Error(error) } => json!({
                "type": "control_response",
                "response": {"subtype": "error", "request_id": id, "error": error},
            }),
            Self::Response { id, reply } => json!({
                "type": "control_response",
                "response": {"subtype": "success", "request_id": id, "response": reply.body()},
            }),
        }
    }
}

impl HostRequest {
    fn to_json(&self) -> Value {
        match self {
            Self::Initialize(initialize) => initialize.to_json(),
            Self::Interrupt => json!({"subtype": "interrupt"}),
            Self::SetPermissionMode(mode) => json!({"subtype": "set_permission_mode", "mode": mode}),
            Self::SetModel(Some(model)) => json!({"subtype": "set_model", "model": model}),
            Self::SetModel(None) => json!({"subtype": "set_model"}),
            Self::McpStatus => json!({"subtype": "mcp_status"}),
        }
    }

    /// The subtype in the frame.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Initialize(_) => "initialize",
            Self::Interrupt => "interrupt",
            Self::SetPermissionMode(_) => "set_permission_mode",
            Self::SetModel(_) => "set_model",
            Self::McpStatus => "mcp_status",
        }
    }
}

impl Initialize {
    fn to_json(&self) -> Value {
        let Self { hooks, servers, append_system_prompt, further } = self;
        let mut object = further.clone();
        object.insert("subtype".to_owned(), json!("initialize"));
        if !hooks.is_empty() {
            let mut events = Map::new();
            for HookSubscription { event, matcher, callback, timeout_seconds } in hooks {
                let mut entry = json!({"hookCallbackIds": [callback]});
                if let Some(matcher) = matcher {
                    entry["matcher"] = json!(matcher);
                }
                if let Some(seconds) = timeout_seconds {
                    entry["timeout"] = json!(seconds);
                }
                let entries = events.entry(event.clone()).or_insert_with(|| json!([]));
                if let Value::Array(entries) = entries {
                    entries.push(entry);
                }
            }
            object.insert("hooks".to_owned(), Value::Object(events));
        }
        if !servers.is_empty() {
            object.insert("sdkMcpServers".to_owned(), json!(servers));
        }
        if let Some(text) = append_system_prompt {
            object.insert("appendSystemPrompt".to_owned(), json!(text));
        }
        Value::Object(object)
    }
}

impl Reply {
    /// The body of a successful response; an error response has none.
    fn body(&self) -> Value {
        match self {
            Self::Permission(reply) => reply.body(),
            Self::Hook(reply) => reply.body(),
            Self::Mcp(Some(response)) => json!({"mcp_response": response}),
            // The agent waits for an answer even to a notification; its content does not matter.
            Self::Mcp(None) => json!({"mcp_response": {"jsonrpc": "2.0", "id": 0, "result": {}}}),
            Self::Elicitation(ElicitationReply::Accept(content)) => {
                json!({"action": "accept", "content": content})
            }
            Self::Elicitation(ElicitationReply::Decline) => json!({"action": "decline"}),
            Self::Elicitation(ElicitationReply::Cancel) => json!({"action": "cancel"}),
            Self::Dialog(DialogReply::Completed(result)) => {
                json!({"behavior": "completed", "result": result})
            }
            Self::Dialog(DialogReply::Cancelled) => json!({"behavior": "cancelled"}),
            Self::Error(_) => Value::Null,
        }
    }
}

impl PermissionReply {
    fn body(&self) -> Value {
        match self {
            Self::Allow { input, permissions } => {
                let mut body = json!({"behavior": "allow", "updatedInput": input});
                if !permissions.is_empty() {
                    body["updatedPermissions"] = json!(permissions);
                }
                body
            }
            Self::Deny { message, then: AfterDeny::GoOn } => json!({"behavior": "deny", "message": message}),
            Self::Deny { message, then: AfterDeny::Interrupt } => {
                json!({"behavior": "deny", "message": message, "interrupt": true})
            }
        }
    }
}

impl HookReply {
    fn body(&self) -> Value {
        match self {
            Self::Nothing => json!({}),
            Self::PreToolUse { permission, reason, input } => {
                let permission = match permission {
                    HookPermission::Allow => "allow",
                    HookPermission::Deny => "deny",
                    HookPermission::Ask => "ask",
                };
                let mut output = json!({
                    "hookEventName": "PreToolUse",
                    "permissionDecision": permission,
                    "permissionDecisionReason": reason,
                });
                if let Some(input) = input {
                    output["updatedInput"] = json!(input);
                }
                json!({"hookSpecificOutput": output})
            }
            Self::AddContext { event, text } => {
                json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
            }
            Self::Block { reason } => json!({"decision": "block", "reason": reason}),
        }
    }
}
