//! Runs that end before they can be judged are kept with what is known of them, and none of them is green.

use crate::faults::{WAITS, begun, command, kill, with_agent, write_agent};
use crate::stage::Stage;
use belljar_testkit::{require, wait};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The newest run, as `runs` lists it among those that failed.
#[track_caller]
fn newest(stage: &Stage) -> Value {
    let envelope = stage.json(&["runs", "--json", "--failed"]);
    envelope["data"]["runs"][0].clone()
}

/// What `trace` and `judge` say about the newest run: neither is green, and both say why.
#[track_caller]
fn neither_is_green(stage: &Stage, why: &str) {
    for verb in ["trace", "judge"] {
        let found = stage.run(&[verb, "last"]);
        assert_eq!(found.status.code(), Some(3), "{verb}: {found:?}");
        let said = format!("{}{}", found.stdout, found.stderr);
        assert!(said.contains(why), "{verb} {why}: {said}");
    }
}

/// The processes that this one started, of this name.
fn started_by(parent: u32, name: &str) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.contains(&format!("\nPPid:\t{parent}\n")) && status.starts_with(&format!("Name:\t{name}\n"))
    };
    numbers.filter(is_child).collect()
}

#[test]
fn a_run_whose_sandbox_was_lost_is_not_judged_and_says_so() {
    require!(Bwrap, Python);
    let stage = with_agent(WAITS);
    let mut run = begun(&stage, &["test", "--scripted", "a.yaml"]);
    let sandboxes = started_by(run.id(), "bwrap");
    assert!(!sandboxes.is_empty());
    for process in sandboxes {
        assert!(Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap().success());
    }
    assert_eq!(run.wait().unwrap().code(), Some(125));
    let row = newest(&stage);
    assert_eq!((&row["state"], &row["conclusion"]), (&json!("judged"), &json!("unverified")), "{row:#}");
    assert_eq!((&row["verb"], &row["exit_code"]), (&json!("test"), &json!(125)), "{row:#}");
    let directory = row["directory"].as_str().unwrap();
    let summary = fs::read_to_string(format!("{directory}/summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let message = summary["verdict"]["signals"][0]["message"].as_str().unwrap();
    assert!(message.contains("the sandbox ended without a report"), "{summary:#}");
    neither_is_green(&stage, "the run was not judged: the sandbox ended without a report");
}

/// The one directory in a directory of belljar's state.
fn only_in(stage: &Stage, name: &str) -> PathBuf {
    let entries = fs::read_dir(stage.path("home/.local/state/belljar").join(name)).unwrap().flatten();
    let mut directories = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let found = directories.next().unwrap();
    assert_eq!(directories.next(), None);
    found
}

/// The agent ended well, and then belljar could not keep what the user wanted to have.
#[test]
fn a_run_whose_workspace_cannot_be_kept_is_not_judged_and_says_so() {
    require!(Bwrap, Python);
    let waits = "os.mkfifo('outputs/pipe'); greet(); take(); text('I wait.'); open('outputs/pipe').read()\n\
                 text('All done.'); result(); idle()\nwhile heard() is not None: pass";
    let stage = with_agent(waits);
    let mut run = begun(&stage, &["test", "--scripted", "--keep", "a.yaml"]);
    fs::create_dir(only_in(&stage, "runs").join("workspace")).unwrap();
    fs::write(only_in(&stage, "staging").join("workspace/outputs/pipe"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(125));
    let row = newest(&stage);
    assert_eq!((&row["state"], &row["conclusion"]), (&json!("judged"), &json!("unverified")), "{row:#}");
    neither_is_green(&stage, "the run was not judged");
}

/// Waits until the second run has this text in its log.
fn await_event(stage: &Stage, text: &str) {
    let runs = stage.path("home/.local/state/belljar/runs");
    let has = || {
        let all = fs::read_dir(&runs).into_iter().flatten().flatten();
        let logs = all.filter_map(|run| fs::read_to_string(run.path().join("events.jsonl")).ok());
        (logs.filter(|log| log.contains(text)).count() > 1).then_some(())
    };
    wait::for_files(&runs, has).unwrap();
}

#[test]
fn an_interrupted_replay_is_kept_as_interrupted() {
    require!(Bwrap, Python);
    let stage = with_agent("whole()");
    let recorded = stage.finish(&mut command(&stage, &["record", "--scripted", "a.yaml"]));
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
    write_agent(&stage, "greet(); take(); heard(); signal.pause()");
    let mut replay = command(&stage, &["replay", "a.tape"]);
    let mut child = replay.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_event(&stage, "conversation_began");
    kill(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let row = newest(&stage);
    assert_eq!((&row["verb"], &row["state"]), (&json!("replay"), &json!("judged")), "{row:#}");
    assert_eq!(row["conclusion"], "interrupted", "{row:#}");
}

#[test]
fn a_run_that_was_not_started_says_why() {
    require!(Bwrap);
    let stage = Stage::with("[agents.helper.egress]\nallow = [\"a.test\"]\n");
    let found = stage.run(&["exec", "--yes", "--", "/no/such/program"]);
    assert_eq!(found.status.code(), Some(127), "{found:?}");
    let row = newest(&stage);
    assert_eq!(row["status"]["how"], "not_started", "{row:#}");
    let trace = stage.run(&["trace", "last"]);
    assert_eq!(trace.status.code(), Some(3), "{trace:?}");
    assert!(trace.stdout.contains("the run was not started: `/no/such/program`"), "{trace:?}");
}

/// A terminal sends the signal to bubblewrap as well, which then builds no sandbox.
#[test]
fn a_run_that_is_interrupted_while_its_sandbox_is_built_is_interrupted() {
    require!(Bwrap, Python);
    let stage = with_agent("whole()");
    let fails =
        "#!/bin/sh\ncase \"$*\" in *--args*) kill -INT $PPID; exit 1;; esac\nexec /usr/bin/bwrap \"$@\"\n";
    stage.write("bin/bwrap", fails);
    fs::set_permissions(stage.path("bin/bwrap"), fs::Permissions::from_mode(0o755)).unwrap();
    let found = stage.finish(&mut command(&stage, &["test", "--scripted", "a.yaml"]));
    assert_eq!(found.status.code(), Some(130), "{found:?}");
    let row = newest(&stage);
    assert_eq!((&row["state"], &row["conclusion"]), (&json!("judged"), &json!("interrupted")), "{row:#}");
}
