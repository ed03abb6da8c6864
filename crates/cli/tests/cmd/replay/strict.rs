//! `--strict`: what is otherwise only listed makes a recording not verified, and so does what cannot be compared.

use super::super::record::{SCENARIO, plain, recorded, scenario, with_agent};
use super::replay;
use crate::stage::Stage;
use belljar_contract::TapeHead;
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const TAPE: &str = "scenarios/hello.tape";

/// The causes of what a row lists as changed.
fn causes(row: &Value) -> Vec<&str> {
    row["changed"].as_array().unwrap().iter().map(|one| one["cause"].as_str().unwrap()).collect()
}

/// Changes the head of the tape, as an older belljar would have written it.
fn rewritten(stage: &Stage, change: impl FnOnce(&mut TapeHead)) {
    let path = stage.path("project/scenarios/hello.tape/tape.json");
    let mut head: TapeHead = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut head);
    head.integrity = head.reckoned();
    fs::write(&path, serde_json::to_vec(&head).unwrap()).unwrap();
}

fn verify(stage: &Stage, more: &[&str]) -> (Option<i32>, Value) {
    let found = stage.finish(&mut with_agent(stage, &[&["tape", "verify", "--json", TAPE], more].concat()));
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    (found.status.code(), envelope["data"]["results"][0].clone())
}

#[test]
fn what_is_as_recorded_is_green_in_every_lane() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    for lane in [&["--strict"][..], &["--strict", "--protocol"]] {
        let (status, row) = replay(&stage, lane);
        assert_eq!((status, causes(&row)), (Some(0), Vec::new()), "{row:#}");
    }
    let (status, row) = verify(&stage, &["--strict"]);
    assert_eq!((status, &row["not_compared"]), (Some(0), &json!([])), "{row:#}");
}

#[test]
fn another_plan_is_not_green() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    rewritten(&stage, |head| head.plan = belljar_contract::Digest::of(b"another"));
    for lane in [&[][..], &["--protocol"]] {
        let (status, row) = replay(&stage, lane);
        assert_eq!(status, Some(0), "listed at most: {row:#}");
        let (status, row) = replay(&stage, &[&["--strict"], lane].concat());
        assert_eq!((status, causes(&row)), (Some(3), vec!["plan"]), "{row:#}");
        let quiet = [&["replay", TAPE, "--strict", "--quiet"], lane].concat();
        let found = stage.finish(&mut with_agent(&stage, &quiet));
        let line = "stale_recording: the plan is not what was recorded";
        assert!(found.stderr.contains(line), "{lane:?}: {}", found.stderr);
    }
}

#[test]
fn another_agent_is_not_green_even_if_nothing_runs() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    let with_older = |args: &[&str]| {
        let directory = agent::older().unwrap().parent().unwrap().display().to_string();
        let mut command: Command = stage.command(&[&["replay", "--json", TAPE], args].concat());
        let found = stage.finish(command.env("PATH", format!("{directory}:/usr/bin:/bin")));
        let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
        (found.status.code(), envelope["data"]["results"][0].clone())
    };
    let (status, row) = with_older(&["--protocol"]);
    assert_eq!(status, Some(0), "{row:#}");
    let (status, row) = with_older(&["--protocol", "--strict"]);
    assert_eq!((status, causes(&row)), (Some(3), vec!["agent"]), "{row:#}");
    assert_eq!(row["changed"][0]["what"], "the agent's program", "{row:#}");
    // Without any agent it is not known.
    let mut command = stage.command(&["replay", "--json", TAPE, "--protocol", "--strict"]);
    let found = stage.finish(command.env("PATH", "/usr/bin:/bin"));
    assert_eq!(found.status.code(), Some(3), "{}", found.stdout);
    assert!(found.stdout.contains("cannot be compared"), "{}", found.stdout);
}

#[test]
fn a_tape_that_cannot_be_compared_with_everything_is_not_green() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    rewritten(&stage, |head| head.agent.program = None);
    assert_eq!(verify(&stage, &[]).0, Some(0));
    let (status, row) = verify(&stage, &["--strict"]);
    assert_eq!(status, Some(3), "{row:#}");
    let named: Vec<&str> =
        row["not_compared"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert_eq!(named, ["the agent's program"], "{row:#}");
    let found = stage.finish(&mut with_agent(&stage, &["tape", "verify", "--strict", TAPE]));
    assert!(
        found.stdout.contains("not compared: the agent's program cannot be compared"),
        "{}",
        found.stdout
    );
    for lane in [&[][..], &["--protocol"]] {
        assert_eq!(replay(&stage, lane).0, Some(0), "{lane:?}");
        let (status, row) = replay(&stage, &[&["--strict"], lane].concat());
        assert_eq!((status, causes(&row)), (Some(3), vec!["agent"]), "{row:#}");
    }
    // What is stale comes before what is not known.
    stage.write("project/scenarios/hello.yaml", SCENARIO.replace("name: hello", "name: other"));
    assert_eq!(verify(&stage, &["--strict"]).0, Some(1));
}

#[test]
fn each_change_is_named_among_others_too() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    let mut copy = Command::new("cp");
    copy.args(["-r", "hello.tape", "other.tape"]).current_dir(stage.path("project/scenarios"));
    assert!(copy.status().unwrap().success());
    stage.write("project/scenarios/hello.yaml", SCENARIO.replace("name: hello", "name: other"));
    for lane in [&[][..], &["--protocol"]] {
        for quiet in [&[][..], &["--quiet"]] {
            let found =
                stage.finish(&mut with_agent(&stage, &[&["replay", "scenarios"], lane, quiet].concat()));
            assert_eq!(found.status.code(), Some(3), "{}", found.stderr);
            let lines = found.stderr.lines().filter(|line| line.contains("stale_recording: `name`"));
            assert_eq!(lines.count(), 2, "{lane:?} {quiet:?}: {}", found.stderr);
        }
        let found = stage
            .finish(&mut with_agent(&stage, &[&["replay", "scenarios", "--allow-stale"], lane].concat()));
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        assert!(found.stderr.contains("stale_recording: `name`"), "{lane:?}: {}", found.stderr);
    }
}
