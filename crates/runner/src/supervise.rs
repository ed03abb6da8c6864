//! One thread, one loop: signals, deadlines, the guest's reports and the terminal.

use crate::terminal::Terminal;
use belljar_contract::{GuestEnd, GuestOrder};
use belljar_sandbox::{LaunchError, News, Running};
use belljar_sys::signal::{SignalError, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// After the command's end: what it wrote last is still shown.
const DRAIN: Duration = Duration::from_millis(300);
/// After an order to stop: longer than the guest's own patience.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a supervised command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, or by a signal from inside.
    Own(GuestEnd),
    /// The time that the plan allows was over.
    TimeLimit(GuestEnd),
    /// The user or the system asked belljar to stop.
    Stopped(i32),
    /// The sandbox was gone without a word.
    Lost,
    /// What guards the way out ended before the command did.
    Unguarded,
}

/// Why supervision failed.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// Signals cannot be received.
    #[error("cannot take over signals")]
    Signals(#[from] SignalError),
    /// The guest is not understood.
    #[error("the sandbox is out of control")]
    Guest(#[from] LaunchError),
    /// The kernel does not wait for us.
    #[error("cannot wait")]
    Wait(#[source] std::io::Error),
}

/// The signals that are passed on or acted on. Taken before anything is started, so that none is lost.
///
/// # Errors
/// When the kernel refuses.
pub fn take_signals() -> Result<Signals, SuperviseError> {
    Ok(Signals::take(&[
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::WINCH,
        Signal::USR1,
        Signal::USR2,
    ])?)
}

/// Watches over a started command until nothing of it is left.
///
/// # Errors
/// When the guest cannot be understood; the sandbox is ended by dropping it.
pub fn supervise(
    running: &mut Running,
    terminal: &mut Terminal,
    signals: &Signals,
    time_limit: Option<Duration>,
    guard: Option<BorrowedFd<'_>>,
) -> Result<Ending, SuperviseError> {
    let mut deadline = time_limit.map(|limit| Instant::now() + limit);
    let mut stopping: Option<Ending> = None;
    loop {
        let ready = wait(running, terminal, signals, deadline, guard.filter(|_| stopping.is_none()))?;
        if ready.unguarded {
            running.order(GuestOrder::Stop)?;
            stopping = Some(Ending::Unguarded);
            deadline = Some(Instant::now() + PATIENCE);
        }
        if ready.signals {
            while let Some(signal) = signals.next()? {
                match on_signal(signal, running, terminal) {
                    Some(ending) if stopping.is_none() => {
                        stopping = Some(ending);
                        deadline = Some(Instant::now() + PATIENCE);
                    }
                    Some(_) | None => {}
                }
            }
        }
        terminal.pump();
        if ready.control {
            let end = match running.report()? {
                News::Ended(end) => end,
                News::Gone => return Ok(stopping.unwrap_or(Ending::Lost)),
                News::Stopped => {
                    suspend(running, terminal);
                    continue;
                }
            };
            drain(terminal);
            running.finish(PATIENCE);
            return Ok(match stopping {
                Some(Ending::TimeLimit(_)) => Ending::TimeLimit(end),
                Some(other) => other,
                None => Ending::Own(end),
            });
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            if stopping.is_some() {
                // Neither the command nor the guest has ended in time; dropping the sandbox ends both.
                return Ok(stopping.unwrap_or(Ending::Lost));
            }
            stopping = Some(Ending::TimeLimit(GuestEnd::Signal(Signal::KILL.as_raw())));
            deadline = Some(Instant::now() + PATIENCE);
            running.order(GuestOrder::Stop)?;
        }
    }
}

/// The command has suspended itself: so does belljar, and the user's shell is there again. When the shell brings
/// belljar back, the command goes on.
fn suspend(running: &Running, terminal: &mut Terminal) {
    drain(terminal);
    if terminal.has_terminal() {
        terminal.leave();
        // Returns once the shell continues us. Without a shell to come back to, the next line runs at once.
        rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).ok();
        // A terminal that cannot be entered again is gone, and the hang-up that follows ends the run.
        terminal.enter().ok();
        terminal.resized();
    }
    running.order(GuestOrder::Signal { signal: Signal::CONT.as_raw() }).ok();
}

/// Passes a signal on, or stops everything.
fn on_signal(signal: i32, running: &Running, terminal: &Terminal) -> Option<Ending> {
    let is = |known: Signal| known.as_raw() == signal;
    if is(Signal::WINCH) {
        terminal.resized();
        return None;
    }
    if is(Signal::TERM) || is(Signal::HUP) {
        // A guest that is gone has nothing left to stop.
        running.order(GuestOrder::Stop).ok();
        return Some(Ending::Stopped(signal));
    }
    running.order(GuestOrder::Signal { signal }).ok();
    None
}

struct Ready {
    signals: bool,
    control: bool,
    unguarded: bool,
}

fn wait(
    running: &Running,
    terminal: &Terminal,
    signals: &Signals,
    deadline: Option<Instant>,
    guard: Option<BorrowedFd<'_>>,
) -> Result<Ready, SuperviseError> {
    let (control, signal_fd) = (running.control(), signals.as_fd());
    let interests = terminal.interests();
    let mut polled = vec![PollFd::new(&signal_fd, PollFlags::IN), PollFd::new(&control, PollFlags::IN)];
    let guarded = guard.is_some();
    polled.extend(guard.iter().map(|guard| PollFd::new(guard, PollFlags::IN)));
    polled.extend(interests.iter().map(|(descriptor, flags)| PollFd::new(descriptor, *flags)));
    let timeout = deadline
        .and_then(|deadline| Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(SuperviseError::Wait(errno.into())),
    }
    let ready = |at: usize| !polled[at].revents().is_empty();
    Ok(Ready { signals: ready(0), control: ready(1), unguarded: guarded && ready(2) })
}

/// Shows what the command wrote before it ended.
fn drain(terminal: &mut Terminal) {
    let deadline = Instant::now() + DRAIN;
    while Instant::now() < deadline && terminal.pump() {
        let interests = terminal.interests();
        let mut polled: Vec<PollFd<'_>> =
            interests.iter().map(|(descriptor, _)| PollFd::new(descriptor, PollFlags::IN)).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return };
        if poll(&mut polled, Some(&timeout)).unwrap_or(0) == 0 {
            return;
        }
    }
}
