//! The program answers as the table says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// Runs a program on a call, as the kernel does.
fn answer(program: &[sock_filter], number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
    let mut data: Vec<u32> = vec![number, architecture, 0, 0];
    for argument in arguments {
        data.extend([argument as u32, (argument >> 32) as u32]);
    }
    let (mut accumulator, mut at) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        match code {
            0x20 => accumulator = data[k as usize / 4],
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(accumulator == k),
            0x25 => at += jump(accumulator > k),
            0x35 => at += jump(accumulator >= k),
            0x45 => at += jump(accumulator & k != 0),
            0x06 => return k,
            _ => panic!("instruction {code:#x}"),
        }
    }
}

/// What the table says.
fn expected(number: u32, architecture: u32, arguments: [u64; 6]) -> u32 {
    if architecture != NATIVE {
        return libc::SECCOMP_RET_KILL_PROCESS;
    }
    let holds = |check: &Check| {
        let value = arguments[usize::from(check.argument)] as u32;
        match check.is {
            Is::Equal(wanted) => value == wanted,
            Is::Not(other) => value != other,
            Is::Masked { mask, value: wanted } => value & mask == wanted,
        }
    };
    let refusal = entries().find(|entry| {
        entry.number == i64::from(number)
            && match entry.when {
                When::Always => true,
                When::Arguments(checks) => checks.iter().all(holds),
            }
    });
    refusal.map_or(libc::SECCOMP_RET_ALLOW, |entry| {
        libc::SECCOMP_RET_ERRNO | entry.answer.errno().raw_os_error() as u32
    })
}

const X86_64: u32 = 0xc000_003e;
const AARCH64: u32 = 0xc000_00b7;
const I386: u32 = 0x4000_0003;
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = X86_64;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = AARCH64;

#[test]
fn the_program_answers_as_the_table() {
    let Filter { program } = Filter::standard().unwrap();
    let words = [0, 1, 2, 3, 16, 0x5412, 0x1000_0000, 0x2000_0000, 0x7e02_0000, u64::MAX, 1 << 32];
    let numbers = (0..700).chain([0x3fff_ffff, u32::MAX]);
    for (number, architecture) in
        numbers.flat_map(|number| [X86_64, AARCH64, I386].map(|architecture| (number, architecture)))
    {
        for first in words {
            for second in words {
                for third in words {
                    let arguments = [first, second, third, second, first, third];
                    assert_eq!(
                        answer(&program, number, architecture, arguments),
                        expected(number, architecture, arguments),
                        "call {number} of {architecture:#x} with {arguments:x?}"
                    );
                }
            }
        }
    }
}

#[test]
fn more_than_a_branch_reaches() {
    const CHECKS: &[Check] = &[Check { argument: 0, is: Is::Equal(1) }; 300];
    let entry = |number| Entry { number, when: When::Arguments(CHECKS), ..*entries().next().unwrap() };
    let fault = Filter::from_entries([entry(1)].iter()).unwrap_err();
    assert_eq!(fault.to_string(), "the system-call filter has too much about call 1");
    // Many calls are no matter: whatever is far is reached by a jump.
    let refused = |number| Entry { number, when: When::Always, ..*entries().next().unwrap() };
    let table: Vec<Entry> = (0..4000).filter(|number| number % 2 == 0).map(refused).collect();
    let Filter { program } = Filter::from_entries(table.iter()).unwrap();
    for number in 0..4000 {
        let leave = answer(&program, number, NATIVE, [0; 6]) == libc::SECCOMP_RET_ALLOW;
        assert_eq!(leave, number % 2 == 1, "{number}");
    }
}

#[test]
fn a_call_has_one_answer() {
    let entry = entries().find(|entry| entry.answer == Answer::NotImplemented).unwrap();
    let table = [*entry, Entry { answer: Answer::NotPermitted, ..*entry }];
    let fault = Filter::from_entries(table.iter()).unwrap_err();
    assert_eq!(fault.to_string(), format!("the system-call filter has two answers for `{}`", entry.call));
}
