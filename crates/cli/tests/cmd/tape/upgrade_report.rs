//! `belljar tape upgrade-report`: recordings on another version of the agent.

use super::super::agent::used::keep;
use super::super::record::{data, files, plain, recorded, scenario, with_agent};
use super::super::replay::statuses::{HANGS, SCENARIO, WORDS, all_begun, asked, interrupt, tapes};
use super::copy_examples;
use crate::faults::{command, says, write_agent};
use crate::interrupted::assert_no_process;
use crate::stage::Stage;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::schema::conforms;
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Several conversations are replayed in one call.
const DEADLINE: Duration = Duration::from_secs(110);

/// The report, which its schema describes.
#[track_caller]
fn report(found: &Finished) -> Value {
    let report = data(found);
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/upgrade-report.schema.json");
    let schema: Value = serde_json::from_slice(&fs::read(published).unwrap()).unwrap();
    assert!(conforms(&schema, &report), "{report:#}");
    report
}

/// With this version on the search path.
fn on(program: &Path, stage: &Stage, more: &[&str]) -> Finished {
    let directory = program.parent().unwrap().display().to_string();
    let mut command = stage.command(&[&["tape", "upgrade-report"], more].concat());
    run_within(command.env("PATH", format!("{directory}:/usr/bin:/bin")), DEADLINE).unwrap()
}

fn on_the_small_agent(stage: &Stage, more: &[&str]) -> Finished {
    stage.finish(&mut command(stage, &[&["tape", "upgrade-report"], more].concat()))
}

/// The last parts of the paths, with the outcomes.
fn outcomes(report: &Value) -> Vec<(String, String)> {
    let one = |row: &Value| {
        let name = row["tape"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        (name, row["outcome"].as_str().unwrap().to_owned())
    };
    report["results"].as_array().unwrap().iter().map(one).collect()
}

fn named(all: &[(String, String)]) -> Vec<(&str, &str)> {
    all.iter().map(|(name, outcome)| (name.as_str(), outcome.as_str())).collect()
}

#[test]
fn the_examples_are_reported_on_the_other_version_that_belljar_keeps() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = Stage::new();
    copy_examples(&stage.path("project"));
    keep(&stage, agent::OLDER_VERSION, &agent::older().unwrap());
    let release = format!("claude-code@{}", agent::OLDER_VERSION);
    let args = ["tape", "upgrade-report", "examples", "--agent", &release, "--json"];
    let found = run_within(&mut stage.command(&args), DEADLINE).unwrap();
    let report = report(&found);
    assert_eq!((found.status.code(), &report["agent"]), (Some(0), &json!(release)), "{report:#}");
    let all = ["changelog.tape", "forecast.tape", "report.tape"].map(|name| (name, "same_verdict"));
    assert_eq!(named(&outcomes(&report)), all, "{report:#}");
    for row in report["results"].as_array().unwrap() {
        let versions = (&row["recorded_on"], &row["replayed_on"]);
        assert_eq!(versions, (&json!(agent::VERSION), &json!(agent::OLDER_VERSION)), "{row:#}");
        let requests = &row["requests"];
        assert_eq!(
            (&requests["recorded"], &requests["reordered"]),
            (&requests["present"], &json!(0)),
            "{row:#}"
        );
        let size = |when: &str| row["fixed_prompt"][when].as_u64().unwrap();
        assert!(size("recorded") > 10_000 && size("present") > 10_000, "{row:#}");
        assert_ne!(size("recorded"), size("present"), "{row:#}");
        // What a summary says of it is the same as what a replay lists.
        assert!(row["moved"].to_string().contains(r#""name":"ToolSearch""#), "{row:#}");
    }
    let moved = report["moved"].as_array().unwrap();
    assert!(!moved.is_empty() && moved.iter().all(|one| one["tapes"] == 3), "each once: {report:#}");
    assert_eq!((&report["record_again"], &report["commands"]), (&json!([]), &json!([])), "{report:#}");
}

#[test]
fn older_tapes_are_reported_and_those_that_are_not_verified_are_to_be_made_again() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = Stage::copy_of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/museum")));
    let found = on(&agent::real().unwrap(), &stage, &["."]);
    assert_eq!(found.status.code(), Some(3), "{}{}", found.stdout, found.stderr);
    let line = format!("{} -> {}", agent::OLDER_VERSION, agent::VERSION);
    for part in [
        &format!("forecast/forecast.tape: replays with the same verdict, {line}\n"),
        &format!("changelog/changelog.tape: not verified, {line}\n"),
        "What the agent sends otherwise\n  6 tapes ",
        "Recordings to make again\n  changelog/changelog.tape: it is not verified\n",
        "  $ belljar tape refresh changelog/changelog.tape report/report.tape\n",
        "6 tapes: 4 with the same verdict, 2 not verified\n",
    ] {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
}

#[test]
fn one_changed_character_of_a_script_is_a_drift_with_its_place() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = Stage::new();
    copy_examples(&stage.path("project"));
    let script = stage.path("project/examples/changelog/skill/changelog/scripts/changelog.sh");
    let text = fs::read_to_string(&script).unwrap();
    fs::write(&script, text.replace("entries", "Entries")).unwrap();
    let found = on(&agent::older().unwrap(), &stage, &["examples", "--json"]);
    let report = report(&found);
    assert_eq!(found.status.code(), Some(7), "{report:#}");
    let all =
        [("changelog.tape", "drifted"), ("forecast.tape", "same_verdict"), ("report.tape", "same_verdict")];
    assert_eq!(named(&outcomes(&report)), all, "{report:#}");
    let drift = &report["results"][0]["drifts"][0];
    assert_eq!(
        (&drift["recorded"], &drift["present"]),
        (&json!("3 entries"), &json!("3 Entries")),
        "{drift:#}"
    );
    assert!(drift["place"].as_str().unwrap().starts_with("main, request "), "{drift:#}");
    assert!(drift["call"].as_str().unwrap().contains("changelog.sh"), "{drift:#}");
    let again = &report["record_again"];
    assert_eq!(again.as_array().unwrap().len(), 1, "{report:#}");
    let why = again[0]["why"].to_string();
    assert!(why.contains("it drifted") && why.contains("the skill `changelog`"), "{report:#}");
    assert_eq!(
        report["commands"],
        json!(["belljar tape refresh --scripted examples/changelog/changelog.tape"])
    );

    let found = on(&agent::older().unwrap(), &stage, &["examples/changelog"]);
    assert_eq!(found.status.code(), Some(7), "{}", found.stderr);
    for part in
        ["tool-result drift in main, request ", "recorded: 3 entries", "present:  3 Entries", "1 drifted"]
    {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
}

/// An agent that makes a file, which the scenario wants.
const MAKES: &str =
    "os.makedirs('outputs', exist_ok=True); open('outputs/made.txt', 'w').write('x'); whole()";

/// A recording of such an agent, or of one that does not make it.
fn made(does: &str) -> Stage {
    let stage = tapes(&[]);
    write_agent(&stage, does);
    stage.write(
        "project/a.yaml",
        format!("{}\n", SCENARIO.trim_end().replace(']', ", {file_exists: outputs/made.txt}]")),
    );
    stage.write("project/a.script.json", says(&WORDS));
    let args = ["record", "--scripted", "--allow-failing", "a.yaml"];
    let found = stage.finish(&mut command(&stage, &args));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    stage
}

#[test]
fn another_verdict_names_its_checks_and_a_failure_that_was_recorded_is_the_same() {
    require!(Bwrap, Python);
    for (before, now) in [(MAKES, "whole()"), ("whole()", MAKES)] {
        let stage = made(before);
        let found = on_the_small_agent(&stage, &["a.tape", "--json"]);
        let same = report(&found);
        assert_eq!(
            (found.status.code(), named(&outcomes(&same))),
            (Some(0), vec![("a.tape", "same_verdict")])
        );
        assert_eq!(same["record_again"], json!([]), "{same:#}");
        write_agent(&stage, now);
        let found = on_the_small_agent(&stage, &["a.tape", "--json"]);
        let other = report(&found);
        assert_eq!(found.status.code(), Some(1), "{other:#}");
        assert_eq!(named(&outcomes(&other)), [("a.tape", "verdict_changed")], "{other:#}");
        let check = &other["results"][0]["checks"];
        let words = if before == MAKES { ("pass", "fail") } else { ("fail", "pass") };
        assert_eq!(
            (&check[0]["recorded"], &check[0]["present"]),
            (&json!(words.0), &json!(words.1)),
            "{check:#}"
        );
        assert!(check[0]["check"].as_str().unwrap().contains("made.txt"), "{check:#}");
        assert_eq!(check.as_array().unwrap().len(), 1, "{check:#}");
        assert!(other["record_again"][0]["why"].to_string().contains("its verdict changed"), "{other:#}");
    }
}

#[test]
fn a_stale_tape_has_no_verdict_even_if_it_fails_as_before() {
    require!(Bwrap, Python);
    let stage = made("whole()");
    let text = fs::read_to_string(stage.path("project/a.yaml")).unwrap();
    stage.write("project/a.yaml", text.replace("made.txt", "other.txt"));
    let found = on_the_small_agent(&stage, &["a.tape", "--json"]);
    let report = report(&found);
    assert_eq!(
        (found.status.code(), named(&outcomes(&report))),
        (Some(3), vec![("a.tape", "unverified")]),
        "{report:#}"
    );
    assert_eq!(report["results"][0]["why"], report["results"][0]["stale"], "{report:#}");
}

#[test]
fn a_tape_that_cannot_be_read_is_named_and_does_not_stop_the_others() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b"]);
    // Cut off, and another thing altogether.
    for (text, status) in [("{\"kind\": \"belljar-tape\"", 3), ("{\"log\": {}}", 2)] {
        stage.write("project/a.tape/tape.json", text);
        let found = on_the_small_agent(&stage, &[".", "--json"]);
        let report = report(&found);
        assert_eq!(found.status.code(), Some(status), "{report:#}");
        assert_eq!(
            named(&outcomes(&report)),
            [("a.tape", "not_run"), ("b.tape", "same_verdict")],
            "{report:#}"
        );
        let row = &report["results"][0];
        assert!(row["why"][0].as_str().unwrap().contains("tape.json"), "{row:#}");
        assert_eq!((&row["exit_code"], &report["record_again"]), (&json!(status), &json!([])), "{report:#}");
    }
}

#[test]
fn a_page_escapes_what_a_stranger_wrote() {
    require!(Bwrap, Python);
    let stage = tapes(&[]);
    let name = "<script>alert(1)</script><img src=x>";
    let file = "a <b onload=x>";
    stage.write(&format!("project/{file}.yaml"), format!("name: '{name}'\n{SCENARIO}"));
    stage.write(&format!("project/{file}.script.json"), says(&WORDS));
    let found = stage.finish(&mut command(&stage, &["record", "--scripted", "."]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    // Another text of the agent's is a drift, whose values are on the page.
    write_agent(
        &stage,
        "greet(); take(); text('<svg onload=alert(2)>'); result(); idle()\nwhile heard() is not None: pass",
    );
    let found = on_the_small_agent(&stage, &[".", "--html", "page.html"]);
    assert_eq!(found.status.code(), Some(7), "{}{}", found.stdout, found.stderr);
    let page = fs::read_to_string(stage.path("project/page.html")).unwrap();
    for foreign in ["<script", "<img", "<b onload", "<svg", "://", " src="] {
        assert!(!page.replace("&lt;img src=x&gt;", "").contains(foreign), "{foreign}: {page}");
    }
    for escaped in ["&lt;script&gt;alert(1)", "a &lt;b onload=x&gt;.tape", "&lt;svg onload=alert(2)&gt;"] {
        assert!(page.contains(escaped), "{escaped}: {page}");
    }
    // The line to copy is one that a shell takes for a path.
    assert!(found.stdout.contains(&format!("'{}'", stage.path(&format!("project/{file}.tape")).display())));
    let runs = asked(&stage).len();
    let found = on_the_small_agent(&stage, &[".", "--html", "nowhere/page.html"]);
    assert!(found.stderr.contains("cannot write `nowhere/page.html`"), "{}", found.stderr);
    assert_eq!(asked(&stage).len(), runs, "nothing was replayed");
}

#[test]
fn nothing_is_recorded_again_without_a_budget() {
    let stage = Stage::new();
    let found = stage.run(&["tape", "upgrade-report", ".", "--record-again", "--scripted"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("--max-cost-usd"), "{}", found.stderr);
}

#[test]
fn what_drifted_is_recorded_again_and_what_fails_then_is_not_lost() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let tape = recorded(&stage);
    let content =
        || files(&tape).iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect::<Vec<_>>();
    let again = || {
        let args = ["scenarios", "--json", "--record-again", "--max-cost-usd", "1", "--scripted"];
        let found = stage.finish(&mut with_agent(&stage, &[&["tape", "upgrade-report"], &args[..]].concat()));
        (found.status.code(), report(&found))
    };
    let before = content();
    // Nothing to do.
    let (status, found) = again();
    assert_eq!(
        (status, &found["record_again"], content() == before),
        (Some(0), &json!([]), true),
        "{found:#}"
    );
    // The model's script does not lead to the verdict any more, so that there is no new tape.
    stage.write("project/skills/hello/scripts/hello.sh", "echo hellp from the script\n");
    let script = stage.path("project/scenarios/hello.script.json");
    let text = fs::read_to_string(&script).unwrap();
    fs::write(&script, text.replace("all done", "not yet")).unwrap();
    let (status, found) = again();
    let row = &found["record_again"][0];
    assert_eq!((status, &row["status"]), (Some(1), &json!(1)), "{found:#}");
    assert!(content() == before, "the tape is as it was");
    assert_eq!(found["commands"], json!(["belljar tape refresh --scripted scenarios/hello.tape"]));
    fs::write(&script, text).unwrap();
    let (status, found) = again();
    let row = &found["record_again"][0];
    assert_eq!((status, &row["status"], &row["error"]), (Some(0), &json!(0), &Value::Null), "{found:#}");
    assert_eq!(
        (&found["results"][0]["outcome"], &found["commands"]),
        (&json!("drifted"), &json!([])),
        "{found:#}"
    );
    assert!(content() != before, "the tape is a new one");
    // The budget of the recording does not make it stale.
    for verb in [&["replay", "--strict"][..], &["tape", "verify", "--strict"]] {
        let found = stage.finish(&mut with_agent(&stage, &[verb, &["scenarios"]].concat()));
        assert_eq!(found.status.code(), Some(0), "{verb:?}: {}{}", found.stdout, found.stderr);
    }
}

#[test]
fn an_interrupt_ends_it_and_says_what_was_done() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b", "c"]);
    write_agent(&stage, HANGS);
    let began = asked(&stage).iter().filter(|log| log.contains("conversation_began")).count();
    let args = ["tape", "upgrade-report", "-j", "1", "--json", "."];
    let run = all_begun(&stage, &args, began + 1);
    let (status, printed, said) = interrupt(run, "-INT");
    assert_eq!(status, Some(130), "{printed}{said}");
    assert_no_process(&stage, "interrupted");
    let envelope: Value = serde_json::from_str(&printed).unwrap();
    let data = &envelope["data"];
    assert_eq!(named(&outcomes(data)), [("a.tape", "interrupted")], "{envelope:#}");
    assert_eq!((&data["interrupted"], &data["not_started"]), (&json!(true), &json!(2)), "{envelope:#}");
    assert_eq!(data["record_again"], json!([]), "{envelope:#}");
}
