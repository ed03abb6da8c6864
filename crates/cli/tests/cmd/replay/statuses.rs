//! Status 7 is a drift. An agent that dies, an interrupt and a failure of belljar itself have their own.

use super::super::record::{plain, recorded, scenario};
use super::replay;
use crate::faults::{command, says, with_agent, write_agent};
use crate::stage::Stage;
use belljar_testkit::{require, wait};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

pub const SCENARIO: &str = "prompt: go\nassert: [{transcript_contains: All done.}, {result: success}]\n";
pub const WORDS: [&str; 2] = ["All done.", "I wait."];
/// It says that it waits, and does.
pub const WAITS: &str = "greet(); take(); text('I wait.'); heard(); signal.pause()";
/// As recorded, but it never ends.
pub const HANGS: &str = "greet(); take(); signal.pause()";

/// Recorded scenarios of an agent that does all that it should.
pub fn tapes(names: &[&str]) -> Stage {
    let stage = with_agent("whole()");
    for name in names {
        stage.write(&format!("project/{name}.yaml"), SCENARIO);
        stage.write(&format!("project/{name}.script.json"), says(&WORDS));
        let found = stage.finish(&mut command(&stage, &["record", "--scripted", &format!("{name}.yaml")]));
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    }
    stage
}

fn replayed(stage: &Stage) -> (Option<i32>, Value) {
    let found = stage.finish(&mut command(stage, &["replay", "--json", "a.tape"]));
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    (found.status.code(), envelope)
}

#[test]
fn an_agent_that_dies_without_a_drift_has_failed() {
    require!(Bwrap, Python);
    let stage = tapes(&["a"]);
    assert_eq!(replayed(&stage).0, Some(0));
    write_agent(&stage, "greet(); take(); os.kill(os.getpid(), signal.SIGKILL)");
    let (status, envelope) = replayed(&stage);
    let row = &envelope["data"]["results"][0];
    assert_eq!((status, &row["conclusion"]), (Some(5), &json!("agent_failed")), "{envelope:#}");
    assert_eq!((&row["exit_code"], &row["replay"]["drifts"]), (&json!(5), &json!([])), "{row:#}");
    // One that ends well, and did not ask for all of it, is not the recorded one.
    write_agent(
        &stage,
        "greet(); take(); claim('All done.'); result('All done.'); idle()\nwhile heard() is not None: pass",
    );
    let (status, envelope) = replayed(&stage);
    assert_eq!(status, Some(7), "{envelope:#}");
    assert_eq!(envelope["data"]["results"][0]["conclusion"], "drifted", "{envelope:#}");
}

/// The small agent begins long before the limit, also on a busy machine.
#[test]
fn a_replay_that_does_not_end_in_time_names_what_was_not_asked_for() {
    require!(Bwrap, Python);
    let stage = with_agent(
        "greet(); take(); text('I wait.'); text('All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    stage.write("project/a.yaml", format!("timeout_ms: 15000\n{SCENARIO}"));
    let found = stage.finish(&mut command(&stage, &["record", "--scripted", "a.yaml"]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    write_agent(&stage, WAITS);
    let (status, envelope) = replayed(&stage);
    let row = &envelope["data"]["results"][0];
    assert_eq!((status, &row["replay"]["unconsumed"][0]["exchange"]), (Some(6), &json!(1)), "{row:#}");
    assert!(row["signals"].to_string().contains("the run did not end in time"), "{row:#}");
}

#[test]
fn a_drift_is_not_blamed_on_the_agent_or_the_checks() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    stage.write("project/skills/hello/scripts/hello.sh", "echo hellp from the script\n");
    let (status, row) = replay(&stage, &[]);
    assert_eq!((status, &row["conclusion"]), (Some(7), &json!("drifted")), "{row:#}");
    let checks = row["checks"].as_array().unwrap();
    assert!(!checks.is_empty() && checks.iter().all(|check| check["outcome"] == "unknown"), "{row:#}");
    assert!(!row["signals"].to_string().contains("result_error"), "{row:#}");
}

#[test]
fn a_record_that_cannot_be_kept_is_a_failure_of_belljar() {
    require!(Bwrap, Python);
    let stage = tapes(&["b"]);
    let long = "x".repeat(10_000);
    stage.write("project/a.script.json", says(&[&[long.as_str(); 40][..], &WORDS].concat()));
    let much = "greet(); take()\nfor _ in range(40): text('x' * 10000)\n";
    write_agent(
        &stage,
        &format!("{much}text('All done.'); result(); idle()\nwhile heard() is not None: pass"),
    );
    let found = stage.finish(&mut command(&stage, &["record", "--scripted", "a.yaml"]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let line = "trap '' XFSZ; ulimit -f 300; exec \"$0\" replay --json a.tape";
    let mut limited = Command::new("sh");
    limited.args(["-c", line, env!("CARGO_BIN_EXE_belljar")]).current_dir(stage.path("project"));
    limited.env_clear().envs(stage.environment());
    limited.env("PATH", format!("{}:/usr/bin:/bin", stage.path("bin").display()));
    let found = stage.finish(&mut limited);
    assert_eq!(found.status.code(), Some(125), "{}{}", found.stdout, found.stderr);
}

/// Starts a verb and waits until one run has begun after these.
pub fn begun(stage: &Stage, args: &[&str], before: usize) -> Child {
    all_begun(stage, args, before + 1)
}

/// Starts a verb and waits until there are so many runs and all of them have begun.
pub fn all_begun(stage: &Stage, args: &[&str], runs: usize) -> Child {
    let mut run = command(stage, args);
    let run = run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = run.process_group(0).spawn().unwrap();
    let has_begun = |log: &&String| log.contains("conversation_began");
    let have_begun = || (asked(stage).iter().filter(has_begun).count() >= runs).then_some(());
    let waited = wait::for_files(&stage.path("home"), have_begun);
    assert!(waited.is_ok(), "{:?}", asked(stage));
    run
}

/// The logs of all runs, the oldest first.
pub fn asked(stage: &Stage) -> Vec<String> {
    let entries = fs::read_dir(stage.path("home/.local/state/belljar/runs")).into_iter().flatten().flatten();
    let mut runs: Vec<_> = entries.map(|entry| entry.path().join("events.jsonl")).collect();
    runs.sort_by_key(|path| {
        fs::metadata(path.with_file_name("run.json")).and_then(|found| found.modified()).ok()
    });
    runs.iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
}

/// To everyone in front of the terminal; what it printed, and its status.
pub fn interrupt(mut run: Child, signal: &str) -> (Option<i32>, String, String) {
    let group = format!("-{}", run.id());
    assert!(Command::new("kill").args([signal, "--", &group]).status().unwrap().success());
    let (mut printed, mut said) = (String::new(), String::new());
    run.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (run.wait().unwrap().code(), printed, said)
}

#[test]
fn an_interrupt_ends_all_replays() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b", "c"]);
    for signal in ["-INT", "-TERM"] {
        write_agent(&stage, HANGS);
        let before = asked(&stage).len();
        let run = begun(&stage, &["replay", "--json", "-j", "1", "."], before);
        let (status, printed, said) = interrupt(run, signal);
        assert_eq!(status, Some(130), "{printed}{said}");
        assert_eq!(asked(&stage).len(), before + 1, "nothing further was started: {printed}");
        let envelope: Value = serde_json::from_str(&printed).unwrap();
        let rows = envelope["data"]["results"].as_array().unwrap();
        assert_eq!((rows.len(), &rows[0]["exit_code"]), (1, &json!(130)), "{envelope:#}");
        assert_eq!(
            (&envelope["data"]["interrupted"], &envelope["data"]["not_started"]),
            (&json!(true), &json!(2)),
            "{envelope:#}"
        );
        assert!(!printed.contains("agent_failed"), "{envelope:#}");
    }
}

#[test]
fn what_was_complete_before_an_interrupt_is_judged() {
    require!(Bwrap, Python);
    let stage = tapes(&["a", "b", "c"]);
    // The second run hangs.
    stage.write("project/b.yaml", SCENARIO.replace("prompt: go", "prompt: wait here"));
    write_agent(
        &stage,
        "greet(); take()\nif 'wait here' in json.dumps(history): signal.pause()\ntext('All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    let before = asked(&stage).len();
    let run = begun(&stage, &["replay", "-j", "1", "."], before + 1);
    let (status, _, said) = interrupt(run, "-INT");
    assert_eq!(status, Some(130), "{said}");
    assert!(said.contains("passed a.tape") && said.contains("interrupted: 1 passed, 0 failed"), "{said}");
    assert!(said.contains("1 not started"), "{said}");
    assert!(!said.contains("AGENT FAILED") && !said.contains("c.tape"), "{said}");
}

#[test]
fn an_interrupt_ends_all_recordings() {
    require!(Bwrap, Python);
    let stage = with_agent(WAITS);
    for name in ["b", "c"] {
        stage.write(&format!("project/{name}.yaml"), SCENARIO);
        stage.write(&format!("project/{name}.script.json"), says(&WORDS));
    }
    let run = begun(&stage, &["record", "--json", "--scripted", "-j", "1", "."], 0);
    let (status, printed, said) = interrupt(run, "-INT");
    assert_eq!(status, Some(130), "{printed}{said}");
    assert_eq!(asked(&stage).len(), 1, "nothing further was started");
    let envelope: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&envelope["data"]["recorded"], &envelope["data"]["not_started"]),
        (&json!(0), &json!(2)),
        "{envelope:#}"
    );
}
