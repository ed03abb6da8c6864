//! Decodes the agent's output into frames, and encodes frames for its input.
//!
//! Nothing is dropped silently: a line that is not a frame becomes an item of its own, as evidence.

use belljar_contract::{Frame, Outbound};

/// A line longer than this is not kept. Tools return images and files in one line, so it is generous.
const LONGEST_LINE: usize = 64 * 1024 * 1024;

/// Bytes that are kept of a line that is too long.
const KEPT_OF_OVERSIZED: usize = 1024;

/// Reads the agent's output.
#[derive(Debug)]
pub struct Decoder {
    longest: usize,
    line: Vec<u8>,
    /// Bytes of the line so far, once it is too long to be kept.
    skipped: Option<u64>,
}

/// One line of the agent's output.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Frame(Box<Frame>),
    /// A line that is not a frame.
    Noise {
        /// The line without its end, as it came.
        line: Vec<u8>,
        /// Why it is not a frame.
        why: String,
    },
    /// A line that was too long to be kept.
    Oversized {
        /// The first bytes of the line.
        head: Vec<u8>,
        /// Length of the whole line.
        bytes: u64,
    },
    /// The text after the last newline when the output ended. The agent ends every line, so this one was cut off and does
    /// not count as a frame even if it parses as one.
    CutOff {
        /// The bytes of the unfinished line.
        line: Vec<u8>,
    },
}

impl Default for Decoder {
    fn default() -> Self {
        Self::with_longest(LONGEST_LINE)
    }
}

impl Decoder {
    /// Creates a decoder that keeps lines up to this many bytes.
    #[must_use]
    pub fn with_longest(longest: usize) -> Self {
        Self { longest, line: Vec::new(), skipped: None }
    }

    /// Decodes the next bytes of the output, in pieces of any size.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        let mut pieces = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            self.extend(piece);
            if pieces.peek().is_some() {
                items.extend(self.end_line());
            }
        }
        items
    }

    /// Ends the output, and returns the unfinished line if there is one.
    #[must_use]
    pub fn finish(mut self) -> Option<Item> {
        if self.skipped.is_some() {
            return self.end_line();
        }
        (!self.line.is_empty()).then_some(Item::CutOff { line: self.line })
    }

    fn extend(&mut self, piece: &[u8]) {
        if let Some(skipped) = &mut self.skipped {
            *skipped += piece.len() as u64;
        } else if self.line.len() + piece.len() > self.longest {
            self.skipped = Some((self.line.len() + piece.len()) as u64);
            let room = KEPT_OF_OVERSIZED.saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(room));
            self.line.truncate(KEPT_OF_OVERSIZED);
            self.line.shrink_to_fit();
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn end_line(&mut self) -> Option<Item> {
        let mut line = std::mem::take(&mut self.line);
        if let Some(bytes) = self.skipped.take() {
            return Some(Item::Oversized { head: line, bytes });
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.is_empty() {
            return None;
        }
        let read = match std::str::from_utf8(&line) {
            Ok(text) => Frame::parse(text).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        Some(match read {
            Ok(frame) => Item::Frame(Box::new(frame)),
            Err(why) => Item::Noise { line, why },
        })
    }
}

/// The frame as a line with its newline. The agent exits on a line that is not JSON, and trusts every line that is.
#[must_use]
pub fn encode(frame: &Outbound) -> Vec<u8> {
    let mut line = frame.to_json().to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
