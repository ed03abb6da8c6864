//! Bytes both ways between the streams and a socket, in one thread.
//!
//! Readiness decides every step, so neither direction can block the other. Standard output may be shared with other
//! programs and is left blocking; a pipe that is ready takes at least 4096 bytes without blocking, so no write is
//! longer than that.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

const PIECE: usize = 4096;

/// One direction of the tunnel.
struct Flow {
    pending: Vec<u8>,
    ended: bool,
}

impl Flow {
    fn wants_input(&self) -> bool {
        self.pending.is_empty() && !self.ended
    }

    fn is_done(&self) -> bool {
        self.pending.is_empty() && self.ended
    }

    fn fill(&mut self, from: BorrowedFd<'_>) -> io::Result<()> {
        let mut piece = [0; PIECE];
        match rustix::io::read(from, &mut piece) {
            Ok(0) | Err(Errno::CONNRESET | Errno::IO) => self.ended = true,
            Ok(count) => self.pending.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(cause) => return Err(cause.into()),
        }
        Ok(())
    }

    fn drain(&mut self, write: impl FnOnce(&[u8]) -> Result<usize, Errno>) -> io::Result<()> {
        let piece = self.pending.get(..PIECE.min(self.pending.len())).unwrap_or_default();
        match write(piece) {
            Ok(count) => drop(self.pending.drain(..count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(cause) => return Err(cause.into()),
        }
        Ok(())
    }
}

/// Moves bytes until the socket's other end closes. The end of standard input closes our half of the socket.
pub(super) fn run(socket: &TcpStream, received: Vec<u8>) -> io::Result<()> {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let mut upload = Flow { pending: Vec::new(), ended: false };
    let mut download = Flow { pending: received, ended: false };
    let mut half_closed = false;
    while !download.is_done() {
        if upload.is_done() && !half_closed {
            socket.shutdown(Shutdown::Write)?;
            half_closed = true;
        }
        let flags = |wanted: bool, flags| if wanted { flags } else { PollFlags::empty() };
        let to_socket = flags(!upload.pending.is_empty(), PollFlags::OUT);
        let from_socket = flags(download.wants_input(), PollFlags::IN);
        let mut polled = vec![PollFd::from_borrowed_fd(socket.as_fd(), to_socket | from_socket)];
        // A descriptor that is not waited for is left out: its hang-up would wake the loop for nothing.
        let reading = upload.wants_input();
        let writing = !download.pending.is_empty();
        polled.extend(reading.then(|| PollFd::from_borrowed_fd(input, PollFlags::IN)));
        polled.extend(writing.then(|| PollFd::from_borrowed_fd(output, PollFlags::OUT)));
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
        let mut ready = polled.iter().map(PollFd::revents);
        let on_socket = ready.next().unwrap_or(PollFlags::empty());
        let on_input = if reading { ready.next() } else { None };
        let on_output = if writing { ready.next() } else { None };
        let hung_up = PollFlags::HUP | PollFlags::ERR;
        if download.wants_input() && on_socket.intersects(PollFlags::IN | hung_up) {
            download.fill(socket.as_fd())?;
        }
        if !upload.pending.is_empty() && on_socket.intersects(PollFlags::OUT | hung_up) {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            upload.drain(|piece| rustix::net::send(socket, piece, flags))?;
        }
        if on_input.is_some_and(|ready| !ready.is_empty()) {
            upload.fill(input)?;
        }
        if on_output.is_some_and(|ready| !ready.is_empty()) {
            download.drain(|piece| rustix::io::write(output, piece))?;
        }
    }
    Ok(())
}
