//! From the policy to programs for the kernel. `seccompiler` generates the code.
//!
//! Two things are written by hand, because `seccompiler` has no words for them: the refusal of x32, which is a range of call
//! numbers, and the action of a listener.

use super::{Action, Check, Entry, Is, SeccompError, When};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

/// Compiles a table. A program has one action for everything that it matches, so there is one for each action; the kernel runs
/// all of them and takes the strictest answer. The first one is always there; a program of [`Action::Notify`] is the last.
pub(super) fn programs<'table>(
    table: impl Iterator<Item = &'table Entry>,
) -> Result<Vec<BpfProgram>, SeccompError> {
    let mut actions: BTreeMap<i64, Action> = BTreeMap::new();
    let mut by_action: BTreeMap<Action, Vec<&Entry>> = BTreeMap::from([(Action::Absent, Vec::new())]);
    for entry in table {
        if *actions.entry(entry.number).or_insert(entry.action) != entry.action {
            return Err(SeccompError::Ambiguous { call: entry.call });
        }
        by_action.entry(entry.action).or_default().push(entry);
    }
    by_action.into_iter().map(|(action, entries)| program(action, &entries)).collect()
}

fn program(action: Action, entries: &[&Entry]) -> Result<BpfProgram, SeccompError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for entry in entries {
        if let When::Arguments(checks) = entry.when {
            let rule = rule(checks).map_err(SeccompError::Compile)?;
            rules.entry(entry.number).or_default().push(rule);
        }
    }
    // A call without rules matches always. Other entries for the same call must not narrow that.
    for entry in entries.iter().filter(|entry| entry.when == When::Always) {
        rules.insert(entry.number, Vec::new());
    }
    let matched = match action.errno() {
        Some(errno) => SeccompAction::Errno(errno.raw_os_error() as u32),
        // A stand-in, which no entry uses.
        None => SeccompAction::Trace(0),
    };
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, matched, ARCHITECTURE);
    let mut program: BpfProgram = filter.and_then(TryInto::try_into).map_err(SeccompError::Compile)?;
    match action {
        Action::Absent => drop(program.splice(0..0, without_x32())),
        Action::Deny => {}
        Action::Notify => {
            let stands_in =
                |one: &&mut seccompiler::sock_filter| one.code == RETURN && one.k == libc::SECCOMP_RET_TRACE;
            program.iter_mut().filter(stands_in).for_each(|one| one.k = libc::SECCOMP_RET_USER_NOTIF);
        }
    }
    Ok(program)
}

fn rule(checks: &[Check]) -> Result<SeccompRule, BackendError> {
    let condition = |check: &Check| {
        let (operator, value) = match check.is {
            Is::Equal(value) => (SeccompCmpOp::Eq, value),
            Is::Not(value) => (SeccompCmpOp::Ne, value),
            Is::Masked { mask, value } => (SeccompCmpOp::MaskedEq(mask.into()), value),
        };
        SeccompCondition::new(check.argument, SeccompCmpArgLen::Dword, operator, value.into())
    };
    SeccompRule::new(checks.iter().map(condition).collect::<Result<_, _>>()?)
}

/// Instructions in front of a program that answer `ENOSYS` to calls of x32. These share the architecture, which the program
/// checks, and have bit 30 of the number set. Jumps are relative, so nothing behind them changes.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const IF_AT_LEAST: u16 = 0x35;
    const NUMBER: u32 = 0;
    const X32_BIT: u32 = 0x4000_0000;
    let instruction = |code, k, jt, jf| seccompiler::sock_filter { code, jt, jf, k };
    vec![
        instruction(LOAD_WORD, NUMBER, 0, 0),
        instruction(IF_AT_LEAST, X32_BIT, 0, 2),
        // A tracer that skips a call sets its number to -1; the answer that it gives must not be overwritten.
        instruction(IF_EQUAL, u32::MAX, 1, 0),
        instruction(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0),
    ]
}

/// Only x86-64 has a second set of call numbers in one architecture.
#[cfg(target_arch = "aarch64")]
fn without_x32() -> BpfProgram {
    Vec::new()
}
