//! The script as data: what the model says, in which order, and to whom.
//!
//! The same types serve the Rust builder and the JSON file, so a script written for a test can be kept as a file and
//! the other way round. Nothing here acts; [`super::check`] says whether a script can be played.

use std::collections::BTreeMap;
use std::time::Duration;

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
    pub delta_chars: Option<std::num::NonZeroUsize>,
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

/// How a connection ends when a delivery breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutEnd {
    /// An orderly close, with the body unfinished.
    #[default]
    Close,
    /// A TCP reset. A unix socket has none and is closed.
    Reset,
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

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// A script without turns: side requests are answered, all else is exhausted at once.
    pub fn new() -> Self {
        Self {
            version: SCRIPT_VERSION,
            turns: Vec::new(),
            side_requests: SideRequests::default(),
            when_exhausted: Exhausted::default(),
        }
    }

    /// Appends a turn.
    #[must_use]
    pub fn turn(mut self, turn: Turn) -> Self {
        self.turns.push(turn);
        self
    }

    /// Says what requests without tools get.
    #[must_use]
    pub fn side_requests(mut self, side_requests: SideRequests) -> Self {
        self.side_requests = side_requests;
        self
    }

    /// Says what requests get after the last turn.
    #[must_use]
    pub fn when_exhausted(mut self, when_exhausted: Exhausted) -> Self {
        self.when_exhausted = when_exhausted;
        self
    }
}

impl Turn {
    /// A turn that accepts every request and answers at once.
    pub fn new(answer: Answer) -> Self {
        Self { when: When::default(), delay_ms: 0, answer }
    }

    /// A turn that replies with a message.
    pub fn reply(reply: Reply) -> Self {
        Self::new(Answer::Reply(reply))
    }

    /// A turn that says one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::reply(Reply::new().text(text))
    }

    /// A turn that calls one tool.
    pub fn tool_use(name: impl Into<String>, input: Value) -> Self {
        Self::reply(Reply::new().tool_use(name, input))
    }

    /// A turn that fails with an HTTP error.
    pub fn error(error: ErrorReply) -> Self {
        Self::new(Answer::Error(error))
    }

    /// A turn that closes the connection unanswered.
    pub fn hang_up() -> Self {
        Self::new(Answer::HangUp)
    }

    /// Restricts the requests that this turn accepts.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// Stays silent for this long before the first byte.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay_ms = millis(delay);
        self
    }
}

impl Reply {
    /// An empty message, to be filled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a text block.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(Block::Text(text.into()))
    }

    /// Appends a thinking block.
    #[must_use]
    pub fn thinking(self, text: impl Into<String>, signature: impl Into<String>) -> Self {
        self.block(Block::Thinking { text: text.into(), signature: signature.into() })
    }

    /// Appends a tool call whose id is made from its position.
    #[must_use]
    pub fn tool_use(self, name: impl Into<String>, input: Value) -> Self {
        self.block(Block::ToolUse { name: name.into(), input, id: None })
    }

    /// Appends any block.
    #[must_use]
    pub fn block(mut self, block: Block) -> Self {
        self.content.push(block);
        self
    }

    /// Overrides the derived stop reason.
    #[must_use]
    pub fn stop_reason(mut self, stop_reason: StopReason) -> Self {
        self.stop_reason = Some(stop_reason);
        self
    }

    /// Sets the token counts.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Reports this model instead of the one asked for.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Stays silent for this long between two events.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause_ms = millis(pause);
        self
    }

    /// Splits texts and tool inputs into deltas of at most this many characters.
    #[must_use]
    pub fn delta_chars(mut self, chars: std::num::NonZeroUsize) -> Self {
        self.delta_chars = Some(chars);
        self
    }

    /// Breaks the delivery off.
    #[must_use]
    pub fn cut(mut self, after_events: usize, end: CutEnd) -> Self {
        self.cut = Some(Cut { after_events, end });
        self
    }

    /// The stop reason that is sent: the given one, else `tool_use` if a tool is called, else `end_turn`.
    pub fn effective_stop_reason(&self) -> StopReason {
        let calls_a_tool = self.content.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        let derived = if calls_a_tool { StopReason::ToolUse } else { StopReason::EndTurn };
        self.stop_reason.unwrap_or(derived)
    }
}

impl ErrorReply {
    /// An error with the type that the API uses for this status.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, kind: None, message: message.into(), headers: BTreeMap::new() }
    }

    /// Overrides the derived error type.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Adds a response header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Adds the `retry-after` header that clients honour on 429.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        self.header("retry-after", seconds.to_string())
    }

    /// The error type that is sent: the given one, else the API's word for the status.
    pub fn effective_kind(&self) -> &str {
        self.kind.as_deref().unwrap_or(match self.status {
            401 => "authentication_error",
            402 => "billing_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            504 => "timeout_error",
            529 => "overloaded_error",
            status if status >= 500 => "api_error",
            _ => "invalid_request_error",
        })
    }
}

/// Whole milliseconds, saturating: a script that asks for more fails its check rather than wrapping round.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
