//! Wakes a decider that waits for an answer, when its run ends.

use crate::session::conversation::Stopper;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Becomes readable at the end of the run, and stays so.
#[derive(Debug, Clone)]
pub(super) struct RunEnd(Arc<OwnedFd>);

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// The stream is ready.
    Ready,
    /// The deadline has passed.
    Late,
    /// The run has ended.
    RunEnded,
}

impl RunEnd {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Announces the end of the run.
    pub fn stopper(&self) -> Stopper {
        let own = Arc::clone(&self.0);
        Box::new(move || {
            // It is full only if the end was announced already.
            rustix::io::write(&*own, &1_u64.to_ne_bytes()).ok();
        })
    }

    /// Waits for a stream; without a deadline for as long as the run lasts.
    pub fn wait(
        &self,
        stream: BorrowedFd<'_>,
        wanted: PollFlags,
        deadline: Option<Instant>,
    ) -> io::Result<Woken> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
            let end = self.0.as_fd();
            let mut polled = [PollFd::new(&stream, wanted), PollFd::new(&end, PollFlags::IN)];
            match poll(&mut polled, left.as_ref()) {
                Ok(0) => return Ok(Woken::Late),
                Ok(_) if !polled[1].revents().is_empty() => return Ok(Woken::RunEnded),
                Ok(_) => return Ok(Woken::Ready),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
