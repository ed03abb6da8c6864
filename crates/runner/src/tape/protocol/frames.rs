//! The frames on a tape.

use super::ProtocolError;
use super::again::contains;
use crate::tape::Tape;
use belljar_contract::{Frame, FrameError, FrameWay};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::io;

/// A line of the record of a conversation.
pub(in crate::tape) struct Line {
    pub offset_ms: u64,
    pub said: Said,
}

/// A frame, read once for the machine and for the comparison with the exchanges.
#[expect(
    clippy::large_enum_variant,
    reason = "most values are frames of the agent; a box would cost an allocation for each"
)]
pub(in crate::tape) enum Said {
    /// By the agent.
    Agent(Result<Frame, FrameError>),
    /// By belljar.
    Belljar(Value),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLine {
    offset_ms: u64,
    way: FrameWay,
    frame: Value,
}

impl From<WrittenLine> for Line {
    fn from(WrittenLine { offset_ms, way, frame }: WrittenLine) -> Self {
        let said = match way {
            FrameWay::In => Said::Agent(Frame::from_value(frame)),
            FrameWay::Out => Said::Belljar(frame),
        };
        Self { offset_ms, said }
    }
}

/// The line of the first frame in which the agent repeats a message or an answer otherwise than it was sent.
pub(super) fn misquoted(lines: &[Line]) -> Option<usize> {
    let quoted = [("/response/request_id", "/response/response"), ("/uuid", "/message/content")];
    // By the place and the text of the id; the first frame with it counts.
    let mut sent: HashMap<(&str, String), &Value> = HashMap::new();
    for line in lines {
        let Said::Belljar(frame) = &line.said else { continue };
        for (at, _) in quoted {
            if let Some(id) = frame.pointer(at) {
                sent.entry((at, id.to_string())).or_insert(frame);
            }
        }
    }
    let differs = |line: &Line| {
        let Said::Agent(Ok(frame)) = &line.said else { return false };
        quoted.into_iter().any(|(at, content)| {
            let original = frame.raw.pointer(at).and_then(|id| sent.get(&(at, id.to_string())));
            original.and_then(|original| original.pointer(content)).is_some_and(|original| {
                frame.raw.pointer(content).is_none_or(|quoted| !contains(quoted, original))
            })
        })
    };
    lines.iter().position(differs).map(|at| at + 1)
}

/// The frames as they stand on the tape.
pub(super) fn frames(tape: &Tape) -> Result<Vec<Line>, ProtocolError> {
    let bytes = match tape.read("frames.jsonl") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ProtocolError::Missing { what: "frames" });
        }
        bytes => bytes.map_err(ProtocolError::Frames)?,
    };
    let text = std::str::from_utf8(&bytes).map_err(|error| ProtocolError::Frames(io::Error::other(error)))?;
    let mut out = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line: WrittenLine = serde_json::from_str(line)
            .map_err(|error| ProtocolError::Line { line: number + 1, why: error.to_string() })?;
        out.push(Line::from(line));
    }
    if out.is_empty() { Err(ProtocolError::Missing { what: "frames" }) } else { Ok(out) }
}
