//! A decider that is a program of the user: started once, with one JSON line for each question and answer.

use super::run_end::{RunEnd, Woken};
use crate::session::conversation::{ExternalDecider, Pending, Stopper};
use belljar_contract::with_causes;
use belljar_session::Answer;
use belljar_sys::process::Prepare;
use belljar_sys::session::end_all;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest reply, in bytes.
const LONGEST: usize = 1 << 20;
/// The time between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(1);
/// The time for killed processes to disappear.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// A program that runs outside the sandbox, because the user named it on the command line.
pub struct CommandDecider {
    command: String,
    patience: Duration,
    started: Option<Started>,
    asked: u64,
    run_end: RunEnd,
}

/// The program and the processes that it started, which end with this value.
struct Started {
    child: Child,
    /// `None` once the program is asked to end.
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Bytes that were read and are not a complete line yet.
    held: Vec<u8>,
}

impl CommandDecider {
    /// A decider that is started with the shell at the first question, with this timeout for each answer.
    ///
    /// # Errors
    /// If descriptors are used up.
    pub fn new(command: String, patience: Duration) -> std::io::Result<Self> {
        Ok(Self { command, patience, started: None, asked: 0, run_end: RunEnd::new()? })
    }

    fn started(&mut self) -> Result<&mut Started, String> {
        if self.started.is_none() {
            // outside: decider-command
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(&self.command).stdin(Stdio::piped()).stdout(Stdio::piped());
            // Its session holds the processes that it starts, so that they are found at the end. If belljar is killed,
            // the kernel kills the shell; this thread lives as long as the program.
            command.own_session().dies_with_spawner();
            let spawned = command.spawn();
            let mut child =
                spawned.map_err(|error| format!("`{}` cannot be started: {error}", self.command))?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("the decider's standard streams were not opened".to_owned());
            };
            // Non-blocking, because a question can be longer than a pipe's buffer, and the program may not read.
            let waits = rustix::fs::fcntl_getfl(&input)
                .and_then(|flags| rustix::fs::fcntl_setfl(&input, flags | rustix::fs::OFlags::NONBLOCK));
            self.started = Some(Started { child, input: Some(input), output, held: Vec::new() });
            waits.map_err(|error| error.to_string())?;
        }
        self.started.as_mut().ok_or_else(|| "the decider has ended".to_owned())
    }
}

impl ExternalDecider for CommandDecider {
    fn decide(&mut self, pending: &Pending) -> Result<Answer, String> {
        self.asked += 1;
        let id = self.asked.to_string();
        let request = pending.external(&id);
        let Some(line) = request.to_line() else {
            return Err(format!("a decider program cannot answer {}", pending.question.about()));
        };
        let (command, run_end) = (self.command.clone(), self.run_end.clone());
        let limit = Limit {
            command: &command,
            patience: self.patience,
            deadline: Instant::now() + self.patience,
            run_end: &run_end,
        };
        let started = self.started()?;
        if started.has_spoken() {
            return Err(format!("`{command}` wrote something before it was asked"));
        }
        started.say(format!("{line}\n").as_bytes(), &limit)?;
        let reply = started.line(&limit)?;
        let reply =
            request.read_reply(&reply).map_err(|error| format!("`{command}`: {}", with_causes(&error)))?;
        Ok(Answer { reason: "answered by the decider's program".to_owned(), ..reply.0 })
    }

    fn stopper(&self) -> Option<Stopper> {
        Some(self.run_end.stopper())
    }
}

/// How long an exchange with the program may take.
struct Limit<'a> {
    command: &'a str,
    patience: Duration,
    deadline: Instant,
    run_end: &'a RunEnd,
}

impl Limit<'_> {
    /// Waits for a stream of the program.
    fn wait(&self, stream: &impl AsFd, wanted: PollFlags) -> Result<(), String> {
        let Self { command, patience, deadline, run_end } = self;
        match run_end.wait(stream.as_fd(), wanted, Some(*deadline)) {
            Ok(Woken::Ready) => Ok(()),
            Ok(Woken::Late) => Err(format!("`{command}` did not answer in {} s", patience.as_secs())),
            Ok(Woken::RunEnded) => Err(format!("the run ended before `{command}` answered")),
            Err(error) => Err(format!("cannot wait for `{command}`: {error}")),
        }
    }
}

impl Started {
    /// Whether the program wrote something that answers no question.
    fn has_spoken(&self) -> bool {
        let mut polled = [PollFd::new(&self.output, PollFlags::IN)];
        let waited = poll(&mut polled, Some(&Timespec::default()));
        !self.held.is_empty() || (waited.is_ok() && polled[0].revents().contains(PollFlags::IN))
    }

    /// Writes a question.
    fn say(&mut self, mut bytes: &[u8], limit: &Limit<'_>) -> Result<(), String> {
        let Some(input) = &mut self.input else { return Err("the decider has ended".to_owned()) };
        while !bytes.is_empty() {
            limit.wait(input, PollFlags::OUT)?;
            match input.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(format!("`{}` does not read its input: {error}", limit.command)),
            }
        }
        Ok(())
    }

    /// Reads the next line.
    fn line(&mut self, limit: &Limit<'_>) -> Result<String, String> {
        let command = limit.command;
        loop {
            if let Some(at) = self.held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.held.drain(..=at).collect();
                return String::from_utf8(line)
                    .map_err(|_broken| format!("`{command}` wrote a line that is not UTF-8"));
            }
            if self.held.len() > LONGEST {
                return Err(format!("`{command}` wrote a line that is too long"));
            }
            limit.wait(&self.output, PollFlags::IN)?;
            let mut buffer = [0; 4096];
            match self.output.read(&mut buffer) {
                Ok(0) => return Err(format!("`{command}` ended without an answer")),
                Ok(count) => self.held.extend_from_slice(&buffer[..count]),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(format!("cannot read from `{command}`: {error}")),
            }
        }
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::Interrupted | std::io::ErrorKind::WouldBlock)
}

impl Drop for Started {
    /// Asks all processes of the program's session to end, and kills those that do not.
    fn drop(&mut self) {
        self.input = None;
        // Not waited for yet, so that no other session has its number.
        let leader = Pid::from_child(&self.child);
        if !end_all(leader, Signal::TERM, Instant::now() + GRACE) {
            end_all(leader, Signal::KILL, Instant::now() + AFTER_KILL);
        }
        // Ended already, unless /proc cannot be read.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
