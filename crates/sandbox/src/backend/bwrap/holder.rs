//! A running bubblewrap, which holds the namespaces.

use super::prestart::{Begun, LEAVING, Leaving};
use crate::backend::shared::guest_session::{Holder, SealedGuest};
use crate::backend::{LaunchError, limits};
use belljar_contract::{GuestUsage, LimitKind};
use belljar_sys::cgroup::Leaf;
use belljar_sys::process::{self, OwnedChild};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long bubblewrap may take to end after the guest.
const EXIT_TIME: Duration = Duration::from_millis(200);
/// More than bubblewrap ever writes about an error.
const OUTPUT_LIMIT: u64 = 16 << 10;

/// bubblewrap and the first process of its namespaces. Dropping this ends both and waits for both: the kernel lets go of
/// the sandbox's mounts before the first process counts as ended, bubblewrap reaps that one, and is reaped here.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    /// Known once the sandbox is sealed, for as long as it lives.
    first: Option<FirstProcess>,
    /// Taken only to [abandon](Holder::abandon) it.
    child: Option<OwnedChild>,
    /// The read end of bubblewrap's standard error.
    stderr: Option<File>,
    /// The control group of the limits. Dropped, and so removed, after everything in it has ended.
    leaf: Option<Leaf>,
    /// A sandbox that was started early for another launch than this.
    _unused: Option<Leaving>,
}

impl Bubblewrap {
    /// Takes over a bubblewrap that was started, and returns the socket to the guest with it.
    pub(super) fn new(begun: Begun, unused: Option<Leaving>) -> (Self, OwnedFd) {
        let Begun { bwrap, stderr, control } = begun;
        let holder =
            Self { first: None, child: Some(bwrap), stderr: Some(stderr), leaf: None, _unused: unused };
        (holder, control)
    }
}

impl Holder for Bubblewrap {
    fn confine(&mut self, guest: SealedGuest<'_>) -> Result<(), LaunchError> {
        let SealedGuest { pid, control, launch, run } = guest;
        let Some(child) = &self.child else { return Ok(()) };
        // A guest that waited for long may be gone already, and its number another process's: the number is the guest's while
        // the socket to it is open.
        self.first = process::open(pid).ok().filter(|_| is_open(control)).map(FirstProcess);
        self.leaf = limits::confine(run, &launch.limits, child.pid(), pid)?;
        Ok(())
    }

    fn reached(&self) -> Vec<LimitKind> {
        self.leaf.as_ref().map(|leaf| limits::kinds(&leaf.reached())).unwrap_or_default()
    }

    fn complaint(&mut self) -> LaunchError {
        let mut text = String::new();
        if let Some(said) = self.stderr.take() {
            // It has ended, or is about to: the guest's end of the socket is closed.
            said.take(OUTPUT_LIMIT).read_to_string(&mut text).ok();
        }
        let message = text.trim().trim_start_matches("bwrap: ").to_owned();
        LaunchError::Bubblewrap {
            message: if message.is_empty() { "it ended without output".to_owned() } else { message },
        }
    }

    fn abandon(mut self, control: OwnedFd) {
        if let (Some(bwrap), Some(stderr)) = (self.child.take(), self.stderr.take()) {
            drop(Begun { bwrap, stderr, control }.leave());
        }
    }

    /// The kernel counts the sandbox as a child of this process.
    fn used(&self, _reported: Option<GuestUsage>) -> Option<GuestUsage> {
        None
    }

    fn settle(&self) {
        if let Some(child) = &self.child {
            child.ends_within(EXIT_TIME);
        }
    }
}

impl Drop for Bubblewrap {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        let patience = if self.first.take().is_some() { LEAVING } else { EXIT_TIME };
        // If it were killed before it has reaped the first process, no process would.
        child.ends_within(patience);
    }
}

/// The first process of a namespace, which takes all others with it. Dropping this kills it.
#[derive(Debug)]
struct FirstProcess(OwnedFd);

impl Drop for FirstProcess {
    fn drop(&mut self) {
        // One that has ended already takes no signal.
        process::signal_open(self.0.as_fd(), Signal::KILL).ok();
    }
}

/// Whether the other end of a socket is open.
fn is_open(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|left| left == 0)
}
