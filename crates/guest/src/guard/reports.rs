//! Reports to the supervisor about calls that were held back.
//!
//! One thread sends to the supervisor; the others queue reports here and never wait for it. Each path, act and reason
//! is reported once, at most [`MOST_OF_ONE`] for a path and [`MOST`] in a run: a million attempts cannot fill the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use belljar_contract::{GuestAct, GuestReport, OsText};
use belljar_sys::Errno;
use rustix::event::{EventfdFlags, eventfd};
use std::os::unix::ffi::OsStrExt;

/// The most attempts that are reported one by one in a run; the rest are counted.
const MOST: usize = 500;

/// The most that are reported of one path, so that the reasons of one file leave room for other files.
const MOST_OF_ONE: usize = 50;

/// A longer path is cut: below a moved directory a path may have any length.
const LONGEST: usize = 4096;

/// A path as the supervisor gets it, cut at [`LONGEST`].
pub(super) fn shown(path: &Path) -> OsText {
    let bytes = path.as_os_str().as_bytes();
    OsText::new(bytes.get(..LONGEST).unwrap_or(bytes)).unwrap_or_default()
}

#[derive(Default)]
struct State {
    known: BTreeMap<PathBuf, BTreeSet<(GuestAct, String)>>,
    /// How many `known` has of all paths.
    reported: usize,
    waiting: Vec<GuestReport>,
    /// How many were counted instead of reported one by one.
    more: u64,
    /// The value of `more` in the last report of it.
    reported_more: u64,
}

pub(crate) struct Reports {
    state: Mutex<State>,
    bell: OwnedFd,
}

impl Reports {
    pub(super) fn new() -> Result<Self, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Reports { state: Mutex::default(), bell })
    }

    pub(super) fn held(&self, path: &Path, act: GuestAct, why: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = (act, why.to_owned());
        let of_path = state.known.get(path);
        if of_path.is_some_and(|known| known.contains(&attempt)) {
            return;
        }
        if state.reported >= MOST || of_path.is_some_and(|known| known.len() >= MOST_OF_ONE) {
            state.more += 1;
            return;
        }
        state.known.entry(path.to_owned()).or_default().insert(attempt);
        state.reported += 1;
        let path = shown(path);
        state.waiting.push(GuestReport::Held { path, act, why: why.to_owned() });
        self.ring();
    }

    /// Queues a question, or its withdrawal. Only one question is open at a time.
    pub(super) fn say(&self, report: GuestReport) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.push(report);
        self.ring();
    }

    fn ring(&self) {
        // The write fails only if the counter is full, and then the descriptor is readable already.
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).ok();
    }

    /// An eventfd that is readable while reports are queued.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Counts a report that could not be sent.
    pub(crate) fn count_unsent(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).more += 1;
    }

    /// Takes the queued reports.
    pub(crate) fn take(&self) -> Vec<GuestReport> {
        let mut count = [0; 8];
        // The read fails if nothing was queued since the last one.
        rustix::io::read(&self.bell, &mut count).ok();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.waiting)
    }

    /// Takes the queued reports at the end, with the number of those that were only counted.
    pub(crate) fn take_last(&self) -> Vec<GuestReport> {
        let mut reports = self.take();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.more > state.reported_more {
            state.reported_more = state.more;
            reports.push(GuestReport::HeldMore { count: state.more });
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_a_path_is_reported_once() {
        let reports = Reports::new().unwrap();
        let config = Path::new("/p/.git/config");
        for why in ["core.editor", "core.fsmonitor", "core.editor", "core.hooksPath"] {
            reports.held(config, GuestAct::Write, why);
        }
        let reasons = |reports: Vec<GuestReport>| -> Vec<String> {
            let reason = |report| {
                let GuestReport::Held { why, .. } = report else { return format!("{report:?}") };
                why
            };
            reports.into_iter().map(reason).collect()
        };
        assert_eq!(reasons(reports.take()), ["core.editor", "core.fsmonitor", "core.hooksPath"]);
        (0..MOST).for_each(|number| reports.held(config, GuestAct::Write, &number.to_string()));
        assert_eq!(reports.take().len(), MOST_OF_ONE - 3);
        reports.held(Path::new("/p/.envrc"), GuestAct::Make, "direnv");
        assert_eq!(reasons(reports.take()), ["direnv"]);
        let count = (MOST - (MOST_OF_ONE - 3)) as u64;
        assert_eq!(reports.take_last(), [GuestReport::HeldMore { count }]);
    }
}
