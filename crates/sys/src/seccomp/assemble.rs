//! The program that the kernel runs at every call, made of the table.
//!
//! It is short, because the kernel translates it whole at every start of a sandbox, and finds a call by halving what is
//! left, because the kernel runs it once for every number that there is to learn which calls it always lets through.

use super::{Answer, Check, Entry, Is, SeccompError, When};
use libc::sock_filter;
use std::collections::BTreeMap;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Where the kernel puts what is known of a call.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

/// How many calls are compared one after the other before what is left is halved.
const CALLS_IN_PART: usize = 3;

type Program = Vec<sock_filter>;

/// What there is about one call.
struct Call<'table> {
    number: u32,
    answer: Answer,
    entries: Vec<&'table Entry>,
}

pub(super) fn program<'table>(table: impl Iterator<Item = &'table Entry>) -> Result<Program, SeccompError> {
    let mut calls: BTreeMap<u32, Call<'_>> = BTreeMap::new();
    for entry in table {
        let number = entry.number as u32;
        let known = Call { number, answer: entry.answer, entries: Vec::new() };
        let call = calls.entry(number).or_insert(known);
        if call.answer != entry.answer {
            return Err(SeccompError::Ambiguous { call: entry.call });
        }
        call.entries.push(entry);
    }
    let calls: Vec<Call<'_>> = calls.into_values().collect();
    let mut program = vec![
        instruction(LOAD, ARCHITECTURE),
        branch(IF_EQUAL, NATIVE, 1, 0),
        instruction(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        instruction(LOAD, NUMBER),
    ];
    program.extend(foreign_guard());
    program.extend(search(&calls)?);
    Ok(program)
}

/// Calls of x32 share the architecture and are told apart by their number.
#[cfg(target_arch = "x86_64")]
fn foreign_guard() -> Program {
    const X32_BIT: u32 = 0x4000_0000;
    vec![
        branch(IF_AT_LEAST, X32_BIT, 0, 2),
        // A tracer that skips a call sets its number to -1; the answer it then gives must not be overwritten.
        branch(IF_EQUAL, u32::MAX, 1, 0),
        refusal(Answer::NotImplemented),
    ]
}

/// No other call numbers share the architecture.
#[cfg(target_arch = "aarch64")]
fn foreign_guard() -> Program {
    Vec::new()
}

/// Begins with the number loaded, and always ends with an answer.
fn search(calls: &[Call<'_>]) -> Result<Program, SeccompError> {
    if calls.len() <= CALLS_IN_PART {
        return one_of(calls);
    }
    let (low, high) = calls.split_at(calls.len() / 2);
    let (below, above) = (search(low)?, search(high)?);
    let first = high.first().map_or(u32::MAX, |call| call.number);
    // A branch reaches no further than 255 instructions, a jump anywhere.
    let mut program = match u8::try_from(below.len()) {
        Ok(distance) => vec![branch(IF_AT_LEAST, first, distance, 0)],
        Err(_far) => vec![branch(IF_AT_LEAST, first, 0, 1), instruction(JUMP, below.len() as u32)],
    };
    program.extend(below);
    program.extend(above);
    Ok(program)
}

fn one_of(calls: &[Call<'_>]) -> Result<Program, SeccompError> {
    let mut program = Vec::new();
    for call in calls {
        let body = body(call);
        let distance = u8::try_from(body.len()).map_err(|_far| SeccompError::Long { number: call.number })?;
        program.push(branch(IF_EQUAL, call.number, 0, distance));
        program.extend(body);
    }
    program.push(leave());
    Ok(program)
}

/// What is answered to a call. Each entry is tried in turn.
fn body(call: &Call<'_>) -> Program {
    let mut program = Vec::new();
    for entry in &call.entries {
        match entry.when {
            When::Always => {
                program.push(refusal(call.answer));
                return program;
            }
            When::Arguments(checks) => program.extend(if_all(checks, call.answer)),
        }
    }
    program.push(leave());
    program
}

/// Answers if all the checks hold, and goes on behind itself otherwise. It is made from its end, where a check that does
/// not hold leads.
fn if_all(checks: &[Check], answer: Answer) -> Program {
    let mut backwards = vec![refusal(answer)];
    for (at, check) in checks.iter().enumerate().rev() {
        // Checks are few: a table with more of them than a branch reaches is refused for the length of the body.
        let end = u8::try_from(backwards.len()).unwrap_or(u8::MAX);
        backwards.push(match check.is {
            Is::Equal(value) => branch(IF_EQUAL, value, 0, end),
            Is::Not(value) => branch(IF_EQUAL, value, end, 0),
            Is::Masked { mask, value } if mask == value && mask.is_power_of_two() => {
                branch(IF_ANY_BIT, mask, 0, end)
            }
            Is::Masked { mask: _, value } => branch(IF_EQUAL, value, 0, end),
            Is::MaskedNot { mask: _, value } => branch(IF_EQUAL, value, end, 0),
        });
        if let Some(mask) = mask_of(check) {
            backwards.push(instruction(AND, mask));
        }
        let before = at.checked_sub(1).and_then(|before| checks.get(before));
        // What was compared as it is can be compared again.
        if !before.is_some_and(|before| before.argument == check.argument && mask_of(before).is_none()) {
            backwards.push(instruction(LOAD, ARGUMENTS + 8 * u32::from(check.argument)));
        }
    }
    backwards.reverse();
    backwards
}

/// What is taken from the argument before it is compared.
fn mask_of(check: &Check) -> Option<u32> {
    match check.is {
        // A single bit is looked at as it is.
        Is::Masked { mask, value } if mask == value && mask.is_power_of_two() => None,
        Is::Masked { mask, .. } | Is::MaskedNot { mask, .. } => Some(mask),
        Is::Equal(_) | Is::Not(_) => None,
    }
}

fn refusal(answer: Answer) -> sock_filter {
    instruction(RETURN, libc::SECCOMP_RET_ERRNO | answer.errno().raw_os_error() as u32)
}

fn leave() -> sock_filter {
    instruction(RETURN, libc::SECCOMP_RET_ALLOW)
}

fn instruction(code: u16, k: u32) -> sock_filter {
    branch(code, k, 0, 0)
}

fn branch(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}
