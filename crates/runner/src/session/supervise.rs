//! One thread, one loop: signals, deadlines, the guest's reports and the terminal.

use crate::session::console::{Console, Emit, Interrupt, Pumped};
use crate::session::questions::{Question, Questions, place};
use belljar_contract::{AbsPath, Event, GuestEnd, GuestOrder, Plan};
use belljar_sandbox::{LaunchError, News, Running};
use belljar_sys::signal::{SignalError, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
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
    /// What stood at its streams had no more use for it.
    Dismissed,
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

/// A started command and everything around it.
pub(crate) struct Watched<'a> {
    /// What it was made for.
    pub plan: &'a Plan,
    /// The sandbox.
    pub running: &'a mut Running,
    /// What stands at the command's streams.
    pub console: &'a mut dyn Console,
    /// Signals that come to belljar.
    pub signals: &'a Signals,
    /// What the plan allows.
    pub time_limit: Option<Duration>,
    /// Readable when what guards the way out has ended.
    pub guard: Option<BorrowedFd<'a>>,
    /// What the user is asked while it runs.
    pub questions: Questions<'a>,
    /// Where events go.
    pub emit: Emit<'a>,
}

/// Watches over a started command until nothing of it is left.
///
/// # Errors
/// When the guest cannot be understood; the sandbox is ended by dropping it.
pub(crate) fn supervise(watched: Watched<'_>) -> Result<Ending, SuperviseError> {
    let Watched { plan, running, console, signals, time_limit, guard, mut questions, emit } = watched;
    let mut deadline = time_limit.map(|limit| Instant::now() + limit);
    let mut stopping: Option<Ending> = None;
    loop {
        let ready = wait(running, console, signals, deadline, guard.filter(|_| stopping.is_none()))?;
        let mut ends = None;
        if ready.unguarded {
            running.order(GuestOrder::Stop)?;
            ends = Some(Ending::Unguarded);
        }
        if ready.signals {
            while let Some(signal) = signals.next()? {
                ends = ends.or(on_signal(signal, running, console, emit));
            }
        }
        if console.pump(emit) == Pumped::Dismissed && stopping.is_none() {
            // A guest that is gone has nothing left to stop.
            running.order(GuestOrder::Stop).ok();
            ends = ends.or(Some(Ending::Dismissed));
        }
        questions.settle(running, console, emit);
        if let (Some(ending), None) = (ends, stopping) {
            questions.close(console, emit);
            stopping = Some(ending);
            deadline = Some(Instant::now() + PATIENCE);
        }
        if ready.control {
            let end = match running.report()? {
                News::Ended(end) => end,
                News::Gone => {
                    questions.close(console, emit);
                    console.ended(GuestEnd::Signal(Signal::KILL.as_raw()), emit);
                    return Ok(stopping.unwrap_or(Ending::Lost));
                }
                News::Held { path, act, why } => {
                    if let Ok(path) = AbsPath::new(OsStr::from_bytes(path.as_bytes())) {
                        let path = crate::launch::workspace::outside(plan, &path);
                        emit(&Event::HostExecutedHeld { path, act, why });
                    }
                    continue;
                }
                News::HeldMore(count) => {
                    let text = format!(
                        "{count} more attempts to write files that this machine executes were refused"
                    );
                    emit(&Event::Notice { text });
                    continue;
                }
                News::Asked { number, path, act, why, yes } => {
                    if let Some(path) = place(plan, &path) {
                        let question = Question { number, path, act, why, yes };
                        questions.ask(question, running, console, emit);
                    }
                    continue;
                }
                News::Withdrawn(number) => {
                    questions.withdraw(number, console, emit);
                    continue;
                }
                News::Stopped => {
                    drain(console, emit);
                    console.suspended();
                    running.order(GuestOrder::Signal { signal: Signal::CONT.as_raw() }).ok();
                    continue;
                }
            };
            questions.close(console, emit);
            drain(console, emit);
            running.finish(PATIENCE);
            // Nothing is left that could write.
            drain(console, emit);
            console.ended(end, emit);
            return Ok(match stopping {
                Some(Ending::TimeLimit(_)) => Ending::TimeLimit(end),
                Some(other) => other,
                None => Ending::Own(end),
            });
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            if let Some(stopping) = stopping {
                // Neither the command nor the guest has ended in time; dropping the sandbox ends both.
                console.ended(GuestEnd::Signal(Signal::KILL.as_raw()), emit);
                return Ok(stopping);
            }
            stopping = Some(Ending::TimeLimit(GuestEnd::Signal(Signal::KILL.as_raw())));
            deadline = Some(Instant::now() + PATIENCE);
            questions.close(console, emit);
            console.time_is_up(emit);
            running.order(GuestOrder::Stop)?;
        }
    }
}

/// Passes a signal on, or stops everything.
fn on_signal(signal: i32, running: &Running, console: &mut dyn Console, emit: Emit<'_>) -> Option<Ending> {
    let is = |known: Signal| known.as_raw() == signal;
    if is(Signal::WINCH) {
        console.resized();
        return None;
    }
    let interrupt = if is(Signal::INT) { console.interrupted(emit) } else { Interrupt::PassOn };
    if interrupt == Interrupt::Taken {
        return None;
    }
    if is(Signal::TERM) || is(Signal::HUP) || interrupt == Interrupt::Stop {
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
    console: &dyn Console,
    signals: &Signals,
    deadline: Option<Instant>,
    guard: Option<BorrowedFd<'_>>,
) -> Result<Ready, SuperviseError> {
    let (control, signal_fd) = (running.control(), signals.as_fd());
    let interests = console.interests();
    let mut polled = vec![PollFd::new(&signal_fd, PollFlags::IN), PollFd::new(&control, PollFlags::IN)];
    let guarded = guard.is_some();
    polled.extend(guard.iter().map(|guard| PollFd::new(guard, PollFlags::IN)));
    polled.extend(interests.iter().map(|(descriptor, flags)| PollFd::new(descriptor, *flags)));
    let deadline = [deadline, console.deadline()].into_iter().flatten().min();
    let timeout = deadline
        .and_then(|deadline| Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(SuperviseError::Wait(errno.into())),
    }
    let ready = |at: usize| !polled[at].revents().is_empty();
    Ok(Ready { signals: ready(0), control: ready(1), unguarded: guarded && ready(2) })
}

/// Takes what the command wrote before it ended.
fn drain(console: &mut dyn Console, emit: Emit<'_>) {
    let deadline = Instant::now() + DRAIN;
    while Instant::now() < deadline && console.pump(emit) != Pumped::Closed {
        let interests = console.interests();
        let mut polled: Vec<PollFd<'_>> =
            interests.iter().map(|(descriptor, _)| PollFd::new(descriptor, PollFlags::IN)).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return };
        if poll(&mut polled, Some(&timeout)).unwrap_or(0) == 0 {
            return;
        }
    }
}
