//! `decide` asks every decider that a run could have.

use super::{played, question};
use crate::stage::Stage;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const QUESTION: [&str; 7] = ["decide", "--question", "Which colour?", "--option", "Red", "--option", "Blue"];

#[track_caller]
fn rehearsed(stage: &Stage, args: &[&str], status: i32, part: &str) {
    let found = stage.run(args);
    assert_eq!(found.status.code(), Some(status), "{args:?}: {}{}", found.stdout, found.stderr);
    let text = format!("{}{}", found.stdout, found.stderr);
    assert!(text.contains(part), "{args:?}: {text}");
}

#[test]
fn a_rehearsal_names_who_would_answer() {
    let stage = Stage::new();
    stage.write("project/a.yaml", "prompt: go\non_unanswered: first\nanswers: [{when_question: size, choose: S}, {when_question: colour, choose: red}]\n");
    stage.write("project/policy.yaml", "- {when_question: colour, choose: red}\n");
    let with = |more: &[&'static str]| [&QUESTION[..], more].concat();
    for (args, part) in [
        (
            with(&["--answer", "size=S", "--answer", "colour=blue"]),
            "Blue  (command-line: rule 2 of command-line)",
        ),
        (with(&["--scenario", "a.yaml"]), "Red  (scenario: rule 2 of scenario)"),
        (with(&["--answer", "size=S", "--answer-policy", "policy.yaml"]), "Red  (policy: rule 1 of policy)"),
        (with(&["--on-unanswered", "first"]), "Red  (first: "),
        (vec!["decide", "--question", "Which?", "--option", "A", "--scenario", "a.yaml"], "A  (first: "),
        (
            vec!["decide", "--tool", "Bash", "--allow-tool", "Bash"],
            "allow  (command-line: rule 1 of command-line)",
        ),
        (
            vec!["decide", "--tool", "Bash", "--allow-tool", "Bash", "--deny-tool", "Bash"],
            "deny  (command-line: rule 1",
        ),
    ] {
        rehearsed(&stage, &args, 0, part);
    }
    rehearsed(&stage, &with(&["--on-unanswered", "ask"]), 2, "needs a terminal");
}

#[test]
fn several_questions_are_rehearsed_at_once() {
    let stage = Stage::new();
    let input =
        json!({"questions": [question("Which colour?", false), question("Which ones?", true)]}).to_string();
    let args = ["decide", "--tool", "AskUserQuestion", "--input", &input, "--answer", "colour=blue"];
    rehearsed(&stage, &args, 1, "no rule answers [\"Which ones?\"]");
    rehearsed(&stage, &[&args[..], &["--answer", "ones=red"]].concat(), 0, "Blue; Red");
}

#[test]
fn a_program_is_rehearsed() {
    let stage = Stage::new();
    let with = |command: &'static str, more: &[&'static str]| {
        [&QUESTION[..], &["--decider-cmd", command], more].concat()
    };
    let answer = r#"read -r line; echo '{"id": "1", "answers": {"Which colour?": "blue"}}'"#;
    rehearsed(&stage, &with(answer, &[]), 0, "Blue  (external: answered by the decider's program)");
    let own = r#"read -r line; echo '{"id": "1", "answers": {"Which colour?": {"text": "green"}}}'"#;
    rehearsed(&stage, &with(own, &[]), 0, "green  (external");
    for (command, reason) in [
        ("read -r line", "ended without an answer"),
        ("read -r line; echo nonsense", "not a JSON object"),
        (
            r#"read -r line; echo '{"id": "1", "answers": {"Which colour?": "first"}}'"#,
            "has no option \"first\"",
        ),
        ("exec sleep 1000", "did not answer in 1 s"),
    ] {
        // A program gets the time that it needs for its answer, except where none comes.
        let patience = if command.ends_with("1000") { "1s" } else { "10m" };
        rehearsed(&stage, &with(command, &["--decider-timeout", patience]), 1, reason);
    }
}

#[test]
fn a_rehearsal_that_is_interrupted_ends_its_program() {
    let stage = Stage::new();
    let mut command =
        stage.command(&[&QUESTION[..], &["--decider-cmd", "echo ready >&2; sleep 1000; true"]].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // The program and its child hold the other end.
    assert!(lines.next().is_none());
}

#[test]
fn a_directory_is_rehearsed() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("project/q")).unwrap();
    let mut follow = stage.command(&["gates", "q", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let args = [&QUESTION[..], &["--decider-dir", "q"]].concat();
    let decide = stage.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    assert!(lines.next().unwrap().unwrap().contains("\"gate\":\"1\""));
    assert_eq!(stage.run(&["answer", "q", "--gate", "1", "--choose", "2"]).status.code(), Some(0));
    let found = decide.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(text.contains("Blue  (external: answered in the decider's directory)"), "{text}");
    assert_eq!(lines.next().unwrap().unwrap(), r#"{"done":true}"#);
    assert!(follow.wait().unwrap().success());
}

#[test]
fn a_model_is_rehearsed_by_a_script() {
    let stage = Stage::new();
    let with =
        |more: &[&'static str]| [&QUESTION[..], &["--decider-llm", "--script", "s.json"], more].concat();
    stage.write("project/s.json", played(&[], &["2"]));
    rehearsed(&stage, &with(&[]), 0, "Blue  (model: answered by the model");
    stage.write("project/s.json", played(&[], &["Blue", "7"]));
    rehearsed(&stage, &with(&[]), 1, "gave no answer in 2 tries");
    rehearsed(&stage, &[&QUESTION[..], &["--decider-llm"]].concat(), 2, "--script FILE");
    rehearsed(&stage, &[&QUESTION[..], &["--script", "s.json"]].concat(), 2, "--decider-llm");
    stage.write("project/a.yaml", "prompt: go\non_unanswered: llm\n");
    let alone = [&QUESTION[..], &["--scenario", "a.yaml"]].concat();
    rehearsed(&stage, &alone, 1, "the scenario leaves it to a model");
}
