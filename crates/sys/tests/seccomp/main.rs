//! The system-call filter. [`bpf`] runs its programs for every entry of the policy and its near misses; [`real`] makes the most
//! important calls, with and without the filter.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bpf;
mod real;

use belljar_sys::seccomp::{
    Action, Check, Entry, Filter, Is, When, allowed, apart_entries, entries, guard_entries,
};
use bpf::Programs;
use std::collections::BTreeSet;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const X32_BIT: u32 = 0x4000_0000;
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = ERRNO | 1;
const ENOSYS: u32 = ERRNO | 38;

fn judge(filter: &Filter, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    Programs::of(filter).judge(architecture, number, arguments)
}

fn expected(action: Action) -> u32 {
    match action {
        Action::Absent => ENOSYS,
        Action::Deny => EPERM,
        Action::Notify => libc::SECCOMP_RET_USER_NOTIF,
    }
}

/// Arguments for which all the checks hold; the upper halves are set, where no check may look.
fn matching(checks: &[Check]) -> [u64; 6] {
    let mut arguments = [0xdead_beef_0000_0000u64; 6];
    for index in 0..6u8 {
        let about: Vec<_> = checks.iter().filter(|check| check.argument == index).collect();
        let holds = |value: u32| about.iter().all(|check| fits(check.is, value));
        let known = about.iter().flat_map(|check| match check.is {
            Is::Equal(value) | Is::Masked { value, .. } => [value, value],
            Is::Not(value) => [value.wrapping_add(1), value ^ 0x40],
        });
        let found = known.chain([0x7f, 0x55_aa55]).find(|value| holds(*value)).unwrap();
        arguments[usize::from(index)] |= u64::from(found);
    }
    arguments
}

fn fits(is: Is, value: u32) -> bool {
    match is {
        Is::Equal(wanted) => value == wanted,
        Is::Not(other) => value != other,
        Is::Masked { mask, value: wanted } => value & mask == wanted,
    }
}

#[test]
fn every_entry_is_refused_and_open_without_it() {
    let filter = Filter::standard().unwrap();
    for entry in entries() {
        let arguments = match entry.when {
            When::Always => [0; 6],
            When::Arguments(checks) => matching(checks),
        };
        let number = entry.number as u32;
        assert_eq!(judge(&filter, X86_64, number, arguments), expected(entry.action), "{entry:?}");
        let without = Filter::from_entries(entries().filter(|other| other.call != entry.call)).unwrap();
        assert_eq!(judge(&without, X86_64, number, arguments), ALLOW, "{entry:?}");
    }
}

#[test]
fn apart_no_process_reaches_into_another_and_a_debugger_starts_its_own() {
    let (standard, apart) = (Filter::standard().unwrap(), Filter::apart().unwrap());
    let both = |call: i64, first: u64| {
        let judged = |filter: &Filter| judge(filter, X86_64, call as u32, [first, 2, 3, 4, 5, 6]);
        (judged(&standard), judged(&apart))
    };
    for request in [libc::PTRACE_ATTACH, libc::PTRACE_SEIZE] {
        assert_eq!(both(libc::SYS_ptrace, u64::from(request)), (ALLOW, EPERM));
    }
    assert_eq!(both(libc::SYS_ptrace, u64::from(libc::PTRACE_TRACEME)), (ALLOW, ALLOW));
    assert_eq!(both(libc::SYS_process_vm_writev, 9), (ALLOW, EPERM));
    assert_eq!(both(libc::SYS_pidfd_getfd, 9), (ALLOW, EPERM));
    assert_eq!(both(libc::SYS_process_vm_readv, 9), (ALLOW, ALLOW));
    for entry in entries().filter(|entry| entry.when == When::Always) {
        assert_eq!(judge(&apart, X86_64, entry.number as u32, [0; 6]), expected(entry.action), "{entry:?}");
    }
}

/// What the table says to a call.
fn decided<'a>(mut table: impl Iterator<Item = &'a Entry>, arguments: [u64; 6]) -> u32 {
    let holds = |check: &Check| fits(check.is, arguments[usize::from(check.argument)] as u32);
    let matching = table.find(|entry| match entry.when {
        When::Always => true,
        When::Arguments(checks) => checks.iter().all(holds),
    });
    matching.map_or(ALLOW, |entry| expected(entry.action))
}

/// Runs the filter with many arguments for each number, and compares it with the table.
fn agrees(filter: &Filter, table: &[&Entry], numbers: impl Iterator<Item = u32>) {
    let programs = Programs::of(filter);
    let words = [0, 1, 2, 3, 16, 0x5412, 0x1000_0000, 0x2000_0000, 0x7e02_0000, u64::MAX, 1 << 32];
    let triples =
        || words.into_iter().flat_map(move |a| words.into_iter().flat_map(move |b| words.map(|c| (a, b, c))));
    for number in numbers {
        let about: Vec<_> = table.iter().filter(|entry| entry.number == i64::from(number)).copied().collect();
        for (first, second, third) in triples() {
            let arguments = [first, second, third, second, first, third];
            let answer = decided(about.iter().copied(), arguments);
            assert_eq!(
                programs.judge(X86_64, number, arguments),
                answer,
                "call {number} with {arguments:x?}"
            );
        }
        assert_eq!(programs.judge(I386, number, [0; 6]), KILL_PROCESS, "call {number}");
        assert_eq!(programs.judge(I386, number | X32_BIT, [0; 6]), KILL_PROCESS, "call {number}");
        if number < X32_BIT - 1 {
            assert_eq!(programs.judge(X86_64, number | X32_BIT, [0; 6]), ENOSYS, "x32 {number}");
        }
    }
}

#[test]
fn whatever_the_arguments_the_table_decides() {
    let table: Vec<_> = entries().collect();
    agrees(&Filter::standard().unwrap(), &table, (0..1024).chain([X32_BIT - 1, u32::MAX]));
}

#[test]
fn the_other_filters_are_what_their_tables_say() {
    let but_openat2 = |entry: &&Entry| entry.call != "openat2";
    let cases: [(Filter, Vec<&Entry>); 4] = [
        (Filter::apart().unwrap(), apart_entries().collect()),
        (Filter::with_a_guard(entries()).unwrap(), entries().filter(but_openat2).collect()),
        (Filter::with_a_guard(apart_entries()).unwrap(), apart_entries().filter(but_openat2).collect()),
        (Filter::guard().unwrap(), guard_entries().collect()),
    ];
    let known: BTreeSet<u32> =
        apart_entries().chain(guard_entries()).map(|entry| entry.number as u32).collect();
    for (filter, table) in cases {
        agrees(&filter, &table, known.iter().copied());
    }
}

/// Single bits and values of flags are compared one by one: the guard sees every way to open for writing, and no other.
#[test]
fn the_listener_sees_every_flag_that_writes_and_no_other() {
    let guard = Programs::of(&Filter::guard().unwrap());
    let tmpfile = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
    let writes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32 | tmpfile;
    for (number, at) in [(libc::SYS_openat, 2), (libc::SYS_open, 1)] {
        for flags in (0..32).map(|bit| 1_u32 << bit).chain([0, 3, !writes, libc::O_PATH as u32, u32::MAX]) {
            let mut arguments = [0; 6];
            arguments[at] = u64::from(flags);
            let answer = if flags & writes == 0 { ALLOW } else { libc::SECCOMP_RET_USER_NOTIF };
            assert_eq!(guard.judge(X86_64, number as u32, arguments), answer, "{number} {flags:#x}");
        }
    }
}

#[test]
fn a_call_has_one_action() {
    let entry = entries().find(|entry| entry.action == Action::Absent).unwrap();
    let table = [*entry, Entry { action: Action::Deny, ..*entry }];
    let fault = Filter::from_entries(table.iter()).unwrap_err();
    assert_eq!(fault.to_string(), format!("the system-call filter has two answers for `{}`", entry.call));
}

#[test]
fn an_entry_for_some_arguments_does_not_narrow_one_for_all() {
    const CHECKS: &[Check] = &[Check { argument: 0, is: Is::Equal(1) }];
    let first = *entries().next().unwrap();
    let always = Entry { number: 9, when: When::Always, ..first };
    let some = Entry { when: When::Arguments(CHECKS), ..always };
    for table in [[always, some], [some, always]] {
        let filter = Filter::from_entries(table.iter()).unwrap();
        for argument in [0, 1, 2] {
            assert_eq!(judge(&filter, X86_64, 9, [argument, 0, 0, 0, 0, 0]), EPERM, "{argument}");
        }
    }
}

#[test]
fn a_table_may_be_long_but_not_longer_than_the_kernel_takes() {
    const CHECKS: &[Check] =
        &[Check { argument: 0, is: Is::Equal(1) }, Check { argument: 1, is: Is::Not(2) }];
    const LONG: &[Check] = &[Check { argument: 0, is: Is::Masked { mask: 6, value: 4 } }; 300];
    let first = *entries().next().unwrap();
    let mut table = vec![Entry { number: 1, when: When::Arguments(CHECKS), ..first }; 300];
    table.push(Entry { number: 7, when: When::Arguments(LONG), ..first });
    table.push(Entry { number: 9, when: When::Always, ..first });
    let filter = Filter::from_entries(table.iter()).unwrap();
    for (number, arguments, allowed) in [
        (1, [1, 1], false),
        (1, [1, 2], true),
        (1, [2, 1], true),
        (7, [2, 0], true),
        (7, [4, 0], false),
        (8, [4, 0], true),
        (9, [0, 0], false),
    ] {
        let [a, b] = arguments;
        let answer = judge(&filter, X86_64, number, [a, b, 0, 0, 0, 0]);
        assert_eq!(answer == ALLOW, allowed, "{number} {arguments:?}");
    }
    let even = |count: i64| (0..count).step_by(2).map(|number| Entry { number, when: When::Always, ..first });
    let table: Vec<Entry> = even(1500).collect();
    let programs = Programs::of(&Filter::from_entries(table.iter()).unwrap());
    for number in 0..1500 {
        assert_eq!(programs.judge(X86_64, number, [0; 6]) == ALLOW, number % 2 == 1, "{number}");
    }
    let table: Vec<Entry> = even(4000).collect();
    let fault = Filter::from_entries(table.iter()).unwrap_err();
    assert_eq!(fault.to_string(), "cannot compile the system-call filter");
}

#[test]
fn what_is_said_to_be_allowed_is_allowed() {
    for (call, why) in allowed() {
        assert!(!entries().any(|entry| entry.call == call) && !why.is_empty(), "{call}");
    }
}

#[test]
fn no_call_is_both_always_and_sometimes_refused() {
    let always: Vec<_> = entries().filter(|entry| entry.when == When::Always).collect();
    for entry in entries() {
        let clash = always.iter().any(|other| other.number == entry.number && *other != entry);
        assert!(!clash, "{entry:?}");
        assert!(!entry.why.is_empty());
    }
}

#[test]
fn the_near_misses_are_let_through() {
    let filter = Filter::standard().unwrap();
    let call = |number: i64, arguments: &[u64]| {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        judge(&filter, X86_64, number as u32, all)
    };
    let cloexec = 0o2_000_000;
    let sockets: [(&[u64], u32); 19] = [
        (&[1, 1 | cloexec, 0], ALLOW),
        (&[1, 2, 0], ALLOW),
        (&[1, 5, 0], ALLOW),
        (&[2, 1 | cloexec, 6], ALLOW),
        (&[2, 2, 17], ALLOW),
        (&[2, 1, 262], ALLOW),
        (&[10, 1, 0], ALLOW),
        (&[10, 2 | cloexec, 0], ALLOW),
        (&[2, 3, 1], EPERM),
        (&[2, 3 | cloexec, 255], EPERM),
        (&[10, 3, 58], EPERM),
        (&[2, 2, 1], EPERM),
        (&[2, 5, 132], EPERM),
        (&[2, 1, 132], EPERM),
        (&[16, 3 | cloexec, 0], ALLOW),
        (&[16, 2, 16], EPERM),
        (&[17, 3, 0], EPERM),
        (&[38, 5, 0], EPERM),
        (&[40, 1, 0], EPERM),
    ];
    for (arguments, answer) in sockets {
        assert_eq!(call(libc::SYS_socket, arguments), answer, "{arguments:?}");
    }
    // The bits above 32 are not part of the family: the kernel would ignore them, so the filter must too.
    assert_eq!(call(libc::SYS_socket, &[1 << 32 | 40, 1, 0]), EPERM);
    assert_eq!(call(libc::SYS_ioctl, &[0, 1 << 32 | 0x5412]), EPERM);
    assert_eq!(call(libc::SYS_ioctl, &[0, 0x5413]), ALLOW);
    let thread = 0x003d_0f00;
    assert_eq!(call(libc::SYS_clone, &[thread]), ALLOW);
    assert_eq!(call(libc::SYS_clone, &[17]), ALLOW);
    assert_eq!(call(libc::SYS_clone, &[17 | 0x1000_0000]), EPERM);
    assert_eq!(call(libc::SYS_unshare, &[0x400]), ALLOW);
    assert_eq!(call(libc::SYS_unshare, &[0x400 | 0x80]), EPERM);
    for (value, answer) in
        [(0, ALLOW), (8, ALLOW), (0x4_0000, ALLOW), (0xffff_ffff, ALLOW), (0x40_0000, EPERM)]
    {
        assert_eq!(call(libc::SYS_personality, &[value]), answer, "{value:#x}");
    }
    assert_eq!(call(libc::SYS_socketpair, &[1, 1, 0]), ALLOW);
    assert_eq!(call(libc::SYS_ptrace, &[0]), ALLOW);
}

/// The rule for sockets in other words than the policy's, over all families, types and protocols.
#[test]
fn sockets_are_unix_stream_datagram_and_route_and_no_others() {
    let programs = Programs::of(&Filter::standard().unwrap());
    let protocols = || (0..=20).chain([58, 132, 136, 255, 256, 262, 263, u64::from(u32::MAX)]);
    for (family, kind) in (0..64).flat_map(|family| (0..64).map(move |kind| (family, kind))) {
        for (protocol, flags) in
            protocols().flat_map(|protocol| [0, 0o2_004_000].map(|flags| (protocol, flags)))
        {
            let allowed = match family {
                1 => true,
                2 | 10 => matches!(kind % 16, 1 | 2) && matches!(protocol, 0 | 6 | 17 | 262),
                16 => protocol == 0,
                _ => false,
            };
            let found =
                programs.judge(X86_64, libc::SYS_socket as u32, [family, kind | flags, protocol, 0, 0, 0]);
            assert_eq!(found, if allowed { ALLOW } else { EPERM }, "{family} {kind} {protocol}");
        }
    }
}

#[test]
fn calls_of_other_architectures_are_refused() {
    let filter = Filter::standard().unwrap();
    for number in [0u32, 39, 101, 157, 511, 547] {
        assert_eq!(judge(&filter, X86_64, X32_BIT | number, [0; 6]), ENOSYS, "x32 {number}");
        assert_eq!(judge(&filter, I386, number, [0; 6]), KILL_PROCESS, "i386 {number}");
    }
    assert_eq!(judge(&filter, X86_64, 39, [0; 6]), ALLOW);
    assert_eq!(judge(&filter, X86_64, X32_BIT - 1, [0; 6]), ALLOW);
    assert_eq!(judge(&filter, X86_64, u32::MAX, [0; 6]), ALLOW);
}

#[test]
fn a_filter_of_no_entries_still_refuses_other_architectures() {
    let none: [Entry; 0] = [];
    let filter = Filter::from_entries(none.iter()).unwrap();
    assert_eq!(judge(&filter, X86_64, X32_BIT | 39, [0; 6]), ENOSYS);
    assert_eq!(judge(&filter, I386, 20, [0; 6]), KILL_PROCESS);
}
