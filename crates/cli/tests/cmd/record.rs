use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A skill with a script of its own, a scenario that uses it, and what the model says.
pub fn scenario(script: &Value) -> Stage {
    let stage = Stage::new();
    // The top of a repository: skills and scenarios belong together.
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    let skill = "---\nname: hello\ndescription: Says hello\n---\nRun scripts/hello.sh\n";
    stage.write("project/skills/hello/SKILL.md", skill);
    stage.write("project/skills/hello/scripts/hello.sh", "echo hello from the script\n");
    stage.write("project/scenarios/session.yaml", "skills:\n  local: [../skills/hello]\n");
    stage.write("project/scenarios/hello.yaml", SCENARIO);
    stage.write("project/scenarios/hello.script.json", script.to_string());
    stage
}

pub const SCENARIO: &str = "name: hello
session: session.yaml
prompt: Say hello
answers:
  - when_tool: Bash
    decide: allow
assert:
  - transcript_contains: all done
";

/// Turns of the agent itself.
pub fn main_turn(blocks: &Value) -> Value {
    json!({"when": {"sender": "main"}, "answer": {"reply": {"content": blocks}}})
}

/// A call of Bash.
pub fn bash(command: &str) -> Value {
    json!({"tool_use": {"name": "Bash", "input": {"command": command, "description": "try"}}})
}

pub fn script(turns: &[Value]) -> Value {
    json!({"version": 1, "turns": turns})
}

/// One call of the skill's script, then a sentence.
pub fn plain() -> Value {
    let call = bash("sh /opt/belljar/agent/.claude/skills/hello/scripts/hello.sh");
    script(&[main_turn(&json!([call])), main_turn(&json!([{"text": "all done"}]))])
}

/// The binary with the real agent on its path.
pub fn with_agent(stage: &Stage, arguments: &[&str]) -> Command {
    let directory = agent::real().unwrap().parent().unwrap().display().to_string();
    let mut command = stage.command(arguments);
    command.env("PATH", format!("{directory}:/usr/bin:/bin"));
    command
}

/// Records the scenario.
#[track_caller]
pub fn recorded(stage: &Stage) -> PathBuf {
    recorded_with(stage, &[])
}

#[track_caller]
pub fn recorded_with(stage: &Stage, more: &[&str]) -> PathBuf {
    let args = [&["record", "--json", "--scripted", "scenarios/hello.yaml"], more].concat();
    let found = stage.finish(&mut with_agent(stage, &args));
    let data = data(&found);
    assert_eq!(found.status.code(), Some(0), "{data:#}{}", found.stderr);
    PathBuf::from(data["results"][0]["tape"].as_str().unwrap())
}

#[track_caller]
pub fn data(found: &Finished) -> Value {
    let envelope: Value =
        serde_json::from_str(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"));
    envelope["data"].clone()
}

/// Every file below a directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn a_tape_lies_beside_its_scenario() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let tape = recorded(&stage);
    assert_eq!(tape, stage.path("project/scenarios/hello.tape"));
    let head: Value = serde_json::from_slice(&fs::read(tape.join("tape.json")).unwrap()).unwrap();
    assert_eq!((&head["format"], &head["exchanges"]), (&json!(2), &json!(2)), "{head:#}");
    assert_eq!(head["agent"]["version"], agent::VERSION);
    assert!(head["scenario"]["skills"]["hello"].is_string(), "{head:#}");
    let text = head.to_string();
    assert!(!text.contains(&stage.path("").display().to_string()), "no path of this machine: {text}");
    let names: Vec<String> = fs::read_dir(stage.path("project/scenarios"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(names, [""; 0], "nothing half done is left");
}

#[test]
fn a_run_that_did_not_pass_is_recorded_only_if_asked() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    stage.write("project/scenarios/hello.yaml", SCENARIO.replace("all done", "something else"));
    let tape = stage.path("project/tapes/hello.tape");
    let args = ["record", "--scripted", "scenarios/hello.yaml", "--out", "tapes"];
    let found = stage.finish(&mut with_agent(&stage, &args));
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    assert!(found.stderr.contains("--allow-failing"), "{}", found.stderr);
    assert!(!tape.exists());
    let found = stage.finish(&mut with_agent(&stage, &[&args[..], &["--allow-failing"]].concat()));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert!(tape.join("tape.json").exists());
    // It finds its scenario from where it lies, and is judged as it was.
    let found = stage.finish(&mut with_agent(&stage, &["replay", "--protocol", "tapes"]));
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
}

#[test]
fn a_secret_of_the_run_is_not_on_the_tape_and_does_not_drift() {
    require!(Agent, Bwrap);
    let call = bash("echo \"[${HTTPS_PROXY:?}]\" | tee outputs/kept.txt");
    let stage = scenario(&script(&[main_turn(&json!([call])), main_turn(&json!([{"text": "all done"}]))]));
    stage.write("project/scenarios/session.yaml", "egress: {extra_allow: [example.org]}\n");
    let tape = recorded_with(&stage, &["--yes"]);
    let all: Vec<String> = files(&tape)
        .iter()
        .map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned())
        .collect();
    let with_mark = all.iter().filter(|text| text.contains("[redacted:proxy token]@")).count();
    assert!(with_mark >= 3, "request, frames and file have the mark: {with_mark}");
    // The token of another run is another one.
    let found = stage.finish(&mut with_agent(&stage, &["replay", "--json", "scenarios/hello.tape"]));
    let data = data(&found);
    assert_eq!(found.status.code(), Some(0), "{data:#}");
    let directory = PathBuf::from(data["results"][0]["directory"].as_str().unwrap());
    let kept = fs::read_to_string(directory.join("artifacts/files/outputs/kept.txt")).unwrap();
    assert!(kept.contains("[redacted:proxy token]"), "{kept}");
}

#[test]
fn private_data_sent_to_the_model_is_listed_on_the_tape() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let leaks = |tape: &Path| {
        let head: Value = serde_json::from_slice(&fs::read(tape.join("tape.json")).unwrap()).unwrap();
        head["leaks"].clone()
    };
    let sealed = leaks(&recorded(&stage));
    assert_eq!(sealed["found"], json!([]), "{sealed:#}");
    assert!(sealed["sought"].as_array().unwrap().contains(&json!("home-path")), "{sealed:#}");
    let shown = stage.finish(&mut with_agent(&stage, &["tape", "show", "scenarios/hello.tape"])).stdout;
    assert!(shown.contains("leaks       none; looked for: home-path"), "{shown}");
    // The path comes from the model here; what counts is that a request has it.
    let home = stage.path("home").display().to_string();
    let turns =
        [main_turn(&json!([bash(&format!("echo {home}"))])), main_turn(&json!([{"text": "all done"}]))];
    stage.write("project/scenarios/hello.script.json", script(&turns).to_string());
    let listed = leaks(&recorded(&stage));
    assert_eq!(listed["found"], json!([{"exchange": 1, "kind": "home-path"}]), "{listed:#}");
    let shown = stage.finish(&mut with_agent(&stage, &["tape", "show", "scenarios/hello.tape"])).stdout;
    assert!(shown.contains("home-path in exchange 1"), "{shown}");
}

#[test]
fn what_cannot_be_recorded_is_said_before_anything_runs() {
    let stage = scenario(&plain());
    let found = stage.run(&["record", "--scripted", "scenarios/hello.yaml", "--normalise", "everything"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("timestamp/1"), "{}", found.stderr);
    let found = stage.run(&["record", "--scripted", "scenarios/nothing.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
}

#[test]
fn what_is_in_the_way_stays() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    stage.write("project/scenarios/hello.tape/precious", "");
    let args = ["record", "--scripted", "scenarios/hello.yaml"];
    let found = stage.finish(&mut with_agent(&stage, &args));
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("is not a tape"), "{}", found.stderr);
    assert!(stage.path("project/scenarios/hello.tape/precious").exists());
}

#[test]
fn one_bad_scenario_does_not_keep_the_others_from_being_recorded() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    stage.write("project/scenarios/bad.yaml", "promt: x\n");
    let args = ["record", "--json", "--scripted", "scenarios/bad.yaml", "scenarios/hello.yaml"];
    let found = stage.finish(&mut with_agent(&stage, &args));
    let data = data(&found);
    assert_eq!((found.status.code(), &data["recorded"]), (Some(2), &json!(1)), "{data:#}{}", found.stderr);
    assert!(data["results"][0]["file"].as_str().unwrap().ends_with("bad.yaml"), "{data:#}");
    assert!(stage.path("project/scenarios/hello.tape/tape.json").exists());
}
