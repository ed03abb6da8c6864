//! Every verb that starts something, with the backend `container` and the real agent on a scripted model.

use super::{DEADLINE, engine};
use crate::cmd::record::{data, plain, scenario, with_agent};
use crate::cmd::{HELLO, agent_path, script};
use crate::stage::Stage;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

fn finish(command: &mut Command) -> Finished {
    run_within(command.env("BELLJAR_ENGINE", engine()), DEADLINE).unwrap()
}

fn in_a_container(stage: &Stage, args: &[&str]) -> Finished {
    let (verb, rest) = args.split_first().unwrap();
    finish(&mut with_agent(stage, &[&[*verb, "--backend", "container"], rest].concat()))
}

/// One call that writes a file, then a sentence.
fn writing() -> String {
    script(&[
        json!({"tool_use": {"name": "Bash", "input": {"command": "echo written > made.txt", "description": "x"}}}),
        json!({"text": "All done."}),
    ])
}

#[test]
fn run() {
    require!(Podman, Agent);
    let stage = Stage::new();
    stage.write("project/script.json", writing());
    let found = in_a_container(&stage, &["run", "--script", "script.json", "--", "-p", "write it"]);
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "All done.\n"), "{}", found.stderr);
    assert_eq!(fs::read_to_string(stage.path("project/made.txt")).unwrap(), "written\n");
    let runs = stage.path("home/.local/state/belljar/runs");
    let directory = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let result: Value =
        serde_json::from_str(&fs::read_to_string(directory.join("result.json")).unwrap()).unwrap();
    let metric = |name: &str| result["metrics"][name].as_u64().unwrap_or_default();
    assert!(metric("cpu_ms") > 50 && metric("peak_memory_bytes") > 50 << 20, "{result}");
}

#[test]
fn shell() {
    require!(Podman);
    let stage = Stage::new();
    let binary = env!("CARGO_BIN_EXE_belljar");
    for (line, expected) in [
        (format!("echo 'echo $HOME; exit 5' | {binary} shell --backend container"), "/home/agent"),
        (
            format!(
                "printf 'test -t 0 && test -t 1 && echo inner-$((40 + 2))-$(tty)\\nexit 5\\n' \
                 | script -qec '{binary} shell --backend container' /dev/null"
            ),
            "inner-42-/dev/pts/0",
        ),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
        let found = finish(command.env("SHELL", "/bin/sh"));
        assert_eq!(found.status.code(), Some(5), "{found:?}");
        assert!(found.stdout.contains(expected), "{found:?}");
    }
}

#[test]
fn skill_and_chat() {
    require!(Podman, Agent);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/script.json", writing());
    stage.write("project/hello.json", HELLO);
    stage.write("project/policy.yaml", "answers:\n  - when_tool: Bash\n    decide: allow\n");
    let args = ["skill", "skills/notes", "go", "--script", "script.json", "--answer-policy", "policy.yaml"];
    let found = in_a_container(&stage, &[&args[..], &["--json"]].concat());
    let result = data(&found);
    assert_eq!(found.status.code(), Some(0), "{result:#}");
    let made = Path::new(result["directory"].as_str().unwrap()).join("artifacts/files/made.txt");
    assert_eq!(fs::read_to_string(made).unwrap(), "written\n");
    let found = in_a_container(&stage, &["chat", "skills/notes", "--say", "hello", "--script", "hello.json"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(format!("{}{}", found.stdout, found.stderr).contains("Hello to you."), "{found:?}");
}

#[test]
fn record_and_replay() {
    require!(Podman, Agent, Bwrap);
    let stage = scenario(&plain());
    let found = in_a_container(&stage, &["record", "--json", "--scripted", "scenarios/hello.yaml"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let tape = stage.path("project/scenarios/hello.tape/tape.json");
    assert!(fs::read_to_string(tape).unwrap().contains("\"backend\": \"container\""));
    // What was recorded in a container comes back there, behind bubblewrap, and without anything.
    for more in [&["--backend", "container"][..], &["--backend", "bwrap"], &["--protocol"]] {
        let args = [&["replay", "--json", "scenarios/hello.tape"][..], more].concat();
        let found = finish(&mut with_agent(&stage, &args));
        let result = &data(&found)["results"][0];
        assert_eq!(found.status.code(), Some(0), "{more:?}: {result:#}");
        assert_eq!(result["replay"]["drifts"].as_array().map_or(0, Vec::len), 0, "{more:?}: {result:#}");
    }
}

/// What each check of each scenario came to.
fn verdicts(envelope: &Value) -> Vec<(String, String, Vec<String>)> {
    let text = |value: &Value| value.to_string();
    let scenario = |row: &Value| {
        let checks = row["checks"].as_array().unwrap().iter();
        let checks = checks.map(|check| format!("{} {}", check["outcome"], check["check"])).collect();
        (text(&row["name"]), text(&row["conclusion"]), checks)
    };
    envelope["data"]["results"].as_array().unwrap().iter().map(scenario).collect()
}

#[test]
fn every_example_and_a_scenario_that_fails_have_the_same_verdicts_as_with_bubblewrap() {
    require!(Podman, Agent, Bwrap, Curl);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let stage = Stage::new();
    stage.write("project/failing.script.json", writing());
    // One check of each outcome.
    let yaml = "prompt: go\nanswers: [{when_tool: Bash, decide: allow}]\nassert:\n  - file_exists: made.txt\n  \
        - file_exists: other.txt\n  - transcript_contains: nothing of the kind\n";
    stage.write("project/failing.yaml", yaml);
    let tried = |backend: &str| {
        let paths =
            [examples.display().to_string(), stage.path("project/failing.yaml").display().to_string()];
        let args = ["test", "--scripted", "--json", "--backend", backend, &paths[0], &paths[1]];
        let found = finish(stage.command(&args).env("PATH", agent_path()));
        let value: Value = serde_json::from_str(&found.stdout).unwrap_or_else(|_| panic!("{found:?}"));
        assert_eq!(value["data"]["passed"], json!(3), "{backend}: {value:#}");
        (found.status.code(), verdicts(&value))
    };
    let (bubblewrap, container) = (tried("bwrap"), tried("container"));
    assert_eq!(bubblewrap.0, Some(1));
    assert_eq!(bubblewrap.1.len(), 4);
    assert!(bubblewrap.1.iter().all(|(_, _, checks)| !checks.is_empty()), "{bubblewrap:?}");
    assert_eq!(container, bubblewrap);
}
