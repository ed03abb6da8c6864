//! A program of the user's that answers: started once, a JSON line each way.

use super::PATIENCE;
use crate::talk::{Outside, Pending};
use belljar_session::Answer;
use belljar_session::decider::ExternalRequest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// A reply has at most this many bytes.
const LONGEST: usize = 1 << 20;

/// A program beside belljar, outside the sandbox: the user's own word on the command line started it.
pub struct CommandDecider {
    command: String,
    started: Option<Started>,
    asked: u64,
}

struct Started {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// Read, but not yet a line.
    held: Vec<u8>,
}

impl CommandDecider {
    /// A decider that the shell starts when the first question comes.
    #[must_use]
    pub fn new(command: String) -> Self {
        Self { command, started: None, asked: 0 }
    }

    fn started(&mut self) -> Result<&mut Started, String> {
        if self.started.is_none() {
            let spawned = Command::new("/bin/sh")
                .arg("-c")
                .arg(&self.command)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let mut child =
                spawned.map_err(|error| format!("`{}` cannot be started: {error}", self.command))?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("the decider has no streams".to_owned());
            };
            self.started = Some(Started { child, input, output, held: Vec::new() });
        }
        self.started.as_mut().ok_or_else(|| "the decider is gone".to_owned())
    }
}

impl Outside for CommandDecider {
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
            return Err(format!("no program is asked about {}", pending.question.about()));
        };
        let command = self.command.clone();
        let started = self.started()?;
        let sent = started.input.write_all(format!("{line}\n").as_bytes());
        sent.map_err(|error| format!("`{command}` does not listen: {error}"))?;
        let reply = started.line(&command)?;
        let reply = request.read_reply(&reply).map_err(|error| format!("`{command}`: {}", chain(&error)))?;
        Ok(reply.0)
    }
}

impl Started {
    fn line(&mut self, command: &str) -> Result<String, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.held.drain(..=at).collect();
                return String::from_utf8(line)
                    .map_err(|_broken| format!("`{command}` wrote a line that is not UTF-8"));
            }
            if self.held.len() > LONGEST {
                return Err(format!("`{command}` wrote a line that does not end"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|error| error.to_string())?;
            let stream = self.output.as_fd();
            let mut polled = [PollFd::new(&stream, PollFlags::IN)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => return Err(format!("`{command}` did not answer in {} s", PATIENCE.as_secs())),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.to_string()),
            }
            let mut buffer = [0; 4096];
            match self.output.read(&mut buffer) {
                Ok(0) => return Err(format!("`{command}` ended without an answer")),
                Ok(count) => self.held.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("`{command}` cannot be read: {error}")),
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Its input is closed with `self`, which is the word to end; one that does not hear it is ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// An error and its causes in a line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}
