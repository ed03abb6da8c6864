//! The system-call filter.
//!
//! The policy is the [`table`](entries): one entry for each refusal, with its reason. Two programs are built from
//! it, because a filter has a single answer for everything it matches: one answers `ENOSYS` (for `clone3`, whose
//! flags a filter cannot see, so that the C library falls back to `clone`), one answers `EPERM`. The kernel runs
//! both and takes the stricter answer.
//!
//! Before them stands a guard against the two other doors of an x86-64 kernel, where the numbers mean other calls:
//! - **i386** (`int 0x80`, 32-bit programs): the process is ended with `SIGSYS`. Nothing sensible can be answered
//!   to a program whose calls we do not judge, and one that is killed is seen.
//! - **x32** (bit 30 of the number): `ENOSYS`, which is what a kernel built without x32 says. There are no x32
//!   programs to serve, and a process that tries the number learns nothing.
//!
//! The filter refuses what is known to be dangerous and lets the rest through; the walls that hold files and
//! network are the namespaces. [`kept`] lists calls that look as if they should be refused, and why they are not.

mod table;

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

pub use table::{Answer, Check, Entry, Is, When, entries, kept};

/// Why the filter could not be built or installed.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// The table cannot be expressed; a fault of the table.
    #[error("cannot build the system-call filter")]
    Build(#[source] seccompiler::BackendError),
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
    /// The filter made of the whole table, for the processor this was built for.
    ///
    /// # Errors
    /// Fails only if the table is at fault.
    pub fn standard() -> Result<Self, SeccompError> {
        Self::from_entries(entries())
    }

    /// The filter made of the given entries.
    ///
    /// # Errors
    /// Fails if an entry cannot be expressed.
    pub fn from_entries<'table>(table: impl Iterator<Item = &'table Entry>) -> Result<Self, SeccompError> {
        let (absent, refused): (Vec<_>, Vec<_>) =
            table.partition(|entry| matches!(entry.answer, Answer::NotImplemented));
        let mut programs = Vec::new();
        for (entries, answer) in [(absent, Answer::NotImplemented), (refused, Answer::NotPermitted)] {
            let mut program = foreign_guard();
            program.extend(build(&entries, answer).map_err(SeccompError::Build)?);
            programs.push(program);
        }
        Ok(Filter { programs })
    }

    /// The number of instructions in each program.
    #[must_use]
    pub fn lengths(&self) -> Vec<usize> {
        self.programs.iter().map(Vec::len).collect()
    }

    /// Each program as the kernel and `bwrap --add-seccomp-fd` read it.
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
        self.programs.iter().try_for_each(|program| install(program).map_err(SeccompError::Install))
    }
}

fn instruction_bytes(instruction: &sock_filter) -> [u8; 8] {
    let [code_low, code_high] = instruction.code.to_ne_bytes();
    let [a, b, c, d] = instruction.k.to_ne_bytes();
    [code_low, code_high, instruction.jt, instruction.jf, a, b, c, d]
}

fn install(program: &BpfProgram) -> Result<(), Errno> {
    let length = u16::try_from(program.len()).map_err(|_too_long| Errno::TOOBIG)?;
    let header =
        libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast::<libc::sock_filter>() };
    // SAFETY: `header` points at `length` instructions that live as long as `program`; `sock_filter` of both crates
    // is the kernel's layout. The kernel copies the program and never writes to it.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const header) };
    crate::raw::check(answer).map(drop)
}

/// How many parts a program has. The kernel walks it once for every call that there is when it is installed, and again
/// for each call that it cannot answer beforehand: what is not in question is passed over.
const PARTS: usize = 8;

fn build(entries: &[&Entry], answer: Answer) -> Result<BpfProgram, seccompiler::BackendError> {
    build_in(entries, answer, PARTS)
}

fn build_in(
    entries: &[&Entry],
    answer: Answer,
    parts: usize,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for entry in entries {
        let known = rules.entry(entry.number).or_default();
        if let When::Arguments(checks) = entry.when {
            let conditions = checks.iter().map(condition).collect::<Result<_, _>>()?;
            known.push(SeccompRule::new(conditions)?);
        }
    }
    let refuse = SeccompAction::Errno(answer.errno().raw_os_error() as u32);
    let share = rules.len().div_ceil(parts);
    let mut built = Vec::new();
    loop {
        let next = rules.keys().nth(share).copied();
        let rest = next.map(|next| rules.split_off(&next)).unwrap_or_default();
        let first = rules.keys().next().copied().unwrap_or_default();
        let part = SeccompFilter::new(rules, SeccompAction::Allow, refuse.clone(), ARCHITECTURE)?;
        built.push((first, part.try_into()?));
        if rest.is_empty() {
            return Ok(divided(built));
        }
        rules = rest;
    }
}

/// Programs, each for the numbers from its first to that of the next, become one that goes to the right one at once.
fn divided(parts: Vec<(i64, BpfProgram)>) -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP: u16 = 0x05;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const OFFSET_OF_NUMBER: u32 = 0;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut program = vec![instruction(LOAD_WORD, 0, 0, OFFSET_OF_NUMBER)];
    // Two instructions for each part but the last, and one for that.
    let end = 2 * parts.len();
    let mut begin = end;
    for (at, (_, part)) in parts.iter().enumerate() {
        if let Some((next, _)) = parts.get(at + 1) {
            program.push(instruction(JUMP_IF_AT_LEAST, 1, 0, *next as u32));
        }
        let distance = begin - program.len() - 1;
        program.push(instruction(JUMP, 0, 0, distance as u32));
        begin += part.len();
    }
    program.extend(parts.into_iter().flat_map(|(_, part)| part));
    program
}

fn condition(check: &Check) -> Result<SeccompCondition, seccompiler::BackendError> {
    let (operator, value) = match check.is {
        Is::Equal(value) => (SeccompCmpOp::Eq, value),
        Is::Not(value) => (SeccompCmpOp::Ne, value),
        Is::Masked { mask, value } => (SeccompCmpOp::MaskedEq(mask.into()), value),
    };
    SeccompCondition::new(check.argument, SeccompCmpArgLen::Dword, operator, value.into())
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

/// Four instructions in front of the program; jumps are relative, so nothing behind them moves. The program
/// itself begins by ending processes of another architecture; here x32, which shares the architecture, is told
/// apart by its number.
#[cfg(target_arch = "x86_64")]
fn foreign_guard() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const OFFSET_OF_NUMBER: u32 = 0;
    const X32_BIT: u32 = 0x4000_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    vec![
        instruction(LOAD_WORD, 0, 0, OFFSET_OF_NUMBER),
        instruction(JUMP_IF_AT_LEAST, 0, 2, X32_BIT),
        // A tracer that skips a call sets its number to -1; the answer it then gives must not be overwritten.
        instruction(JUMP_IF_EQUAL, 1, 0, u32::MAX),
        instruction(RETURN, 0, 0, absent),
    ]
}

/// No other call numbers share the architecture.
#[cfg(target_arch = "aarch64")]
fn foreign_guard() -> BpfProgram {
    Vec::new()
}

#[cfg(test)]
mod tests;
