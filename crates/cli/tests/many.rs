//! Verbs that run many at once: what they take, in which order they report it, and how they end.
//!
//! `test` has its own tests of the same in `cmd/test.rs`.

use crate::cmd::record::data;
use crate::cmd::replay::statuses::{HANGS, SCENARIO, WAITS, WORDS, all_begun, asked, interrupt, tapes};
use crate::faults::{command, says, with_agent, write_agent};
use crate::interrupted::assert_no_process;
use crate::json::published;
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use belljar_testkit::schema::conforms;
use serde_json::{Value, json};
use std::fs;

fn ran(stage: &Stage, args: &[&str]) -> Finished {
    stage.finish(&mut command(stage, args))
}

/// What it printed, which the schema describes.
#[track_caller]
fn envelope(found: &Finished) -> Value {
    let value: Value =
        serde_json::from_str(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"));
    assert!(conforms(&published(), &value), "{value:#}");
    assert_eq!(json!(found.status.code()), value["exit_code"], "{value:#}");
    value["data"].clone()
}

/// The statuses of the rows, with the names of their files.
#[track_caller]
fn rows(data: &Value) -> Vec<(String, u64)> {
    let row = |row: &Value| {
        let file = row["tape"].as_str().or(row["file"].as_str()).unwrap_or_else(|| panic!("{data:#}"));
        let name = file.rsplit('/').next().unwrap().to_owned();
        (name, row["exit_code"].as_u64().unwrap())
    };
    data["results"].as_array().unwrap().iter().map(row).collect()
}

fn named(all: &[(String, u64)]) -> Vec<(&str, u64)> {
    all.iter().map(|(name, code)| (name.as_str(), *code)).collect()
}

/// Scenarios that an agent passes.
fn scenarios(names: &[&str]) -> Stage {
    let stage = with_agent("whole()");
    for name in names {
        stage.write(&format!("project/{name}.yaml"), SCENARIO);
        stage.write(&format!("project/{name}.script.json"), says(&WORDS));
    }
    stage
}

/// Names that begin with a dot: drafts of tapes.
fn hidden(stage: &Stage) -> Vec<String> {
    let entries = fs::read_dir(stage.path("project")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn several_are_recorded_and_replayed_in_the_order_of_their_files() {
    require!(Bwrap, Python);
    let stage = scenarios(&["a", "b", "c"]);
    let data = envelope(&ran(&stage, &["record", "--json", "--scripted", "."]));
    assert_eq!(named(&rows(&data)), [("a.tape", 0), ("b.tape", 0), ("c.tape", 0)], "{data:#}");
    assert_eq!((&data["recorded"], &data["passed"]), (&json!(3), &json!(3)), "{data:#}");
    for row in data["results"].as_array().unwrap() {
        assert!(row["exchanges"].as_u64() > Some(0) && row["leaks"].is_object(), "{row:#}");
        assert!(row.get("repetition").is_none(), "{row:#}");
    }
    assert_eq!(hidden(&stage), [""; 0]);
    let data = envelope(&ran(&stage, &["replay", "--json", "."]));
    assert_eq!(named(&rows(&data)), [("a.tape", 0), ("b.tape", 0), ("c.tape", 0)], "{data:#}");
    assert!(data["results"].as_array().unwrap().iter().all(|row| row["replay"]["exact"] == 1), "{data:#}");
    // Neither is one that runs alone another shape.
    let alone = envelope(&ran(&stage, &["replay", "--json", "a.tape"]));
    let keys = |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&alone["results"][0]), keys(&data["results"][0]));
    let found = ran(&stage, &["replay", "."]);
    assert!(
        found.stderr.contains("passed a.tape") && found.stderr.contains("3 passed, 0 failed"),
        "{found:?}"
    );
}

#[test]
fn a_text_selects_and_a_list_runs_nothing() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b"]);
    let before = asked(&stage).len();
    for (verb, files) in [
        (&["record"][..], ["a.yaml", "b.yaml"]),
        (&["replay"], ["a.tape", "b.tape"]),
        (&["replay", "--protocol"], ["a.tape", "b.tape"]),
        (&["tape", "refresh"], ["a.tape", "b.tape"]),
        (&["tape", "upgrade-report"], ["a.tape", "b.tape"]),
        (&["test"], ["a.yaml", "b.yaml"]),
    ] {
        let listed = |more: &[&str]| ran(&stage, &[verb, more].concat());
        let found = listed(&["--list", "."]);
        let all = format!("{}\n{}\n", files[0], files[1]);
        assert_eq!((found.status.code(), &found.stdout), (Some(0), &all), "{verb:?}: {}", found.stderr);
        let found = listed(&["--list", "-k", "b.", "."]);
        assert_eq!(found.stdout, format!("{}\n", files[1]), "{verb:?}: {}", found.stderr);
        let data = envelope(&listed(&["--list", "--json", "."]));
        let name = files[0].replace("a.yaml", "scenarios").replace("a.tape", "tapes");
        assert_eq!(data[name.as_str()].as_array().unwrap().len(), 2, "{verb:?}: {data:#}");
        let found = listed(&["-k", "nowhere", "."]);
        let none = format!("none of 2 {name} has `nowhere` in its path");
        assert_eq!(found.status.code(), Some(2), "{verb:?}: {}", found.stderr);
        assert!(found.stderr.contains(&none), "{verb:?}: {}", found.stderr);
        let found = listed(&["-j", "0", "."]);
        assert_eq!(found.status.code(), Some(2), "{verb:?}: {}", found.stderr);
    }
    assert_eq!(asked(&stage).len(), before, "nothing was run");
    for verb in [&["replay", "--json"][..], &["replay", "--json", "--protocol"]] {
        let data = envelope(&ran(&stage, &[verb, &["-k", "b.", "."]].concat()));
        assert_eq!(named(&rows(&data)), [("b.tape", 0)], "{data:#}");
    }
}

#[test]
fn repetitions_are_numbered_and_a_tape_is_one_run() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b"]);
    let data = envelope(&ran(&stage, &["replay", "--json", "--repeat", "2", "."]));
    let numbers: Vec<&Value> =
        data["results"].as_array().unwrap().iter().map(|row| &row["repetition"]).collect();
    let names = rows(&data);
    assert_eq!(named(&names), [("a.tape", 0), ("a.tape", 0), ("b.tape", 0), ("b.tape", 0)], "{data:#}");
    assert_eq!(numbers, [&json!(1), &json!(2), &json!(1), &json!(2)], "{data:#}");
    let before = asked(&stage).len();
    let found = ran(&stage, &["record", "--scripted", "--repeat", "2", "a.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("a tape is one run"), "{}", found.stderr);
    let found = ran(&stage, &["replay", "--protocol", "--repeat", "2", "a.tape"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert_eq!(asked(&stage).len(), before, "nothing was run");
}

#[test]
fn scenarios_that_share_a_tape_are_refused_before_anything_starts() {
    let stage = Stage::new();
    for name in ["one/a.yaml", "other/a.yaml", "same/a.yaml", "same/a.yml"] {
        stage.write(&format!("project/{name}"), SCENARIO);
    }
    for args in [&["one", "other", "--out", "tapes"][..], &["same"]] {
        let found = ran(&stage, &[&["record", "--scripted"], args].concat());
        assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
        assert!(found.stderr.contains("would have the same tape"), "{}", found.stderr);
    }
    assert!(!stage.path("home/.local").exists(), "nothing was made");
}

/// Everything that can come of a tape, and which of it decides.
#[test]
fn the_worst_of_many_decides() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b", "c"]);
    let says_other = SCENARIO.replace("prompt: go", "prompt: other");
    // The request differs.
    stage.write("project/b.yaml", &says_other);
    let found = ran(&stage, &["replay", "."]);
    assert_eq!(found.status.code(), Some(7), "a drift among passes: {}", found.stderr);
    for part in
        ["passed a.tape", "prompt drift", "recorded: go", "present:  other", "2 passed, 0 failed, 1 drifted"]
    {
        assert!(found.stderr.contains(part), "{part}: {}", found.stderr);
    }
    assert!(found.stderr.contains("hint: `belljar tape refresh b.tape`"), "{}", found.stderr);
    // One that is not a tape does not stop the others.
    stage.write("project/aa.tape/tape.json", "{}");
    let data = envelope(&ran(&stage, &["replay", "--json", "."]));
    assert_eq!(
        named(&rows(&data)),
        [("a.tape", 0), ("aa.tape", 2), ("b.tape", 7), ("c.tape", 0)],
        "{data:#}"
    );
    assert!(data["results"][1]["error"].as_str().unwrap().contains("aa.tape"), "{data:#}");
    assert_eq!((&data["passed"], &data["failed"]), (&json!(2), &json!(2)), "{data:#}");
    assert_eq!(ran(&stage, &["replay", "."]).status.code(), Some(7));
    // A check that fails comes before a drift.
    stage.write("project/c.yaml", SCENARIO.replace("All done.", "Never."));
    let found = ran(&stage, &["replay", "."]);
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    let found = ran(&stage, &["replay", "--protocol", "."]);
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    let counted = "1 passed, 1 failed, 1 not verified, 1 not valid";
    assert!(found.stderr.contains(counted), "a recording that was read has no run: {}", found.stderr);
}

#[test]
fn a_failing_run_that_was_recorded_as_wanted_is_counted_once() {
    require!(Bwrap, Python);
    let stage = scenarios(&["a", "b"]);
    stage.write("project/b.yaml", SCENARIO.replace("All done.", "Never."));
    let found = ran(&stage, &["record", "--scripted", "--allow-failing", "."]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert!(found.stderr.contains("2 passed, 0 failed"), "{}", found.stderr);
}

#[test]
fn a_value_that_begins_with_a_dash_reaches_the_workers() {
    require!(Bwrap, Python);
    let stage = scenarios(&["a", "b"]);
    stage.write("project/-policy.yaml", "answers: []\n");
    let args = ["test", "--scripted", "--answer=-which=-this", "--answer-policy=-policy.yaml", "."];
    let found = ran(&stage, &args);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert_eq!(ran(&stage, &["record", "--scripted", "."]).status.code(), Some(0));
    let found = ran(&stage, &["replay", "--answer=-which=-this", "."]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

#[test]
fn nothing_more_starts_after_the_first_that_does_not_pass() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b", "c"]);
    stage.write("project/a.yaml", SCENARIO.replace("All done.", "Never."));
    for lane in [&[][..], &["--protocol"]] {
        let args = [&["replay", "--json", "-j", "1", "--fail-fast", "."], lane].concat();
        let data = envelope(&ran(&stage, &args));
        assert_eq!(named(&rows(&data)), [("a.tape", 1)], "{data:#}");
        assert_eq!((&data["not_started"], &data["interrupted"]), (&json!(2), &json!(false)), "{data:#}");
    }
    let data = envelope(&ran(&stage, &["record", "--json", "--scripted", "-j", "1", "--fail-fast", "."]));
    assert_eq!((&data["recorded"], &data["not_started"]), (&json!(0), &json!(2)), "{data:#}");
}

#[test]
fn several_replays_run_at_once_and_an_interrupt_ends_them() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b", "c"]);
    write_agent(&stage, HANGS);
    for signal in ["-INT", "-TERM"] {
        let before = asked(&stage).len();
        // None of them ever ends, so both have begun while the other runs.
        let began = asked(&stage).iter().filter(|log| log.contains("conversation_began")).count();
        let run = all_begun(&stage, &["replay", "--json", "-j", "2", "."], began + 2);
        let (status, printed, said) = interrupt(run, signal);
        assert_eq!(status, Some(130), "{printed}{said}");
        assert_no_process(&stage, signal);
        let envelope: Value = serde_json::from_str(&printed).unwrap();
        let data = &envelope["data"];
        assert_eq!(named(&rows(data)), [("a.tape", 130), ("b.tape", 130)], "{envelope:#}");
        assert_eq!((&data["interrupted"], &data["not_started"]), (&json!(true), &json!(1)), "{envelope:#}");
        assert_eq!((&data["passed"], &data["failed"]), (&json!(0), &json!(0)), "{envelope:#}");
        assert_eq!(asked(&stage).len(), before + 2, "nothing further was started");
    }
}

#[test]
fn an_interrupted_recording_leaves_no_draft_and_no_process() {
    require!(Bwrap, Python);
    let stage = scenarios(&["a", "b", "c"]);
    // The first ends, the others never do.
    stage.write("project/a.yaml", SCENARIO.replace("prompt: go", "prompt: end"));
    write_agent(
        &stage,
        "greet(); take()\nif 'end' not in json.dumps(history):\n    text('I wait.'); signal.pause()\n\
         text('All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    let run = all_begun(&stage, &["record", "--json", "--scripted", "-j", "1", "."], 2);
    let (status, printed, said) = interrupt(run, "-INT");
    assert_eq!(status, Some(130), "{printed}{said}");
    assert_no_process(&stage, "interrupted");
    let envelope: Value = serde_json::from_str(&printed).unwrap();
    assert!(conforms(&published(), &envelope), "{envelope:#}");
    let data = &envelope["data"];
    assert_eq!((&data["recorded"], &data["not_started"]), (&json!(1), &json!(1)), "{envelope:#}");
    assert!(stage.path("project/a.tape/tape.json").is_file(), "what was complete is kept");
    assert!(!stage.path("project/b.tape").exists() && hidden(&stage).is_empty(), "{:?}", hidden(&stage));
    write_agent(&stage, WAITS);
    let run = all_begun(&stage, &["record", "--json", "--scripted", "-j", "3", "."], 5);
    let (status, printed, said) = interrupt(run, "-TERM");
    assert_eq!(status, Some(130), "{printed}{said}");
    assert_no_process(&stage, "interrupted");
    assert_eq!(hidden(&stage), [""; 0]);
    // The older tape is as it was.
    assert_eq!(ran(&stage, &["replay", "--protocol", "a.tape"]).status.code(), Some(0));
}

/// Workers get the agreement of the user, each for its own file.
#[test]
fn the_user_agrees_once_for_all() {
    require!(Bwrap, Python);
    let stage = scenarios(&["a", "b"]);
    for name in ["a", "b"] {
        stage.write(
            &format!("project/{name}.session.yaml"),
            format!("egress: {{extra_allow: [{name}.test]}}\n"),
        );
        stage.write(&format!("project/{name}.yaml"), format!("session: {name}.session.yaml\n{SCENARIO}"));
    }
    let found = ran(&stage, &["record", "--json", "--scripted", "."]);
    let refused: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(2), "{refused:#}");
    assert!(!stage.path("home/.local/state/belljar/runs").exists(), "nothing was started");
    let digest = refused["data"]["digest"].as_str().unwrap();
    let data = data(&ran(&stage, &["record", "--json", "--scripted", "--agree-to", digest, "."]));
    assert_eq!(data["recorded"], 2, "{data:#}");
    for (args, expected) in [(&[][..], 0), (&["--network"], 2), (&["--network", "--yes"], 0)] {
        let found = ran(&stage, &[&["replay", "."], args].concat());
        assert_eq!(found.status.code(), Some(expected), "{args:?}: {}", found.stderr);
    }
}

#[test]
fn several_tapes_are_refreshed_at_once() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b", "c"]);
    stage.write("project/b.yaml", format!("{SCENARIO}name: other\n"));
    let found = ran(&stage, &["tape", "refresh", "--scripted", "."]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let mut lines: Vec<&str> = found.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a.tape: current", "b.tape: `name` of the scenario changed", "c.tape: current"]);
    assert!(found.stderr.contains("recorded 1 exchanges in b.tape"), "{}", found.stderr);
    let data = envelope(&ran(&stage, &["tape", "refresh", "--json", "--scripted", "."]));
    assert_eq!((&data["refreshed"], &data["passed"]), (&json!(0), &json!(3)), "{data:#}");
    assert_eq!(named(&rows(&data)), [("a.tape", 0), ("b.tape", 0), ("c.tape", 0)], "{data:#}");
}
