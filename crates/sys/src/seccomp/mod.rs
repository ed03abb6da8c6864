//! The system-call filter.
//!
//! The policy is a table ([`entries`]): one entry for each rule, with its reason. It is compiled to programs for the kernel when a
//! sandbox is sealed. A call that matches fails with `EPERM`, or with `ENOSYS` where a library then falls back to an older call
//! (`clone3`, whose flags a filter cannot read, so that the C library uses `clone`).
//!
//! An x86-64 kernel has two more sets of call numbers, in which the same numbers mean other calls:
//! - **i386** (`int 0x80`, 32-bit programs): the process is killed with `SIGSYS`. No answer makes sense to a program whose calls
//!   are not judged, and a program that is killed is noticed.
//! - **x32** (bit 30 of the number): `ENOSYS`, which is what a kernel without x32 answers. There are no x32 programs to serve.
//!
//! The filter refuses what is known to be dangerous and allows the rest; files and network are isolated by the namespaces.
//! [`allowed`] lists calls that look as if they should be refused, and why they are not.

pub mod calls;
mod compile;
mod entry;
pub mod notify;
mod policy;

use rustix::io::Errno;
use seccompiler::BpfProgram;

pub use entry::{Action, Check, Entry, Is, When};
pub use policy::{allowed, apart_entries, entries, guard_entries};

/// Why the filter could not be built or installed.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// A call has two actions; a mistake in the policy.
    #[error("the system-call filter has two answers for `{call}`")]
    Ambiguous {
        /// The name of the call.
        call: &'static str,
    },
    /// The policy cannot be compiled; a mistake in the policy.
    #[error("cannot compile the system-call filter")]
    Compile(#[source] seccompiler::BackendError),
    /// The kernel did not take the filter. `EACCES` means that no-new-privileges is not set.
    #[error("cannot install the system-call filter")]
    Install(#[source] Errno),
}

/// The filter, ready to be installed. Installing allocates nothing.
#[derive(Debug, Clone)]
pub struct Filter {
    programs: Vec<BpfProgram>,
}

impl Filter {
    /// The filter of the whole policy, for the processor this was built for.
    ///
    /// # Errors
    /// Fails only if the policy has a mistake.
    pub fn standard() -> Result<Self, SeccompError> {
        Self::from_entries(entries())
    }

    /// The filter of [`apart_entries`].
    ///
    /// # Errors
    /// Fails only if the policy has a mistake.
    pub fn apart() -> Result<Self, SeccompError> {
        Self::from_entries(apart_entries())
    }

    /// A filter without `openat2`, which [`Filter::guard`] refuses instead: for a process that carries out the calls of
    /// others, and needs it.
    ///
    /// # Errors
    /// Fails only if the policy has a mistake.
    pub fn with_a_guard(table: impl Iterator<Item = &'static Entry>) -> Result<Self, SeccompError> {
        Self::from_entries(table.filter(|entry| entry.number != libc::SYS_openat2))
    }

    /// The filter of [`guard_entries`], to be installed with a listener.
    ///
    /// # Errors
    /// Fails only if the policy has a mistake.
    pub fn guard() -> Result<Self, SeccompError> {
        Self::from_entries(guard_entries())
    }

    /// The filter of the given entries.
    ///
    /// # Errors
    /// Fails if they are too many, or two entries for one call have different actions.
    pub fn from_entries<'table>(table: impl Iterator<Item = &'table Entry>) -> Result<Self, SeccompError> {
        Ok(Filter { programs: compile::programs(table)? })
    }

    /// The programs as the kernel reads them. It runs all of them at every call.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<Vec<u8>> {
        self.programs.iter().map(|program| program.iter().flat_map(instruction_bytes).collect()).collect()
    }

    /// Puts the calling thread and all its future children behind the filter, for good.
    ///
    /// Async-signal-safe, so it may run between `fork` and `exec`.
    ///
    /// # Errors
    /// Fails if no-new-privileges is not set or the kernel has no filter mode.
    pub fn install(&self) -> Result<(), SeccompError> {
        self.programs.iter().try_for_each(|program| install(program, 0).map(drop))
    }
}

fn instruction_bytes(instruction: &seccompiler::sock_filter) -> [u8; 8] {
    let [code_low, code_high] = instruction.code.to_ne_bytes();
    let [a, b, c, d] = instruction.k.to_ne_bytes();
    [code_low, code_high, instruction.jt, instruction.jf, a, b, c, d]
}

/// Installs one program, and returns what the kernel returns: a descriptor, where the flags ask for one.
fn install(program: &BpfProgram, flags: libc::c_ulong) -> Result<libc::c_long, SeccompError> {
    let too_long = |_| SeccompError::Install(Errno::TOOBIG);
    let length = u16::try_from(program.len()).map_err(too_long)?;
    let header =
        libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast::<libc::sock_filter>() };
    // SAFETY: `header` points at `length` instructions that live as long as `program`; `sock_filter` of both crates has the
    // kernel's layout. The kernel copies the program and never writes to it.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const header) };
    crate::raw::check(answer).map_err(SeccompError::Install)
}
