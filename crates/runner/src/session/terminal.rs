//! The user's end of the streams: a pseudo-terminal if the user has a terminal, a relay for an output that is the
//! user's terminal, and the streams themselves if they are files or pipes.

mod console;

use crate::session::console::Console;
use crate::session::prompt::{Prompt, Typed};
use crate::session::screen::Screen;
use belljar_contract::{HeldAnswer, visible};
use belljar_sandbox::{StreamEnd, Streams};
use belljar_sys::pty::{self, RawMode};
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::stdio::{stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The most input that is buffered for a program that does not read.
const HELD: usize = 64 << 10;

/// How long the command's terminal has a different size after a question: long enough for a program to notice.
const NUDGE: Duration = Duration::from_millis(80);

/// The terminal could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the terminal")]
pub struct TerminalError(#[source] pub std::io::Error);

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TerminalError {
    TerminalError(std::io::Error::other(error))
}

/// The stream of belljar that output is copied to.
#[derive(Debug, Clone, Copy)]
enum Sink {
    Stdin,
    Stdout,
    Stderr,
}

impl Sink {
    /// The stream that leads to the user's terminal. Standard output may be a file, which gets only the command's
    /// standard output.
    fn terminal() -> Self {
        if pty::is_terminal(stdout()) {
            Sink::Stdout
        } else if pty::is_terminal(stderr()) {
            Sink::Stderr
        } else {
            // A terminal can be written to through its input as well.
            Sink::Stdin
        }
    }
}

impl Drop for Terminal {
    /// Runs before the user's terminal mode is restored and before belljar prints.
    fn drop(&mut self) {
        self.settle(HeldAnswer::Unanswered, None);
        self.reset();
    }
}

/// An output of the command that is copied to the user's terminal.
#[derive(Debug)]
struct Relay {
    from: OwnedFd,
    to: Sink,
    open: bool,
}

/// The streams of one run.
#[derive(Debug)]
pub struct Terminal {
    pty: Option<OwnedFd>,
    raw: Option<RawMode<'static>>,
    relays: Vec<Relay>,
    held: Vec<u8>,
    stdin_open: bool,
    /// The tracked state of the user's terminal, and the stream that leads to it.
    screen: Screen,
    used: Sink,
    prompt: Option<Prompt>,
    /// When the size of the command's terminal, which was changed to make the command redraw, is restored.
    nudged: Option<Instant>,
}

/// Whether a command that the user starts gets a pseudo-terminal.
#[must_use]
pub fn is_interactive() -> bool {
    Terminal::wanted()
}

impl Terminal {
    /// Whether the command will have one; decided before anything is opened.
    #[must_use]
    pub fn wanted() -> bool {
        pty::is_terminal(stdin())
    }

    /// Opens the streams. The backend opens a terminal for the command where the command sees it; the user's terminal
    /// is not changed before [`Terminal::enter`].
    ///
    /// # Errors
    /// If descriptors are exhausted.
    pub fn open() -> Result<(Self, Streams), TerminalError> {
        let mut terminal = Self {
            pty: None,
            raw: None,
            relays: Vec::new(),
            held: Vec::new(),
            stdin_open: true,
            screen: Screen::default(),
            used: Sink::terminal(),
            prompt: None,
            nudged: None,
        };
        let wanted = Self::wanted();
        let stdin_end = if wanted { StreamEnd::Terminal } else { StreamEnd::Open(copy_or_null(stdin())?) };
        let mut output = |stream: BorrowedFd<'static>, to: Sink| match (wanted, pty::is_terminal(stream)) {
            (true, true) => Ok(StreamEnd::Terminal),
            (false, true) => {
                let (from, into) =
                    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed)?;
                terminal.relays.push(Relay { from, to, open: true });
                Ok(StreamEnd::Open(into))
            }
            (_, false) => copy_or_null(stream).map(StreamEnd::Open),
        };
        let (stdout_end, stderr_end) = (output(stdout(), Sink::Stdout)?, output(stderr(), Sink::Stderr)?);
        Ok((terminal, Streams { stdin: stdin_end, stdout: stdout_end, stderr: stderr_end }))
    }

    /// Takes the controlling end of the command's terminal and sets its size to that of the user's.
    ///
    /// # Errors
    /// If it cannot be resized.
    pub fn attach(&mut self, controller: OwnedFd) -> Result<(), TerminalError> {
        if let Ok(size) = pty::size(stdin()) {
            pty::resize(controller.as_fd(), size).map_err(failed)?;
        }
        let flags = rustix::fs::fcntl_getfl(&controller).map_err(failed)?;
        rustix::fs::fcntl_setfl(&controller, flags | OFlags::NONBLOCK).map_err(failed)?;
        self.pty = Some(controller);
        Ok(())
    }

    /// Takes over the user's terminal; it is restored when `self` is dropped, on every path.
    ///
    /// # Errors
    /// If the terminal cannot be switched to raw mode.
    pub fn enter(&mut self) -> Result<(), TerminalError> {
        if self.pty.is_some() {
            self.raw = Some(RawMode::enter(stdin()).map_err(failed)?);
        }
        Ok(())
    }

    /// Copies output of the command to the user's terminal.
    fn show(&mut self, to: Sink, bytes: &[u8]) {
        write_all(to, bytes);
        self.screen.see(bytes);
        self.used = to;
    }

    /// Restores the terminal to a state in which text can be read.
    fn reset(&mut self) {
        write_all(self.used, self.screen.reset().as_bytes());
    }

    fn take_input(&mut self, buffer: &mut [u8]) {
        // The answer to a question must be read even if the command does not read.
        let room = self.held.len() < HELD || self.prompt.is_some();
        if self.pty.is_some() && self.stdin_open && room && readable(stdin()) {
            match rustix::io::read(stdin(), &mut *buffer) {
                Ok(0) => self.stdin_open = false,
                Ok(count) => self.typed(&buffer[..count]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.stdin_open = false,
            }
            if !self.stdin_open {
                self.answered(HeldAnswer::No);
            }
        }
        let Some(controller) = &self.pty else { return };
        if !self.held.is_empty()
            && let Ok(count) = rustix::io::write(controller, &self.held)
        {
            self.held.drain(..count);
        }
    }

    /// Handles typed bytes: for the command, or for the open question.
    fn typed(&mut self, bytes: &[u8]) {
        let typed = match &mut self.prompt {
            None => Typed::ForCommand,
            Some(prompt) => prompt.typed(bytes, Instant::now()),
        };
        match typed {
            Typed::ForCommand if self.held.len() < HELD => self.held.extend_from_slice(bytes),
            Typed::ForCommand | Typed::Ignored => {}
            Typed::Answer(answer) => self.answered(answer),
        }
    }

    /// Only the first answer is accepted.
    fn answered(&mut self, answer: HeldAnswer) {
        if let Some(prompt) = &mut self.prompt {
            prompt.answer.get_or_insert(answer);
        }
    }

    /// Makes the command redraw. Programs do so when the size of their terminal changes, and many only then.
    fn nudge(&mut self) {
        let (Some(controller), Ok(size)) = (&self.pty, pty::size(stdin())) else { return };
        let smaller = pty::WindowSize { rows: size.rows.saturating_sub(1).max(1), ..size };
        // A terminal that has just been closed has no size to set.
        pty::resize(controller.as_fd(), smaller).ok();
        self.nudged = Some(Instant::now() + NUDGE);
    }
}

/// Replaces a closed standard stream by `/dev/null`: otherwise the next opened file would take its number.
fn copy_or_null(stream: BorrowedFd<'_>) -> Result<OwnedFd, TerminalError> {
    match stream.try_clone_to_owned() {
        Ok(copy) => Ok(copy),
        Err(error) if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) => {
            let null =
                std::fs::File::options().read(true).write(true).open("/dev/null").map_err(TerminalError)?;
            Ok(null.into())
        }
        Err(error) => Err(TerminalError(error)),
    }
}

fn readable(descriptor: BorrowedFd<'_>) -> bool {
    let mut polled = [rustix::event::PollFd::new(&descriptor, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(count) if count > 0)
}

/// Writes everything. An error means that the user's terminal is closed, and it cannot be reported anywhere.
fn write_all(sink: Sink, mut bytes: &[u8]) {
    let descriptor = match sink {
        Sink::Stdin => stdin(),
        Sink::Stdout => stdout(),
        Sink::Stderr => stderr(),
    };
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut polled = [rustix::event::PollFd::new(&descriptor, PollFlags::OUT)];
                rustix::event::poll(&mut polled, None).ok();
            }
            Err(_) => return,
        }
    }
}

/// Asks at the user's terminal without showing what is typed.
///
/// # Errors
/// If there is no terminal, or it is closed before an answer.
pub fn ask_hidden(message: &str) -> std::io::Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    use std::io::{BufRead, Write};
    let mut tty = std::fs::File::options().read(true).write(true).open("/dev/tty")?;
    let before = tcgetattr(&tty)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    hidden.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
    // Escapes control characters: a message from a manifest could otherwise fake a different question.
    tty.write_all(format!("{}: ", visible(message)).as_bytes())?;
    tcsetattr(&tty, OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = std::io::BufReader::new(&tty).read_line(&mut line);
    tcsetattr(&tty, OptionalActions::Now, &before)?;
    match read? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}
