//! Projects on disks that are mounted and unmounted. In a binary of its own: a program that is being started shares,
//! for a moment, the locks of the process that starts it, and other tests check locks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_runner::{HeldInstance, SweepMode, SweepOutcome, SweepRequest, sweep};
use belljar_testkit::require;
use std::fs;
use std::process::Command;
use std::time::SystemTime;
use support::World;

#[test]
fn a_project_on_a_disk_that_is_not_mounted_is_not_gone() {
    require!(Root);
    let world = World::new();
    let disk = world.path("project/disk");
    fs::create_dir(&disk).unwrap();
    let mount = |program: &str, args: &[&str]| {
        assert!(Command::new(program).args(args).arg(&disk).status().unwrap().success());
    };
    mount("mount", &["-t", "tmpfs", "tmpfs"]);
    fs::create_dir(disk.join("work")).unwrap();
    drop(HeldInstance::prepare(&world.plan(&disk.join("work")), SystemTime::now()).unwrap());
    mount("umount", &["-l"]);
    let environment = world.environment(&world.path("home"));
    let list = sweep(&SweepRequest {
        environment: &environment,
        mode: SweepMode::Remove,
        runs_older_than: None,
        now: SystemTime::now(),
    });
    let SweepOutcome::Kept(why) = &list[0].outcome else { panic!("{list:?}") };
    assert_eq!(*why, format!("nothing is mounted at `{}` now", disk.display()));
}
