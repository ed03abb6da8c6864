//! Signals as data, for a supervisor with one thread: blocked, then read from a descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Signal;

/// Why signals could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// The mask of the thread stays as it was.
    #[error("cannot block signals")]
    Block(#[source] Errno),
    /// No descriptor to read signals from.
    #[error("cannot open a signal descriptor")]
    Open(#[source] Errno),
    /// A read failed.
    #[error("cannot read from the signal descriptor")]
    Read(#[source] Errno),
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// The set of the given signals.
    #[must_use]
    pub fn of(signals: &[Signal]) -> Self {
        let mut set = empty_set();
        for signal in signals {
            // SAFETY: `set` was initialised by `sigemptyset`, and a `Signal` is a number the C library knows.
            unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
        }
        SignalSet(set)
    }

    /// No signal.
    #[must_use]
    pub fn none() -> Self {
        SignalSet(empty_set())
    }

    /// Makes this the set of signals blocked in the calling thread; children inherit it.
    ///
    /// # Errors
    /// Never with a set made by this type.
    pub fn block_exactly(&self) -> Result<(), SignalError> {
        // SAFETY: the set is initialised and outlives the call; the old mask is not asked for.
        let code =
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
        if code == 0 { Ok(()) } else { Err(SignalError::Block(Errno::from_raw_os_error(code))) }
    }
}

impl std::fmt::Debug for SignalSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SignalSet").finish_non_exhaustive()
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` writes the whole set through a pointer to memory of the right size.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call above initialised it; it fails only for an invalid pointer.
    unsafe { set.assume_init() }
}

/// Blocks every signal in the calling thread and gives the set that was blocked before.
pub(crate) fn block_all() -> Result<SignalSet, Errno> {
    let mut every = empty_set();
    // SAFETY: `sigfillset` writes the whole set, which is initialised and ours.
    unsafe { libc::sigfillset(&raw mut every) };
    let mut before = empty_set();
    // SAFETY: both sets are initialised and outlive the call.
    let code = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before) };
    if code == 0 { Ok(SignalSet(before)) } else { Err(Errno::from_raw_os_error(code)) }
}

/// The signals of these that this process does not ignore. The parent may have asked for that, as `nohup` does for
/// SIGHUP and a shell for SIGINT of a command in the background; a signal that is taken would reach it all the same.
#[must_use]
pub fn not_ignored(signals: &[Signal]) -> Vec<Signal> {
    let is_ignored = |signal: &Signal| {
        let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: no new action is given, and the old one is written to memory of the right size.
        let code = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), now.as_mut_ptr()) };
        // SAFETY: all zero is a valid `sigaction`, and the call above wrote at most a whole one.
        code == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
    };
    signals.iter().copied().filter(|signal| !is_ignored(signal)).collect()
}

/// The receiver of blocked signals.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

impl Signals {
    /// Blocks the signals in the calling thread and opens a descriptor from which they are read.
    ///
    /// # Errors
    /// Fails if descriptors are used up.
    pub fn take(signals: &[Signal]) -> Result<Self, SignalError> {
        let set = SignalSet::of(signals);
        set.block_exactly()?;
        // SAFETY: the set is initialised and outlives the call; -1 asks for a new descriptor.
        let answer = unsafe { libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        let number = crate::raw::check(answer.into()).map_err(SignalError::Open)?;
        // SAFETY: the kernel just returned this descriptor and nothing else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number as i32) };
        Ok(Signals { descriptor })
    }

    /// The number of the next pending signal, or `None` when there is none now.
    ///
    /// # Errors
    /// Fails only if the descriptor was closed from elsewhere.
    pub fn next(&self) -> Result<Option<i32>, SignalError> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut record = [0u8; SIZE];
        match rustix::io::read(&self.descriptor, &mut record) {
            Ok(_) => {
                let [a, b, c, d, ..] = record;
                Ok(Some(u32::from_ne_bytes([a, b, c, d]) as i32))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(cause) => Err(SignalError::Read(cause)),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }
}

/// Sets every signal to its default action and blocks none, as a program expects to find them.
///
/// Calls only async-signal-safe functions, so it may run between the making of a process and `exec`.
///
/// # Errors
/// Never on a known kernel.
pub fn reset_all() -> Result<(), SignalError> {
    // The kernel's own structure, all zero: SIG_DFL, no flags, no mask. Not through the C library, which keeps two
    // signals for itself and would leave them ignored where the caller's parent ignores them.
    let default = [0u64; 4];
    const MASK_BYTES: usize = 8;
    for number in 1..=64 {
        // SAFETY: the kernel reads one `sigaction` of 32 bytes from the pointer and writes nothing, since the old
        // one is not asked for. SIGKILL and SIGSTOP are refused with EINVAL and are at their default anyway.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                default.as_ptr(),
                std::ptr::null_mut::<u8>(),
                MASK_BYTES,
            )
        };
    }
    SignalSet::none().block_exactly()
}
