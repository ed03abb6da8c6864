//! Whether this machine's kernel can hold back, while a command runs, what the host would execute later.

use belljar_sys::landlock::{self, MAKING_SINCE};
use belljar_sys::seccomp::notify;
use std::fs;

/// What a process may do to others of its user, from which on the guard cannot read what a caller asks for.
const TRACING_CLOSED: u32 = 2;

/// What is missing for the guard; nothing where it can stand.
#[must_use]
pub fn guard_lacks() -> Option<String> {
    let abi = landlock::kernel_abi();
    if abi < MAKING_SINCE {
        return Some(format!(
            "Landlock ABI {MAKING_SINCE} (Linux 5.19, switched on); this kernel has ABI {abi}"
        ));
    }
    if !notify::is_available() {
        return Some(
            "system calls that wait for an answer and take no signal meanwhile (Linux 5.19)".to_owned(),
        );
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope: Option<u32> = scope.and_then(|scope| scope.trim().parse().ok());
    scope
        .filter(|scope| *scope >= TRACING_CLOSED)
        .map(|scope| format!("reading the memory of child processes; kernel.yama.ptrace_scope is {scope}"))
}
