//! Descriptors: which ones a child gets, sealed memory, socket pairs.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Why an operation on descriptors failed.
#[derive(Debug, thiserror::Error)]
pub enum FdError {
    /// A range of descriptors stays open.
    #[error("cannot close descriptors {first} to {last}")]
    CloseRange {
        /// The first number of the range.
        first: u32,
        /// The last number of the range.
        last: u32,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The close-on-exec flag stays as it was.
    #[error("cannot change the close-on-exec flag of descriptor {number}")]
    CloseOnExec {
        /// The descriptor.
        number: RawFd,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The number names no open descriptor.
    #[error("descriptor {number} is not open")]
    NotOpen {
        /// The number as given.
        number: RawFd,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The memory file could not be made or sealed.
    #[error("cannot make a sealed memory file `{name}`")]
    Memfd {
        /// The name given to the file.
        name: String,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The socket pair could not be made.
    #[error("cannot make a socket pair")]
    SocketPair(#[source] Errno),
}

/// Closes every descriptor from 3 upwards except those in `keep`.
///
/// For a process that has just started: a value that owns one of the others would be left with a number that is
/// soon somebody else's.
///
/// # Errors
/// Fails on a kernel without `close_range` (before 5.9).
pub fn close_from_3_except(keep: &[RawFd]) -> Result<(), FdError> {
    let kept: BTreeSet<u32> = keep.iter().filter_map(|number| u32::try_from(*number).ok()).collect();
    let mut first = 3;
    for number in kept.into_iter().filter(|number| *number >= 3) {
        if number > first {
            close_range(first, number - 1)?;
        }
        first = number + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<(), FdError> {
    // SAFETY: closing by number is sound for memory; descriptors owned by live values of this process must be in
    // the caller's `keep` list, which is why the only callers are processes that have just started.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    crate::raw::check(answer).map(drop).map_err(|cause| FdError::CloseRange { first, last, cause })
}

/// Marks every descriptor from 3 upwards close-on-exec. Unlike closing them this is safe in a running program.
///
/// # Errors
/// Fails on a kernel without `CLOSE_RANGE_CLOEXEC` (before 5.11).
pub fn cloexec_from_3() -> Result<(), FdError> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: the call changes a flag of descriptors and touches no memory.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    crate::raw::check(answer).map(drop).map_err(|cause| FdError::CloseRange {
        first: 3,
        last: u32::MAX,
        cause,
    })
}

/// Whether a descriptor survives `exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExec {
    /// The program that is executed gets it.
    Keep,
    /// It is closed.
    Close,
}

/// Sets or clears the close-on-exec flag.
///
/// # Errors
/// Never with an open descriptor.
pub fn on_exec(descriptor: BorrowedFd<'_>, on_exec: OnExec) -> Result<(), FdError> {
    let flags = match on_exec {
        OnExec::Keep => FdFlags::empty(),
        OnExec::Close => FdFlags::CLOEXEC,
    };
    let number = std::os::fd::AsRawFd::as_raw_fd(&descriptor);
    rustix::io::fcntl_setfd(descriptor, flags).map_err(|cause| FdError::CloseOnExec { number, cause })
}

/// Takes over a descriptor that was inherited by number, and marks it close-on-exec.
///
/// Call it once per number, at the start of the program, before anything else could own the number.
///
/// # Errors
/// Fails if the number names no open descriptor.
pub fn adopt_inherited(number: RawFd) -> Result<OwnedFd, FdError> {
    // SAFETY: `fcntl(F_SETFD)` takes integers only and reports a number that is not open as EBADF.
    let answer = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    crate::raw::check(answer.into()).map_err(|cause| FdError::NotOpen { number, cause })?;
    // SAFETY: the descriptor is open, as just seen, and the caller states that nothing in this process owns it
    // yet: it was inherited through `exec`.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A memory file with this content, sealed so that no process can change it.
///
/// # Errors
/// Fails if memory or descriptors are used up.
pub fn sealed_memfd(name: &str, content: &[u8]) -> Result<OwnedFd, FdError> {
    let fault = |cause| FdError::Memfd { name: name.to_owned(), cause };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags).map_err(fault)?;
    let mut file = std::fs::File::from(file);
    file.write_all(content).map_err(|error| fault(errno_of(&error)))?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(fault)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(fault)?;
    Ok(file.into())
}

/// A connected pair of stream sockets, both close-on-exec.
///
/// # Errors
/// Fails if descriptors are used up.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd), FdError> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(FdError::SocketPair)
}

/// The numbers of the descriptors that are open now, without the one used to look.
///
/// # Errors
/// Fails without `/proc`.
pub fn open_numbers() -> std::io::Result<BTreeSet<RawFd>> {
    let directory = rustix::fs::open(
        "/proc/self/fd",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let own = std::os::fd::AsRawFd::as_raw_fd(&directory.as_fd());
    let mut numbers = BTreeSet::new();
    let mut buffer = Vec::with_capacity(8192);
    let mut entries = rustix::fs::RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let number: Option<RawFd> = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        numbers.extend(number.filter(|number| *number != own));
    }
    Ok(numbers)
}

/// The errno inside an error of the standard library, `EIO` where it has none.
#[must_use]
pub fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Waits for readiness; `ETIMEDOUT` when the time is over.
pub(crate) fn wait(
    descriptor: BorrowedFd<'_>,
    flags: PollFlags,
    until: Option<Instant>,
) -> Result<(), Errno> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left =
            left.map(|left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
        let mut polled = [PollFd::from_borrowed_fd(descriptor, flags)];
        match poll(&mut polled, left.as_ref()) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
    }
}
