//! Child processes with a time limit.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of bytes kept of each output. The rest is read and dropped, so that a full pipe does not block the
/// child.
const KEPT_OUTPUT_BYTES: u64 = 64 * 1024 * 1024;

/// A child that exited by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub status: ExitStatus,
    /// Standard output; invalid UTF-8 is replaced.
    pub stdout: String,
    /// Standard error; invalid UTF-8 is replaced.
    pub stderr: String,
}

/// Why a child did not finish.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started.
    #[error("cannot start {program}")]
    Start {
        program: String,
        #[source]
        cause: io::Error,
    },
    /// It could not be waited for.
    #[error("cannot wait for {program}")]
    Wait {
        program: String,
        #[source]
        cause: io::Error,
    },
    /// It was still running, or one of its descendants still held its outputs, when the time was up; it was killed.
    #[error("{program} did not end within {within:?}")]
    TimedOut { program: String, within: Duration },
}

/// Copies a program that a test is going to run.
///
/// Another process writes the copy. A descriptor of this process would be inherited for a moment by children of other
/// tests, and a program that is open for writing anywhere cannot be executed.
///
/// # Errors
/// When the copy fails; `cp` prints the reason to standard error.
pub fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    let copied = Command::new("cp").args(["--preserve=mode", "--"]).args([from, to]).status()?;
    if copied.success() { Ok(()) } else { Err(io::Error::other(format!("cp ended with {copied}"))) }
}

/// Runs a command without input, and kills it when the time is up.
///
/// # Errors
/// When the command cannot be started, or does not end in time.
pub fn run_within(command: &mut Command, within: Duration) -> Result<Finished, RunError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(cause) => return Err(RunError::Start { program, cause }),
    };
    let outputs = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
    let mut texts = outputs.into_iter().map(|output| match output {
        Some(output) => output.recv_timeout(within.saturating_sub(began.elapsed())),
        None => Ok(String::new()),
    });
    let (stdout, stderr) = (texts.next(), texts.next());
    let timed_out =
        [&stdout, &stderr].iter().any(|text| matches!(text, Some(Err(RecvTimeoutError::Timeout))));
    if timed_out {
        // An error means that it has just exited by itself; it is still too late.
        child.kill().ok();
    }
    let status = match child.wait() {
        Ok(status) => status,
        Err(cause) => return Err(RunError::Wait { program, cause }),
    };
    if timed_out {
        return Err(RunError::TimedOut { program, within });
    }
    let text = |text: Option<Result<String, RecvTimeoutError>>| text.and_then(Result::ok).unwrap_or_default();
    Ok(Finished { status, stdout: text(stdout), stderr: text(stderr) })
}

/// Reads an output on a separate thread; the end of both outputs counts as the end of the child.
fn collect(mut output: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A read error counts as the end of the output.
        output.by_ref().take(KEPT_OUTPUT_BYTES).read_to_end(&mut bytes).ok();
        io::copy(&mut output, &mut io::sink()).ok();
        // The receiver is gone if the time was up.
        send.send(String::from_utf8_lossy(&bytes).into_owned()).ok();
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_and_status_are_returned() {
        let mut command = Command::new("sh");
        let finished = run_within(
            command.args(["-c", "echo out; echo err >&2; read x; exit 3"]),
            Duration::from_secs(30),
        );
        let finished = finished.unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_late_child_is_killed() {
        let late = run_within(Command::new("sleep").arg("600"), Duration::from_millis(50));
        assert!(matches!(late, Err(RunError::TimedOut { .. })), "{late:?}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let missing = run_within(&mut Command::new("no-such-program"), Duration::from_secs(30)).unwrap_err();
        assert_eq!(missing.to_string(), "cannot start no-such-program");
    }
}
