//! The supervisor's loop: signals, deadlines, the guest's reports and the terminal, in one thread.

use crate::session::console::{Console, Emit, Interrupt, Pumped};
use crate::session::questions::{Question, Questions, place};
use belljar_contract::{AbsPath, Event, GuestEnd, GuestOrder, Plan};
use belljar_sandbox::{LaunchError, News, Running};
use belljar_sys::signal::{SignalError, Signals, not_ignored};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// How long the last output is still shown after the command has ended.
const DRAIN: Duration = Duration::from_millis(300);
/// How long an order to stop may take: longer than the guest's own timeout.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a supervised command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The command exited, or a signal from inside ended it.
    Own(GuestEnd),
    /// The plan's time limit was reached.
    TimeLimit(GuestEnd),
    /// The other end of its streams had finished.
    Dismissed,
    /// The user or the system asked belljar to stop.
    Stopped(i32),
    /// The sandbox ended without a report of the guest.
    Lost,
    /// The egress services ended before the command did.
    Unguarded,
}

/// Why supervision failed.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    #[error("cannot install signal handling")]
    Signals(#[from] SignalError),
    /// The guest's report is not valid, or it stopped answering.
    #[error("the guest inside the sandbox failed")]
    Guest(#[from] LaunchError),
    #[error("poll failed")]
    Wait(#[source] std::io::Error),
}

/// Takes over the signals that are passed on or acted on. Called before anything is started, so that none is lost.
///
/// # Errors
/// If the kernel refuses.
pub fn take_signals() -> Result<Signals, SuperviseError> {
    Ok(Signals::take(&not_ignored(&[
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::WINCH,
        Signal::USR1,
        Signal::USR2,
    ]))?)
}

/// The signal that asked belljar to stop before the command was started. Nothing is started then.
pub(crate) fn stop_requested(signals: &Signals) -> Result<Option<i32>, SuperviseError> {
    let stops = [Signal::INT, Signal::TERM, Signal::HUP].map(Signal::as_raw);
    while let Some(signal) = signals.next()? {
        if stops.contains(&signal) {
            return Ok(Some(signal));
        }
    }
    Ok(None)
}

/// A started command, with everything that its supervision needs.
pub(crate) struct Watched<'a> {
    pub plan: &'a Plan,
    pub running: &'a mut Running,
    /// The outer end of the command's streams.
    pub console: &'a mut dyn Console,
    /// The signals that belljar receives.
    pub signals: &'a Signals,
    pub time_limit: Option<Duration>,
    /// Becomes readable when the egress services have ended.
    pub guard: Option<BorrowedFd<'a>>,
    /// The guard's questions to the user.
    pub questions: Questions<'a>,
    pub emit: Emit<'a>,
}

/// Supervises a started command until all of its processes have ended.
///
/// # Errors
/// If the guest fails; dropping the sandbox ends it.
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
            // A guest that has ended needs no order.
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
            // No process is left that could write.
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
                // Neither the command nor the guest ended in time; dropping the sandbox ends both.
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

/// Passes a signal on, or stops the run.
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
        // A guest that has ended needs no order.
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

/// Transfers the output that the command wrote before it ended.
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
