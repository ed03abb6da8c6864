//! Normalisers that a session declares: only a value that they match may differ without a drift.

use super::super::record::{bash, main_turn, scenario, script, with_agent};
use super::replay;
use crate::forged_tapes::write_head;
use crate::stage::Stage;
use belljar_contract::{SuiteNormaliser, TapeHead};
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;

const BUILD: &str = "{name: build-number, pattern: 'Build ([0-9]+) finished', reason: the server counts}";
const IDLE: &str = "{name: idle, pattern: 'zq[0-9]+', reason: never seen}";

/// The agent runs a command whose output differs in each run.
fn stage(output: &str, normalise: &[&str]) -> Stage {
    let turns =
        [main_turn(&json!([bash(&format!("echo {output}"))])), main_turn(&json!([{"text": "all done"}]))];
    let stage = scenario(&script(&turns));
    declare(&stage, normalise);
    stage
}

fn declare(stage: &Stage, normalise: &[&str]) {
    let list: String = normalise.iter().map(|one| format!("  - {one}\n")).collect();
    let normalise = if list.is_empty() { String::new() } else { format!("normalise:\n{list}") };
    stage
        .write("project/scenarios/session.yaml", format!("skills:\n  local: [../skills/hello]\n{normalise}"));
}

fn record(stage: &Stage) -> Finished {
    stage.finish(&mut with_agent(stage, &["record", "--scripted", "scenarios/hello.yaml"]))
}

const NOW: &str = "$(date +%s%N)";

#[test]
fn a_declared_value_is_made_alike_in_both_lanes() {
    require!(Agent, Bwrap);
    let output = format!("Build {NOW} finished: 3 entries");
    let stage = stage(&output, &[BUILD, IDLE]);
    let found = record(&stage);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    for line in [
        "normaliser `build-number` changed 1 value in 1 request (the server counts)\n",
        "normaliser `idle` changed 0 values in 0 requests (never seen); leave it out of the session\n",
    ] {
        assert!(found.stderr.contains(line), "{}", found.stderr);
    }
    for lane in [&[][..], &["--protocol"]] {
        let (status, row) = replay(&stage, lane);
        assert_eq!(status, Some(0), "{row:#}");
        assert_eq!(row["normalisers"][0]["values"], 1, "{row:#}");
        assert_eq!(row["normalisers"][1]["requests"], 0, "{row:#}");
        let args = [&["replay", "scenarios/hello.tape"][..], lane].concat();
        let shown = stage.finish(&mut with_agent(&stage, &args));
        assert!(shown.stderr.contains("normaliser `build-number` changed 1 value"), "{}", shown.stderr);
    }
    let shown = stage.run(&["tape", "show", "scenarios/hello.tape"]);
    assert!(shown.stdout.contains("of the suite `build-number` changed 1 value in 1 request"), "{shown:?}");
    assert!(shown.stdout.contains("/Build ([0-9]+) finished/ sha256:"), "{shown:?}");
    let verified = stage.run(&["tape", "verify", "scenarios/hello.tape"]);
    assert!(!verified.stdout.contains("contradict"), "{verified:?}");
    // Without it the same value drifts, and the hint says how it would not.
    declare(&stage, &[]);
    assert_eq!(record(&stage).status.code(), Some(0));
    let drifted = stage.finish(&mut with_agent(&stage, &["replay", "scenarios/hello.tape"]));
    assert_eq!(drifted.status.code(), Some(7), "{}", drifted.stderr);
    let (_, hint) = drifted.stderr.split_once("add this to the session, and record again\n").unwrap();
    let lines: Vec<&str> = hint.lines().take(4).map(|line| line.strip_prefix("  ").unwrap()).collect();
    assert_eq!(lines[2].trim(), "pattern: \"Build ([0-9]+) finished: 3 entries\"", "{hint}");
    let session = fs::read_to_string(stage.path("project/scenarios/session.yaml")).unwrap();
    let unindented: Vec<&str> = lines.iter().map(|line| line.strip_prefix("  ").unwrap()).collect();
    stage.write("project/scenarios/session.yaml", format!("{session}{}\n", unindented.join("\n")));
    let found = record(&stage);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert_eq!(replay(&stage, &[]).0, Some(0), "as the hint says");
}

/// A change beside the value is as much a drift as without the normaliser.
#[test]
fn a_change_outside_of_the_pattern_drifts() {
    require!(Agent, Bwrap);
    for output in [
        format!("Build {NOW} finished: {NOW} entries"),
        format!("Build x{NOW} finished: 3 entries"),
        format!("{NOW} Build 7 finished: 3 entries"),
    ] {
        let stage = stage(&output, &[BUILD]);
        let found = record(&stage);
        assert_eq!(found.status.code(), Some(0), "{output}: {}", found.stderr);
        let (status, row) = replay(&stage, &[]);
        assert_eq!(
            (status, &row["replay"]["drifts"][0]["kind"]),
            (Some(7), &json!("tool-result")),
            "{row:#}"
        );
    }
}

#[test]
fn another_normaliser_than_the_tapes_makes_it_stale() {
    require!(Agent, Bwrap);
    let stage = stage(&format!("Build {NOW} finished: 3 entries"), &[BUILD]);
    assert_eq!(record(&stage).status.code(), Some(0));
    let wider = BUILD.replace("[0-9]+", "[0-9a-f]+");
    for (present, what) in [
        (vec![], "the normaliser `build-number` of the session is not there any more"),
        (vec![wider.as_str()], "the normaliser `build-number` of the session is not what was recorded"),
        (vec![BUILD, IDLE], "the normaliser `idle` of the session was not there when it was recorded"),
    ] {
        declare(&stage, &present);
        for lane in [&[][..], &["--protocol"]] {
            let (status, row) = replay(&stage, lane);
            assert_eq!((status, &row["conclusion"]), (Some(3), &json!("unverified")), "{what}: {row:#}");
            let args = [&["replay", "scenarios/hello.tape"][..], lane].concat();
            let shown = stage.finish(&mut with_agent(&stage, &args));
            assert!(shown.stderr.contains(what), "{what}: {}", shown.stderr);
            let allowed = [lane, &["--allow-stale"]].concat();
            assert_eq!(replay(&stage, &allowed).0, Some(0), "{what}");
        }
        let verified = stage.run(&["tape", "verify", "scenarios/hello.tape"]);
        assert_eq!(verified.status.code(), Some(1), "{verified:?}");
        assert!(verified.stdout.contains("normaliser"), "{verified:?}");
    }
}

#[test]
fn one_that_would_hide_what_is_tested_is_refused() {
    require!(Agent, Bwrap);
    let stage = stage(&format!("Build {NOW} finished"), &[]);
    for (one, why) in [
        ("{name: all, pattern: '.*', reason: x}", "matches the empty text"),
        ("{name: all, pattern: '(?s).+', reason: x}", "in plain text"),
        ("{name: all, pattern: '[0-9]+', reason: x}", "in plain text"),
        ("{name: All, pattern: 'zq', reason: x}", "the name of a normaliser"),
        ("{name: all, pattern: '(', reason: x}", "unclosed group"),
        ("{name: all, pattern: 'zq', reason: ''}", "a line of text"),
        ("{name: all, pattern: 'zq'}", "reason"),
    ] {
        declare(&stage, &[one]);
        for verb in [&["check", "scenarios"][..], &["record", "--scripted", "scenarios/hello.yaml"]] {
            let found = stage.finish(&mut with_agent(&stage, verb));
            assert_eq!(found.status.code(), Some(2), "{one}: {found:?}");
            assert!(found.stderr.contains(why), "{one}: {}", found.stderr);
        }
    }
    declare(&stage, &[BUILD, BUILD]);
    assert!(stage.run(&["check", "scenarios"]).stderr.contains("is there twice"));
    let many: Vec<String> =
        (0..21).map(|at| format!("{{name: n{at}, pattern: 'zq{at}z', reason: x}}")).collect();
    declare(&stage, &many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(stage.run(&["check", "scenarios"]).stderr.contains("at most 20"));
    // It matches no plain text, and would leave nothing of what the command printed.
    declare(&stage, &["{name: whole, pattern: 'Build [0-9]+ finished', reason: x}"]);
    let found = record(&stage);
    assert_eq!(found.status.code(), Some(3), "{}", found.stderr);
    assert!(found.stderr.contains("exchange 1: `whole` of the suite match too much"), "{}", found.stderr);
    assert!(!stage.path("project/scenarios/hello.tape").exists());
}

/// A tape from a stranger is held to the rules of a session.
#[test]
fn a_tape_with_a_normaliser_that_matches_everything_is_refused() {
    require!(Agent, Bwrap);
    let stage = stage(&format!("Build {NOW} finished: 3 entries"), &[BUILD]);
    assert_eq!(record(&stage).status.code(), Some(0));
    let tape = stage.path("project/scenarios/hello.tape");
    let text = fs::read(tape.join("tape.json")).unwrap();
    let mut head: TapeHead = serde_json::from_slice(&text).unwrap();
    head.scenario.normalise[0].pattern = "[\\s\\S]+".to_owned();
    write_head(&tape, &mut head);
    let found = stage.finish(&mut with_agent(&stage, &["replay", "scenarios/hello.tape"]));
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(
        found.stderr.contains("cannot be used") && found.stderr.contains("plain text"),
        "{}",
        found.stderr
    );
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!((status, &row["conclusion"]), (Some(3), &Value::from("unverified")), "{row:#}");
    // A pattern that may be declared, and another digest.
    head.scenario.normalise[0] =
        SuiteNormaliser::new("build-number", "Build ([0-9a-z]+)", "x").unwrap().kept().clone();
    head.scenario.normalise[0].pattern = "Build ([0-9a-f]+)".to_owned();
    write_head(&tape, &mut head);
    let found = stage.finish(&mut with_agent(&stage, &["replay", "scenarios/hello.tape"]));
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("does not have the digest"), "{}", found.stderr);
}
