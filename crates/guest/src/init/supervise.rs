//! From the start of the command to the end of everything.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use belljar_contract::{ExitCode, GuestEnd, GuestOrder, GuestReport, GuestSpec, GuestUsage};
use belljar_sys::process::{self, Ended, Reaped, Target};
use belljar_sys::signal::{SignalError, Signals};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};

use super::control::{Control, ControlError};
use super::crowd::Crowd;
use crate::guard::{Guard, Reports};

/// Signals that are forwarded to the command's process group.
const FORWARDED: [Signal; 9] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::WINCH,
    Signal::CONT,
    Signal::TSTP,
    Signal::USR1,
    Signal::USR2,
];

/// How long a message of the supervisor that has begun may take.
const ORDER_PATIENCE: Duration = Duration::from_secs(5);
/// How often the processes are counted where they are limited.
const COUNTING: Duration = Duration::from_millis(500);
/// How long the kernel may take to end processes after SIGKILL. Leaving ends them in any case.
const KILL_PATIENCE: Duration = Duration::from_secs(1);

/// Blocks the signals that are read from a descriptor from now on; children start with all of them at default.
pub(super) fn take_signals() -> Result<Signals, SignalError> {
    let mut signals = FORWARDED.to_vec();
    signals.push(Signal::CHILD);
    Signals::take(&signals)
}

/// The supervisor is gone, so the sandbox ends.
struct Orphaned;

/// How far the ending has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The command runs.
    Running,
    /// SIGTERM was sent; SIGKILL follows at the time given.
    Ending(Instant),
    /// SIGKILL was sent; no wait is longer than this.
    Killed(Instant),
}

struct Supervision<'guest> {
    control: &'guest Control,
    signals: &'guest Signals,
    command: Pid,
    spec: &'guest GuestSpec,
    guard: Option<&'guest Guard>,
    grace: Duration,
    phase: Phase,
    end: Option<GuestEnd>,
    counting: Counting,
}

/// The limit of processes, until it is known to have been reached.
#[derive(Debug, Clone, Copy)]
enum Counting {
    /// There is none here, or it is counted elsewhere.
    Idle,
    /// It is looked at again at the time given.
    Due(Crowd, Instant),
    /// It was reached.
    Reached,
}

impl Counting {
    fn look(&mut self) {
        if let Counting::Due(crowd, _) = *self {
            *self = match crowd.is_reached() {
                true => Counting::Reached,
                false => Counting::Due(crowd, Instant::now() + COUNTING),
            };
        }
    }
}

/// Supervises until no process is left, and returns the command's status.
pub(super) fn until_the_end(
    control: &Control,
    signals: &Signals,
    command: Pid,
    spec: &GuestSpec,
    guard: Option<&Guard>,
) -> u8 {
    let grace = Duration::from_millis(spec.grace_ms.into());
    let phase = Phase::Running;
    let counting =
        Crowd::of(spec).map_or(Counting::Idle, |crowd| Counting::Due(crowd, Instant::now() + COUNTING));
    let mut supervision =
        Supervision { control, signals, command, spec, guard, grace, phase, end: None, counting };
    let started = GuestReport::Started { pid: command.as_raw_pid() };
    let outcome = control.report(&started, &[]).map_err(|_gone| Orphaned).and_then(|()| supervision.run());
    if outcome.is_err() {
        kill_everyone();
        return ExitCode::LaunchFailed.code();
    }
    supervision.end.map_or(ExitCode::LaunchFailed.code(), GuestEnd::status)
}

impl Supervision<'_> {
    fn run(&mut self) -> Result<(), Orphaned> {
        loop {
            let ready = self.wait();
            if ready.signals && self.handle_signals()? == Family::Gone {
                return Ok(());
            }
            if ready.control {
                self.obey()?;
            }
            if ready.reports {
                self.report_held(Reports::take)?;
            }
            if self.advance() == Family::Gone {
                return Ok(());
            }
        }
    }

    /// Sleeps until there is a signal, an order, or the time of the phase or for counting is over.
    fn wait(&self) -> ReadySources {
        let until = match (self.phase, self.counting) {
            (Phase::Running, Counting::Idle | Counting::Reached) => None,
            (Phase::Running, Counting::Due(_, until)) => Some(until),
            (Phase::Ending(until) | Phase::Killed(until), _) => Some(until),
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut polled = vec![
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
        ];
        polled
            .extend(self.guard.map(|guard| PollFd::from_borrowed_fd(guard.reports().bell(), PollFlags::IN)));
        // An interrupted or failed poll leaves no source ready; the loop polls again.
        rustix::event::poll(&mut polled, left.as_ref()).ok();
        let is_ready = |at: usize| polled.get(at).is_some_and(|polled| !polled.revents().is_empty());
        ReadySources { signals: is_ready(0), control: is_ready(1), reports: is_ready(2) }
    }

    /// Reports what the guard held back, and asks what it wants to know.
    fn report_held(&self, take: fn(&Reports) -> Vec<GuestReport>) -> Result<(), Orphaned> {
        let Some(guard) = self.guard else { return Ok(()) };
        for report in take(guard.reports()) {
            match self.control.report(&report, &[]) {
                Ok(()) => {}
                // The content of a report comes from the command, so a failure to encode it must not end the supervision.
                Err(ControlError::Codec(_)) => guard.reports().count_unsent(),
                Err(ControlError::Message(_)) => return Err(Orphaned),
            }
        }
        Ok(())
    }

    fn handle_signals(&mut self) -> Result<Family, Orphaned> {
        // A signal descriptor fails only if it is closed, which nothing here does.
        while let Ok(Some(number)) = self.signals.next() {
            if number == Signal::CHILD.as_raw() {
                if self.reap()? == Family::Gone {
                    return Ok(Family::Gone);
                }
            } else {
                self.forward(number);
            }
        }
        Ok(Family::Alive)
    }

    fn reap(&mut self) -> Result<Family, Orphaned> {
        loop {
            match process::reap_any() {
                Ok(Reaped::Child(pid, ended)) if pid == self.command => self.command_ended(ended)?,
                Ok(Reaped::Stopped(pid)) if pid == self.command && self.end.is_none() => {
                    self.control.report(&GuestReport::Stopped, &[]).map_err(|_gone| Orphaned)?;
                }
                Ok(Reaped::Child(..) | Reaped::Stopped(_)) => {}
                Ok(Reaped::NoneEnded) | Err(_) => return Ok(Family::Alive),
                Ok(Reaped::NoChildren) => return Ok(Family::Gone),
            }
        }
    }

    fn command_ended(&mut self, ended: Ended) -> Result<(), Orphaned> {
        let end = match ended {
            Ended::Exited(code) => GuestEnd::Code(code),
            Ended::Killed(signal) => GuestEnd::Signal(signal),
        };
        self.end = Some(end);
        let usage = process::usage_of_children();
        let used = GuestUsage {
            cpu_ms: u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX),
            peak_memory_bytes: usage.peak_memory,
        };
        let full = super::root::is_full(self.spec);
        self.report_held(Reports::take_last)?;
        self.counting.look();
        let crowded = matches!(self.counting, Counting::Reached);
        let report = GuestReport::Exited { end, used, full, crowded };
        self.control.report(&report, &[]).map_err(|_gone| Orphaned)?;
        self.begin_ending();
        Ok(())
    }

    /// Forwards a signal to the command's process group; an error means that the group has ended.
    fn forward(&self, number: i32) {
        if self.end.is_none() {
            process::signal(Target::Group(self.command), number).ok();
        }
    }

    fn obey(&mut self) -> Result<(), Orphaned> {
        match self.control.order(ORDER_PATIENCE) {
            Ok(GuestOrder::Signal { signal }) => self.forward(signal),
            Ok(GuestOrder::Stop) => self.begin_ending(),
            Ok(GuestOrder::Start) => {}
            Ok(GuestOrder::Answer { number, answer }) => {
                self.guard.iter().for_each(|guard| guard.answer(number, answer));
            }
            // A garbled message is treated like a lost supervisor.
            Err(_gone_or_garbled) => return Err(Orphaned),
        }
        Ok(())
    }

    fn begin_ending(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Ending(Instant::now() + self.grace);
            // A caller that waits takes no signal that it handles.
            self.guard.iter().for_each(|guard| guard.end_asking());
            // A stopped process takes SIGTERM only once it goes on.
            for signal in [Signal::TERM, Signal::CONT] {
                process::signal(Target::Everyone, signal.as_raw()).ok();
            }
        }
    }

    /// Counts and moves on when the time for it has come.
    fn advance(&mut self) -> Family {
        let now = Instant::now();
        match self.phase {
            Phase::Running => {
                if matches!(self.counting, Counting::Due(_, until) if until <= now) {
                    self.counting.look();
                }
                Family::Alive
            }
            Phase::Ending(until) if until <= now => {
                kill_everyone();
                self.phase = Phase::Killed(now + KILL_PATIENCE);
                Family::Alive
            }
            Phase::Killed(until) if until <= now => Family::Gone,
            Phase::Ending(_) | Phase::Killed(_) => Family::Alive,
        }
    }
}

struct ReadySources {
    signals: bool,
    control: bool,
    reports: bool,
}

/// Whether there are still processes here.
#[derive(Debug, PartialEq, Eq)]
enum Family {
    Alive,
    Gone,
}

/// Kills every process but this one, which is the first of its namespace.
fn kill_everyone() {
    process::signal(Target::Everyone, Signal::KILL.as_raw()).ok();
}
