//! Whether this kernel can refuse, while a command runs, changes to what the host would execute later.

use belljar_sys::landlock::{self, MAKING_SINCE};
use belljar_sys::seccomp::notify;
use std::fs;

/// From this value of `ptrace_scope` on the guard cannot read the memory of a caller.
const TRACING_CLOSED: u32 = 2;

/// Returns what this machine lacks for the guard; nothing where the guard works.
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
