//! Finds the end of a request's body. The parser is strict, so that no server behind it can see another end.

use super::head::Framing;
use std::ops::Range;

/// Longest line with a chunk's size.
const LINE_LIMIT: usize = 256;
const TRAILER_LIMIT: usize = 8 * 1024;

/// The chunks of a body are malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body's chunks are malformed")]
pub struct ChunkError;

/// A request body that is being read.
#[derive(Debug)]
pub enum RequestBody {
    /// This many bytes are still missing.
    Length(u64),
    /// A chunked body.
    Chunks(Chunks),
}

/// How much of the input was used, and which part of it is content.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    pub used: usize,
    pub content: Range<usize>,
}

impl RequestBody {
    /// Starts reading the body that a head announces.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Nothing => Self::Length(0),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => {
                Self::Chunks(Chunks { state: ChunkState::Size { value: None }, line: 0, trailers: 0 })
            }
        }
    }

    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunks(chunks) => chunks.state == ChunkState::Done,
        }
    }

    /// Reads from `input`. Uses at least one byte of a non-empty input, unless the body has ended.
    ///
    /// # Errors
    /// When the chunks are malformed.
    pub fn take(&mut self, input: &[u8]) -> Result<Taken, ChunkError> {
        match self {
            Self::Length(left) => {
                let used = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= used as u64;
                Ok(Taken { used, content: 0..used })
            }
            Self::Chunks(chunks) => chunks.take(input),
        }
    }
}

/// The state of a chunked body.
#[derive(Debug)]
pub struct Chunks {
    state: ChunkState,
    line: usize,
    trailers: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// The digits of a chunk's size; `None` before the first digit.
    Size {
        value: Option<u64>,
    },
    /// Chunk extensions, up to the end of the line.
    Extension {
        size: u64,
    },
    SizeEnd {
        size: u64,
    },
    Content {
        left: u64,
    },
    ContentCr,
    ContentLf,
    /// The start of a line after the last chunk.
    TrailerStart,
    Trailer,
    TrailerEnd,
    LastLf,
    Done,
}

impl Chunks {
    /// Reads up to the end of one run of content bytes.
    fn take(&mut self, input: &[u8]) -> Result<Taken, ChunkError> {
        let mut used = 0;
        while let Some(byte) = input.get(used) {
            match self.state {
                ChunkState::Done => break,
                ChunkState::Content { left } => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - used);
                    let left = left - length as u64;
                    self.state = if left == 0 { ChunkState::ContentCr } else { ChunkState::Content { left } };
                    return Ok(Taken { used: used + length, content: used..used + length });
                }
                state @ (ChunkState::Size { .. }
                | ChunkState::Extension { .. }
                | ChunkState::SizeEnd { .. }
                | ChunkState::ContentCr
                | ChunkState::ContentLf
                | ChunkState::TrailerStart
                | ChunkState::Trailer
                | ChunkState::TrailerEnd
                | ChunkState::LastLf) => self.state = self.step(state, *byte)?,
            }
            used += 1;
        }
        Ok(Taken { used, content: 0..0 })
    }

    fn step(&mut self, state: ChunkState, byte: u8) -> Result<ChunkState, ChunkError> {
        match state {
            ChunkState::Size { .. } | ChunkState::Extension { .. } => self.line += 1,
            ChunkState::TrailerStart | ChunkState::Trailer => self.trailers += 1,
            ChunkState::SizeEnd { .. }
            | ChunkState::Content { .. }
            | ChunkState::ContentCr
            | ChunkState::ContentLf
            | ChunkState::TrailerEnd
            | ChunkState::LastLf
            | ChunkState::Done => self.line = 0,
        }
        if self.line > LINE_LIMIT || self.trailers > TRAILER_LIMIT {
            return Err(ChunkError);
        }
        match (state, byte) {
            (ChunkState::Size { value }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let value = value.unwrap_or(0).checked_mul(16).ok_or(ChunkError)?;
                Ok(ChunkState::Size { value: Some(value | digit) })
            }
            (ChunkState::Size { value: Some(size) }, b'\r') | (ChunkState::Extension { size }, b'\r') => {
                Ok(ChunkState::SizeEnd { size })
            }
            (ChunkState::Size { value: Some(size) }, b';') => Ok(ChunkState::Extension { size }),
            (ChunkState::Extension { size }, b' '..=b'~' | b'\t') => Ok(ChunkState::Extension { size }),
            (ChunkState::SizeEnd { size: 0 }, b'\n') => Ok(ChunkState::TrailerStart),
            (ChunkState::SizeEnd { size }, b'\n') => Ok(ChunkState::Content { left: size }),
            (ChunkState::ContentCr, b'\r') => Ok(ChunkState::ContentLf),
            (ChunkState::ContentLf, b'\n') => Ok(ChunkState::Size { value: None }),
            (ChunkState::TrailerStart, b'\r') => Ok(ChunkState::LastLf),
            (ChunkState::TrailerStart | ChunkState::Trailer, b'!'..=b'~')
            | (ChunkState::Trailer, b' ' | b'\t' | 0x80..) => Ok(ChunkState::Trailer),
            (ChunkState::Trailer, b'\r') => Ok(ChunkState::TrailerEnd),
            (ChunkState::TrailerEnd, b'\n') => Ok(ChunkState::TrailerStart),
            (ChunkState::LastLf, b'\n') => Ok(ChunkState::Done),
            (
                ChunkState::Size { .. }
                | ChunkState::Extension { .. }
                | ChunkState::SizeEnd { .. }
                | ChunkState::Content { .. }
                | ChunkState::ContentCr
                | ChunkState::ContentLf
                | ChunkState::TrailerStart
                | ChunkState::Trailer
                | ChunkState::TrailerEnd
                | ChunkState::LastLf
                | ChunkState::Done,
                _,
            ) => Err(ChunkError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content, and the input that is left after the end; fed in pieces of this size.
    fn read(framing: Framing, mut input: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>), ChunkError> {
        let mut body = RequestBody::new(framing);
        let mut content = Vec::new();
        while !body.is_done() && !input.is_empty() {
            let taken = body.take(&input[..piece.min(input.len())])?;
            assert!(taken.used > 0);
            content.extend_from_slice(&input[taken.content]);
            input = &input[taken.used..];
        }
        if body.is_done() { Ok((content, input.to_vec())) } else { Err(ChunkError) }
    }

    #[test]
    fn bodies_end_where_they_say() {
        for piece in [1, 2, 3, 100] {
            let read = |framing, input: &[u8]| read(framing, input, piece).unwrap();
            assert_eq!(read(Framing::Nothing, b"next"), (b"".to_vec(), b"next".to_vec()));
            assert_eq!(read(Framing::Length(3), b"abcnext"), (b"abc".to_vec(), b"next".to_vec()));
            let chunks = b"3\r\nabc\r\n0A;x=\"y\"\r\n0123456789\r\n0\r\nX: y\r\n\r\nnext";
            assert_eq!(read(Framing::Chunked, chunks), (b"abc0123456789".to_vec(), b"next".to_vec()));
        }
    }

    #[test]
    fn ambiguous_chunks_are_malformed() {
        let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(300));
        let trailers = format!("0\r\n{}\r\n", "X: y\r\n".repeat(2000));
        for bytes in [
            &b"3\nabc\r\n0\r\n\r\n"[..],
            b"3\r\nabc\n0\r\n\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"3 \r\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"-3\r\nabc\r\n0\r\n\r\n",
            b"\r\n\r\n",
            b";x\r\n\r\n",
            b"3;x\ny\r\nabc\r\n0\r\n\r\n",
            b"3\r\r\nabc\r\n0\r\n\r\n",
            b"10000000000000000\r\n",
            b"0\r\n folded\r\n\r\n",
            b"0\r\nX: \0\r\n\r\n",
            b"0\r\n\n",
            long.as_bytes(),
            trailers.as_bytes(),
        ] {
            assert_eq!(
                read(Framing::Chunked, bytes, 100),
                Err(ChunkError),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn fuzz_chunks() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            assert_eq!(read(Framing::Chunked, bytes, 1).is_ok(), read(Framing::Chunked, bytes, 1000).is_ok());
        });
    }
}
