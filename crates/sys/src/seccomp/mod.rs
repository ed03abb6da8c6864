//! The system-call filter.
//!
//! The policy is the [`table`](entries): one entry for each refusal, with its reason. One program is built from it. The
//! answer is `EPERM`, or `ENOSYS` where a library then takes the older way (`clone3`, whose flags a filter cannot see,
//! so that the C library falls back to `clone`).
//!
//! It first rejects the two other call interfaces of an x86-64 kernel, where the numbers mean other calls:
//! - **i386** (`int 0x80`, 32-bit programs): the process is ended with `SIGSYS`. There is no sensible errno for a
//!   program whose calls the filter does not judge, and a killed process is noticed.
//! - **x32** (bit 30 of the number): `ENOSYS`, which is what a kernel built without x32 says. There are no x32
//!   programs to serve, and a process that tries the number learns nothing.
//!
//! The filter refuses what is known to be dangerous and lets the rest through; files and network are isolated by
//! namespaces. [`kept`] lists calls that look as if they should be refused, and why they are not.

mod assemble;
pub mod calls;
pub mod notify;
mod table;

use libc::sock_filter;
use rustix::io::Errno;

pub use table::{Answer, Check, Entry, Is, When, apart_entries, entries, guard_entries, kept};

/// Why the filter could not be built or installed.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// A call has two answers; a fault of the table.
    #[error("the system-call filter has two answers for `{call}`")]
    Ambiguous {
        /// Which call.
        call: &'static str,
    },
    /// The kernel did not take the filter. `EACCES` means that no-new-privileges is not set.
    #[error("cannot install the system-call filter")]
    Install(#[source] Errno),
}

/// The filter, ready to be installed. Installing allocates nothing.
#[derive(Debug, Clone)]
pub struct Filter {
    program: Vec<sock_filter>,
}

impl Filter {
    /// The filter made of the whole table, for the processor this was built for.
    ///
    /// # Errors
    /// Fails only if the table is at fault.
    pub fn standard() -> Result<Self, SeccompError> {
        Self::from_entries(entries())
    }

    /// The filter made of [`apart_entries`].
    ///
    /// # Errors
    /// Fails only if the table is at fault.
    pub fn apart() -> Result<Self, SeccompError> {
        Self::from_entries(apart_entries())
    }

    /// A filter without `openat2`, which [`Filter::guard`] refuses instead: for a process that carries out the calls of
    /// others, and needs it.
    ///
    /// # Errors
    /// Fails only if the table is at fault.
    pub fn with_a_guard(table: impl Iterator<Item = &'static Entry>) -> Result<Self, SeccompError> {
        Self::from_entries(table.filter(|entry| entry.number != libc::SYS_openat2))
    }

    /// The filter made of [`guard_entries`], to be installed with a listener.
    ///
    /// # Errors
    /// Fails only if the table is at fault.
    pub fn guard() -> Result<Self, SeccompError> {
        Self::from_entries(guard_entries())
    }

    /// The filter made of the given entries.
    ///
    /// # Errors
    /// Fails if there is too much about one call, or two entries for one call answer differently.
    pub fn from_entries<'table>(table: impl Iterator<Item = &'table Entry>) -> Result<Self, SeccompError> {
        Ok(Filter { program: assemble::program(table)? })
    }

    /// The program as the kernel and `bwrap --add-seccomp-fd` read it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.program.iter().flat_map(instruction_bytes).collect()
    }

    /// Puts the calling thread and all its future children behind the filter, for good.
    ///
    /// Async-signal-safe, so it may run between `fork` and `exec`.
    ///
    /// # Errors
    /// Fails if no-new-privileges is not set or the kernel has no filter mode.
    pub fn install(&self) -> Result<(), SeccompError> {
        install(&self.program).map_err(SeccompError::Install)
    }
}

fn instruction_bytes(instruction: &sock_filter) -> [u8; 8] {
    let [code_low, code_high] = instruction.code.to_ne_bytes();
    let [a, b, c, d] = instruction.k.to_ne_bytes();
    [code_low, code_high, instruction.jt, instruction.jf, a, b, c, d]
}

fn install(program: &[sock_filter]) -> Result<(), Errno> {
    let length = u16::try_from(program.len()).map_err(|_too_long| Errno::TOOBIG)?;
    let header = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `header` points at `length` instructions that live as long as `program`. The kernel copies the program and
    // never writes to it.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const header) };
    crate::raw::check(answer).map(drop)
}
