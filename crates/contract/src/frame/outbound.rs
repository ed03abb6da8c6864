//! What belljar says. The agent trusts its input wholly, so nothing but these forms is ever written to it.

use super::{MessageId, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One line for the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Outbound {
    /// A message of the user.
    User(UserMessage),
    /// A request of belljar's.
    Request {
        /// What the response will name.
        id: RequestId,
        /// What is wanted.
        request: HostRequest,
    },
    /// The answer to a request of the agent's.
    Response {
        /// Which request.
        id: RequestId,
        /// The answer.
        reply: Reply,
    },
}

/// A message of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMessage {
    /// Its id, which the agent repeats when it takes the message up.
    pub id: MessageId,
    /// Its text; one that begins with `/` is a command of the agent's.
    pub text: String,
}

/// Something that belljar wants of the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum HostRequest {
    /// Begin.
    Initialize(Box<Initialize>),
    /// Stop the turn.
    Interrupt,
    /// Ask about other things from now on.
    SetPermissionMode(PermissionMode),
    /// Think with another model from now on; none is the default.
    SetModel(Option<String>),
    /// Say how the MCP servers are.
    McpStatus,
}

/// The modes that the agent has. It does not check the word itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    /// Ask about everything that is not allowed.
    Default,
    /// Do not ask about edits.
    AcceptEdits,
    /// Plan, and change nothing.
    Plan,
    /// Ask about nothing; only where the agent was started so.
    BypassPermissions,
    /// Refuse instead of asking.
    DontAsk,
}

/// What the handshake sets up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Initialize {
    /// Hooks to call back for.
    pub hooks: Vec<HookSubscription>,
    /// Names of the MCP servers that belljar serves.
    pub servers: Vec<String>,
    /// Added to the end of the system prompt.
    pub append_system_prompt: Option<String>,
    /// Members that go along as they are, for scenarios; the ones above win.
    pub further: Map<String, Value>,
}

/// One hook to be called back for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSubscription {
    /// The event's name, as in `PreToolUse`.
    pub event: String,
    /// Which tools, as the agent writes it; none is all.
    pub matcher: Option<String>,
    /// What the call will name.
    pub callback: String,
    /// Seconds that the agent waits.
    pub timeout_seconds: Option<u64>,
}

/// An answer to the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// About a tool.
    Permission(PermissionReply),
    /// About a hook.
    Hook(HookReply),
    /// Of an MCP server; none answers a notification.
    Mcp(Option<Value>),
    /// To an MCP server's question.
    Elicitation(ElicitationReply),
    /// Of a dialog.
    Dialog(DialogReply),
    /// There is none.
    Error(String),
}

/// Whether a tool may run.
#[derive(Debug, Clone, PartialEq)]
pub enum PermissionReply {
    /// It may.
    Allow {
        /// With what. Always said: one version of the agent refuses an answer without it.
        input: Map<String, Value>,
        /// Suggestions of the agent's that are taken, as it wrote them.
        permissions: Vec<Value>,
    },
    /// It may not.
    Deny {
        /// What the model is told.
        message: String,
        /// And then?
        then: AfterDeny,
    },
}

/// What follows a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterDeny {
    /// The model goes on.
    GoOn,
    /// The turn ends.
    Interrupt,
}

/// What a hook answers.
#[derive(Debug, Clone, PartialEq)]
pub enum HookReply {
    /// Nothing; go on.
    Nothing,
    /// Decide about the tool, before it is asked about.
    PreToolUse {
        /// How.
        permission: HookPermission,
        /// Why; what the model is told of a refusal.
        reason: String,
        /// Another input.
        input: Option<Map<String, Value>>,
    },
    /// Tell the model something beside.
    AddContext {
        /// The event that is answered.
        event: String,
        /// What.
        text: String,
    },
    /// Stop what the hook is about.
    Block {
        /// Why.
        reason: String,
    },
}

/// What a hook decides about a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPermission {
    /// It may run, and nobody is asked.
    Allow,
    /// It may not.
    Deny,
    /// Ask.
    Ask,
}

/// What an MCP server is told.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationReply {
    /// The data.
    Accept(Map<String, Value>),
    /// No.
    Decline,
    /// Never mind.
    Cancel,
}

/// How a dialog ended.
#[derive(Debug, Clone, PartialEq)]
pub enum DialogReply {
    /// With a choice.
    Completed(Value),
    /// Without one.
    Cancelled,
}

impl Outbound {
    /// The frame as the agent reads it.
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

    /// Its name on the wire.
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
    /// The body of a success; an error has none.
    fn body(&self) -> Value {
        match self {
            Self::Permission(reply) => reply.body(),
            Self::Hook(reply) => reply.body(),
            Self::Mcp(Some(response)) => json!({"mcp_response": response}),
            // The agent waits for an answer to a notification too; any will do.
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
