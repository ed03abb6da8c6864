//! Runs work in a process of its own, so that nothing is left behind however it ends.
//!
//! Three processes take part. The caller waits and passes signals on. The keeper leads its own session and starts the
//! worker, which does the work. When the worker has ended, or a signal arrives, or the caller has ended, the keeper
//! ends the rest of the worker's processes and cleans up. So a SIGKILL of the process that the user sees leaves no more
//! behind than its regular end.

use crate::store::leftovers;
use belljar_sys::birth::Birth;
use belljar_sys::process::{self, Ended, ProcessError, Reaped, Target};
use belljar_sys::signal::{SignalError, SignalSet, Signals, not_ignored};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal};
use std::error::Error;
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Signals that end a command from outside.
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// How long killed processes may take to disappear, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long other children of the keeper, such as processes of an engine, are waited for.
const STRANGERS: Duration = Duration::from_millis(100);
/// Added to the number of the signal that ended a process.
const BY_SIGNAL: i32 = 128;

/// Why the work was not started.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    #[error("cannot install signal handling")]
    Signals(#[from] SignalError),
    /// Processes cannot be identified, so they could not be found again.
    #[error("cannot read /proc")]
    Proc(#[source] std::io::Error),
    /// The worker process cannot be started or waited for.
    #[error("cannot start the worker process")]
    Process(#[from] ProcessError),
    #[error("cannot prepare the worker process: {step}")]
    Prepare {
        /// The step that failed, with the kernel's error.
        step: String,
    },
}

/// The exit status if the keeper or the worker failed before the work was started.
const NOT_BEGUN: u8 = 70;
/// The longest error text.
const LONGEST_ERROR: usize = 512;

/// Which processes of the worker are ended with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// All of them, including those that an engine of its own started.
    Everything,
    /// All except an engine that others may be using, and its processes.
    AllButEngines,
}

/// Does `work` in a process of its own and returns its status; 128 plus the number of the signal if one ended it.
/// `tidy` runs in the keeper when all of the worker's processes have ended.
///
/// Must be called while this process has a single thread.
///
/// # Errors
/// If the work could not be started.
pub fn kept(rest: Rest, work: impl FnOnce() -> u8, tidy: impl FnOnce()) -> Result<u8, KeptError> {
    Birth::own().map_err(KeptError::Proc)?;
    // Blocked before the keeper is forked, which inherits the mask: no signal is lost, and none ends it.
    let signals = Signals::take(&not_ignored(&ENDING))?;
    let caller = rustix::process::getpid();
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
    let (error_reader, error_writer) =
        pipe.map_err(|cause| KeptError::Prepare { step: format!("create a pipe: {cause}") })?;
    let keeper = process::begin_child(|| keep(caller, rest, &error_writer, work, tidy))?;
    let watched = process::open(keeper)?;
    let mut came = None;
    while !is_over(&signals, &watched) {
        while let Some(signal) = signals.next()? {
            came = came.or(Some(signal));
            // If the keeper has ended, the loop notices it.
            process::signal(Target::Process(keeper), Signal::TERM.as_raw()).ok();
        }
    }
    let status = status(process::wait_for(keeper)?);
    if let Some(step) = reported_failure(&error_reader) {
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

/// Waits for a signal or for the end of a process. Returns whether the process ended.
fn is_over(signals: &Signals, process: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(signals, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
    // Also after an interruption, the ready descriptors are examined.
    rustix::event::poll(&mut polled, None).ok();
    !polled[1].revents().is_empty()
}

/// Reports a step that failed before the work was started; returns the exit status.
fn report_failure(error_writer: &OwnedFd, step: &str, cause: impl Display) -> u8 {
    let text = format!("{step}: {cause}");
    // An empty pipe accepts this many bytes in one write.
    rustix::io::write(error_writer, text.get(..LONGEST_ERROR).unwrap_or(&text).as_bytes()).ok();
    NOT_BEGUN
}

/// Reads the report of [`report_failure`].
fn reported_failure(error_reader: &OwnedFd) -> Option<String> {
    let mut text = [0; LONGEST_ERROR];
    let count = rustix::io::read(error_reader, &mut text).ok().filter(|count| *count > 0)?;
    Some(String::from_utf8_lossy(text.get(..count)?).into_owned())
}

/// The keeper process. The end of its caller arrives as a signal.
fn keep(
    caller: Pid,
    rest: Rest,
    error_writer: &OwnedFd,
    work: impl FnOnce() -> u8,
    tidy: impl FnOnce(),
) -> u8 {
    let (signals, birth) = match ready() {
        Ok(ready) => ready,
        Err((step, cause)) => return report_failure(error_writer, step, cause),
    };
    leftovers::keep_as(birth);
    let keeper = rustix::process::getpid();
    let worker = process::begin_child(|| match ready_to_work(keeper) {
        Ok(()) => work(),
        Err((step, cause)) => report_failure(error_writer, step, cause),
    });
    let worker = match worker {
        Ok(worker) => worker,
        Err(cause) => return report_failure(error_writer, "start the worker", cause),
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
    let mut taken = not_ignored(&ENDING);
    if !taken.contains(&Signal::TERM) {
        taken.push(Signal::TERM);
    }
    let signals = Signals::take(&taken).map_err(|cause| ("take over signals", cause.into()))?;
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

/// Waits for the end of the worker, or ends it when a signal arrives or the caller has ended. Returns whether it ended
/// the worker.
fn watch(caller: Pid, worker: Pid, signals: &Signals) -> bool {
    let kill = || process::signal(Target::Process(worker), Signal::KILL.as_raw()).is_ok();
    let mut killed = false;
    // The caller may have ended before its end could cause a signal.
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

/// The worker's status for the caller. A SIGKILL from the keeper stands for the signal that the keeper received; any
/// other, such as that of the OOM killer, is reported as it is.
fn reported(ended: Ended, killed_by_keeper: bool) -> i32 {
    match ended {
        Ended::Killed(signal) if killed_by_keeper && signal == Signal::KILL.as_raw() => {
            BY_SIGNAL + Signal::TERM.as_raw()
        }
        ended @ (Ended::Exited(_) | Ended::Killed(_)) => status(ended),
    }
}

/// Ends the remaining processes of the worker: those with the mark of this keeper, and those in its session. Orphans
/// become children of the keeper, which reaps them.
fn end_rest(rest: Rest, birth: &Birth, keeper: Pid) {
    let began = Instant::now();
    loop {
        let marked = leftovers::marked(|known| known == birth);
        let mut session = leftovers::in_session(keeper);
        if rest == Rest::Everything {
            // All processes of the worker are children of the keeper by now, or will be when their parents have ended.
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
        // No descriptor reports the end of all of them.
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
        let (error_reader, error_writer) = pipe();
        assert_eq!(reported_failure(&error_reader), None);
        let ended = process::in_child(|| {
            // The leader of a process group cannot lead a session.
            rustix::process::setsid().ok();
            keep(rustix::process::getpid(), Rest::Everything, &error_writer, || 0, || {})
        });
        assert_eq!(ended.unwrap(), Ended::Exited(NOT_BEGUN.into()));
        let said = reported_failure(&error_reader).unwrap();
        assert!(said.starts_with("lead a session: "), "{said}");
        let error = KeptError::Prepare { step: said };
        assert!(error.to_string().contains("cannot prepare the worker process"), "{error}");
    }
}
