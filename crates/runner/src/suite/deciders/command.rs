//! A decider that is a program of the user: started once, with one JSON line for each question and answer.

use crate::session::conversation::{ExternalDecider, Pending, Stopper};
use belljar_contract::with_causes;
use belljar_session::Answer;
use belljar_session::decider::ExternalRequest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest reply, in bytes.
const LONGEST: usize = 1 << 20;

/// A program that runs outside the sandbox, because the user named it on the command line.
pub struct CommandDecider {
    command: String,
    patience: Duration,
    started: Option<Started>,
    asked: u64,
    /// The running program, for the thread that stops it while this one waits.
    running: Arc<Mutex<Option<Pid>>>,
}

struct Started {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// Bytes that were read and are not a complete line yet.
    held: Vec<u8>,
    running: Arc<Mutex<Option<Pid>>>,
}

impl CommandDecider {
    /// A decider that is started with the shell at the first question, with this timeout for each answer.
    #[must_use]
    pub fn new(command: String, patience: Duration) -> Self {
        Self { command, patience, started: None, asked: 0, running: Arc::default() }
    }

    fn started(&mut self) -> Result<&mut Started, String> {
        if self.started.is_none() {
            // outside: decider-command
            let spawned = Command::new("/bin/sh")
                .arg("-c")
                .arg(&self.command)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let mut child =
                spawned.map_err(|error| format!("`{}` cannot be started: {error}", self.command))?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("the decider's standard streams were not opened".to_owned());
            };
            // Non-blocking, because a question can be longer than a pipe's buffer, and the program may not read.
            let waits = rustix::fs::fcntl_getfl(&input)
                .and_then(|flags| rustix::fs::fcntl_setfl(&input, flags | rustix::fs::OFlags::NONBLOCK));
            waits.map_err(|error| error.to_string())?;
            let running = Arc::clone(&self.running);
            *running.lock().unwrap_or_else(PoisonError::into_inner) = Some(Pid::from_child(&child));
            self.started = Some(Started { child, input, output, held: Vec::new(), running });
        }
        self.started.as_mut().ok_or_else(|| "the decider has ended".to_owned())
    }
}

impl ExternalDecider for CommandDecider {
    fn decide(&mut self, pending: &Pending) -> Result<Answer, String> {
        self.asked += 1;
        let id = self.asked.to_string();
        let request = ExternalRequest {
            id: &id,
            run: &pending.run,
            transcript: &pending.transcript,
            question: &pending.question,
        };
        let Some(line) = request.to_line() else {
            return Err(format!("a decider program cannot answer {}", pending.question.about()));
        };
        let (command, patience) = (self.command.clone(), self.patience);
        let started = self.started()?;
        let deadline = Instant::now() + patience;
        let late = || format!("`{command}` did not answer in {} s", patience.as_secs());
        started.say(&command, format!("{line}\n").as_bytes(), deadline)?.ok_or_else(late)?;
        let reply = started.line(&command, deadline)?.ok_or_else(late)?;
        let reply =
            request.read_reply(&reply).map_err(|error| format!("`{command}`: {}", with_causes(&error)))?;
        Ok(reply.0)
    }

    fn stopper(&self) -> Option<Stopper> {
        let running = Arc::clone(&self.running);
        Some(Box::new(move || {
            // The child was not waited for yet, so its number was not reused.
            if let Some(pid) = *running.lock().unwrap_or_else(PoisonError::into_inner) {
                kill_process(pid, Signal::KILL).ok();
            }
        }))
    }
}

impl Started {
    /// Writes a question; `None` if the program does not read it in time.
    fn say(&mut self, command: &str, mut bytes: &[u8], deadline: Instant) -> Result<Option<()>, String> {
        let deaf = |error: std::io::Error| format!("`{command}` does not read its input: {error}");
        while !bytes.is_empty() {
            if !ready(self.input.as_fd(), PollFlags::OUT, deadline).map_err(deaf)? {
                return Ok(None);
            }
            match self.input.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(deaf(error)),
            }
        }
        Ok(Some(()))
    }

    /// The next line; `None` if there is none in time.
    fn line(&mut self, command: &str, deadline: Instant) -> Result<Option<String>, String> {
        let broken = |error: std::io::Error| format!("cannot read from `{command}`: {error}");
        loop {
            if let Some(at) = self.held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.held.drain(..=at).collect();
                let line = String::from_utf8(line);
                return line
                    .map(Some)
                    .map_err(|_broken| format!("`{command}` wrote a line that is not UTF-8"));
            }
            if self.held.len() > LONGEST {
                return Err(format!("`{command}` wrote a line that is too long"));
            }
            if !ready(self.output.as_fd(), PollFlags::IN, deadline).map_err(broken)? {
                return Ok(None);
            }
            let mut buffer = [0; 4096];
            match self.output.read(&mut buffer) {
                Ok(0) => return Err(format!("`{command}` ended without an answer")),
                Ok(count) => self.held.extend_from_slice(&buffer[..count]),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock)
}

/// Waits for a stream. Returns whether it was ready before the deadline.
fn ready(stream: BorrowedFd<'_>, wanted: PollFlags, deadline: Instant) -> std::io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(std::io::Error::other)?;
    match poll(&mut [PollFd::new(&stream, wanted)], Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Dropping `self` closes its input, which asks it to end; if it does not, it is killed.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = None;
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
