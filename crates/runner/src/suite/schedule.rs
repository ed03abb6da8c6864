//! Many trials at once, each in a belljar of its own: one that crashes takes no other with it, and what each used is known.
//!
//! A worker is told to end by the end of its standard input, so that none outlives this process, however that ends.

use crate::session::supervise::{SuperviseError, take_signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What a worker prints; more is not kept.
const LONGEST: usize = 64 << 20;

/// One trial of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What it is called.
    pub name: String,
    /// What its belljar is told.
    pub arguments: Vec<OsString>,
}

/// How trials are run.
#[derive(Debug, Clone)]
pub struct SuiteRequest {
    /// belljar.
    pub program: PathBuf,
    /// The trials, in the order in which they are begun.
    pub jobs: Vec<Job>,
    /// How many at once.
    pub at_once: usize,
    /// Whether one that does not pass stops those that have not begun.
    pub fail_fast: bool,
}

/// What happens in a suite.
#[derive(Debug)]
pub enum SuiteNews {
    /// A trial began.
    Began {
        /// Which.
        job: usize,
    },
    /// A trial ended.
    Ended {
        /// Which.
        job: usize,
        /// How.
        outcome: WorkerOutcome,
    },
    /// A second went by.
    Tick,
    /// belljar was asked to end; what has begun is ended, nothing more begins.
    Stopping,
}

/// How a worker ended.
#[derive(Debug)]
pub struct WorkerOutcome {
    /// Its status; none where a signal ended it.
    pub status: Option<i32>,
    /// What it printed.
    pub output: Vec<u8>,
    /// What it told people.
    pub complaints: String,
    /// How long it took.
    pub duration: Duration,
}

/// Why a suite could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// Signals.
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
    /// Open for as long as the worker may live.
    _input: Option<std::process::ChildStdin>,
}

/// Runs everything, and tells of it as it happens. How many trials never began.
///
/// # Errors
/// When signals cannot be taken or no worker can be started.
pub fn run_suite(request: &SuiteRequest, tell: &mut dyn FnMut(SuiteNews)) -> Result<usize, SuiteError> {
    let (sender, messages) = channel();
    watch_signals(&sender)?;
    let mut waiting = request.jobs.iter().enumerate();
    let mut running: BTreeMap<usize, Worker> = BTreeMap::new();
    let mut begun = 0;
    let mut open = true;
    loop {
        while open && running.len() < request.at_once.max(1) {
            let Some((job, wanted)) = waiting.next() else { break };
            running.insert(job, start(request, job, wanted, &sender)?);
            begun += 1;
            tell(SuiteNews::Began { job });
        }
        if running.is_empty() {
            return Ok(request.jobs.len() - begun);
        }
        match next(&messages) {
            None => tell(SuiteNews::Tick),
            Some(Message::Ended { job, outcome }) => {
                running.remove(&job);
                open &= !(request.fail_fast && outcome.status != Some(0));
                tell(SuiteNews::Ended { job, outcome });
            }
            Some(Message::Signal) => {
                open = false;
                tell(SuiteNews::Stopping);
                for worker in running.values() {
                    // One that has just ended needs no signal.
                    kill_process(worker.pid, Signal::TERM).ok();
                }
            }
        }
    }
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
        // An interrupt at the terminal is for the suite: a worker that heard it too would end first, and another begin.
        .process_group(0)
        .spawn()
        .map_err(SuiteError::Start)?;
    let input = child.stdin.take();
    let pid = Pid::from_child(&child);
    let sender = sender.clone();
    let follow = move || {
        let outcome = follow(child, began);
        // Nobody listens any more when the suite has ended by an error.
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
    }
}

/// Reads both to their ends as they come: a worker whose words are not taken from the one gets nowhere on the other.
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
                // What could be read counts; a stream that breaks is as good as one that ends.
                Ok(0) => *stream = None,
                Ok(count) => kept.extend_from_slice(&piece[..count.min(LONGEST - kept.len())]),
                Err(Errno::INTR) => {}
                Err(_) => *stream = None,
            }
        }
    }
    kept
}

/// Signals that would end belljar become messages.
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

/// Ends this process in order when its standard input ends: for a worker, whose suite holds the other end.
///
/// # Errors
/// When no thread can be started.
pub fn end_with_input() -> Result<(), SuiteError> {
    // Blocked from here on, in every thread: the run reads them as data.
    take_signals()?;
    let watch = || {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        kill_process(rustix::process::getpid(), Signal::TERM).ok();
    };
    thread::Builder::new().name("suite".to_owned()).spawn(watch).map_err(SuiteError::Start)?;
    Ok(())
}
