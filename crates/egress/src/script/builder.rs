//! Builds scripts in Rust, and derives what a script leaves out.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use serde_json::Value;

use super::format::{
    Cut, CutEnd, ErrorReply, Exhausted, SCRIPT_VERSION, Script, ScriptBlock, ScriptReply, ScriptUsage,
    SideRequests, StopReason, Turn, TurnAnswer,
};
use super::matching::RequestConditions;

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl Script {
    /// A script without turns: side requests are answered, all others exceed the script at once.
    pub fn new() -> Self {
        Self {
            schema: None,
            version: SCRIPT_VERSION,
            note: None,
            turns: Vec::new(),
            side_requests: SideRequests::default(),
            when_exhausted: Exhausted::default(),
        }
    }

    /// Adds a remark for people.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Appends a turn.
    #[must_use]
    pub fn turn(mut self, turn: Turn) -> Self {
        self.turns.push(turn);
        self
    }

    /// Sets the response to requests without tools.
    #[must_use]
    pub fn side_requests(mut self, side_requests: SideRequests) -> Self {
        self.side_requests = side_requests;
        self
    }

    /// Sets the response to requests after the last turn.
    #[must_use]
    pub fn when_exhausted(mut self, when_exhausted: Exhausted) -> Self {
        self.when_exhausted = when_exhausted;
        self
    }
}

impl Turn {
    /// A turn that accepts every request and responds at once.
    pub fn new(answer: TurnAnswer) -> Self {
        Self { note: None, when: RequestConditions::default(), delay_ms: 0, answer }
    }

    /// A turn that replies with a message.
    pub fn reply(reply: ScriptReply) -> Self {
        Self::new(TurnAnswer::Reply(reply))
    }

    /// A turn with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::reply(ScriptReply::new().text(text))
    }

    /// A turn that calls one tool.
    pub fn tool_use(name: impl Into<String>, input: Value) -> Self {
        Self::reply(ScriptReply::new().tool_use(name, input))
    }

    /// A turn that fails with an HTTP error.
    pub fn error(error: ErrorReply) -> Self {
        Self::new(TurnAnswer::Error(error))
    }

    /// A turn that closes the connection without a response.
    pub fn hang_up() -> Self {
        Self::new(TurnAnswer::HangUp)
    }

    /// Adds a remark for people.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Restricts the requests that this turn accepts.
    #[must_use]
    pub fn when(mut self, when: RequestConditions) -> Self {
        self.when = when;
        self
    }

    /// Waits this long before the first byte.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay_ms = millis(delay);
        self
    }
}

impl ScriptReply {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a text block.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(ScriptBlock::Text(text.into()))
    }

    /// Appends a thinking block.
    #[must_use]
    pub fn thinking(self, text: impl Into<String>, signature: impl Into<String>) -> Self {
        self.block(ScriptBlock::Thinking { text: text.into(), signature: signature.into() })
    }

    /// Appends a tool call whose id is made from its position.
    #[must_use]
    pub fn tool_use(self, name: impl Into<String>, input: Value) -> Self {
        self.block(ScriptBlock::ToolUse { name: name.into(), input, id: None })
    }

    /// Appends any block.
    #[must_use]
    pub fn block(mut self, block: ScriptBlock) -> Self {
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
    pub fn usage(mut self, usage: ScriptUsage) -> Self {
        self.usage = usage;
        self
    }

    /// Reports this model instead of the requested one.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Waits this long between two events.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause_ms = millis(pause);
        self
    }

    /// Splits texts and tool inputs into deltas of at most this many characters.
    #[must_use]
    pub fn delta_chars(mut self, chars: NonZeroUsize) -> Self {
        self.delta_chars = Some(chars);
        self
    }

    /// Cuts the response off.
    #[must_use]
    pub fn cut(mut self, after_events: usize, end: CutEnd) -> Self {
        self.cut = Some(Cut { after_events, end });
        self
    }

    /// The stop reason that is sent: the given one, else `tool_use` if a tool is called, else `end_turn`.
    pub fn effective_stop_reason(&self) -> StopReason {
        let calls_a_tool = self.content.iter().any(|block| matches!(block, ScriptBlock::ToolUse { .. }));
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

    /// The error type that is sent: the given one, else the API's type for the status.
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

/// Whole milliseconds, saturating: a longer duration fails the check of the script instead of wrapping around.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
