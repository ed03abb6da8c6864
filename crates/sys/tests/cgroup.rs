//! Control groups, for real where this machine lets us.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::time::Duration;

use belljar_sys::cgroup::{
    CgroupError, CgroupMode, Controller, GroupLimits, Hierarchy, Leaf, Limit, Unified,
};
use belljar_testkit::require;
use rustix::process::Pid;

const LIMITS: GroupLimits = GroupLimits {
    memory: Limit::AtMost(64 << 20),
    swap: Limit::Unlimited,
    pids: Limit::AtMost(12),
    cpu_percent: Limit::AtMost(150),
};

fn name(test: &str) -> String {
    format!("belljar-test-{}-{test}", std::process::id())
}

fn leaf(test: &str, limits: &GroupLimits) -> Leaf {
    Leaf::create(&name(test), limits).unwrap()
}

#[test]
fn limits_are_held_and_read_back_and_the_leaf_goes_away() {
    require!(Cgroups);
    let leaf = leaf("limits", &LIMITS);
    let held = leaf.limits().unwrap();
    assert_eq!((held.memory, held.pids, held.cpu_percent), (LIMITS.memory, LIMITS.pids, LIMITS.cpu_percent));
    let paths: Vec<_> = leaf.paths().map(std::path::Path::to_owned).collect();
    assert!(paths.iter().all(|path| path.is_dir()));
    leaf.remove().unwrap();
    assert!(paths.iter().all(|path| !path.exists()), "{paths:?}");
}

#[test]
fn members_are_limited_and_killed_even_if_they_leave_their_session() {
    require!(Cgroups);
    let leaf = leaf("members", &LIMITS);
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
    let limits = GroupLimits { pids: Limit::Unlimited, cpu_percent: Limit::Unlimited, ..LIMITS };
    require!(Cgroups);
    let leaf = leaf("memory", &limits);
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
    require!(Cgroups);
    let leaf = leaf("orphan", &GroupLimits::NONE);
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
        let refused = Leaf::create(name, &GroupLimits::NONE);
        assert!(matches!(refused, Err(CgroupError::Name { .. })), "{name:?}");
    }
    assert!(matches!(Leaf::existing(""), Err(CgroupError::Name { .. })));
}

#[test]
fn a_limit_without_a_controller_is_refused_by_name() {
    let refused = Leaf::create_in(&Hierarchy::default(), "belljar-none", &LIMITS);
    assert!(matches!(refused, Err(CgroupError::NoController { .. })), "{refused:?}");
    assert_eq!(Hierarchy::default().mode(), CgroupMode::Absent);
}

/// A process that ends with the test.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn new() -> Self {
        Sleeper(Command::new("sleep").arg("300").spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn the_kernel_confirms_who_is_in_and_what_holds() {
    require!(Cgroups);
    // Not a whole number of pages: the kernel rounds.
    let asked = GroupLimits { memory: Limit::AtMost((64 << 20) + 5), swap: Limit::AtMost(0), ..LIMITS };
    let leaf = leaf("confirm", &asked);
    let inside = Sleeper::new();
    leaf.add(inside.pid()).unwrap();
    leaf.confirm(inside.pid(), &asked).unwrap();
    let outside = leaf.confirm(Sleeper::new().pid(), &asked);
    assert!(matches!(outside, Err(CgroupError::Outside { .. })), "{outside:?}");
}

#[test]
fn a_limit_that_was_changed_since_is_noticed() {
    require!(Cgroups);
    let changes = [
        ("pids.max", "max"),
        ("pids.max", "13"),
        ("memory.max", "max"),
        ("memory.memsw.limit_in_bytes", "-1"),
        ("cpu.max", "max 100000"),
        ("cpu.cfs_quota_us", "-1"),
        ("cpu.cfs_period_us", "10000"),
    ];
    let mut noticed = 0;
    for (at, (file, value)) in changes.into_iter().enumerate() {
        let limits = GroupLimits { swap: Limit::AtMost(0), ..LIMITS };
        let leaf = leaf(&format!("changed-{at}"), &limits);
        let sleeper = Sleeper::new();
        leaf.add(sleeper.pid()).unwrap();
        let Some(path) = leaf.paths().map(|path| path.join(file)).find(|path| path.exists()) else {
            continue;
        };
        std::fs::write(&path, value).unwrap();
        let refused = leaf.confirm(sleeper.pid(), &limits).unwrap_err().to_string();
        assert!(refused.contains(file) && refused.contains(" instead of "), "{refused}");
        noticed += 1;
    }
    assert!(noticed >= 4, "each version of control groups has at least four of these files");
}

#[test]
fn a_directory_that_only_looks_like_a_group_confirms_nothing() {
    let top = tempfile::tempdir().unwrap();
    std::fs::write(top.path().join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
    let unified = Unified { mount: top.path().to_owned(), own: top.path().to_owned() };
    let v1 = [Controller::Memory, Controller::Pids, Controller::Cpu].map(|controller| {
        let parent = top.path().join(controller.name());
        std::fs::create_dir(&parent).unwrap();
        (controller, parent)
    });
    let hierarchies = [
        Hierarchy { v2: Some(unified), ..Hierarchy::default() },
        Hierarchy { v1: v1.into_iter().collect(), v2: None },
    ];
    let asked = GroupLimits { swap: Limit::AtMost(0), ..LIMITS };
    for hierarchy in hierarchies {
        let leaf = Leaf::create_in(&hierarchy, "belljar-false", &asked).unwrap();
        let sleeper = Sleeper::new();
        leaf.add(sleeper.pid()).unwrap();
        assert_eq!(leaf.limits().unwrap().pids, LIMITS.pids, "it gives back what it was given");
        let refused = leaf.confirm(sleeper.pid(), &asked);
        assert!(matches!(refused, Err(CgroupError::Outside { .. })), "{refused:?}");
        // A process must not be killed because a file in our directory names it.
        leaf.paths().for_each(|path| std::fs::remove_dir_all(path).unwrap());
    }
}

#[test]
fn what_one_tree_refuses_is_not_left_in_the_others() {
    let top = tempfile::tempdir().unwrap();
    let v1 = [Controller::Memory, Controller::Pids].map(|controller| {
        let parent = top.path().join(controller.name());
        std::fs::create_dir(&parent).unwrap();
        (controller, parent)
    });
    let hierarchy = Hierarchy { v1: v1.into_iter().collect(), v2: None };
    let limits = GroupLimits { memory: LIMITS.memory, pids: LIMITS.pids, ..GroupLimits::NONE };
    let leaf = Leaf::create_in(&hierarchy, "belljar-half", &limits).unwrap();
    // A group vanishes from here with its files; these are emptied by hand, one of them not.
    let pids = top.path().join("pids/belljar-half");
    std::fs::remove_file(pids.join("pids.max")).unwrap();
    leaf.remove().unwrap_err();
    assert!(!pids.exists() && top.path().join("memory/belljar-half").exists());
}
