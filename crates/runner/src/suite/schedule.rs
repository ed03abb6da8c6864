//! Runs many trials at once, each in its own belljar process: a crash does not affect the others, and the resources of
//! each are known.
//!
//! A worker ends when its standard input is closed, so that none outlives this process, however it ends.

use crate::session::supervise::{SuperviseError, take_signals};
use belljar_sys::signal::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The most output of a worker that is kept.
const LONGEST: usize = 64 << 20;

/// One trial of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub name: String,
    /// The arguments of its belljar process.
    pub arguments: Vec<OsString>,
}

/// The trials of a suite, and how they are run.
#[derive(Debug, Clone)]
pub struct SuiteRequest {
    pub program: PathBuf,
    /// The trials, in the order in which they are started.
    pub jobs: Vec<Job>,
    /// The number of concurrent trials; twice the processors if `None`.
    pub at_once: Option<NonZero<usize>>,
    /// Whether a trial that does not pass prevents the remaining ones from starting.
    pub fail_fast: bool,
}

/// An event of a suite.
#[derive(Debug)]
pub enum SuiteNews {
    Began {
        job: usize,
    },
    Ended {
        job: usize,
        outcome: WorkerOutcome,
    },
    Tick,
    /// belljar was asked to end: running trials are ended, and no more are started.
    Stopping,
}

#[derive(Debug)]
pub struct WorkerOutcome {
    /// The exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    pub output: Vec<u8>,
    /// The worker's standard error.
    pub complaints: String,
    /// How long it took.
    pub duration: Duration,
    /// Whether the suite had been asked to end before the worker did.
    pub interrupted: bool,
}

/// How a suite ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuiteEnd {
    /// The number of trials that were not started.
    pub not_started: usize,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

/// Why a suite could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    #[error(transparent)]
    Signals(#[from] SuperviseError),
    /// A worker could not be started.
    #[error("cannot start a worker")]
    Start(#[source] std::io::Error),
}

enum Message {
    Ended { job: usize, outcome: WorkerOutcome },
    Signal,
}

struct Worker {
    pid: Pid,
    /// Kept open for as long as the worker may live.
    _input: Option<std::process::ChildStdin>,
}

/// Runs all trials and reports events as they happen. A signal that would end belljar ends the running trials, and no
/// other is started.
///
/// # Errors
/// If signals cannot be handled or no worker can be started.
pub fn run_suite(request: &SuiteRequest, report: &mut dyn FnMut(SuiteNews)) -> Result<SuiteEnd, SuiteError> {
    let (sender, messages) = channel();
    watch_signals(&sender)?;
    let at_once = at_once(request.at_once);
    let mut waiting = request.jobs.iter().enumerate();
    let mut running: BTreeMap<usize, Worker> = BTreeMap::new();
    let mut begun = 0;
    let mut open = true;
    let mut interrupted = false;
    loop {
        while open && running.len() < at_once {
            let Some((job, wanted)) = waiting.next() else { break };
            running.insert(job, start(request, job, wanted, &sender)?);
            begun += 1;
            report(SuiteNews::Began { job });
        }
        if running.is_empty() {
            return Ok(SuiteEnd { not_started: request.jobs.len() - begun, interrupted });
        }
        match next(&messages) {
            None => report(SuiteNews::Tick),
            Some(Message::Ended { job, mut outcome }) => {
                running.remove(&job);
                outcome.interrupted = interrupted;
                open &= !(request.fail_fast && outcome.status != Some(0));
                report(SuiteNews::Ended { job, outcome });
            }
            Some(Message::Signal) => {
                (open, interrupted) = (false, true);
                report(SuiteNews::Stopping);
                for worker in running.values() {
                    // A worker that has just ended needs no signal.
                    kill_process(worker.pid, Signal::TERM).ok();
                }
            }
        }
    }
}

/// How many jobs run at once; twice the processors if the user does not say.
pub(crate) fn at_once(wanted: Option<NonZero<usize>>) -> usize {
    let twice = || thread::available_parallelism().map_or(2, NonZero::get) * 2;
    wanted.map_or_else(twice, NonZero::get)
}

fn next(messages: &Receiver<Message>) -> Option<Message> {
    messages.recv_timeout(Duration::from_secs(1)).ok()
}

fn start(
    request: &SuiteRequest,
    job: usize,
    wanted: &Job,
    sender: &Sender<Message>,
) -> Result<Worker, SuiteError> {
    let began = Instant::now();
    // outside: suite-worker
    let mut child = Command::new(&request.program)
        .args(&wanted.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // An interrupt at the terminal is for the suite: a worker that received it as well would end first, and another
        // would start.
        .process_group(0)
        .spawn()
        .map_err(SuiteError::Start)?;
    let input = child.stdin.take();
    let pid = Pid::from_child(&child);
    let sender = sender.clone();
    let follow = move || {
        let outcome = follow(child, began);
        // The receiver is dropped if the suite ended with an error.
        sender.send(Message::Ended { job, outcome }).ok();
    };
    thread::Builder::new().name("worker".to_owned()).spawn(follow).map_err(SuiteError::Start)?;
    Ok(Worker { pid, _input: input })
}

fn follow(mut child: Child, began: Instant) -> WorkerOutcome {
    let streams = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
    let [output, complaints] = read_both(streams);
    let status = child.wait().ok().and_then(|status| status.code());
    WorkerOutcome {
        status,
        output,
        complaints: String::from_utf8_lossy(&complaints).into_owned(),
        duration: began.elapsed(),
        interrupted: false,
    }
}

/// Reads both streams concurrently: a worker whose one stream is full would block, and never finish the other.
fn read_both(mut streams: [Option<OwnedFd>; 2]) -> [Vec<u8>; 2] {
    let mut kept = [Vec::new(), Vec::new()];
    let mut piece = [0; 8 << 10];
    while streams.iter().any(Option::is_some) {
        let mut polled: Vec<PollFd<'_>> =
            streams.iter().flatten().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        if !matches!(poll(&mut polled, None), Ok(_) | Err(Errno::INTR)) {
            break;
        }
        let mut ready =
            polled.iter().map(|polled| !polled.revents().is_empty()).collect::<Vec<_>>().into_iter();
        for (stream, kept) in streams.iter_mut().zip(&mut kept) {
            let Some(open) = stream.as_ref().filter(|_| ready.next() == Some(true)) else { continue };
            match rustix::io::read(open, &mut piece) {
                // Bytes read so far count; an error is treated like the end of the stream.
                Ok(0) => *stream = None,
                Ok(count) => kept.extend_from_slice(&piece[..count.min(LONGEST - kept.len())]),
                Err(Errno::INTR) => {}
                Err(_) => *stream = None,
            }
        }
    }
    kept
}

/// Turns signals that would end belljar into messages.
fn watch_signals(sender: &Sender<Message>) -> Result<(), SuiteError> {
    let signals = take_signals()?;
    let sender = sender.clone();
    let watch = move || {
        loop {
            let descriptor = signals.as_fd();
            let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
            if !matches!(poll(&mut polled, None), Ok(_) | Err(Errno::INTR)) {
                return;
            }
            match signals.next() {
                Ok(None) => {}
                Ok(Some(signal)) if signal == Signal::WINCH.as_raw() => {}
                Ok(Some(_)) if sender.send(Message::Signal).is_ok() => {}
                Ok(Some(_)) | Err(_) => return,
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(SuiteError::Start)?;
    Ok(())
}

/// The signals that end a command which works in its own process. While a trial runs, they are for that trial, which
/// reports that it was interrupted.
#[derive(Debug)]
pub struct EndSignals(Signals);

impl EndSignals {
    /// # Errors
    /// If signals cannot be handled.
    pub fn take() -> Result<Self, SuiteError> {
        Ok(Self(take_signals()?))
    }

    /// Whether one arrived since the last call.
    ///
    /// # Errors
    /// If signals cannot be read.
    pub fn arrived(&self) -> Result<bool, SuiteError> {
        let mut arrived = false;
        while let Some(signal) = self.0.next().map_err(SuperviseError::from)? {
            arrived |= signal != Signal::WINCH.as_raw();
        }
        Ok(arrived)
    }
}

/// Ends this process properly when its standard input is closed: for a worker, whose suite holds the other end.
///
/// # Errors
/// If no thread can be started.
pub fn end_with_input() -> Result<(), SuiteError> {
    // Blocked from here on in every thread: the run reads them as data.
    take_signals()?;
    let watch = || {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        kill_process(rustix::process::getpid(), Signal::TERM).ok();
    };
    thread::Builder::new().name("suite".to_owned()).spawn(watch).map_err(SuiteError::Start)?;
    Ok(())
}
