//! A sandbox is gone, and bubblewrap reaped, when belljar returns.

use super::exec;
use crate::stage::Stage;
use belljar_testkit::require;
use std::process::Command;

/// The first process of a pid namespace that waits for belljar alone, and mounts the project's directory anew each round.
const ROUNDS: &str = r#"
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
project = sys.argv[2].encode()
busy = 0
for _ in range(200):
    assert libc.mount(b"tmpfs", project, b"tmpfs", 0, None) == 0, os.strerror(ctypes.get_errno())
    subprocess.run([sys.argv[1], "exec", "--", "true"], cwd=project, check=True)
    if libc.umount2(project, 0) != 0:
        busy += 1
        libc.umount2(project, 2)
os.rmdir(project)
left = open("/proc/1/task/1/children").read().split()
print(f"{busy} busy, {len(left)} left")
"#;

#[test]
fn waits_until_the_mounts_are_gone_and_bubblewrap_is_reaped() {
    require!(Bwrap, Root, Python);
    let stage = Stage::new();
    assert_eq!(exec(&stage, &["true"]).status.code(), Some(0));
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "python3", "-c", ROUNDS]);
    command.arg(env!("CARGO_BIN_EXE_belljar")).arg(stage.path("project"));
    command.current_dir("/").env_clear().envs(stage.environment());
    let found = stage.finish(&mut command);
    assert_eq!(found.stdout, "0 busy, 0 left\n", "{}", found.stderr);
}
