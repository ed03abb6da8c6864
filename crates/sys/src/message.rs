//! Framed messages with descriptors over a unix stream socket, bounded on both sides.
//!
//! A frame is four bytes of length (big endian) and as many bytes of body. Descriptors travel with the first
//! byte of the frame.

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::fds::wait;
use rustix::event::PollFlags;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::Pid;

/// The most descriptors one frame can carry.
pub const MAX_DESCRIPTORS: usize = 128;

const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1));
const HEADER: usize = 4;

/// Why a frame was not sent or received.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The frame is longer than the receiver accepts.
    #[error("a message of {length} bytes is longer than the limit of {limit}")]
    TooLong {
        /// The announced length.
        length: usize,
        /// The limit of the receiver.
        limit: usize,
    },
    /// More descriptors than agreed.
    #[error("a message carries more than {limit} descriptors")]
    TooManyDescriptors {
        /// The limit of the receiver.
        limit: usize,
    },
    /// This process may not open as many files as came.
    #[error("the limit of open files is too low for the descriptors of a message")]
    OpenFiles,
    /// The other side closed between frames.
    #[error("the other side closed the socket")]
    Closed,
    /// The other side closed inside a frame.
    #[error("the other side closed the socket in the middle of a message")]
    CutOff,
    /// The frame did not come in time.
    #[error("no message came in time")]
    TimedOut,
    /// Sending on the socket failed.
    #[error("cannot send a message")]
    Send(#[source] Errno),
    /// Receiving from the socket failed.
    #[error("cannot receive a message")]
    Receive(#[source] Errno),
}

/// A frame as received.
#[derive(Debug)]
pub struct Received {
    /// The body.
    pub body: Vec<u8>,
    /// The descriptors that came with it, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    /// The sender as the kernel reports it; known once [`ask_for_senders`] was called.
    pub sender: Option<Pid>,
}

/// The limits of a receiver.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The longest body.
    pub bytes: usize,
    /// The most descriptors, at most [`MAX_DESCRIPTORS`].
    pub descriptors: usize,
    /// How long the whole frame may take; `None` waits for as long as the other side lives.
    pub within: Option<Duration>,
}

/// Makes the kernel report the sending process of each message that is received at this end.
///
/// # Errors
/// Fails if it is not a unix socket.
pub fn ask_for_senders(socket: BorrowedFd<'_>) -> Result<(), MessageError> {
    rustix::net::sockopt::set_socket_passcred(socket, true).map_err(MessageError::Receive)
}

/// Sends one frame.
///
/// # Errors
/// Fails if the other side is gone or the message carries too many descriptors.
pub fn send(socket: BorrowedFd<'_>, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), MessageError> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(MessageError::TooManyDescriptors { limit: MAX_DESCRIPTORS });
    }
    let limit = u32::MAX as usize;
    let length =
        u32::try_from(body.len()).map_err(|_too_long| MessageError::TooLong { length: body.len(), limit })?;
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(body);
    let mut rest = frame.as_slice();
    let mut attached = descriptors;
    while !rest.is_empty() {
        match send_some(socket, rest, attached) {
            Ok(sent) => {
                rest = rest.get(sent..).unwrap_or_default();
                attached = &[];
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, None).map_err(MessageError::Send)?,
            Err(cause) => return Err(MessageError::Send(cause)),
        }
    }
    Ok(())
}

fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
}

/// Receives one frame. Memory grows with the bytes that arrive, not with the length that was announced.
///
/// # Errors
/// Fails if the frame breaks `bounds`, the other side closes, or time runs out.
pub fn receive(socket: BorrowedFd<'_>, bounds: Bounds) -> Result<Received, MessageError> {
    let mut reader = Reader {
        socket,
        until: bounds.within.map(|within| Instant::now() + within),
        bounds,
        taken: Vec::new(),
        sender: None,
    };
    let mut header = [0; HEADER];
    reader.fill(&mut header, MessageError::Closed)?;
    let length = u32::from_be_bytes(header) as usize;
    if length > bounds.bytes {
        return Err(MessageError::TooLong { length, limit: bounds.bytes });
    }
    let mut body = Vec::new();
    let mut chunk = [0; 16 * 1024];
    while body.len() < length {
        let want = (length - body.len()).min(chunk.len());
        let part = chunk.get_mut(..want).unwrap_or_default();
        reader.fill(part, MessageError::CutOff)?;
        body.extend_from_slice(part);
    }
    Ok(Received { body, descriptors: reader.taken, sender: reader.sender })
}

struct Reader<'socket> {
    socket: BorrowedFd<'socket>,
    until: Option<Instant>,
    bounds: Bounds,
    taken: Vec<OwnedFd>,
    sender: Option<Pid>,
}

impl Reader<'_> {
    fn fill(&mut self, part: &mut [u8], if_closed_first: MessageError) -> Result<(), MessageError> {
        let mut filled = 0;
        while filled < part.len() {
            match self.some(part.get_mut(filled..).unwrap_or_default())? {
                0 if filled == 0 => return Err(if_closed_first),
                0 => return Err(MessageError::CutOff),
                count => filled += count,
            }
        }
        Ok(())
    }

    fn some(&mut self, part: &mut [u8]) -> Result<usize, MessageError> {
        loop {
            if self.until.is_some() {
                wait(self.socket, PollFlags::IN, self.until).map_err(|cause| match cause {
                    Errno::TIMEDOUT => MessageError::TimedOut,
                    cause => MessageError::Receive(cause),
                })?;
            }
            match self.once(part) {
                Err(MessageError::Receive(Errno::INTR)) => {}
                Err(MessageError::Receive(Errno::AGAIN)) => {
                    wait(self.socket, PollFlags::IN, self.until).map_err(MessageError::Receive)?;
                }
                answer => return answer,
            }
        }
    }

    fn once(&mut self, part: &mut [u8]) -> Result<usize, MessageError> {
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(part)];
        let answer = rustix::net::recvmsg(self.socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
            .map_err(MessageError::Receive)?;
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(descriptors) => self.taken.extend(descriptors),
                RecvAncillaryMessage::ScmCredentials(sender) => self.sender = Some(sender.pid),
                // Not asked for by any option of the socket.
                _ => {}
            }
        }
        let cut = answer.flags.contains(ReturnFlags::CTRUNC);
        // The kernel cuts the list short for want of room here, or where this process may open no more files.
        if cut && self.taken.len() < MAX_DESCRIPTORS {
            return Err(MessageError::OpenFiles);
        }
        if cut || self.taken.len() > self.bounds.descriptors {
            return Err(MessageError::TooManyDescriptors { limit: self.bounds.descriptors });
        }
        Ok(answer.bytes)
    }
}
