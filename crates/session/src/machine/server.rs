//! MCP servers that belljar serves over the agent's own line: declared tools with declared answers.

use belljar_contract::McpMessage;
use serde_json::{Map, Value, json};

/// The newest supported version of the protocol; an older one that the agent asks for is accepted.
const PROTOCOL: &str = "2025-11-25";

/// JSON-RPC error codes.
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// An MCP server that belljar serves.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Its name; the agent calls a tool of it `mcp__<server>__<tool>`.
    pub name: String,
    pub answering: ServerAnswering,
}

/// Who answers a server's messages.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerAnswering {
    /// belljar, with the declared tools.
    Tools(Vec<CannedTool>),
    /// The deciders.
    Ask,
}

/// A tool with its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CannedTool {
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: Map<String, Value>,
    /// What every call of it returns.
    pub answer: CannedAnswer,
}

/// What a tool returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CannedAnswer {
    Text(String),
    /// An error message.
    Failure(String),
}

impl Server {
    /// The response to a message; none to a notification.
    pub(super) fn respond(&self, message: &Value) -> Option<Value> {
        let id = message.get("id").filter(|id| id.is_string() || id.is_number());
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            return Some(error(id.unwrap_or(&Value::Null), INVALID_REQUEST, "not a JSON-RPC request"));
        };
        let id = id?;
        let params = message.get("params").unwrap_or(&Value::Null);
        Some(match self.result(method, params) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err((code, text)) => error(id, code, &text),
        })
    }

    fn result(&self, method: &str, params: &Value) -> Result<Value, (i64, String)> {
        match method {
            "initialize" => Ok(json!({
                "protocolVersion": params["protocolVersion"].as_str().filter(|asked| *asked < PROTOCOL).unwrap_or(PROTOCOL),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": self.name, "version": env!("CARGO_PKG_VERSION")},
            })),
            "ping" => Ok(json!({})),
            "tools/list" => {
                Ok(json!({"tools": self.tools().iter().map(CannedTool::listed).collect::<Vec<_>>()}))
            }
            "tools/call" => {
                let name = params["name"].as_str().unwrap_or_default();
                let tool = self.tools().iter().find(|tool| tool.name == name);
                let unknown = || (INVALID_PARAMS, format!("the server {} has no tool {name:?}", self.name));
                tool.map(CannedTool::called).ok_or_else(unknown)
            }
            other => Err((METHOD_NOT_FOUND, format!("the server {} has no method {other:?}", self.name))),
        }
    }

    fn tools(&self) -> &[CannedTool] {
        match &self.answering {
            ServerAnswering::Tools(tools) => tools,
            ServerAnswering::Ask => &[],
        }
    }
}

impl CannedTool {
    fn listed(&self) -> Value {
        let Self { name, description, input_schema, answer: _ } = self;
        json!({"name": name, "description": description, "inputSchema": input_schema})
    }

    fn called(&self) -> Value {
        let (text, is_error) = match &self.answer {
            CannedAnswer::Text(text) => (text, false),
            CannedAnswer::Failure(text) => (text, true),
        };
        json!({"content": [{"type": "text", "text": text}], "isError": is_error})
    }
}

/// The response to a message for a server that does not exist; none to a notification. A JSON-RPC error ends the call,
/// where an error of the agent's own protocol would count as a broken connection.
pub(super) fn unknown_server(message: &McpMessage) -> Option<Value> {
    let id = message.message.get("id").filter(|id| id.is_string() || id.is_number())?;
    Some(error(id, METHOD_NOT_FOUND, &format!("no server is called {}", message.server)))
}

fn error(id: &Value, code: i64, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        let schema = json!({"type": "object", "properties": {"key": {"type": "string"}}});
        let Value::Object(input_schema) = schema else { panic!() };
        let tool = CannedTool {
            name: "lookup".to_owned(),
            description: "looks up".to_owned(),
            input_schema,
            answer: CannedAnswer::Text("value".to_owned()),
        };
        let broken = CannedTool {
            name: "broken".to_owned(),
            answer: CannedAnswer::Failure("no".to_owned()),
            ..tool.clone()
        };
        Server { name: "host".to_owned(), answering: ServerAnswering::Tools(vec![tool, broken]) }
    }

    #[test]
    fn the_methods_of_a_server() {
        let call = |method: &str, params: Value| {
            server().respond(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})).unwrap()
        };
        let initialized = call("initialize", json!({"protocolVersion": "2024-11-05"}));
        assert_eq!(initialized["result"]["protocolVersion"], "2024-11-05");
        assert_eq!(
            call("initialize", json!({"protocolVersion": "2099-01-01"}))["result"]["protocolVersion"],
            PROTOCOL
        );
        assert_eq!(call("ping", Value::Null), json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
        assert_eq!(call("tools/list", Value::Null)["result"]["tools"][0]["name"], "lookup");
        assert_eq!(call("tools/call", json!({"name": "lookup"}))["result"]["content"][0]["text"], "value");
        assert_eq!(call("tools/call", json!({"name": "broken"}))["result"]["isError"], true);
        assert_eq!(call("tools/call", json!({"name": "other"}))["error"]["code"], INVALID_PARAMS);
        assert_eq!(call("resources/list", Value::Null)["error"]["code"], METHOD_NOT_FOUND);
    }

    #[test]
    fn notifications_get_no_response_and_invalid_messages_an_error() {
        assert_eq!(server().respond(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})), None);
        assert_eq!(server().respond(&json!([1])).unwrap()["error"]["code"], INVALID_REQUEST);
        assert_eq!(server().respond(&json!({"id": 1})).unwrap()["error"]["code"], INVALID_REQUEST);
    }
}
