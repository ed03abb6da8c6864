//! The filter: every entry of the table and its near misses by running the program here, the main ones by really
//! calling, with and without the filter.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use belljar_sys::process::{Ended, in_child};
use belljar_sys::raw::{self, PlainCall};
use belljar_sys::seccomp::{Answer, Check, Entry, Filter, Is, When, entries};
use belljar_sys::{Errno, privs};

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = ERRNO | 1;
const ENOSYS: u32 = ERRNO | 38;

/// What the kernel would answer.
fn judge(filter: &Filter, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    run(&filter.to_bytes(), architecture, number, arguments)
}

fn run(program: &[u8], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend(number.to_ne_bytes());
    data.extend(architecture.to_ne_bytes());
    data.extend(0u64.to_ne_bytes());
    arguments.iter().for_each(|argument| data.extend(argument.to_ne_bytes()));
    execute(program, &data)
}

/// The instructions of classic BPF that filters are made of.
fn execute(program: &[u8], data: &[u8]) -> u32 {
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut accumulator = 0;
    let mut at = 0;
    loop {
        let instruction = &program[at * 8..at * 8 + 8];
        let code = u16::from_ne_bytes([instruction[0], instruction[1]]);
        let (if_true, if_false) = (usize::from(instruction[2]), usize::from(instruction[3]));
        let value = word(instruction, 4);
        let branch = |holds: bool| if holds { if_true } else { if_false };
        at += 1 + match code {
            0x20 => {
                accumulator = word(data, value as usize);
                0
            }
            0x54 => {
                accumulator &= value;
                0
            }
            0x05 => value as usize,
            0x15 => branch(accumulator == value),
            0x25 => branch(accumulator > value),
            0x35 => branch(accumulator >= value),
            0x45 => branch(accumulator & value != 0),
            0x06 => return value,
            other => panic!("instruction {other:#x}"),
        };
    }
}

fn expected(answer: Answer) -> u32 {
    match answer {
        Answer::NotPermitted => EPERM,
        Answer::NotImplemented => ENOSYS,
        Answer::Ask => libc::SECCOMP_RET_USER_NOTIF,
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
            Is::Not(value) | Is::MaskedNot { value, .. } => [value.wrapping_add(1), value ^ 0x40],
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
        Is::MaskedNot { mask, value: other } => value & mask != other,
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
        assert_eq!(judge(&filter, X86_64, number, arguments), expected(entry.answer), "{entry:?}");
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
        assert_eq!(judge(&apart, X86_64, entry.number as u32, [0; 6]), expected(entry.answer), "{entry:?}");
    }
}

#[test]
fn whatever_the_arguments_the_table_decides() {
    let program = Filter::standard().unwrap().to_bytes();
    let values = [0, 1, 2, 3, 16, 0x5412, 0x1000_0000, 0x2000_0000, 0x7e02_0000, u64::MAX, 1 << 32];
    let triples = || {
        values.into_iter().flat_map(move |a| values.into_iter().flat_map(move |b| values.map(|c| (a, b, c))))
    };
    for number in (0..700).chain([0x3fff_ffff, u32::MAX]) {
        let about: Vec<_> = entries().filter(|entry| entry.number == i64::from(number)).collect();
        for (first, second, third) in triples() {
            let arguments = [first, second, third, second, first, third];
            let holds = |check: &Check| fits(check.is, arguments[usize::from(check.argument)] as u32);
            let refusal = about.iter().find(|entry| match entry.when {
                When::Always => true,
                When::Arguments(checks) => checks.iter().all(holds),
            });
            let answer = refusal.map_or(ALLOW, |entry| expected(entry.answer));
            assert_eq!(run(&program, X86_64, number, arguments), answer, "call {number} with {arguments:x?}");
        }
        assert_eq!(run(&program, I386, number, [0; 6]), KILL_PROCESS, "call {number}");
    }
}

#[test]
fn a_call_has_one_answer() {
    let entry = entries().find(|entry| entry.answer == Answer::NotImplemented).unwrap();
    let table = [*entry, Entry { answer: Answer::NotPermitted, ..*entry }];
    let fault = Filter::from_entries(table.iter()).unwrap_err();
    assert_eq!(fault.to_string(), format!("the system-call filter has two answers for `{}`", entry.call));
}

#[test]
fn a_table_may_be_long() {
    const CHECKS: &[Check] =
        &[Check { argument: 0, is: Is::Equal(1) }, Check { argument: 1, is: Is::Not(2) }];
    const LONG: &[Check] = &[Check { argument: 0, is: Is::MaskedNot { mask: 6, value: 2 } }; 300];
    let first = *entries().next().unwrap();
    let mut table = vec![Entry { number: 1, when: When::Arguments(CHECKS), ..first }; 300];
    table.push(Entry { number: 7, when: When::Arguments(LONG), ..first });
    table.push(Entry { number: 9, when: When::Always, ..first });
    let program = Filter::from_entries(table.iter()).unwrap().to_bytes();
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
        assert_eq!(
            run(&program, X86_64, number, [a, b, 0, 0, 0, 0]) == ALLOW,
            allowed,
            "{number} {arguments:?}"
        );
    }
    let even = (0..4000).step_by(2).map(|number| Entry { number, when: When::Always, ..first });
    let table: Vec<Entry> = even.collect();
    let program = Filter::from_entries(table.iter()).unwrap().to_bytes();
    for number in 0..4000 {
        assert_eq!(run(&program, X86_64, number, [0; 6]) == ALLOW, number % 2 == 1, "{number}");
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

#[test]
fn the_other_call_interfaces_are_closed() {
    let filter = Filter::standard().unwrap();
    for number in [0u32, 39, 101, 157, 511, 547] {
        assert_eq!(judge(&filter, X86_64, 0x4000_0000 | number, [0; 6]), ENOSYS, "x32 {number}");
        assert_eq!(judge(&filter, I386, number, [0; 6]), KILL_PROCESS, "i386 {number}");
    }
    assert_eq!(judge(&filter, X86_64, 39, [0; 6]), ALLOW);
    assert_eq!(judge(&filter, X86_64, 0x3fff_ffff, [0; 6]), ALLOW);
    assert_eq!(judge(&filter, X86_64, u32::MAX, [0; 6]), ALLOW);
}

/// Where a call is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    /// Where every user is privileged: what an ordinary one is refused anyway shows nothing of the filter.
    OwnNamespaces,
}

/// The answer to a call that is really made in a child, behind the filter or not.
fn answer(filter: Option<&Filter>, call: fn() -> Result<(), Errno>) -> Result<Option<i32>, i32> {
    answer_at(Place::Here, filter, call)
}

fn answer_at(
    place: Place,
    filter: Option<&Filter>,
    call: fn() -> Result<(), Errno>,
) -> Result<Option<i32>, i32> {
    let own = PlainCall::Unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS);
    let ended = in_child(|| {
        if place == Place::OwnNamespaces && raw::try_plain(own).is_err() {
            return 254;
        }
        if let Some(filter) = filter
            && (privs::no_new_privs().is_err() || filter.install().is_err())
        {
            return 255;
        }
        call().map_or_else(|errno| errno.raw_os_error() as u8, |()| 0)
    });
    match ended.unwrap() {
        Ended::Exited(255) => panic!("the filter was not installed"),
        Ended::Exited(254) => panic!("no namespaces could be made"),
        Ended::Exited(0) => Ok(None),
        Ended::Exited(errno) => Ok(Some(errno)),
        Ended::Killed(signal) => Err(signal),
    }
}

#[test]
fn real_calls_are_open_without_the_filter_and_closed_with_it() {
    let filter = Filter::standard().unwrap();
    let (perm, nosys) = (Ok(Some(1)), Ok(Some(38)));
    type Case = (&'static str, fn() -> Result<(), Errno>, Result<Option<i32>, i32>);
    let cases: [Case; 11] = [
        ("io_uring", || raw::try_plain(PlainCall::IoUringSetup).map(drop), perm),
        ("keyctl", || raw::try_plain(PlainCall::KeyringId).map(drop), perm),
        ("mount", || raw::try_plain(PlainCall::Mount).map(drop), perm),
        ("setns", || raw::try_plain(PlainCall::Setns).map(drop), perm),
        ("perf", || raw::try_plain(PlainCall::PerfEventOpen).map(drop), perm),
        ("unshare", || raw::try_plain(PlainCall::Unshare(libc::CLONE_NEWUSER)).map(drop), perm),
        ("clone", || raw::try_clone_newuser(), perm),
        ("clone3", || raw::try_clone3().map(drop), nosys),
        ("netlink", || raw::try_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC), perm),
        ("personality", || raw::try_plain(PlainCall::Personality(0x40_0000)).map(drop), perm),
        ("int80", || raw::try_int80_getpid().map(drop), Err(libc::SIGSYS)),
    ];
    for (name, call, closed) in cases {
        let without = answer(None, call);
        assert!(without != perm && without != nosys, "{name} is closed on the host: {without:?}");
        assert_eq!(answer(Some(&filter), call), closed, "{name}");
    }
    let fsopen =
        |filter| answer_at(Place::OwnNamespaces, filter, || raw::try_plain(PlainCall::Fsopen).map(drop));
    assert_eq!(fsopen(None), Ok(Some(libc::EFAULT)));
    assert_eq!(fsopen(Some(&filter)), perm);
}

#[test]
fn terminal_input_is_open_without_the_filter_and_closed_with_it() {
    fn on_a_terminal(extra: u32) -> Result<(), Errno> {
        let pair = belljar_sys::pty::Pair::open().map_err(|_none| Errno::NOTTY)?;
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(&pair.terminal)?;
        let answer = raw::try_terminal_input(std::os::fd::AsFd::as_fd(&pair.terminal), extra);
        // Closing our end would hang up on this process before it can tell.
        std::mem::forget(pair);
        answer
    }
    let filter = Filter::standard().unwrap();
    let allowed = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti");
    if allowed.is_ok_and(|allowed| allowed.trim() == "1") {
        assert_eq!(answer(None, || on_a_terminal(0)), Ok(None));
        assert_eq!(answer(None, || on_a_terminal(1)), Ok(None));
    }
    assert_eq!(answer(Some(&filter), || on_a_terminal(0)), Ok(Some(1)));
    assert_eq!(answer(Some(&filter), || on_a_terminal(1)), Ok(Some(1)));
}

#[test]
fn without_no_new_privileges_an_ordinary_user_cannot_install_it() {
    let filter = Filter::standard().unwrap();
    let ended = in_child(|| {
        belljar_sys::caps::drop_all().ok();
        u8::from(filter.install().is_err())
    });
    assert_eq!(ended.unwrap(), Ended::Exited(1));
}

#[test]
fn a_filter_of_no_entries_still_closes_other_call_interfaces() {
    let none: [Entry; 0] = [];
    let filter = Filter::from_entries(none.iter()).unwrap();
    assert_eq!(judge(&filter, X86_64, 0x4000_0027, [0; 6]), ENOSYS);
    assert_eq!(judge(&filter, I386, 20, [0; 6]), KILL_PROCESS);
}
