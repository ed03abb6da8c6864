//! What the frames of a conversation claim, read from its record.

use crate::{AgentRequest, Block, CallId, Digest, Frame, Inbound, TaskStep, input_digests, text_digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The model name in messages that the agent wrote itself.
pub const SYNTHETIC_MODEL: &str = "<synthetic>";

/// A frame that claims something about the model or its tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameSeen {
    /// Its line in the record, from 1.
    pub line: u64,
    /// Milliseconds since the start of the run.
    pub offset_ms: u64,
    /// The session id in the frame.
    pub session: Option<String>,
    pub claim: FrameClaim,
}

/// The content of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameClaim {
    /// belljar sent a message.
    Sent {
        /// The digest of the text.
        text: Digest,
        /// Whether it begins with a slash, in which case the agent may replace it with other text.
        is_command: bool,
    },
    /// belljar asked the agent to stop the turn.
    Interrupted,
    /// A message of the model.
    Spoken {
        /// The call of the sub-agent that speaks.
        parent: Option<CallId>,
        /// The id of the model's message.
        message: Option<String>,
        /// Whether the agent wrote it itself.
        is_synthetic: bool,
        /// The stop reason, if the frame has one.
        stop: Option<String>,
        blocks: Vec<ClaimedBlock>,
    },
    /// A message with the role `user`.
    User {
        /// The call of the sub-agent that it is for.
        parent: Option<CallId>,
        /// The results of tool calls.
        results: Vec<ClaimedResult>,
    },
    Ended {
        text: Option<Digest>,
        has_text: bool,
        is_error: bool,
        /// Whether it is a failure of the model's service, which the agent reports as a success.
        is_of_service: bool,
        /// The stop reason of the last message.
        stop: Option<String>,
        /// The number of model requests.
        turns: Option<u64>,
        /// The HTTP status of the model's service, if that failed.
        status: Option<u64>,
    },
    /// The frame refers to a call: a question about it, a task that it started, a refusal.
    About { call: CallId },
    /// The conversation was compacted.
    Compacted,
}

/// A block of a message in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimedBlock {
    Text {
        digest: Digest,
        /// The text itself, to compare with a message that was cut off.
        text: String,
    },
    Thinking(Digest),
    /// A call of a tool.
    ToolUse {
        call: CallId,
        tool: String,
        /// Digests of the members of its input.
        input: BTreeMap<String, Digest>,
        /// The host of the URL, if the tool fetches one.
        host: Option<String>,
    },
    /// A block of another type.
    Other,
}

/// The result of a tool call in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedResult {
    pub call: CallId,
    /// The digest of its texts.
    pub text: Digest,
    pub is_error: bool,
}

/// The direction of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameWay {
    /// From the agent.
    In,
    /// From belljar.
    Out,
}

/// A line of the record.
#[derive(Deserialize)]
struct Line {
    offset_ms: u64,
    way: FrameWay,
    frame: Value,
}

/// The chain value after a line; `line` includes its newline.
#[must_use]
pub fn frames_chain(previous: Option<Digest>, line: &[u8]) -> Digest {
    let previous = previous.map_or([0; 32], Digest::into_bytes);
    Digest::of_parts(&[&previous, line])
}

/// Reads the record of a conversation. `head` is the chain value of its last line.
///
/// # Errors
/// When the record was changed or cannot be parsed; the text is one line for people.
pub fn read_frames(text: &str, head: Digest) -> Result<Vec<FrameSeen>, String> {
    let chain =
        text.split_inclusive('\n').fold(None, |chain, line| Some(frames_chain(chain, line.as_bytes())));
    let mut out = Vec::new();
    for (line, number) in text.split_inclusive('\n').zip(1..) {
        let Line { offset_ms, way, frame } =
            serde_json::from_str(line).map_err(|error| format!("frames.jsonl:{number}: {error}"))?;
        let session = session_of(&frame);
        let claim = match way {
            // A line that is not a frame was recorded as a flaw when it arrived.
            FrameWay::In => Frame::from_value(frame).ok().and_then(|frame| claim_of_agent(&frame)),
            FrameWay::Out => claim_of_belljar(&frame),
        };
        out.extend(claim.map(|claim| FrameSeen { line: number, offset_ms, session, claim }));
    }
    if chain == Some(head) {
        Ok(out)
    } else {
        Err("frames.jsonl is not the file that the run wrote".to_owned())
    }
}

/// The session that a frame names.
#[must_use]
pub fn session_of(frame: &Value) -> Option<String> {
    frame.get("session_id").and_then(Value::as_str).map(str::to_owned)
}

/// The claim of a frame that belljar sent; `None` if it claims nothing.
#[must_use]
pub fn claim_of_belljar(frame: &Value) -> Option<FrameClaim> {
    match frame["type"].as_str()? {
        "user" => {
            let text = frame["message"]["content"].as_str()?;
            Some(FrameClaim::Sent { text: text_digest(text), is_command: text.trim_start().starts_with('/') })
        }
        "control_request" => (frame["request"]["subtype"] == "interrupt").then_some(FrameClaim::Interrupted),
        "control_response" => {
            (frame["response"]["response"]["interrupt"] == true).then_some(FrameClaim::Interrupted)
        }
        _ => None,
    }
}

/// The claim of a frame that the agent sent; `None` if it claims nothing.
#[must_use]
pub fn claim_of_agent(Frame { raw, body }: &Frame) -> Option<FrameClaim> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match body {
        Inbound::Assistant(frame) => Some(FrameClaim::Spoken {
            parent: frame.parent.clone(),
            message: text(&raw["message"]["id"]),
            is_synthetic: frame.model.as_deref() == Some(SYNTHETIC_MODEL),
            stop: text(&raw["message"]["stop_reason"]),
            blocks: frame.blocks.iter().map(claimed).collect(),
        }),
        Inbound::User(frame) if frame.is_replay => None,
        Inbound::User(frame) => {
            let results = frame.blocks.iter().filter_map(|block| match block {
                Block::ToolResult { call, text, is_error } => {
                    Some(ClaimedResult { call: call.clone(), text: text_digest(text), is_error: *is_error })
                }
                Block::Text(_) | Block::Thinking(_) | Block::ToolUse { .. } | Block::Other { .. } => None,
            });
            Some(FrameClaim::User { parent: frame.parent.clone(), results: results.collect() })
        }
        Inbound::Result(frame) => Some(FrameClaim::Ended {
            has_text: frame.text.as_deref().is_some_and(|text| !text.trim().is_empty()),
            text: frame.text.as_deref().map(text_digest),
            is_error: frame.is_error,
            is_of_service: frame.is_error && frame.subtype == "success",
            stop: text(&raw["stop_reason"]),
            turns: frame.turns,
            status: frame.api_error_status,
        }),
        Inbound::Task(task) => match task.step {
            TaskStep::Started { .. } => about(task.call.as_ref()),
            TaskStep::Progressed | TaskStep::Notified { .. } => None,
        },
        Inbound::Refused { call, .. } => about(call.as_ref()),
        Inbound::Request { request: AgentRequest::CanUseTool(request), .. } => about(request.call.as_ref()),
        Inbound::Compacted => Some(FrameClaim::Compacted),
        Inbound::Init(_)
        | Inbound::State(_)
        | Inbound::Hook { .. }
        | Inbound::Retry { .. }
        | Inbound::System { .. }
        | Inbound::StreamEvent
        | Inbound::Request { .. }
        | Inbound::Response(_)
        | Inbound::Cancel { .. }
        | Inbound::KeepAlive
        | Inbound::RateLimit
        | Inbound::MessageState
        | Inbound::Unknown { .. }
        | Inbound::Malformed { .. } => None,
    }
}

fn about(call: Option<&CallId>) -> Option<FrameClaim> {
    call.map(|call| FrameClaim::About { call: call.clone() })
}

fn claimed(block: &Block) -> ClaimedBlock {
    match block {
        Block::Text(text) => ClaimedBlock::Text { digest: text_digest(text), text: text.clone() },
        Block::Thinking(text) => ClaimedBlock::Thinking(text_digest(text)),
        Block::ToolUse { call, tool, input } => {
            let url = input.get("url").filter(|_| tool == "WebFetch").and_then(Value::as_str);
            ClaimedBlock::ToolUse {
                call: call.clone(),
                tool: tool.clone(),
                input: input_digests(input),
                host: url.and_then(host_of),
            }
        }
        Block::ToolResult { .. } | Block::Other { .. } => ClaimedBlock::Other,
    }
}

/// The host of a URL, in lower case.
fn host_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(host, |(host, _)| host);
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(way: &str) -> Result<Vec<FrameSeen>, String> {
        let frame = r#"{"type":"control_request","request":{"subtype":"interrupt"}}"#;
        let line = format!("{{\"offset_ms\":1,\"way\":\"{way}\",\"frame\":{frame}}}\n");
        read_frames(&line, frames_chain(None, line.as_bytes()))
    }

    #[test]
    fn an_unknown_direction_is_an_error() {
        assert_eq!(read("out").unwrap()[0].claim, FrameClaim::Interrupted);
        let error = read("sideways").unwrap_err();
        assert!(error.starts_with("frames.jsonl:1: unknown variant `sideways`"), "{error}");
    }
}
