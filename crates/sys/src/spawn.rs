//! Starting a program with every step in our hands, so that a failure names the step.
//!
//! `std::process::Command` does not tell a failed preparation from a failed `exec`, and lets the C library run a
//! file without a header through a shell. The child borrows the memory of its parent until it executes, because
//! copying that of a large program costs more than everything else here; so nothing in the child allocates, and what
//! it has to tell it writes where the parent finds it.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Access, AtFlags};
use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, Resource, Rlimit};

use crate::process::{duplicate, lend};

/// A program to start.
#[derive(Debug)]
pub struct Program<'request> {
    /// The file to execute; no search.
    pub file: &'request CStr,
    /// The arguments, the name first.
    pub arguments: &'request [CString],
    /// `NAME=value`, the whole environment.
    pub environment: &'request [CString],
    /// Where it starts.
    pub directory: &'request CStr,
    /// Standard input, output and error.
    pub stdio: [Stream<'request>; 3],
    /// Descriptors that it gets beside those, under the numbers they have here.
    pub keeps: &'request [BorrowedFd<'request>],
    /// The controlling terminal of its session.
    pub terminal: ControllingTerminal,
    /// Soft and hard limits.
    pub limits: &'request [(Resource, Rlimit)],
    /// The mask for new files.
    pub umask: u32,
}

/// One of the three standard streams.
#[derive(Debug, Clone, Copy)]
pub enum Stream<'request> {
    /// As the spawning process has it.
    Inherited,
    /// This descriptor.
    From(BorrowedFd<'request>),
}

/// The controlling terminal of a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllingTerminal {
    /// None.
    Absent,
    /// Standard input, which must be a terminal that no session has.
    Stdin,
    /// Standard input, which is the terminal of the spawner's own session. The program becomes its foreground; since
    /// its parent is in the session too, Ctrl-Z stops it, which the kernel refuses to do to a group without one.
    Shared,
}

/// The steps between `fork` and the first instruction of the program, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnStep {
    /// Signals back to their defaults.
    Signals,
    /// A session of its own.
    Session,
    /// Standard streams.
    Streams,
    /// The controlling terminal.
    Terminal,
    /// Resource limits.
    Limits,
    /// The working directory.
    Directory,
    /// The program itself.
    Execute,
}

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No child.
    #[error("cannot make a new process")]
    Fork(#[source] Errno),
    /// A step in the child failed; the child is gone.
    #[error("cannot start a program: step {step:?} failed")]
    Child {
        /// The step.
        step: SpawnStep,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
}

impl Program<'_> {
    /// Starts the program as the leader of a new session and waits until it runs.
    ///
    /// # Errors
    /// Names the step that failed.
    pub fn spawn(&self) -> Result<Pid, SpawnError> {
        let arguments = pointers(self.arguments);
        let environment = pointers(self.environment);
        let mut failed = None;
        let child = lend(&mut || failed = Some(self.become_program(&arguments, &environment)));
        let child = child.map_err(SpawnError::Fork)?;
        let Some((step, cause)) = failed else { return Ok(child) };
        // The child is reaped here; its status says nothing that the step does not.
        crate::process::wait_for(child).ok();
        Err(SpawnError::Child { step, cause })
    }

    /// Returns only where it fails.
    fn become_program(&self, arguments: &Pointers, environment: &Pointers) -> (SpawnStep, Errno) {
        let mut step = SpawnStep::Signals;
        match self.prepare(&mut step) {
            Ok(()) => (SpawnStep::Execute, execute(self.file, arguments, environment)),
            Err(cause) => (step, cause),
        }
    }

    fn prepare(&self, step: &mut SpawnStep) -> Result<(), Errno> {
        let Program {
            file: _,
            arguments: _,
            environment: _,
            directory,
            stdio,
            keeps,
            terminal,
            limits,
            umask,
        } = self;
        if *terminal == ControllingTerminal::Shared {
            *step = SpawnStep::Session;
            rustix::process::setpgid(None, None)?;
            *step = SpawnStep::Terminal;
            come_to_foreground(&stdio[0])?;
            *step = SpawnStep::Signals;
        }
        crate::signal::reset_all().map_err(|_refused| Errno::INVAL)?;
        *step = SpawnStep::Session;
        if *terminal != ControllingTerminal::Shared {
            rustix::process::setsid()?;
        }
        *step = SpawnStep::Streams;
        for (target, stream) in (0..).zip(stdio) {
            if let Stream::From(source) = stream {
                duplicate(source.as_fd(), target)?;
            }
        }
        for kept in *keeps {
            rustix::io::fcntl_setfd(kept, FdFlags::empty())?;
        }
        *step = SpawnStep::Terminal;
        if *terminal == ControllingTerminal::Stdin {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        *step = SpawnStep::Limits;
        for (resource, limit) in *limits {
            rustix::process::setrlimit(*resource, *limit)?;
        }
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(*umask & 0o777));
        *step = SpawnStep::Directory;
        rustix::process::chdir(*directory)
    }
}

fn come_to_foreground(stdin: &Stream<'_>) -> Result<(), Errno> {
    // A group in the background is stopped for asking; ignored until all signals are reset, right after this.
    // SAFETY: the call changes the disposition of a signal in this process, which has one thread, and no memory.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
    let terminal = match stdin {
        Stream::Inherited => rustix::stdio::stdin(),
        Stream::From(source) => *source,
    };
    rustix::termios::tcsetpgrp(terminal, rustix::process::getpid())
}

/// The file that a name stands for: the name itself if it has a `/`, else the first executable of that name in
/// `path`. Only absolute entries are searched: an empty or relative one means the working directory, where the
/// name could be anyone's.
///
/// # Errors
/// `ENOENT` where there is none, `EACCES` where one was found that cannot be executed.
pub fn find(name: &[u8], path: &[u8]) -> Result<Vec<u8>, Errno> {
    if name.contains(&b'/') {
        return Ok(name.to_vec());
    }
    let mut answer = Errno::NOENT;
    for file in candidates(name, path) {
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(Errno::ACCESS) => answer = Errno::ACCESS,
            Err(_not_here) => {}
        }
    }
    Err(answer)
}

/// Every executable of that name in `path`, in its order; only absolute entries are searched, as by [`find`].
pub fn all_on_path(name: &[u8], path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    candidates(name, path).filter(|file| executable(file).is_ok())
}

fn candidates(name: &[u8], path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let directories = path.split(|byte| *byte == b':').filter(|directory| directory.starts_with(b"/"));
    directories.map(move |directory| [directory, b"/", name].concat())
}

fn executable(file: &[u8]) -> Result<(), Errno> {
    let kind = rustix::fs::stat(file).map(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode))?;
    if !kind.is_file() {
        return Err(Errno::ACCESS);
    }
    rustix::fs::accessat(rustix::fs::CWD, file, Access::EXEC_OK, AtFlags::empty())
}

struct Pointers(Vec<*const libc::c_char>);

fn pointers(strings: &[CString]) -> Pointers {
    Pointers(strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect())
}

fn execute(file: &CStr, arguments: &Pointers, environment: &Pointers) -> Errno {
    // SAFETY: the file is NUL-terminated; both lists end with a null pointer and point at strings that outlive the
    // call, because the request that owns them is borrowed.
    unsafe { libc::execve(file.as_ptr(), arguments.0.as_ptr(), environment.0.as_ptr()) };
    crate::raw::last_errno()
}
