//! Pseudo-terminals and the user's terminal.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Termios, Winsize};

/// Why an operation on a terminal failed.
#[derive(Debug, thiserror::Error)]
pub enum PtyError {
    /// The pair could not be opened.
    #[error("cannot open a pseudo-terminal")]
    Open(#[source] Errno),
    /// The size could not be read.
    #[error("cannot read the size of the terminal")]
    Size(#[source] Errno),
    /// The size could not be set.
    #[error("cannot set the size of the terminal")]
    Resize(#[source] Errno),
    /// The mode could not be read or set.
    #[error("cannot change the mode of the terminal")]
    Mode(#[source] Errno),
    /// The terminal could not become the controlling one of the session.
    #[error("cannot make it the terminal of this session")]
    Control(#[source] Errno),
}

/// A pair, both ends close-on-exec.
#[derive(Debug)]
pub struct Pair {
    /// Our end.
    pub controller: OwnedFd,
    /// The end that programs see as their terminal.
    pub terminal: OwnedFd,
}

impl Pair {
    /// Opens a pair. The other end is opened through ours, so it is right in any mount namespace.
    ///
    /// # Errors
    /// Fails if pseudo-terminals are used up.
    pub fn open() -> Result<Self, PtyError> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = rustix::pty::openpt(flags).map_err(PtyError::Open)?;
        rustix::pty::unlockpt(&controller).map_err(PtyError::Open)?;
        let terminal = rustix::pty::ioctl_tiocgptpeer(&controller, flags).map_err(PtyError::Open)?;
        Ok(Pair { controller, terminal })
    }
}

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// Reads the size.
///
/// # Errors
/// Fails if the descriptor is not a terminal.
pub fn size(terminal: BorrowedFd<'_>) -> Result<WindowSize, PtyError> {
    let size = rustix::termios::tcgetwinsize(terminal).map_err(PtyError::Size)?;
    Ok(WindowSize { rows: size.ws_row, columns: size.ws_col })
}

/// Sets the size; the programs in the foreground get `SIGWINCH`.
///
/// # Errors
/// Fails if the descriptor is not a terminal.
pub fn resize(terminal: BorrowedFd<'_>, size: WindowSize) -> Result<(), PtyError> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size).map_err(PtyError::Resize)
}

/// Makes the terminal the controlling one of the calling session leader.
///
/// # Errors
/// Fails if the caller leads no session or the terminal has one.
pub fn control(terminal: BorrowedFd<'_>) -> Result<(), PtyError> {
    rustix::process::ioctl_tiocsctty(terminal).map_err(PtyError::Control)
}

/// The user's terminal in raw mode, until dropped.
#[derive(Debug)]
pub struct RawMode<'terminal> {
    terminal: BorrowedFd<'terminal>,
    before: Termios,
}

impl<'terminal> RawMode<'terminal> {
    /// Switches to raw mode and remembers the mode before it, for [`Drop`] and for [`restore_from_signal`].
    ///
    /// # Errors
    /// Fails if the descriptor is not a terminal.
    pub fn enter(terminal: BorrowedFd<'terminal>) -> Result<Self, PtyError> {
        let before = rustix::termios::tcgetattr(terminal).map_err(PtyError::Mode)?;
        remember(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        let guard = RawMode { terminal, before };
        rustix::termios::tcsetattr(terminal, OptionalActions::Now, &raw).map_err(PtyError::Mode)?;
        Ok(guard)
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        SAVED.store(std::ptr::null_mut(), Ordering::SeqCst);
        // A terminal that has gone away needs no mode.
        rustix::termios::tcsetattr(self.terminal, OptionalActions::Now, &self.before).ok();
    }
}

/// The mode to go back to, in the form that a signal handler can use.
struct Saved {
    terminal: RawFd,
    mode: libc::termios,
}

static SAVED: AtomicPtr<Saved> = AtomicPtr::new(std::ptr::null_mut());

fn remember(terminal: BorrowedFd<'_>) -> Result<(), PtyError> {
    let mut mode = std::mem::MaybeUninit::<libc::termios>::uninit();
    // SAFETY: `tcgetattr` fills the structure it points at when it answers 0, and writes nothing beyond it.
    let answer = unsafe { libc::tcgetattr(terminal.as_raw_fd(), mode.as_mut_ptr()) };
    crate::raw::check(answer.into()).map_err(PtyError::Mode)?;
    // SAFETY: the call above answered 0.
    let mode = unsafe { mode.assume_init() };
    // Never freed: a handler in another thread may be reading it. Sixty bytes for each time raw mode is entered.
    let saved = Box::leak(Box::new(Saved { terminal: terminal.as_raw_fd(), mode }));
    SAVED.store(saved, Ordering::SeqCst);
    Ok(())
}

/// Restores the terminal if it is in raw mode. Async-signal-safe; for handlers and panic hooks.
pub fn restore_from_signal() {
    let saved = SAVED.load(Ordering::SeqCst);
    // SAFETY: the pointer is null or came from `Box::leak` and is never freed, so it can be read at any time.
    let Some(saved) = (unsafe { saved.as_ref() }) else { return };
    // SAFETY: the mode was filled by `tcgetattr`; `tcsetattr` is async-signal-safe and only reads it.
    unsafe { libc::tcsetattr(saved.terminal, libc::TCSANOW, &raw const saved.mode) };
}

/// Whether the descriptor is a terminal.
#[must_use]
pub fn is_terminal(descriptor: impl AsFd) -> bool {
    rustix::termios::isatty(descriptor)
}
