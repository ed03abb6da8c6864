//! The script as data: what the model says, in which order, and to which requests.
//!
//! The Rust builder and the JSON file use the same types, so that a script from a test can be kept as a file and the other
//! way round. [`super::check`] checks whether a script can be played, and [`super::builder`] builds one in Rust.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::matching::RequestConditions;

/// Version of the script file format that this build reads and writes.
pub(super) const SCRIPT_VERSION: u64 = 1;

/// A complete script, as written in Rust or in a JSON file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The schema that an editor checks the file with.
    #[serde(default, rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<String>,
    /// Part of the type so that a script can be written and read back; checked before anything else.
    pub(super) version: u64,
    /// A remark for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The response to a request without tools.
    #[serde(default, skip_serializing_if = "is_default")]
    pub side_requests: SideRequests,
    /// The response to a request after all turns were played.
    #[serde(default, skip_serializing_if = "is_default")]
    pub when_exhausted: Exhausted,
    /// The turns, in the order in which they are offered.
    pub turns: Vec<Turn>,
}

/// What a script leaves out is not written, so that a person can read it.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What happens to a request without tools.
///
/// The agent's terminal interface asks the model for a session title with such a request, at any time. If it took a turn,
/// the conversation would be off by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideRequests {
    /// Respond with this text and play no turn, unless a turn asks for requests without tools.
    Reply(String),
    /// Handle it like any other request. For agents that are run without tools.
    TakeTurns,
}

impl Default for SideRequests {
    fn default() -> Self {
        Self::Reply("ok".to_owned())
    }
}

/// What happens to a request after the last turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// A 400 with the number of turns played: an agent that needs more turns than its script is worth reporting.
    #[default]
    Error,
    /// The same text for every request, for runs whose length does not matter.
    Reply(String),
}

/// One response of the model, and the requests it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// A remark for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Requests this turn accepts; the default accepts all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub when: RequestConditions,
    /// Delay before the first byte, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay_ms: u64,
    pub answer: TurnAnswer,
}

/// The response of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnAnswer {
    /// A message, streamed or not as the request asks.
    Reply(ScriptReply),
    /// An HTTP error in the format of the API.
    Error(ErrorReply),
    /// The connection is closed without a single byte.
    HangUp,
}

/// An assistant message and how it is delivered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptReply {
    /// The content blocks, in order.
    pub content: Vec<ScriptBlock>,
    /// Why the model stopped; derived from the blocks when absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stop_reason: Option<StopReason>,
    /// Token counts to report.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: ScriptUsage,
    /// Model name to report; the one of the request when absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub model: Option<String>,
    /// Delay between two events of a stream, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pause_ms: u64,
    /// Longest delta of a stream, in characters; a block is one delta when absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delta_chars: Option<NonZeroUsize>,
    /// Where the delivery is cut off, if it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cut: Option<Cut>,
}

/// A content block of an assistant message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScriptBlock {
    Text(String),
    /// Reasoning, with the opaque signature that clients send back unchanged.
    Thinking {
        text: String,
        /// Any string; clients do not check it.
        signature: String,
    },
    /// A call of one of the agent's tools.
    ToolUse {
        name: String,
        /// Its arguments, a JSON object.
        input: Value,
        /// Id of the call; made from the positions of turn and block when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
}

/// Why a message ended, in the terms of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model is finished.
    EndTurn,
    /// The model waits for the result of a tool.
    ToolUse,
    /// The request's `max_tokens` was reached.
    MaxTokens,
    /// One of the request's stop sequences appeared.
    StopSequence,
    /// A long turn was paused by the server.
    PauseTurn,
    /// The model declined.
    Refusal,
}

/// Token counts as the API reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptUsage {
    /// Tokens read that were not cached.
    pub input_tokens: u64,
    /// Tokens written by the model.
    pub output_tokens: u64,
    /// Tokens written to the prompt cache.
    pub cache_creation_input_tokens: u64,
    /// Tokens read from the prompt cache.
    pub cache_read_input_tokens: u64,
}

impl Default for ScriptUsage {
    /// Small and not zero, so that a client which divides or warns on zero behaves as with a real model.
    fn default() -> Self {
        Self {
            input_tokens: 10,
            output_tokens: 5,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: 0,
        }
    }
}

/// A cut in the delivery of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Server-sent events before the cut. A reply that is not streamed loses the second half of its body instead.
    pub after_events: usize,
    /// How the client's connection ends.
    #[serde(default)]
    pub end: CutEnd,
}

/// How a delivery ends early. Clients distinguish these cases, and may retry, retry without streaming, or continue with
/// what they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutEnd {
    /// An orderly close, with an incomplete body.
    #[default]
    Close,
    /// A TCP reset. A unix socket is closed instead.
    Reset,
    /// The body ends normally and the connection stays open; only the message is incomplete.
    EndOfBody,
}

/// An HTTP error as the API would send it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorReply {
    /// HTTP status, 400 to 599.
    pub status: u16,
    /// The API's error type; derived from the status when absent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Text for humans.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// Further response headers, such as `retry-after`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub headers: BTreeMap<String, String>,
}
