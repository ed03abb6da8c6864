//! Whether the sandbox has as many processes as it may have, where no control group counts them.
//!
//! The kernel does not report that it refused a process for a resource limit or for want of a number (Linux 6.18,
//! `kernel/fork.c` and `kernel/pid.c`), so the processes are counted from time to time. That is cheap as long as the
//! whole machine has fewer.

use std::fs;
use std::os::unix::fs::MetadataExt;

use belljar_contract::{GuestBounds, GuestResource, GuestRoot, GuestSpec};
use belljar_sys::Errno;
use rustix::process::{Pid, test_kill_process, test_kill_process_group};

/// One part of so many of the limit may be free where it counts as reached: the command that met the limit has ended
/// when it is looked at, and has taken its own threads with it.
const SPARE_PARTS: u32 = 64;
/// Numbers below are given once and never again (`RESERVED_PIDS` in `kernel/pid.c`).
const RESERVED: i32 = 300;
/// A process has a number, and holds those of its group and session when their leaders have ended.
const NUMBERS_HELD: u32 = 3;

/// A limit of processes and threads, and what counts against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowd {
    /// Processes and threads: a resource limit.
    Tasks(u32),
    /// Numbers of this namespace: its `pid_max`.
    Numbers(u32),
}

impl Crowd {
    /// The limit that a spec sets, if it sets one.
    pub(super) fn of(spec: &GuestSpec) -> Option<Self> {
        let numbers = match &spec.root {
            GuestRoot::Built { bounds: GuestBounds { pid_max, tmpfs: _ }, .. } => pid_max.map(Crowd::Numbers),
            GuestRoot::AsFound => None,
        };
        let tasks = spec.limits.iter().find(|limit| limit.resource == GuestResource::Processes);
        let tasks = tasks.and_then(|limit| u32::try_from(limit.soft).ok()).map(Crowd::Tasks);
        numbers.or(tasks)
    }

    /// Whether it is reached now.
    pub(super) fn is_reached(self) -> bool {
        let (Crowd::Tasks(most) | Crowd::Numbers(most)) = self;
        let spare = most / SPARE_PARTS;
        let least = match self {
            Crowd::Tasks(_) => most - spare,
            Crowd::Numbers(_) => (most - spare) / NUMBERS_HELD,
        };
        if threads_of_the_machine().is_some_and(|threads| threads < least) {
            return false;
        }
        match self {
            Crowd::Tasks(_) => tasks() >= u64::from(least),
            Crowd::Numbers(_) => free_numbers(most) <= spare as usize,
        }
    }
}

/// All threads that the kernel runs, those of other namespaces too; after the slash in `0.00 0.01 0.05 1/234 5678`.
fn threads_of_the_machine() -> Option<u32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split_once('/')?.1.parse().ok()
}

/// Processes and threads of this namespace. A process shows a directory for each of its threads.
fn tasks() -> u64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = processes
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit));
    // A process that has just ended is not counted.
    let threads = numbered.filter_map(|entry| entry.path().join("task").metadata().ok());
    threads.map(|found| found.nlink().saturating_sub(2)).sum()
}

/// Numbers that a new process could still get.
fn free_numbers(most: u32) -> usize {
    let absent = |answer| answer == Err(Errno::SRCH);
    let is_free = |pid: &Pid| absent(test_kill_process(*pid)) && absent(test_kill_process_group(*pid));
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    (RESERVED..most).filter_map(Pid::from_raw).filter(is_free).count()
}
