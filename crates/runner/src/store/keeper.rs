//! Work that leaves nothing behind, however it ends.
//!
//! Three processes take part. The caller's own waits and passes signals on. The keeper leads a session of its own and
//! starts the worker, which does the work. When the worker has ended, a signal has come or the caller is gone, the keeper
//! ends what is left of the worker and of all that it started, and tidies up. So SIGKILL of the process that the user sees
//! leaves no more behind than its regular end.

use crate::store::leftovers;
use belljar_sys::birth::Birth;
use belljar_sys::process::{self, Ended, ProcessError, Reaped, Target};
use belljar_sys::signal::{SignalError, SignalSet, Signals};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use std::error::Error;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
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
    /// The keeper or the worker could not be prepared.
    #[error("cannot prepare a process to work in: {step}")]
    Prepare {
        /// What failed, with the kernel's answer.
        step: String,
    },
}

/// The keeper or the worker could not do its part, and nothing was begun.
const NOT_BEGUN: u8 = 70;
/// The longest account of why.
const ACCOUNT: usize = 512;

/// What of that which the worker started ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Everything, what an engine of its own started included.
    Everything,
    /// All but an engine that others may be using, and what that started.
    AllButEngines,
}

/// Does `work` in a process of its own and gives its status; 128 and the number of the signal when one ended it. `tidy`
/// runs in the keeper when nothing of the worker is left.
///
/// To be called while this process has one thread.
///
/// # Errors
/// When the work could not be begun.
pub fn kept(rest: Rest, work: impl FnOnce() -> u8, tidy: impl FnOnce()) -> Result<u8, KeptError> {
    Birth::own().map_err(KeptError::Proc)?;
    // Blocked before the keeper is there, which inherits that: none is lost and none ends it.
    let signals = Signals::take(&ENDING)?;
    let caller = rustix::process::getpid();
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
    let (account, telling) =
        pipe.map_err(|cause| KeptError::Prepare { step: format!("make a pipe: {cause}") })?;
    let keeper = process::begin_child(|| keep(caller, rest, &telling, work, tidy))?;
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
    if let Some(step) = told(&account) {
        return Err(KeptError::Prepare { step });
    }
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

/// Leaves word of a step that failed before the work was begun; the status to end with.
fn tell(telling: &OwnedFd, step: &str, cause: impl Display) -> u8 {
    let text = format!("{step}: {cause}");
    // An empty pipe takes so few bytes at once.
    rustix::io::write(telling, text.get(..ACCOUNT).unwrap_or(&text).as_bytes()).ok();
    NOT_BEGUN
}

/// What was left by [`tell`].
fn told(account: &OwnedFd) -> Option<String> {
    let mut text = [0; ACCOUNT];
    let count = rustix::io::read(account, &mut text).ok().filter(|count| *count > 0)?;
    Some(String::from_utf8_lossy(text.get(..count)?).into_owned())
}

/// The keeper. Its caller's end comes to it as a signal.
fn keep(caller: Pid, rest: Rest, telling: &OwnedFd, work: impl FnOnce() -> u8, tidy: impl FnOnce()) -> u8 {
    let (signals, birth) = match ready() {
        Ok(ready) => ready,
        Err((step, cause)) => return tell(telling, step, cause),
    };
    leftovers::keep_as(birth);
    let keeper = rustix::process::getpid();
    let worker = process::begin_child(|| match ready_to_work(keeper) {
        Ok(()) => work(),
        Err((step, cause)) => tell(telling, step, cause),
    });
    let worker = match worker {
        Ok(worker) => worker,
        Err(cause) => return tell(telling, "start the worker", cause),
    };
    let killed = watch(caller, worker, &signals);
    let ended = process::wait_for(worker);
    end_rest(rest, &birth, keeper);
    tidy();
    let status = ended.map_or(i32::from(NOT_BEGUN), |ended| reported(ended, killed));
    u8::try_from(status).unwrap_or(u8::MAX)
}

type NotReady = (&'static str, Box<dyn Error>);

fn ready() -> Result<(Signals, Birth), NotReady> {
    rustix::process::setsid().map_err(|cause| ("lead a session", cause.into()))?;
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).map_err(|cause| ("adopt orphans", cause.into()))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|cause| ("ask for a signal at the caller's end", cause.into()))?;
    let signals = Signals::take(&ENDING).map_err(|cause| ("take over signals", cause.into()))?;
    Ok((signals, Birth::own().map_err(|cause| ("read /proc", cause.into()))?))
}

fn ready_to_work(keeper: Pid) -> Result<(), NotReady> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|cause| ("ask for a signal at the keeper's end", cause.into()))?;
    if rustix::process::getppid() != Some(keeper) {
        return Err(("find the keeper", "it has ended".into()));
    }
    SignalSet::none().block_exactly().map_err(|cause| ("let signals through", cause.into()))
}

/// Waits for the end of the worker, or ends it when a signal comes or the caller is gone; whether it did.
fn watch(caller: Pid, worker: Pid, signals: &Signals) -> bool {
    let kill = || process::signal(Target::Process(worker), Signal::KILL.as_raw()).is_ok();
    let mut killed = false;
    // The caller may have ended before its end could become a signal.
    let mut over = rustix::process::getppid() != Some(caller);
    if let Ok(watched) = process::open(worker) {
        while !over {
            let ended = is_over(signals, &watched);
            over = ended || matches!(signals.next(), Ok(Some(_)) | Err(_));
            if over && !ended {
                killed |= kill();
            }
        }
    }
    if rustix::process::getppid() != Some(caller) {
        killed |= kill();
    }
    killed
}

/// The status of the worker for the caller. SIGKILL from the keeper stands for the signal by which the keeper was asked to
/// end; any other, such as that of a machine without memory, is reported as it is.
fn reported(ended: Ended, killed_by_keeper: bool) -> i32 {
    match ended {
        Ended::Killed(signal) if killed_by_keeper && signal == Signal::KILL.as_raw() => {
            BY_SIGNAL + Signal::TERM.as_raw()
        }
        ended => status(ended),
    }
}

/// Ends what the worker left, wherever it hid: what has the mark of this keeper, and what is in its session. Orphans become
/// children of the keeper, which reaps them.
fn end_rest(rest: Rest, birth: &Birth, keeper: Pid) {
    let began = Instant::now();
    loop {
        let marked = leftovers::marked(|known| known == birth);
        let mut session = leftovers::in_session(keeper);
        if rest == Rest::Everything {
            // Whatever the worker started has become a child of the keeper by now, or will when its parent has ended.
            session.extend(leftovers::children(keeper));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `kept` in a process of one thread.
    fn alone(work: fn() -> u8) -> Ended {
        process::in_child(|| kept(Rest::Everything, work, || {}).unwrap_or(99)).unwrap()
    }

    #[test]
    fn a_kill_from_elsewhere_is_reported_as_such() {
        let killed = alone(|| {
            process::signal(Target::Process(rustix::process::getpid()), Signal::KILL.as_raw()).ok();
            0
        });
        assert_eq!(killed, Ended::Exited(137));
        assert_eq!(alone(|| 70), Ended::Exited(70));
        assert_eq!(reported(Ended::Killed(9), true), 143);
        assert_eq!(reported(Ended::Killed(9), false), 137);
    }

    #[test]
    fn what_kept_the_keeper_from_beginning_is_said() {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let (account, telling) = pipe();
        assert_eq!(told(&account), None);
        let ended = process::in_child(|| {
            // A process that leads a group cannot lead a session.
            rustix::process::setsid().ok();
            keep(rustix::process::getpid(), Rest::Everything, &telling, || 0, || {})
        });
        assert_eq!(ended.unwrap(), Ended::Exited(NOT_BEGUN.into()));
        let said = told(&account).unwrap();
        assert!(said.starts_with("lead a session: "), "{said}");
        let error = KeptError::Prepare { step: said };
        assert!(error.to_string().contains("cannot prepare a process"), "{error}");
    }
}
