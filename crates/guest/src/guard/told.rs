//! What was held back, on its way to the supervisor.
//!
//! One thread speaks to the supervisor; the others leave word here and never wait for it. Each place and reason is told
//! once, and not more than a few hundred of them: a million equal attempts fill nothing.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use belljar_contract::{GuestAct, GuestReport, OsText};
use belljar_sys::Errno;
use rustix::event::{EventfdFlags, eventfd};
use std::os::unix::ffi::OsStrExt;

/// Places that are told of, in a whole run.
const MOST: usize = 500;

/// A longer path is told of by its beginning: below a directory that is moved there may be any.
const LONGEST: usize = 4096;

/// A path for the supervisor.
pub(super) fn shown(path: &Path) -> OsText {
    let bytes = path.as_os_str().as_bytes();
    OsText::new(bytes.get(..LONGEST).unwrap_or(bytes)).unwrap_or_default()
}

#[derive(Default)]
struct State {
    known: BTreeSet<(PathBuf, GuestAct)>,
    waiting: Vec<GuestReport>,
    /// Those that are not told of one by one.
    more: u64,
    told_more: u64,
}

pub(crate) struct Told {
    state: Mutex<State>,
    bell: OwnedFd,
}

impl Told {
    pub(super) fn new() -> Result<Self, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Told { state: Mutex::default(), bell })
    }

    pub(super) fn held(&self, path: &Path, act: GuestAct, why: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.known.contains(&(path.to_owned(), act)) {
            return;
        }
        if state.known.len() >= MOST {
            state.more += 1;
            return;
        }
        state.known.insert((path.to_owned(), act));
        let path = shown(path);
        state.waiting.push(GuestReport::Held { path, act, why: why.to_owned() });
        self.ring();
    }

    /// Leaves a question, or that it is withdrawn. There is one at a time.
    pub(super) fn say(&self, report: GuestReport) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.push(report);
        self.ring();
    }

    fn ring(&self) {
        // It is full only when nobody has listened to it for very long, and then it is ringing.
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).ok();
    }

    /// Readable while there is something to tell.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Counts something that could not be told of.
    pub(crate) fn untold(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).more += 1;
    }

    /// What there is to tell now.
    pub(crate) fn take(&self) -> Vec<GuestReport> {
        let mut count = [0; 8];
        // Nothing to read means that nothing was left since.
        rustix::io::read(&self.bell, &mut count).ok();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.waiting)
    }

    /// The same at the end, with the number of those that were not told of.
    pub(crate) fn take_last(&self) -> Vec<GuestReport> {
        let mut reports = self.take();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.more > state.told_more {
            state.told_more = state.more;
            reports.push(GuestReport::HeldMore { count: state.more });
        }
        reports
    }
}
