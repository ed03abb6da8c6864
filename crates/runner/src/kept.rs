//! Work that leaves nothing behind, however it ends.
//!
//! Three processes take part. The caller's own waits and passes signals on. The keeper leads a session of its own and
//! starts the worker, which does the work. When the worker has ended, a signal has come or the caller is gone, the keeper
//! ends what is left of the worker and of all that it started, and tidies up. So SIGKILL of the process that the user sees
//! leaves no more behind than its regular end.

use crate::leftovers;
use belljar_sys::birth::Birth;
use belljar_sys::process::{self, Ended, ProcessError, Reaped, Target};
use belljar_sys::signal::{SignalError, SignalSet, Signals};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// What ends a command from outside.
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// How long processes that were killed may take to be gone, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long children that are none of ours, such as what an engine started, are waited for.
const STRANGERS: Duration = Duration::from_millis(100);
/// Added to the number of the signal that ended a process.
const BY_SIGNAL: i32 = 128;

/// Why the work was not begun.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// Signals cannot be received.
    #[error("cannot take over signals")]
    Signals(#[from] SignalError),
    /// Processes cannot be told apart, so nothing could be found again.
    #[error("cannot read /proc")]
    Proc(#[source] std::io::Error),
    /// The process that does the work cannot be started or waited for.
    #[error("cannot start a process to work in")]
    Process(#[from] ProcessError),
}

/// Does `work` in a process of its own and gives its status; 128 and the number of the signal when one ended it. `tidy`
/// runs in the keeper when nothing of the worker is left.
///
/// To be called while this process has one thread.
///
/// # Errors
/// When the work could not be begun.
pub fn kept(work: impl FnOnce() -> u8, tidy: impl FnOnce()) -> Result<u8, KeptError> {
    Birth::own().map_err(KeptError::Proc)?;
    // Blocked before the keeper is there, which inherits that: none is lost and none ends it.
    let signals = Signals::take(&ENDING)?;
    let caller = rustix::process::getpid();
    let keeper = process::begin_child(|| keep(caller, work, tidy))?;
    let watched = process::open(keeper)?;
    let mut came = None;
    while !is_over(&signals, &watched) {
        while let Some(signal) = signals.next()? {
            came = came.or(Some(signal));
            // One that has ended is seen to be over.
            process::signal(Target::Process(keeper), Signal::TERM.as_raw()).ok();
        }
    }
    let status = status(process::wait_for(keeper)?);
    let by_keeper = BY_SIGNAL + Signal::TERM.as_raw();
    let status = came.filter(|_| status == by_keeper).map_or(status, |signal| BY_SIGNAL + signal);
    Ok(u8::try_from(status).unwrap_or(u8::MAX))
}

fn status(ended: Ended) -> i32 {
    match ended {
        Ended::Exited(code) => code,
        Ended::Killed(signal) => BY_SIGNAL + signal,
    }
}

/// Waits for a signal or for the end of a process; whether it was the latter.
fn is_over(signals: &Signals, process: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(signals, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
    // Interrupted or not, what is ready is looked at.
    rustix::event::poll(&mut polled, None).ok();
    !polled[1].revents().is_empty()
}

/// The keeper. Its caller's end comes to it as a signal.
fn keep(caller: Pid, work: impl FnOnce() -> u8, tidy: impl FnOnce()) -> u8 {
    /// The keeper could not do its part, and nothing was begun.
    const NOT_BEGUN: u8 = 70;
    let ready = || -> Result<(Signals, Birth), Errno> {
        rustix::process::setsid()?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        let signals = Signals::take(&ENDING).map_err(|_blocked| Errno::NOMEM)?;
        Ok((signals, Birth::own().map_err(|_no_proc| Errno::NOENT)?))
    };
    let Ok((signals, birth)) = ready() else { return NOT_BEGUN };
    leftovers::keep_as(birth);
    let keeper = rustix::process::getpid();
    let worker = process::begin_child(|| {
        let dies = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let alone = dies.is_err() || rustix::process::getppid() != Some(keeper);
        if alone || SignalSet::none().block_exactly().is_err() { NOT_BEGUN } else { work() }
    });
    let Ok(worker) = worker else { return NOT_BEGUN };
    // The caller may have ended before its end could become a signal.
    let mut over = rustix::process::getppid() != Some(caller);
    if let Ok(watched) = process::open(worker) {
        while !over {
            let ended = is_over(&signals, &watched);
            over = ended || matches!(signals.next(), Ok(Some(_)) | Err(_));
            if over && !ended {
                process::signal(Target::Process(worker), Signal::KILL.as_raw()).ok();
            }
        }
    }
    if rustix::process::getppid() != Some(caller) {
        process::signal(Target::Process(worker), Signal::KILL.as_raw()).ok();
    }
    let ended = process::wait_for(worker);
    end_rest(&birth, keeper);
    tidy();
    let status = match ended {
        Ok(Ended::Exited(code)) => code,
        // It is the keeper that kills, when it was asked to end.
        Ok(Ended::Killed(signal)) if signal == Signal::KILL.as_raw() => BY_SIGNAL + Signal::TERM.as_raw(),
        Ok(killed @ Ended::Killed(_)) => status(killed),
        Err(_) => i32::from(NOT_BEGUN),
    };
    u8::try_from(status).unwrap_or(u8::MAX)
}

/// Ends what the worker left, wherever it hid: what has the mark of this keeper, and what is in its session. Orphans become
/// children of the keeper, which reaps them.
fn end_rest(birth: &Birth, keeper: Pid) {
    let began = Instant::now();
    loop {
        let marked = leftovers::marked(|known| known == birth);
        let session = leftovers::in_session(keeper);
        let ours = !marked.is_empty() || !session.is_empty();
        marked.iter().for_each(leftovers::Marked::end);
        for pid in session {
            // It has ended meanwhile, or ends now.
            process::signal(Target::Process(pid), Signal::KILL.as_raw()).ok();
        }
        let none = loop {
            match process::reap_any() {
                Ok(Reaped::Child(..)) => {}
                Ok(Reaped::NoChildren) | Err(_) => break true,
                Ok(Reaped::Stopped(_) | Reaped::NoneEnded) => break false,
            }
        };
        let patience = if ours { PATIENCE } else { STRANGERS };
        if (none && !ours) || began.elapsed() > patience {
            return;
        }
        // There is no descriptor that tells of the end of all of them.
        let pause = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        rustix::event::poll(&mut [], Some(&pause)).ok();
    }
}
