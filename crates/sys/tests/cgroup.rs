//! Control groups, for real where this machine lets us.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use std::process::{Command, Stdio};
use std::time::Duration;

use belljar_sys::cgroup::{CgroupError, Hierarchy, Leaf, Limit, Limits, Mode};
use rustix::process::Pid;

const LIMITS: Limits = Limits {
    memory: Limit::AtMost(64 << 20),
    swap: Limit::Unlimited,
    pids: Limit::AtMost(12),
    cpu_percent: Limit::AtMost(150),
};

fn name(test: &str) -> String {
    format!("belljar-test-{}-{test}", std::process::id())
}

/// A leaf, or `None` with a word where this machine has nothing to make one with.
fn leaf(test: &str, limits: &Limits) -> Option<Leaf> {
    match Leaf::create(&name(test), limits) {
        Ok(leaf) => Some(leaf),
        Err(error @ (CgroupError::NoController { .. } | CgroupError::Create { .. })) => {
            let required = std::env::var("BELLJAR_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|need| need == "Cgroups"), "{error}");
            eprintln!("skipped: needs Cgroups: {error}");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn limits_are_held_and_read_back_and_the_leaf_goes_away() {
    let Some(leaf) = leaf("limits", &LIMITS) else { return };
    let held = leaf.limits().unwrap();
    assert_eq!((held.memory, held.pids, held.cpu_percent), (LIMITS.memory, LIMITS.pids, LIMITS.cpu_percent));
    let paths: Vec<_> = leaf.paths().map(std::path::Path::to_owned).collect();
    assert!(paths.iter().all(|path| path.is_dir()));
    leaf.remove().unwrap();
    assert!(paths.iter().all(|path| !path.exists()), "{paths:?}");
}

#[test]
fn members_are_limited_and_killed_even_if_they_leave_their_session() {
    let Some(leaf) = leaf("members", &LIMITS) else { return };
    let script = "read go; setsid sleep 300 & setsid sleep 300 & for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do sleep 300 & done; wait";
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    leaf.add(Pid::from_child(&child)).unwrap();
    drop(child.stdin.take());
    while leaf.members().unwrap().len() < 8 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(leaf.members().unwrap().len() <= 12);
    leaf.kill_all(Duration::from_secs(5)).unwrap();
    assert_eq!(leaf.members().unwrap(), []);
    child.wait().unwrap();
}

#[test]
fn memory_is_limited() {
    let limits = Limits { pids: Limit::Unlimited, cpu_percent: Limit::Unlimited, ..LIMITS };
    let Some(leaf) = leaf("memory", &limits) else { return };
    let script = "read go; exec head -c 300000000 /dev/zero | tail -c 290000000 | wc -c";
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    leaf.add(Pid::from_child(&child)).unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_ne!(String::from_utf8_lossy(&output.stdout).trim(), "290000000");
}

#[test]
fn leaves_of_earlier_runs_are_found_by_name_and_swept() {
    let Some(leaf) = leaf("orphan", &Limits::NONE) else { return };
    let child = Command::new("sleep").arg("300").spawn();
    let mut child = child.unwrap();
    leaf.add(Pid::from_child(&child)).unwrap();
    std::mem::forget(leaf);
    let found = Leaf::existing(&name("orphan")).unwrap();
    assert_eq!(found.len(), 1);
    drop(found);
    assert!(child.try_wait().unwrap().is_none(), "finding a leaf must not touch it");
    for found in Leaf::existing(&name("orphan")).unwrap() {
        assert_eq!(found.name(), name("orphan"));
        found.adopt().remove().unwrap();
    }
    assert!(!child.wait().unwrap().success());
    assert!(Leaf::existing(&name("orphan")).unwrap().is_empty());
}

#[test]
fn support_is_found_out_by_doing() {
    let support = belljar_sys::cgroup::probe().unwrap();
    let possible = Leaf::create(&name("support"), &LIMITS).is_ok();
    assert_eq!(support.holds.len() == 3, possible, "{support:?}");
    assert!(Leaf::existing(&format!("belljar-probe-{}", std::process::id())).unwrap().is_empty());
}

#[test]
fn names_cannot_leave_the_directory() {
    for name in ["", ".", "..", "a/b", "../x"] {
        let refused = Leaf::create(name, &Limits::NONE);
        assert!(matches!(refused, Err(CgroupError::Name { .. })), "{name:?}");
    }
    assert!(matches!(Leaf::existing(""), Err(CgroupError::Name { .. })));
}

#[test]
fn a_limit_without_a_controller_is_refused_by_name() {
    let refused = Leaf::create_in(&Hierarchy::default(), "belljar-none", &LIMITS);
    assert!(matches!(refused, Err(CgroupError::NoController { .. })), "{refused:?}");
    assert_eq!(Hierarchy::default().mode(), Mode::Absent);
}
