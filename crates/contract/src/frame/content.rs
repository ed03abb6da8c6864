//! The content of messages.

use super::CallId;
use super::members::{Flaw, Members};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One block of a message's content.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Text(String),
    /// The model's reasoning before its answer.
    Thinking(String),
    /// A tool call.
    ToolUse {
        call: CallId,
        tool: String,
        input: Map<String, Value>,
    },
    /// The result of a tool call.
    ToolResult {
        call: CallId,
        /// Its texts, joined by newlines.
        text: String,
        is_error: bool,
    },
    /// A block of another type. Its content is only in the raw frame.
    Other {
        kind: String,
    },
}

/// Token counts as the agent reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Input tokens that were not in a cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Input tokens written to the cache.
    pub cache_creation_tokens: u64,
    /// Input tokens read from the cache.
    pub cache_read_tokens: u64,
}

/// The blocks of a message; a plain string is one text block.
pub(super) fn blocks(message: Members<'_>) -> Result<Vec<Block>, Flaw> {
    match message.get("content") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![Block::Text(text.clone())]),
        Some(Value::Array(items)) => items.iter().map(block).collect(),
        Some(_) => Err("`content` is neither a string nor a list".to_owned()),
    }
}

fn block(value: &Value) -> Result<Block, Flaw> {
    let members = value.as_object().map(Members).ok_or("a content block is not an object")?;
    match members.required_text("type")? {
        "text" => Ok(Block::Text(members.required_text("text")?.to_owned())),
        "thinking" => Ok(Block::Thinking(members.loose_text("thinking").unwrap_or_default())),
        "tool_use" => Ok(Block::ToolUse {
            call: members.required_id("id")?,
            tool: members.required_text("name")?.to_owned(),
            input: members.required_object("input")?.0.clone(),
        }),
        "tool_result" => Ok(Block::ToolResult {
            call: members.required_id("tool_use_id")?,
            text: result_text(members.get("content")),
            is_error: members.optional_bool("is_error")?.unwrap_or(false),
        }),
        other => Ok(Block::Other { kind: other.to_owned() }),
    }
}

/// The content of a result is a string, or a list of blocks of which only the texts are used.
fn result_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            items.iter().filter_map(|item| item["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        Some(_) | None => String::new(),
    }
}

/// Token counts; a member that is absent or not a number counts as 0.
pub(super) fn usage(owner: Members<'_>) -> Option<Usage> {
    let members = owner.get("usage").and_then(Value::as_object).map(Members)?;
    let count = |key| members.loose_number(key).unwrap_or(0);
    Some(Usage {
        input_tokens: count("input_tokens"),
        output_tokens: count("output_tokens"),
        cache_creation_tokens: count("cache_creation_input_tokens"),
        cache_read_tokens: count("cache_read_input_tokens"),
    })
}
