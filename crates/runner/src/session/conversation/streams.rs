//! The streams between belljar and the agent. belljar's ends do not block.
//!
//! Each is a socket pair. Any process of the same user can reopen a pipe through `/proc/PID/fd`, so a tool could write
//! frames in the agent's name; a socket cannot be reopened (`ENXIO`).

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The most bytes that are read before other descriptors are served.
const AT_ONCE: usize = 1 << 20;
/// The usual amount of data in a stream. Larger amounts are read in growing pieces.
const PIECE: usize = 8 << 10;

/// Whether belljar reads or writes a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ours {
    Read,
    Write,
}

/// The state of a stream after reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// More may come, or the stream had ended before.
    Open,
    /// It has just ended.
    Ended,
}

/// Opens a stream that carries bytes in one direction; returns belljar's end, which does not block, and the agent's.
pub(super) fn open(ours: Ours) -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (own, agents) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let unused = match ours {
        Ours::Read => Shutdown::Write,
        Ours::Write => Shutdown::Read,
    };
    rustix::net::shutdown(&own, unused)?;
    rustix::fs::fcntl_setfl(&own, rustix::fs::fcntl_getfl(&own)? | OFlags::NONBLOCK)?;
    Ok((own, agents))
}

/// Reads the available bytes; closes the stream if it has ended.
pub(super) fn take(stream: &mut Option<OwnedFd>) -> (Vec<u8>, Taken) {
    let mut bytes = Vec::new();
    while let (Some(open), true) = (&*stream, bytes.len() < AT_ONCE) {
        bytes.reserve(PIECE);
        match rustix::io::read(open, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => {
                *stream = None;
                return (bytes, Taken::Ended);
            }
            // A short read means that the stream is empty.
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

/// Writes as much as the other end accepts now. Returns whether the other end is still open.
pub(super) fn write_some(stream: BorrowedFd<'_>, bytes: &mut VecDeque<u8>) -> bool {
    while !bytes.is_empty() {
        let (front, _) = bytes.as_slices();
        match rustix::net::send(stream, front, SendFlags::NOSIGNAL) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_stream_cannot_be_opened_again_through_proc() {
        for ours in [Ours::Read, Ours::Write] {
            let (own, agents) = open(ours).unwrap();
            for end in [own.as_raw_fd(), agents.as_raw_fd()] {
                let opened = File::options().write(true).open(format!("/proc/self/fd/{end}"));
                assert_eq!(opened.unwrap_err().raw_os_error(), Some(Errno::NXIO.raw_os_error()));
            }
        }
    }

    #[test]
    fn bytes_pass_one_way_and_the_end_is_seen() {
        let (own, agents) = open(Ours::Write).unwrap();
        let mut agents = UnixStream::from(agents);
        let mut unsent: VecDeque<u8> = b"hello".iter().copied().collect();
        assert!(write_some(std::os::fd::AsFd::as_fd(&own), &mut unsent));
        agents.write_all(b"x").unwrap_err();
        drop(own);
        let mut text = String::new();
        agents.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");

        let (own, agents) = open(Ours::Read).unwrap();
        let mut agents = UnixStream::from(agents);
        let mut own = Some(own);
        assert_eq!(take(&mut own), (Vec::new(), Taken::Open));
        agents.write_all(b"frame").unwrap();
        assert_eq!(agents.read(&mut [0; 4]).unwrap(), 0, "nothing comes back");
        drop(agents);
        assert_eq!(take(&mut own).0, b"frame");
        assert_eq!(take(&mut own), (Vec::new(), Taken::Ended));
    }

    #[test]
    fn a_reader_that_left_is_no_signal() {
        let (own, agents) = open(Ours::Write).unwrap();
        drop(agents);
        assert!(!write_some(std::os::fd::AsFd::as_fd(&own), &mut b"x".iter().copied().collect()));
    }
}
