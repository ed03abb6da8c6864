//! The script as data: what the model says, in which order, and to whom.
//!
//! The same types serve the Rust builder and the JSON file, so a script written for a test can be kept as a file and
//! the other way round. Nothing here acts; [`super::check`] says whether a script can be played, and [`super::builder`]
//! writes one in Rust.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::matching::When;

/// Version of the script file format that this build reads and writes.
pub(super) const SCRIPT_VERSION: u64 = 1;

/// Everything a scripted model needs to know, as written in Rust or in a JSON file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Kept in the type so that a script that is written out can be read back; checked before anything else.
    pub(super) version: u64,
    /// The turns, in the order in which they are offered.
    pub turns: Vec<Turn>,
    /// What a request without tools gets.
    #[serde(default)]
    pub side_requests: SideRequests,
    /// What a request gets once all turns are played.
    #[serde(default)]
    pub when_exhausted: Exhausted,
}

/// What happens to a request that carries no tools.
///
/// The agent's terminal interface asks the model for a session title with such a request, at a moment of its own
/// choosing. Were it to take a turn, the conversation would be off by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideRequests {
    /// Answer with this text and spend no turn, unless a turn asks for requests without tools by name.
    Reply(String),
    /// Treat it as any other request. For agents that are run without tools.
    TakeTurns,
}

impl Default for SideRequests {
    fn default() -> Self {
        Self::Reply("ok".to_owned())
    }
}

/// What happens to a request that comes after the last turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// A 400 that names the number of turns played: an agent that goes on longer than its script is a finding.
    #[default]
    Error,
    /// The same text for ever, for runs whose length is not the point.
    Reply(String),
}

/// One answer of the model, and the requests it is meant for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Requests this turn accepts; the default accepts all.
    #[serde(default)]
    pub when: When,
    /// Silence before the first byte, in milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// What is then sent.
    pub answer: Answer,
}

/// The ways a model can answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A message, streamed or whole as the request wishes.
    Reply(Reply),
    /// An HTTP error in the API's shape.
    Error(ErrorReply),
    /// The connection is closed without a single byte.
    HangUp,
}

/// An assistant message and the manner of its delivery.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The content blocks, in order.
    pub content: Vec<Block>,
    /// Why the model stopped; derived from the blocks when absent.
    #[serde(default)]
    pub stop_reason: Option<StopReason>,
    /// Token counts to report.
    #[serde(default)]
    pub usage: Usage,
    /// Model name to report; the one of the request when absent.
    #[serde(default)]
    pub model: Option<String>,
    /// Silence between two events of a stream, in milliseconds.
    #[serde(default)]
    pub pause_ms: u64,
    /// Longest delta of a stream, in characters; a block is one delta when absent.
    #[serde(default)]
    pub delta_chars: Option<NonZeroUsize>,
    /// Where the delivery breaks off, if it does.
    #[serde(default)]
    pub cut: Option<Cut>,
}

/// A piece of an assistant message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Block {
    /// Plain text.
    Text(String),
    /// Reasoning, with the opaque signature that clients send back unread.
    Thinking {
        /// The reasoning itself.
        text: String,
        /// Any string; clients do not check it.
        signature: String,
    },
    /// A call of one of the agent's tools.
    ToolUse {
        /// Name of the tool.
        name: String,
        /// Its arguments, a JSON object.
        input: Value,
        /// Id of the call; made from the positions of turn and block when absent.
        #[serde(default)]
        id: Option<String>,
    },
}

/// Why a message ended, in the API's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model had nothing more to say.
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
pub struct Usage {
    /// Tokens read that were in no cache.
    pub input_tokens: u64,
    /// Tokens written by the model.
    pub output_tokens: u64,
    /// Tokens written to the prompt cache.
    pub cache_creation_input_tokens: u64,
    /// Tokens read from the prompt cache.
    pub cache_read_input_tokens: u64,
}

impl Default for Usage {
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

/// A break in the delivery of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Server-sent events that still arrive. A reply that is not streamed loses the second half of its body instead.
    pub after_events: usize,
    /// What the client's socket sees then.
    #[serde(default)]
    pub end: CutEnd,
}

/// How a delivery breaks off. Clients tell these apart, and may repeat the request, repeat it without streaming, or go
/// on with what they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutEnd {
    /// An orderly close, with the body unfinished.
    #[default]
    Close,
    /// A TCP reset. A unix socket has none and is closed.
    Reset,
    /// The body ends as it should and the connection lives; only the message is unfinished.
    EndOfBody,
}

/// An HTTP error as the API would send it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorReply {
    /// HTTP status, 400 to 599.
    pub status: u16,
    /// The API's error type; derived from the status when absent.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Text for humans.
    #[serde(default)]
    pub message: String,
    /// Further response headers, such as `retry-after`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}
