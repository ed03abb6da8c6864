//! The log of the model: what the gateway was asked and what it served, as digests.
//!
//! A verdict is made from the agent's frames, and the agent stands inside the sandbox; the gateway stands outside. Every
//! text is redacted as the frames are. Prompts, the model's texts and thoughts, values of tools' inputs and results are kept
//! as digests of that. Kept as they are: ids, the names of tools and of their inputs' members, reasons to stop, and the
//! beginning of a text in which an answer was cut off ([`ServedBlock::Text`]), because the agent shows as much of it as it
//! had read. The lines are chained as those of the egress log are ([`EgressChain`]), and the last chain belongs into the
//! run's own record.

use crate::{Digest, EgressChain, ExchangeEnd, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the stored form of [`ModelRow`]. Readers refuse a larger one.
pub const MODEL_LOG_FORMAT: u32 = 1;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelRow {
    /// The first row.
    Opened {
        /// The version of the rows.
        format: u32,
        /// The run.
        run: RunId,
    },
    /// A request, before it was answered.
    Asked {
        /// Its number, from 0.
        exchange: u64,
        /// Milliseconds since the start of the run.
        at_ms: u64,
        /// What was asked.
        request: ModelRequest,
    },
    /// The end of an answer.
    Answered {
        /// The number of its request.
        exchange: u64,
        /// What was served.
        answer: ModelAnswer,
    },
    /// The last row.
    Closed {
        /// How many requests there were.
        exchanges: u64,
    },
}

/// What was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRequest {
    /// The session that the request names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The sub-agent that the request names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The earlier request whose beginning this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeated>,
    /// The items of its messages after those that are repeated; system messages are left out.
    pub items: Vec<ModelItem>,
}

/// The beginning of an earlier request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// Its number.
    pub exchange: u64,
    /// How many of its items.
    pub items: u64,
}

/// A part of a request's messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelItem {
    /// A text in the user's place.
    Text {
        /// The text.
        text: Digest,
    },
    /// A text of the model.
    Said {
        /// The text.
        text: Digest,
    },
    /// A call of a tool.
    Called {
        /// Its id.
        call: String,
        /// The members of its input.
        input: BTreeMap<String, Digest>,
    },
    /// What a call returned.
    Returned {
        /// Its id.
        call: String,
        /// Its texts.
        text: Digest,
        /// The same without the reminders that the agent adds, where there are some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bare: Option<Digest>,
        /// Whether it failed.
        is_error: bool,
    },
}

/// What was served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelAnswer {
    /// The HTTP status; none where no answer began.
    pub status: Option<u16>,
    /// How it ended.
    pub end: ExchangeEnd,
    /// The message, where it is one.
    pub message: Option<ServedMessage>,
}

/// A message of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedMessage {
    /// Its id.
    pub id: String,
    /// Why it stopped, where it came that far.
    pub stop: Option<String>,
    /// Its blocks.
    pub blocks: Vec<ServedBlock>,
}

/// A block of the model's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum ServedBlock {
    /// A text.
    Text {
        /// The text.
        text: Digest,
        /// Its redacted beginning, 256 Ki characters at most, where the answer ended within it: the agent may have read less.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open: Option<String>,
    },
    /// A thought.
    Thinking {
        /// The text.
        text: Digest,
    },
    /// A call of a tool.
    ToolUse {
        /// Its id.
        call: String,
        /// The tool.
        tool: String,
        /// The members of its input, each in every form that the agent gives it ([`crate::input_forms`]).
        input: BTreeMap<String, Vec<Digest>>,
    },
    /// A block of another type, or one that was cut off.
    Other {
        /// Its type.
        kind: String,
    },
}

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelExchange {
    /// When it was asked.
    pub at_ms: u64,
    /// What was asked.
    pub request: ModelRequest,
    /// What was served; none where the log has no end of it.
    pub answer: Option<ModelAnswer>,
}

/// Reads a log whose last chain is `head`.
///
/// # Errors
/// When it is not whole or not what was written, in a line for people.
pub fn read_model_log(text: &str, head: Digest) -> Result<Vec<ModelExchange>, String> {
    let mut chain = EgressChain::START;
    let mut out: Vec<ModelExchange> = Vec::new();
    let mut closed = false;
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let fault = |what: &str| format!("model.jsonl:{}: {what}", at + 1);
        let line = line.strip_suffix('\n').ok_or_else(|| fault("cut off"))?;
        let (row, after) = chain.row(line).ok_or_else(|| fault("not what was written"))?;
        chain = after;
        let row: ModelRow = serde_json::from_str(&row).map_err(|error| fault(&error.to_string()))?;
        match row {
            ModelRow::Opened { format, run: _ } if at == 0 => {
                if format > MODEL_LOG_FORMAT {
                    return Err(fault("written by a newer belljar"));
                }
            }
            _ if at == 0 || closed => return Err(fault("out of order")),
            ModelRow::Opened { .. } => return Err(fault("out of order")),
            ModelRow::Asked { exchange, at_ms, request } => {
                let known = request.repeats.is_none_or(|repeats| repeats.exchange < out.len() as u64);
                if exchange != out.len() as u64 || !known {
                    return Err(fault("out of order"));
                }
                out.push(ModelExchange { at_ms, request, answer: None });
            }
            ModelRow::Answered { exchange, answer } => {
                let asked = usize::try_from(exchange).ok().and_then(|at| out.get_mut(at));
                match asked {
                    Some(asked) if asked.answer.is_none() => asked.answer = Some(answer),
                    Some(_) | None => return Err(fault("an answer without a request")),
                }
            }
            ModelRow::Closed { exchanges } => {
                closed = true;
                if exchanges != out.len() as u64 {
                    return Err(fault("another number of requests"));
                }
            }
        }
    }
    match (closed, chain.head() == Some(head)) {
        (true, true) => Ok(out),
        (true, false) => Err("model.jsonl is not the one that the run wrote".to_owned()),
        (false, _) => Err("model.jsonl is cut off".to_owned()),
    }
}

#[cfg(test)]
#[path = "model_log_tests.rs"]
mod tests;
