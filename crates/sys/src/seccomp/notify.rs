//! Calls that wait for an answer: a filter hands them to the process that has its listener.
//!
//! That process reads the caller's memory and may act in its place. Another thread of the caller can change what was read a
//! moment later, so a call may go on as it is ([`NotifyResponse::Continue`]) only where no arguments of it could do harm.
//!
//! A caller that is waiting takes no signal but a deadly one (since Linux 5.19): otherwise a handler would make it
//! repeat a call that has been carried out.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::{Filter, SeccompError};

const NEW_LISTENER: libc::c_ulong = 1 << 3;
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const IS_VALID: libc::c_ulong = 0x4008_2102;
const ADD_DESCRIPTOR: libc::c_ulong = 0x4018_2103;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;

/// The caller's processor takes over at once when it is answered, since Linux 6.6.
const SYNC_WAKE_UP: u64 = 1;
/// The descriptor is the call's result.
const ADD_AND_SEND: u32 = 2;
const LET_CONTINUE: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct Added {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    id: u64,
    /// The thread that made the call.
    pub thread: i32,
    /// The number of the call on this processor.
    pub number: i64,
    /// The arguments as the registers had them.
    pub arguments: [u64; 6],
}

/// The answer to a call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyResponse {
    /// The kernel carries it out. Its arguments may have changed since they were read.
    Continue,
    /// It returns this value, and the kernel does not carry it out.
    Value(i64),
    /// It fails with this error.
    Error(Errno),
}

/// Where the calls of a filter arrive.
#[derive(Debug)]
pub struct NotifyListener(OwnedFd);

impl AsFd for NotifyListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Filter {
    /// As [`Filter::install`], and returns where the calls arrive that the filter hands on.
    ///
    /// # Errors
    /// Fails on a kernel before 5.19, and in a process whose filters have a listener already.
    pub fn install_listener(&self) -> Result<NotifyListener, SeccompError> {
        let (last, others) = self.programs.split_last().ok_or(SeccompError::Install(Errno::INVAL))?;
        for program in others {
            super::install(program, 0)?;
        }
        let number = super::install(last, NEW_LISTENER | WAIT_KILLABLE)? as i32;
        // SAFETY: the kernel has just opened the descriptor for this call, so nothing else owns it.
        let listener = NotifyListener(unsafe { OwnedFd::from_raw_fd(number) });
        listener.wake_at_once();
        Ok(listener)
    }
}

/// Whether this kernel has listeners whose callers take no signal. Nothing is installed.
#[must_use]
pub fn is_available() -> bool {
    // SAFETY: with a null program the kernel only looks at the flags, and answers EFAULT where it knows them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            NEW_LISTENER | WAIT_KILLABLE,
            std::ptr::null::<u8>(),
        )
    };
    crate::raw::check(answer) == Err(Errno::FAULT)
}

impl NotifyListener {
    /// Asks the kernel to run the caller at once when it is answered. Older kernels refuse, and are slower.
    fn wake_at_once(&self) {
        // SAFETY: the argument is a number, and the call touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_ioctl, self.0.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
    }

    /// Waits for the next call.
    ///
    /// # Errors
    /// `ENOENT` where the caller was ended meanwhile, `EINTR`; anything else means that no more calls will come.
    pub fn receive(&self) -> Result<Call, Errno> {
        let mut found = Notification {
            id: 0,
            pid: 0,
            flags: 0,
            number: 0,
            architecture: 0,
            instruction: 0,
            arguments: [0; 6],
        };
        self.control(RECEIVE, &raw mut found)?;
        let Notification { id, pid, number, arguments, .. } = found;
        Ok(Call { id, thread: pid as i32, number: number.into(), arguments })
    }

    /// Whether the call still waits. If it does, what was read about its thread before was about that thread, and not about a
    /// later one with the same number.
    #[must_use]
    pub fn is_waiting(&self, call: &Call) -> bool {
        let mut id = call.id;
        self.control(IS_VALID, &raw mut id).is_ok()
    }

    /// Answers a call.
    ///
    /// # Errors
    /// `ENOENT` where the caller was ended.
    pub fn answer(&self, call: &Call, answer: NotifyResponse) -> Result<(), Errno> {
        let (value, error, flags) = match answer {
            NotifyResponse::Continue => (0, 0, LET_CONTINUE),
            NotifyResponse::Value(value) => (value, 0, 0),
            NotifyResponse::Error(errno) => (0, -errno.raw_os_error(), 0),
        };
        let mut response = Response { id: call.id, value, error, flags };
        self.control(SEND, &raw mut response)
    }

    /// Gives the caller a copy of a descriptor, under the lowest number that is free there, as the result of its call.
    ///
    /// # Errors
    /// `EMFILE` where it may have no more; the call still waits then. `ENOENT` where the caller was ended.
    pub fn answer_with(
        &self,
        call: &Call,
        descriptor: BorrowedFd<'_>,
        on_exec: crate::fds::OnExec,
    ) -> Result<(), Errno> {
        let target_flags = match on_exec {
            crate::fds::OnExec::Keep => 0,
            crate::fds::OnExec::Close => libc::O_CLOEXEC as u32,
        };
        let source = descriptor.as_raw_fd() as u32;
        let mut added = Added { id: call.id, flags: ADD_AND_SEND, source, target: 0, target_flags };
        self.control(ADD_DESCRIPTOR, &raw mut added)
    }

    fn control<T>(&self, request: libc::c_ulong, with: *mut T) -> Result<(), Errno> {
        loop {
            // SAFETY: each request of this module comes with a pointer to the very structure that it reads and writes,
            // which its caller owns and which lives through the call.
            let answer = unsafe { libc::syscall(libc::SYS_ioctl, self.0.as_raw_fd(), request, with) };
            match crate::raw::check(answer) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(cause) => return Err(cause),
            }
        }
    }
}

/// The longest path, with its final NUL.
const LONGEST_PATH: usize = libc::PATH_MAX as usize;
/// The smallest page: a string may end right before a page that is not mapped.
const PAGE: usize = 4096;

/// Reads a path from the memory of another thread, without the final NUL.
///
/// # Errors
/// `EFAULT` where no memory is mapped, `ENAMETOOLONG` where the path is longer than the kernel takes, `EPERM` where the memory
/// may not be read.
pub fn read_path(thread: i32, address: u64) -> Result<Vec<u8>, Errno> {
    let mut path = vec![0; LONGEST_PATH];
    let mut length = 0;
    while length < LONGEST_PATH {
        let from = (address as usize).checked_add(length).ok_or(Errno::FAULT)?;
        let wanted = (PAGE - from % PAGE).min(LONGEST_PATH - length);
        let part = path.get_mut(length..length + wanted).unwrap_or_default();
        let count = read_memory(thread, from, part)?;
        if count == 0 {
            return Err(Errno::FAULT);
        }
        if let Some(end) = part.get(..count).unwrap_or_default().iter().position(|byte| *byte == 0) {
            path.truncate(length + end);
            return Ok(path);
        }
        length += count;
    }
    Err(Errno::NAMETOOLONG)
}

fn read_memory(thread: i32, from: usize, into: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`, which is borrowed for the call. The other address is
    // one of another process, and is checked by the kernel.
    let answer = unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    crate::raw::check(answer as libc::c_long).map(|count| count as usize)
}
