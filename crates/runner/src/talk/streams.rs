//! Pipes between belljar and the agent, none of which belljar waits for.

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};

/// As much as is read before other things get their turn.
const AT_ONCE: usize = 1 << 20;
/// As much as a pipe has at a time, as a rule. What has more is read in pieces that grow.
const PIECE: usize = 8 << 10;

/// Which end of a pipe is belljar's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ours {
    Read,
    Write,
}

/// What became of a stream that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// More may come, or it had ended before.
    Open,
    /// It has just ended.
    Ended,
}

/// A pipe: the end to read from, the end to write to. belljar's own end does not wait.
pub(super) fn pipe(ours: Ours) -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let own = match ours {
        Ours::Read => &read,
        Ours::Write => &write,
    };
    rustix::fs::fcntl_setfl(own, rustix::fs::fcntl_getfl(own)? | OFlags::NONBLOCK)?;
    Ok((read, write))
}

/// What there is to read; the stream is gone when it has ended.
pub(super) fn take(stream: &mut Option<OwnedFd>) -> (Vec<u8>, Taken) {
    let mut bytes = Vec::new();
    while let (Some(open), true) = (&*stream, bytes.len() < AT_ONCE) {
        bytes.reserve(PIECE);
        match rustix::io::read(open, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => {
                *stream = None;
                return (bytes, Taken::Ended);
            }
            // A pipe that gave less than it was asked for is empty.
            Ok(count) if count < PIECE => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => {
                *stream = None;
                return (bytes, Taken::Ended);
            }
        }
    }
    (bytes, Taken::Open)
}

/// Writes what the other side takes now. Whether there still is another side.
pub(super) fn write_some(stream: BorrowedFd<'_>, bytes: &mut VecDeque<u8>) -> bool {
    while !bytes.is_empty() {
        let (front, _) = bytes.as_slices();
        match rustix::io::write(stream, front) {
            Ok(count) => {
                bytes.drain(..count);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
    true
}
