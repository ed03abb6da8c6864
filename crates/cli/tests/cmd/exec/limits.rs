//! Limits: they hold, or nothing runs.

use super::{Ended, sh};
use crate::stage::Stage;
use belljar_testkit::{require, wait};
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

#[test]
fn a_memory_hog_is_ended() {
    require!(Bwrap, Cgroups);
    let stage = Stage::with("[agents.a]\nlimits = { memory = \"64M\" }\n");
    let found = sh(
        &stage,
        "python3 -c 'b = bytearray(32 << 20)'; echo $?; python3 -c 'b = bytearray(256 << 20)'; echo $?",
    );
    assert_eq!(found.stdout, "0\n137\n", "{}", found.stderr);
}

#[test]
fn a_fork_bomb_is_stopped() {
    require!(Bwrap, Cgroups);
    let stage = Stage::with("[agents.a]\nlimits = { pids = 24 }\n");
    // It ends by itself because it is stopped.
    let found = sh(&stage, "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all");
    assert!(!found.stdout.contains("all") && found.stderr.contains("fork"), "{found:?}");
}

#[test]
fn a_processor_hog_gets_its_share() {
    require!(Bwrap, Cgroups);
    let hog = "timeout 2 sh -c 'while :; do :; done' & timeout 2 sh -c 'while :; do :; done'; wait; times";
    let stage = Stage::with("[agents.a]\nlimits = { cpu = 0.2 }\n");
    let found = sh(&stage, hog);
    // Two lines: the shell's own time, and that of its children.
    let children = found.stdout.lines().nth(1).unwrap_or_else(|| panic!("{found:?}"));
    let used: f64 = children.split_whitespace().map(seconds).sum();
    assert!((0.1..0.9).contains(&used), "two hogs for 2 s with a fifth of a processor used {used} s");
}

/// `0m1.23s`, as the shell prints times.
fn seconds(text: &str) -> f64 {
    let (minutes, seconds) = text.trim_end_matches('s').split_once('m').unwrap();
    minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
}

/// Lays a directory of ordinary files over the tree of a controller: everything that is written there is taken and
/// given back, and limits no other process.
const FALSE_TREE: &str = r#"
tree=$(findmnt -n -l -t cgroup -O "$1" -o TARGET | head -n 1)
own=$(sed -n "s/^[0-9]*:\(.*,\)\{0,1\}$1\(,.*\)\{0,1\}://p" /proc/self/cgroup)
if [ -z "$tree" ]; then
    tree=$(findmnt -n -l -t cgroup2 -o TARGET | head -n 1)
    own=$(sed -n 's/^0:://p' /proc/self/cgroup)
fi
mount -t tmpfs none "$tree" && mkdir -p "$tree$own" || exit 1
echo cpu memory pids >"$tree/cgroup.subtree_control"
exec "$0" exec --yes -- echo ran
"#;

#[test]
fn a_limit_that_reaches_nobody_is_refused_though_every_write_worked() {
    require!(Bwrap, Root, Cgroups);
    for (controller, limit) in [("pids", "pids = 24"), ("memory", "memory = \"64M\""), ("cpu", "cpu = 0.5")] {
        let stage = Stage::with(&format!("[agents.a]\nlimits = {{ {limit} }}\n"));
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", FALSE_TREE]);
        unshare.arg(env!("CARGO_BIN_EXE_belljar")).arg(controller);
        unshare.current_dir(stage.path("project")).env_clear().envs(stage.environment());
        let found = stage.finish(&mut unshare);
        assert_eq!((found.status.code(), found.stdout.as_str()), (Some(125), ""), "{}", found.stderr);
        assert!(found.stderr.starts_with("error: a limit does not hold\n"), "{}", found.stderr);
        assert!(found.stderr.contains("do not reach"), "{}", found.stderr);
    }
}

/// The control groups of this machine whose names begin so.
fn groups_named(prefix: &str) -> Vec<PathBuf> {
    let args = ["/sys/fs/cgroup", "-type", "d", "-name", &format!("{prefix}*")];
    // It complains about groups that end while it looks.
    let found = Command::new("find").args(args).stderr(Stdio::null()).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(PathBuf::from).collect()
}

/// The processes in these control groups and those below them.
fn members(groups: &[PathBuf]) -> Vec<u32> {
    let mut out = Vec::new();
    for group in groups {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        out.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
        out.extend(members(&below.filter(|path| path.is_dir()).collect::<Vec<_>>()));
    }
    out
}

#[test]
fn gc_finds_the_control_group_that_a_killed_belljar_left() {
    require!(Bwrap, Cgroups);
    let stage = Stage::with("[agents.a]\nlimits = { pids = 50 }\n");
    let mut command = stage.command(&["exec", "--yes", "--", "sh", "-c", "echo begun; read line"]);
    let mut child = Ended(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut begun = [0; 6];
    child.0.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    let name = format!("belljar-run-a-{}-", child.0.id());
    let listed = |mode: &[&str]| stage.run(&[&["gc"], mode].concat()).stdout.contains(&name);
    assert!(!listed(&["--dry-run"]), "a group whose maker runs is not left over");
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // The sandbox ends with its maker, but not at once. Another sweep of this user may be quicker.
    assert!(!groups_named(&name).is_empty());
    let began = Instant::now();
    while !groups_named(&name).is_empty() {
        wait::for_end(|| members(&groups_named(&name))).unwrap();
        listed(&[]);
        assert!(began.elapsed() < wait::DEADLINE, "an empty group is found and removed");
    }
}
