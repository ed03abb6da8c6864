//! The sandbox is started while the plan is being made: this must change no result and leave nothing behind.

use super::{Ended, exec, sh};
use crate::stage::Stage;
use belljar_testkit::require;
use belljar_testkit::wait::DEADLINE;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// With the guest unpacked: only then is anything started early.
fn used(manifest: &str) -> Stage {
    let stage = Stage::new();
    assert_eq!(exec(&stage, &["true"]).status.code(), Some(0));
    stage.write("project/belljar.toml", manifest);
    stage
}

/// The processes that execute the guest of this stage. Only the superuser sees what a process that hides executes.
fn guests(stage: &Stage) -> Vec<PathBuf> {
    having(stage, |process| vec![process.join("exe")])
}

/// The processes that execute the guest of this stage, or are about to: bubblewrap has it open.
fn left(stage: &Stage) -> Vec<PathBuf> {
    having(stage, |process| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
        open.chain([process.join("exe")]).collect()
    })
}

/// The processes of which one of these links leads to the guest of this stage.
fn having(stage: &Stage, links: impl Fn(&Path) -> Vec<PathBuf>) -> Vec<PathBuf> {
    let guest = stage.path("data");
    let leads_there = |link: PathBuf| fs::read_link(link).is_ok_and(|file| file.starts_with(&guest));
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    processes.filter(|process| links(process).into_iter().any(leads_there)).collect()
}

#[track_caller]
fn until(what: &str, true_at_last: impl Fn() -> bool) {
    let began = Instant::now();
    while !true_at_last() {
        assert!(began.elapsed() < DEADLINE, "{what}");
        std::thread::yield_now();
    }
}

/// belljar at a terminal, up to its question.
pub(super) fn asked(stage: &Stage) -> Ended {
    // The process that runs the tests may ignore a signal, and every child inherits that.
    let line = format!(
        "env --default-signal=INT script -qec '{} exec -- echo begun' /dev/null",
        env!("CARGO_BIN_EXE_belljar")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
    command.env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Ended(command.spawn().unwrap());
    read_to(&mut child, "Start this? [y/N] ");
    child
}

fn read_to(child: &mut Ended, end: &str) {
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(end.as_bytes()) {
        child.0.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
}

pub(super) fn answer(child: &mut Ended, keys: &str) -> (Option<i32>, String) {
    child.0.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    let mut rest = String::new();
    child.0.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
    (child.0.wait().unwrap().code(), rest)
}

#[test]
fn an_invalid_manifest_is_reported_as_usual() {
    require!(Bwrap, Root);
    for manifest in ["[agents.a]\nno-such-key = 1\n", "[agents", "[agents.a]\n[agents.b]\n"] {
        let (stage, fresh) = (used(manifest), Stage::with(manifest));
        let args = ["exec", "--yes", "--", "true"];
        assert_eq!(stage.outcome(&args), fresh.outcome(&args));
        until("something is left", || left(&stage).is_empty());
        assert!(!fresh.path("data/belljar").exists(), "nothing is unpacked for what cannot be started");
    }
}

#[test]
fn unknown_arguments_are_reported_as_usual() {
    require!(Bwrap, Root);
    let (stage, fresh) = (used(""), Stage::with(""));
    for args in [&["exec", "--no-such-option", "--", "true"][..], &["exec"], &["-C", "/no/such", "run"]] {
        assert_eq!(stage.outcome(args), fresh.outcome(args));
        until("something is left", || left(&stage).is_empty());
    }
}

#[test]
fn a_sandbox_waits_while_the_user_is_asked_and_goes_with_the_answer() {
    require!(Bwrap, Root);
    let stage = used("[agents.a]\n");
    for (keys, status, said) in
        [("n\n", Some(125), "not agreed to; nothing was started"), ("\u{3}", Some(130), "^C")]
    {
        let mut child = asked(&stage);
        until("the sandbox waits", || guests(&stage).len() == 1);
        let (found, rest) = answer(&mut child, keys);
        assert_eq!(found, status, "{rest}");
        assert!(rest.contains(said) && !rest.contains("begun"), "{rest}");
        until("something is left", || left(&stage).is_empty());
    }
    let mut child = asked(&stage);
    let (status, rest) = answer(&mut child, "y\n");
    assert_eq!(status, Some(0), "{rest}");
    assert!(rest.contains("begun"), "{rest}");
}

#[test]
fn sigkill_of_belljar_while_it_plans_leaves_nothing() {
    require!(Bwrap, Root);
    let stage = used("");
    let pipe = stage.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    stage.write(
        "project/belljar.toml",
        format!("[agents.a.env]\nWAITED_FOR = {{ command = [\"cat\", {pipe:?}] }}\n"),
    );
    let mut child = Ended(stage.command(&["exec", "--yes", "--", "true"]).spawn().unwrap());
    // Opened as soon as somebody reads: belljar has started the sandbox, and waits for a value.
    let value = fs::File::options().write(true).open(&pipe).unwrap();
    until("the sandbox waits", || guests(&stage).len() == 1);
    let limits = fs::read_to_string(guests(&stage)[0].join("limits")).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(cores.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"]);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    until("something is left", || left(&stage).is_empty());
    drop(value);
}

/// Kills bubblewrap at any moment: before its child has a user id, the child cannot notice that its parent is gone.
#[test]
fn whenever_belljar_is_killed_nothing_is_left() {
    require!(Bwrap, Root);
    let stage = used("[agents.a]\n");
    assert_eq!(sh(&stage, "true").status.code(), Some(0));
    for moment in 0..80 {
        let mut child = Ended(stage.command(&["exec", "--yes", "--", "sleep", "60"]).spawn().unwrap());
        let until = Instant::now() + Duration::from_micros(250 * moment);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
    }
    until("something is left", || left(&stage).is_empty());
}

#[test]
fn whenever_it_turns_out_to_be_for_nothing_nothing_is_left() {
    require!(Bwrap, Root);
    let stage = used("[agents.a]\nworkspace = \"overlay\"\n");
    for _ in 0..20 {
        assert_eq!(sh(&stage, "true").status.code(), Some(0));
        assert!(left(&stage).is_empty(), "belljar has waited for it: {:?}", left(&stage));
        assert_eq!(stage.run(&["exec", "--no-such-option", "--", "true"]).status.code(), Some(2));
        assert!(left(&stage).is_empty(), "belljar has waited for it: {:?}", left(&stage));
    }
}

/// The guest is asked to end everything; here it cannot.
#[test]
fn a_guest_that_obeys_nobody_is_ended_all_the_same() {
    require!(Bwrap, Root);
    let stage = used("[agents.a]\n");
    let args = ["exec", "--yes", "--", "sh", "-c", "echo begun; exec sleep 60"];
    let mut child = Ended(stage.command(&args).stdout(Stdio::piped()).spawn().unwrap());
    read_to(&mut child, "begun\n");
    let pid = |process: &Path| process.file_name().unwrap().to_str().unwrap().to_owned();
    let signal = |name: &str, pid: &str| {
        assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
    };
    let guests = guests(&stage);
    assert_eq!(guests.len(), 1);
    signal("-STOP", &pid(&guests[0]));
    signal("-TERM", &child.0.id().to_string());
    assert_eq!(child.0.wait().unwrap().code(), Some(143));
    until("something is left", || left(&stage).is_empty());
}

#[test]
fn limits_hold_from_the_first_process_on() {
    require!(Bwrap, Cgroups);
    let stage = used("[agents.a]\nlimits = { pids = 24 }\n");
    let found = sh(&stage, "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all");
    assert!(!found.stdout.contains("all") && found.stderr.contains("fork"), "{found:?}");
}

#[test]
fn a_plan_that_wants_other_namespaces_gets_them() {
    require!(Bwrap, Root);
    let stage = used("[agents.a]\nworkspace = \"overlay\"\n");
    assert_eq!(sh(&stage, "echo x > made").status.code(), Some(0));
    assert!(!stage.path("project/made").exists(), "it is in the overlay");
    stage.write("project/belljar.toml", "[agents.a]\nbackend = \"host\"\n");
    assert_eq!(sh(&stage, "echo x > made").status.code(), Some(0));
    assert!(stage.path("project/made").exists());
    until("something is left", || left(&stage).is_empty());
}
