//! The first process of the sandbox.
//!
//! It closes what is still open, starts the command, and stays: it reaps, forwards signals, and ends everything
//! when the command ends or the supervisor is gone. It runs under the same restrictions as the command, and cannot be
//! traced by it.
//!
//! The order matters. The root comes first, so that everything after it is opened inside. Listeners are opened before the
//! restrictions that would prevent it; the bounding set is emptied while there is still a capability to do it with; the
//! filter comes last, when nothing that it refuses is needed any more, and before the fork, so that no process ever runs
//! here without it. The guard comes after all of them: its threads have the same restrictions as this one, and only
//! processes started from here are guarded.

mod command;
mod control;
mod crowd;
mod listen;
mod root;
mod seal;
mod supervise;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use belljar_contract::{
    ExitCode, GuestBeginning, GuestOrder, GuestReport, GuestSpec, GuestStep, causes, with_causes,
};
use belljar_sys::{Errno, fds, privs, signal::Signals};
use rustix::process::Signal;

use crate::arguments::Line;
use crate::guard::Guard;
use control::Control;

/// How long the supervisor may take to give the order to start.
const SETUP_PATIENCE: Duration = Duration::from_secs(60);

/// A step that failed: the sandbox ends.
#[derive(Debug)]
struct Refusal {
    step: GuestStep,
    errno: i32,
    detail: String,
}

impl Refusal {
    fn new(step: GuestStep, error: &(dyn std::error::Error + 'static)) -> Self {
        Refusal { step, errno: errno_below(error), detail: with_causes(error) }
    }

    fn because(step: GuestStep, detail: impl Into<String>) -> Self {
        Refusal { step, errno: 0, detail: detail.into() }
    }
}

/// The errno at the bottom of a chain of causes, 0 if there is none.
fn errno_below(error: &(dyn std::error::Error + 'static)) -> i32 {
    let errno = |error: &(dyn std::error::Error + 'static)| {
        let io = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        error.downcast_ref::<Errno>().map(|errno| errno.raw_os_error()).or(io)
    };
    causes(error).find_map(errno).unwrap_or(0)
}

/// Runs as the first process and gives the status to exit with.
pub(crate) fn run(line: Line) -> u8 {
    // The engine ends its containers itself.
    let of_bubblewrap = matches!(line, Line::Inherited(_));
    let control = match begin(line) {
        Ok(control) => control,
        Err(refusal) => {
            crate::complain(&refusal.detail);
            return ExitCode::LaunchFailed.code();
        }
    };
    match set_up(&control, of_bubblewrap) {
        Ok(Ready { spec, signals, streams, guard }) => {
            let started = command::start(&spec, &streams);
            drop(streams);
            match started {
                Ok(pid) => supervise::until_the_end(&control, &signals, pid, &spec, guard.as_ref()),
                Err(failure) => command::refuse(&control, failure),
            }
        }
        Err(refusal) => refuse(&control, refusal),
    }
}

/// Everything that is in place when the command may start.
struct Ready {
    spec: GuestSpec,
    signals: Signals,
    streams: command::Streams,
    guard: Option<Guard>,
}

fn refuse(control: &Control, refusal: Refusal) -> u8 {
    let Refusal { step, errno, detail } = refusal;
    let report = GuestReport::SetupFailed { step, errno, detail: detail.clone() };
    if control.report(&report, &[]).is_err() {
        crate::complain(&detail);
    }
    ExitCode::LaunchFailed.code()
}

/// Closes every descriptor but the streams and the control socket, before anything is read.
fn begin(line: Line) -> Result<Control, Refusal> {
    let step = GuestStep::Begin;
    let socket = match line {
        Line::Inherited(control) => {
            fds::close_from_3_except(&[control]).map_err(|error| Refusal::new(step, &error))?;
            fds::adopt_inherited(control).map_err(|error| Refusal::new(step, &error))?
        }
        Line::At(path) => {
            fds::close_from_3_except(&[]).map_err(|error| Refusal::new(step, &error))?;
            UnixStream::connect(path).map_err(|error| Refusal::new(step, &error))?.into()
        }
    };
    privs::not_dumpable().map_err(|error| Refusal::new(step, &error))?;
    privs::name(c"belljar-guest").map_err(|error| Refusal::new(step, &error))?;
    Ok(Control::new(socket))
}

fn set_up(control: &Control, of_bubblewrap: bool) -> Result<Ready, Refusal> {
    if std::process::id() != 1 {
        let detail = "not the first process of a pid namespace: processes could survive";
        return Err(Refusal::because(GuestStep::Begin, detail));
    }
    let signals = supervise::take_signals().map_err(|error| Refusal::new(GuestStep::Begin, &error))?;
    let (spec, mut attached) = control.spec()?;
    root::build(&spec, &mut attached)?;
    let terminal = command::open_terminal(&spec)?;
    let streams = command::Streams::open(&spec, attached, terminal.as_ref().map(|pair| &pair.terminal))?;
    if let Some(pair) = terminal {
        // The controlling end can inject input, so it leaves the sandbox before anything else is started here.
        control.report_terminal(pair.controller)?;
    }
    listen::take_range(spec.range)?;
    let listeners = listen::open_all(&spec.listeners)?;
    if !listeners.is_empty() {
        control.report_listeners(&spec.listeners, &listeners)?;
    }
    drop(listeners);
    let landlock = seal::close_all(&spec)?;
    if of_bubblewrap {
        // The end of bubblewrap ends the sandbox. The kernel clears this setting when the user id changes, so it comes
        // after that.
        privs::death_signal(Signal::KILL).map_err(|error| Refusal::new(GuestStep::Privileges, &error))?;
    }
    let guard = spec.guard.as_ref().map(Guard::stand).transpose();
    let guard = guard.map_err(|error| Refusal::new(GuestStep::Guard, &error))?;
    control
        .report(&GuestReport::Sealed { landlock }, &[])
        .map_err(|error| Refusal::new(GuestStep::Order, &error))?;
    match spec.beginning {
        GuestBeginning::AtOnce => {}
        GuestBeginning::OnOrder => await_start(control)?,
    }
    Ok(Ready { spec, signals, streams, guard })
}

fn await_start(control: &Control) -> Result<(), Refusal> {
    match control.order(SETUP_PATIENCE).map_err(|error| Refusal::new(GuestStep::Order, &error))? {
        GuestOrder::Start => Ok(()),
        GuestOrder::Stop | GuestOrder::Signal { .. } | GuestOrder::Answer { .. } => {
            Err(Refusal::because(GuestStep::Order, "stopped before the start"))
        }
    }
}
