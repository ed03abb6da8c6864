//! Calls that wait while the user is asked.
//!
//! A call that is held back is parked: its caller goes on waiting in the kernel, where only a deadly signal reaches it, and
//! the thread that received the call is free again. One thread takes parked calls in turn, and no lock is held while a
//! question is open. Each call is decided anew from its arguments when its turn comes, and once more after a yes. A yes to one
//! call is for the place, the act, the reason and the content that were shown: whatever the call has come to mean
//! meanwhile is another question.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_contract::{GuestAct, GuestAnswer, GuestGuard, GuestReport, GuestYes};
use belljar_sys::seccomp::notify::{Call, NotifyListener};

use super::caller::{Caller, HeldAct, Remedy, Stop};
use super::reports::shown;
use super::{Broker, roots};

/// Calls that wait beside the one that the user is asked about. One more is refused at once.
pub(super) const MOST_PARKED: usize = 32;
/// Questions about one call: a moved directory may hold several files.
const MOST_QUESTIONS: usize = 8;
/// How often the guard checks whether the caller still exists. The kernel sends no event when it ends.
const LOOK: Duration = Duration::from_millis(100);

/// A call that waits for its turn.
pub(super) struct Parked {
    pub(super) listener: Arc<NotifyListener>,
    pub(super) call: Call,
}

/// What the user was asked and answered.
#[derive(Default)]
pub(super) struct Asking {
    state: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Default)]
struct Pending {
    /// Set once no more questions are asked.
    ended: bool,
    /// The number of the last question.
    number: u64,
    answer: Option<GuestAnswer>,
    allowed: BTreeSet<PathBuf>,
    refused: BTreeSet<(PathBuf, GuestAct)>,
}

impl Asking {
    pub(super) fn new(guard: &GuestGuard) -> Self {
        let allowed = guard.allowed.iter().map(roots::path).collect();
        Asking { state: Mutex::new(Pending { allowed, ..Pending::default() }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the user allowed a file, whatever is done to it.
    pub(super) fn allows(&self, path: &Path) -> bool {
        self.lock().allowed.contains(path)
    }

    /// Whether the user is asked about this.
    pub(super) fn is_open(&self, what: &HeldAct, remedy: Remedy) -> bool {
        let state = self.lock();
        remedy == Remedy::Yes && !state.ended && !state.refused.contains(&(what.path.clone(), what.act))
    }

    /// Takes an answer; one to an earlier question says nothing about this one.
    pub(super) fn answer(&self, number: u64, answer: GuestAnswer) {
        let mut state = self.lock();
        if state.number == number {
            state.answer = Some(answer);
            self.changed.notify_all();
        }
    }

    /// Refuses waiting calls and stops asking.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// The number of the next question.
    fn next(&self) -> u64 {
        let mut state = self.lock();
        state.number += 1;
        state.answer = None;
        state.number
    }

    /// Waits for the user's answer and remembers it; `None` if the caller is gone.
    fn wait(&self, what: &HeldAct, is_waiting: impl Fn() -> bool) -> Option<GuestAnswer> {
        let mut state = self.lock();
        let answer = loop {
            match state.answer.take() {
                Some(answer) => break answer,
                None if state.ended => break GuestAnswer::No,
                None if !is_waiting() => return None,
                None => {}
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        match answer {
            GuestAnswer::Once => {}
            GuestAnswer::Path if what.yes() == GuestYes::Content => {}
            GuestAnswer::Path => {
                state.allowed.insert(what.path.clone());
            }
            GuestAnswer::No | GuestAnswer::NoMore => {
                state.ended |= answer == GuestAnswer::NoMore;
                state.refused.insert((what.path.clone(), what.act));
            }
        }
        Some(answer)
    }
}

impl Broker {
    /// Parks a held call until the user answers; returns whether it was parked.
    pub(super) fn park(
        &self,
        listener: &Arc<NotifyListener>,
        call: &Call,
        what: &HeldAct,
        remedy: Remedy,
    ) -> bool {
        let Some(queue) = &self.queue else { return false };
        let parked = || Parked { listener: Arc::clone(listener), call: *call };
        self.asking.is_open(what, remedy) && queue.try_send(parked()).is_ok()
    }

    /// Settles parked calls, one after the other.
    pub(super) fn settle_all(&self, parked: &Receiver<Parked>) {
        while let Ok(Parked { listener, call }) = parked.recv() {
            self.settle(&listener, &call);
        }
    }

    fn settle(&self, listener: &Arc<NotifyListener>, call: &Call) {
        let mut once = Vec::new();
        let mut questions = 0;
        while listener.is_waiting(call) {
            let acted = self.act(&Caller { broker: self, listener, call, once: &once });
            let Err(Stop::Held { what, errno, remedy }) = acted else {
                return self.finish(listener, call, acted);
            };
            if questions == MOST_QUESTIONS || !self.asking.is_open(&what, remedy) {
                return self.finish(listener, call, Err(Stop::Held { what, errno, remedy }));
            }
            questions += 1;
            match self.ask(&what, || listener.is_waiting(call)) {
                Some(GuestAnswer::Once | GuestAnswer::Path) => once.push(what),
                Some(GuestAnswer::No | GuestAnswer::NoMore) => {
                    return self.finish(listener, call, Err(Stop::Held { what, errno, remedy }));
                }
                None => return,
            }
        }
    }

    fn ask(&self, what: &HeldAct, is_waiting: impl Fn() -> bool) -> Option<GuestAnswer> {
        let HeldAct { path, act, why, judged: _ } = what;
        let yes = what.yes();
        let number = self.asking.next();
        let path = shown(path);
        self.reports.say(GuestReport::Asked { number, path, act: *act, why: why.clone(), yes });
        let answer = self.asking.wait(what, is_waiting);
        if answer.is_none() {
            self.reports.say(GuestReport::Withdrawn { number });
        }
        answer
    }
}

/// Where calls are parked.
pub(super) type Queue = SyncSender<Parked>;

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::Digest;

    fn what(path: &str, act: GuestAct) -> HeldAct {
        HeldAct::new(path.into(), act, "git runs it")
    }

    /// Asks, with an answer that is there already.
    fn answered(asking: &Asking, what: &HeldAct, answer: GuestAnswer) -> Option<GuestAnswer> {
        let number = asking.next();
        asking.answer(number, answer);
        asking.wait(what, || true)
    }

    #[test]
    fn a_no_is_remembered_for_the_act_and_a_path_for_all_acts() {
        let asking = Asking::default();
        let (make, write) = (what("/p/.envrc", GuestAct::Make), what("/p/.envrc", GuestAct::Write));
        assert!(asking.is_open(&make, Remedy::Yes) && !asking.is_open(&make, Remedy::Mount));
        assert_eq!(answered(&asking, &make, GuestAnswer::No), Some(GuestAnswer::No));
        assert!(!asking.is_open(&make, Remedy::Yes) && asking.is_open(&write, Remedy::Yes));
        assert_eq!(answered(&asking, &write, GuestAnswer::Once), Some(GuestAnswer::Once));
        assert!(asking.is_open(&write, Remedy::Yes) && !asking.allows(&write.path));
        let judged = HeldAct { judged: Some(Digest::of(b"x")), ..what("/p/.git/config", GuestAct::Write) };
        answered(&asking, &judged, GuestAnswer::Path);
        assert!(!asking.allows(&judged.path), "the next content may be any other");
        answered(&asking, &write, GuestAnswer::Path);
        assert!(asking.allows(Path::new("/p/.envrc")) && !asking.allows(Path::new("/p/.envrc/x")));
    }

    #[test]
    fn an_answer_to_an_earlier_question_is_ignored() {
        let asking = Asking::default();
        let earlier = asking.next();
        asking.next();
        asking.answer(earlier, GuestAnswer::Path);
        assert_eq!(asking.wait(&what("/p/.envrc", GuestAct::Make), || false), None);
        assert!(!asking.allows(Path::new("/p/.envrc")));
    }

    #[test]
    fn after_the_end_everything_is_refused() {
        for end in [GuestAnswer::NoMore, GuestAnswer::No] {
            let asking = Asking::default();
            match end {
                GuestAnswer::NoMore => drop(answered(&asking, &what("/p/a", GuestAct::Make), end)),
                GuestAnswer::No | GuestAnswer::Once | GuestAnswer::Path => asking.end(),
            }
            assert!(!asking.is_open(&what("/p/b", GuestAct::Make), Remedy::Yes));
            asking.next();
            assert_eq!(asking.wait(&what("/p/b", GuestAct::Make), || true), Some(GuestAnswer::No));
        }
    }
}
