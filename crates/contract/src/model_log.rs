//! The model log: the requests to the gateway and its answers, as digests.
//!
//! A verdict is made from the agent's frames, and the agent runs inside the sandbox; the gateway runs outside. Every
//! text is redacted in the same way as in the frames. Prompts, the model's texts and reasoning, the values of tool
//! inputs and results are stored as digests of the redacted text. Stored as they are: ids, the names of tools and of
//! the members of their inputs, stop reasons, and the beginning of a text in which an answer was cut off
//! ([`ServedBlock::Text`]), because the agent shows as much of it as it had read. The lines are chained like those of
//! the egress log ([`EgressChain`]), and the run's own record contains the last chain.

use crate::{Digest, EgressChain, ExchangeEnd, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the stored form of [`ModelRow`]. Readers refuse a larger one.
pub const MODEL_LOG_FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelRow {
    Opened {
        /// The version of the rows.
        format: u32,
        run: RunId,
    },
    /// A request, written before it is answered.
    Asked {
        /// Its number, counted from 0.
        exchange: u64,
        /// Milliseconds since the start of the run.
        at_ms: u64,
        request: ModelRequest,
    },
    /// The end of an answer.
    Answered {
        /// The number of its request.
        exchange: u64,
        answer: ModelAnswer,
    },
    Closed {
        /// The number of requests.
        exchanges: u64,
    },
}

/// The content of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRequest {
    /// The session id in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The sub-agent's id in the request; `None` for the main agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The earlier request that this one begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repeated>,
    /// The items of its messages after the repeated ones, without system messages.
    pub items: Vec<ModelItem>,
}

/// The beginning of an earlier request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// The number of that request.
    pub exchange: u64,
    /// How many of its items are repeated.
    pub items: u64,
}

/// A part of a request's messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelItem {
    /// A text with the role `user`.
    Text {
        /// The digest of the text.
        text: Digest,
    },
    /// A text of the model.
    Said {
        /// The digest of the text.
        text: Digest,
    },
    /// A call of a tool.
    Called {
        call: String,
        /// Digests of the members of its input.
        input: BTreeMap<String, Digest>,
    },
    /// The result of a tool call.
    Returned {
        call: String,
        /// The digest of its texts.
        text: Digest,
        /// The digest without the reminders that the agent adds, if there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bare: Option<Digest>,
        is_error: bool,
    },
}

/// The content of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelAnswer {
    /// The HTTP status; `None` if no answer began.
    pub status: Option<u16>,
    pub end: ExchangeEnd,
    /// The message, if the answer is one.
    pub message: Option<ServedMessage>,
}

/// How the error begins with which a script that ran out answers.
pub const SCRIPT_EXHAUSTED: &str = "the script is exhausted";
/// How the error begins with which a script answers a request that no turn accepts.
pub const SCRIPT_ACCEPTS_NONE: &str = "no turn of the script accepts this request";
/// How the gateway's own refusals begin.
pub const OWN_REFUSAL: &str = "belljar: ";

/// A message of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedMessage {
    pub id: String,
    /// The stop reason, if the answer contained it.
    pub stop: Option<String>,
    pub blocks: Vec<ServedBlock>,
}

/// A block of the model's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum ServedBlock {
    Text {
        /// The digest of the text.
        text: Digest,
        /// The redacted beginning of the text, at most 256 Ki characters, if the answer ended within it: the agent
        /// may have read less.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open: Option<String>,
    },
    /// Reasoning of the model.
    Thinking {
        /// The digest of the text.
        text: Digest,
    },
    /// A call of a tool.
    ToolUse {
        call: String,
        tool: String,
        /// Digests of the members of its input, each in every form that the agent may give it
        /// ([`crate::input_forms`]).
        input: BTreeMap<String, Vec<Digest>>,
    },
    /// A block of another type, or one that was cut off.
    Other { kind: String },
}

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelExchange {
    /// Milliseconds between the start of the run and the request.
    pub at_ms: u64,
    pub request: ModelRequest,
    /// The answer; `None` if the log does not contain its end.
    pub answer: Option<ModelAnswer>,
}

/// Reads a log. `head` is the chain of its last line.
///
/// # Errors
/// When the log is incomplete or was changed; the text is one line for people.
pub fn read_model_log(text: &str, head: Digest) -> Result<Vec<ModelExchange>, String> {
    let mut chain = EgressChain::START;
    let mut out: Vec<ModelExchange> = Vec::new();
    let mut closed = false;
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let fault = |what: &str| format!("model.jsonl:{}: {what}", at + 1);
        let line = line.strip_suffix('\n').ok_or_else(|| fault("cut off"))?;
        let (row, after) = chain.row(line).ok_or_else(|| fault("was changed: the chain does not match"))?;
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
                    return Err(fault("the number of requests does not match"));
                }
            }
        }
    }
    match (closed, chain.head() == Some(head)) {
        (true, true) => Ok(out),
        (true, false) => Err("model.jsonl is not the file that the run wrote".to_owned()),
        (false, _) => Err("model.jsonl is cut off".to_owned()),
    }
}

#[cfg(test)]
#[path = "model_log_tests.rs"]
mod tests;
