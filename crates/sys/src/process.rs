//! Processes: preparing commands, signalling, reaping, and small forks.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::fds::wait;
use rustix::event::PollFlags;
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};

/// Why a process could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No descriptor for the process.
    #[error("cannot open process {pid}")]
    Open {
        /// The process.
        pid: i32,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The signal was not delivered.
    #[error("cannot send signal {signal} to {target}")]
    Signal {
        /// The number of the signal.
        signal: i32,
        /// The process or group it was for.
        target: String,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// Waiting failed.
    #[error("cannot wait for a child")]
    Wait(#[source] Errno),
    /// No child could be forked.
    #[error("cannot fork")]
    Fork(#[source] Errno),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
}

/// The result of waiting for any child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaped {
    /// This child ended and is gone.
    Child(Pid, Ended),
    /// This child was stopped, as Ctrl-Z does, and waits for SIGCONT.
    Stopped(Pid),
    /// There are children, and all of them live.
    NoneEnded,
    /// This process has no children.
    NoChildren,
}

/// Reaps one child that has ended, or reports one that was stopped, without waiting for it.
///
/// # Errors
/// Never on a known kernel.
pub fn reap_any() -> Result<Reaped, ProcessError> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(None) => return Ok(Reaped::NoneEnded),
            Ok(Some((pid, status))) => {
                if let Some(ended) = ended(status) {
                    return Ok(Reaped::Child(pid, ended));
                }
                if status.stopped() {
                    return Ok(Reaped::Stopped(pid));
                }
            }
            Err(Errno::CHILD) => return Ok(Reaped::NoChildren),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(ProcessError::Wait(cause)),
        }
    }
}

/// Waits until this child has ended.
///
/// # Errors
/// Fails if it is not a child of this process.
pub fn wait_for(pid: Pid) -> Result<Ended, ProcessError> {
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                if let Some(ended) = ended(status) {
                    return Ok(ended);
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(cause) => return Err(ProcessError::Wait(cause)),
        }
    }
}

fn ended(status: WaitStatus) -> Option<Ended> {
    status.exit_status().map(Ended::Exited).or_else(|| status.terminating_signal().map(Ended::Killed))
}

/// Resource usage of the children of this process and of their descendants, as far as each was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Processor time.
    pub cpu: std::time::Duration,
    /// The most memory that one of them had at once, in bytes.
    pub peak_memory: u64,
}

/// Returns the resource usage so far.
#[must_use]
pub fn usage_of_children() -> ResourceUsage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` to the place, which is large enough and lives through the call.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    // SAFETY: all bytes are initialised: they were zero, and zero is a value of every field.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        let micros =
            u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_micros(micros)
    };
    // The kernel counts memory in kibibytes.
    let peak_memory = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    ResourceUsage { cpu: time(usage.ru_utime) + time(usage.ru_stime), peak_memory }
}

/// A descriptor for the process, which stays its own even when the number is given to another.
///
/// # Errors
/// Fails if the process does not exist.
pub fn open(pid: Pid) -> Result<OwnedFd, ProcessError> {
    rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(|cause| ProcessError::Open { pid: pid.as_raw_pid(), cause })
}

/// Waits for a child; one that has not ended by then is killed, and has no status.
pub fn end_in_time(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + limit;
    if has_ended_by(child, until).unwrap_or(false) {
        return child.wait().ok();
    }
    // It has ended already, or is about to.
    child.kill().ok();
    child.wait().ok();
    None
}

fn has_ended_by(child: &Child, until: Instant) -> Result<bool, ProcessError> {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return Ok(false) };
    match wait(open(pid)?.as_fd(), PollFlags::IN, Some(until)) {
        Ok(()) => Ok(true),
        Err(Errno::TIMEDOUT) => Ok(false),
        Err(cause) => Err(ProcessError::Wait(cause)),
    }
}

/// A child that does not outlive this value.
#[derive(Debug)]
pub struct OwnedChild(Pid);

impl OwnedChild {
    /// Takes over a child of this process, which nothing else waits for.
    #[must_use]
    pub fn new(pid: Pid) -> Self {
        OwnedChild(pid)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.0
    }

    /// Waits until it has ended by itself, but not for longer.
    pub fn ends_within(&self, limit: Duration) {
        // A child that cannot be opened has ended; only this value reaps it.
        if let Ok(process) = open(self.0) {
            wait(process.as_fd(), PollFlags::IN, Some(Instant::now() + limit)).ok();
        }
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // Until it is waited for, the number is its own; a child that has ended already is only waited for.
        rustix::process::kill_process(self.0, Signal::KILL).ok();
        wait_for(self.0).ok();
    }
}

/// Gives the calling thread a working directory and a mask for new files of its own, which it shares with the others of
/// its process until then.
///
/// # Errors
/// When the kernel has no memory.
pub fn own_directory_and_umask() -> Result<(), Errno> {
    // SAFETY: the call takes a number, and changes nothing but what the kernel keeps of this thread.
    crate::raw::check(unsafe { libc::unshare(libc::CLONE_FS) }.into()).map(drop)
}

/// Sends a signal by descriptor.
///
/// # Errors
/// Fails if the process has ended.
pub fn signal_open(process: BorrowedFd<'_>, signal: Signal) -> Result<(), ProcessError> {
    rustix::process::pidfd_send_signal(process, signal).map_err(|cause| ProcessError::Signal {
        signal: signal.as_raw(),
        target: "the opened process".to_owned(),
        cause,
    })
}

/// The target of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One process.
    Process(Pid),
    /// A process group, by its leader.
    Group(Pid),
    /// Every process the caller may signal, but itself. In the first process of a pid namespace: all others.
    Everyone,
}

/// Sends a signal by number, which may be a real-time one.
///
/// # Errors
/// `ESRCH` if no process matches the target.
pub fn signal(target: Target, signal: i32) -> Result<(), ProcessError> {
    let (number, name) = match target {
        Target::Process(pid) => (pid.as_raw_pid(), format!("process {}", pid.as_raw_pid())),
        Target::Group(pid) => (-pid.as_raw_pid(), format!("process group {}", pid.as_raw_pid())),
        Target::Everyone => (-1, "every process".to_owned()),
    };
    // SAFETY: `kill` takes two integers; a `Pid` is never 0, so the caller's own group is not meant by accident.
    let answer = unsafe { libc::kill(number, signal) };
    crate::raw::check(answer.into()).map(drop).map_err(|cause| ProcessError::Signal {
        signal,
        target: name,
        cause,
    })
}

/// Runs `work` in a forked child and waits for it; the child exits with the status that `work` returns.
///
/// In a program with threads `work` must keep to system calls: a lock held by another thread stays locked. A panic
/// in `work` ends the child with status 101, as it would end a program.
///
/// # Errors
/// Fails if no child could be forked.
pub fn in_child(work: impl FnOnce() -> u8) -> Result<Ended, ProcessError> {
    match fork().map_err(ProcessError::Fork)? {
        Some(child) => wait_for(child),
        // Unwinding out of here would run the parent's code a second time, in the child.
        None => exit_now(catch_unwind(AssertUnwindSafe(work)).unwrap_or(101).into()),
    }
}

/// Starts `work` in a forked child, which exits with the status that `work` returns; a panic is status 101.
///
/// To be called while this process has one thread: the child goes on in a copy of it.
///
/// # Errors
/// Fails if no child could be forked.
pub fn begin_child(work: impl FnOnce() -> u8) -> Result<Pid, ProcessError> {
    match fork().map_err(ProcessError::Fork)? {
        Some(child) => Ok(child),
        // Unwinding out of here would run the parent's code a second time, in the child.
        None => exit_now(catch_unwind(AssertUnwindSafe(work)).unwrap_or(101).into()),
    }
}

/// `None` in the child.
pub(crate) fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: `fork` copies this process and touches no memory of ours. In the copy only the calling thread goes on:
    // the probes of this crate keep to async-signal-safe calls there, and `in_child` asks the same of its caller.
    let answer = unsafe { libc::fork() };
    crate::raw::check(answer.into()).map(|pid| Pid::from_raw(pid as i32))
}

/// Runs `work` in a child that borrows the memory of this process, which waits until the child has executed a program
/// or ended. The child ends when `work` returns.
///
/// `work` must keep to system calls: an allocation, a lock or a panic would be the parent's. Signals stay blocked in
/// the child until `work` lets them through, so that no handler of the parent runs there.
pub(crate) fn lend<W: FnMut()>(work: &mut W) -> Result<Pid, Errno> {
    /// Far more than the calls of `Program::prepare` need.
    const STACK: usize = 64 << 10;
    /// The stack alignment of the calling convention.
    const ALIGNMENT: usize = 16;
    extern "C" fn begin<W: FnMut()>(work: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer is the exclusive reference that `lend` was given; the parent does not touch it before
        // this process has executed or ended.
        let work = unsafe { &mut *work.cast::<W>() };
        work();
        exit_now(127)
    }
    let mut stack = Vec::<u8>::with_capacity(STACK);
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end.cast::<libc::c_void>();
    let top = top.wrapping_byte_sub(top as usize % ALIGNMENT);
    let before = crate::signal::block_all()?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs `begin` on a stack of its own, which lives until this returns; CLONE_VFORK holds this
    // thread until the child uses neither the stack nor `work` any more.
    let answer = unsafe { libc::clone(begin::<W>, top, flags, std::ptr::from_mut(work).cast()) };
    let made = crate::raw::check(answer.into());
    // Blocking what was blocked before cannot fail; a signal that came meanwhile is delivered here.
    before.block_exactly().ok();
    made.and_then(|pid| Pid::from_raw(pid as i32).ok_or(Errno::CHILD))
}

/// Ends the process without running destructors or flushing buffers that belong to the parent.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: `_exit` takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Steps that a [`Command`] takes in its child, in the order in which they were asked for.
pub trait Prepare {
    /// The child leads a session of its own, without a terminal.
    fn own_session(&mut self) -> &mut Self;
    /// The child's standard input becomes the terminal of its session. Needs [`Prepare::own_session`] before it.
    fn stdin_is_terminal(&mut self) -> &mut Self;
    /// The child is killed when the *thread* that spawned it ends. Spawn from a thread that lives.
    fn dies_with_spawner(&mut self) -> &mut Self;
    /// The child gets these descriptors under the numbers they have here.
    fn keeps(&mut self, descriptors: Vec<OwnedFd>) -> &mut Self;
    /// The child gets these descriptors, each at the given number.
    ///
    /// # Errors
    /// Fails if descriptors are used up.
    fn inherits(&mut self, descriptors: Vec<(OwnedFd, RawFd)>) -> Result<&mut Self, Errno>;
}

impl Prepare for Command {
    fn own_session(&mut self) -> &mut Self {
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { self.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) }
    }

    fn stdin_is_terminal(&mut self) -> &mut Self {
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { self.pre_exec(|| Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)) }
    }

    fn dies_with_spawner(&mut self) -> &mut Self {
        let spawner = rustix::process::getpid();
        // SAFETY: the closure makes two system calls and allocates nothing.
        unsafe { self.pre_exec(move || Ok(die_with(spawner)?)) }
    }

    fn keeps(&mut self, descriptors: Vec<OwnedFd>) -> &mut Self {
        let keep = move || {
            for descriptor in &descriptors {
                rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls on descriptors that it owns, and allocates nothing.
        unsafe { self.pre_exec(keep) }
    }

    fn inherits(&mut self, descriptors: Vec<(OwnedFd, RawFd)>) -> Result<&mut Self, Errno> {
        let placed = lift(descriptors)?;
        let place = move || {
            for Placed { lifted, target, _reserved } in &placed {
                duplicate(lifted.as_fd(), *target)?;
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls on descriptors that it owns, and allocates nothing.
        Ok(unsafe { self.pre_exec(place) })
    }
}

pub(crate) fn die_with(spawner: Pid) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The spawner may have ended before the call above; then the signal would never come.
    if rustix::process::getppid() == Some(spawner) { Ok(()) } else { Err(Errno::SRCH) }
}

/// A descriptor on its way to a number in the child.
struct Placed {
    /// A copy above all targets, so that no target overwrites a source that is still to come.
    lifted: OwnedFd,
    target: RawFd,
    /// Holds the target's number in the parent, where it is free: otherwise the pipe that `Command` opens for
    /// itself could get it, and the copy in the child would destroy that pipe.
    _reserved: Option<OwnedFd>,
}

fn lift(descriptors: Vec<(OwnedFd, RawFd)>) -> Result<Vec<Placed>, Errno> {
    let above = descriptors.iter().map(|(_, target)| *target).max().unwrap_or(2) + 1;
    let mut placed = Vec::new();
    for (source, target) in descriptors {
        let lifted = rustix::io::fcntl_dupfd_cloexec(&source, above)?;
        let reserved = rustix::io::fcntl_dupfd_cloexec(&source, target)?;
        let reserved = Some(reserved).filter(|reserved| reserved.as_raw_fd() == target);
        placed.push(Placed { lifted, target, _reserved: reserved });
    }
    Ok(placed)
}

/// Makes `target` a copy of `source` that survives `exec`.
pub(crate) fn duplicate(source: BorrowedFd<'_>, target: RawFd) -> Result<(), Errno> {
    // SAFETY: `dup2` takes integers. It runs in a child that is about to execute, so no value of this program
    // will use what was open at `target`.
    let answer = unsafe { libc::dup2(source.as_raw_fd(), target) };
    crate::raw::check(answer.into()).map(drop)
}
