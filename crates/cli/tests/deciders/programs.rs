//! A program that answers: what it gets, and that nothing of it outlives the run.

use crate::faults::{command, says, with_agent};
use crate::stage::Stage;
use belljar_testkit::{require, wait};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};

/// An agent that asks whether a tool may run, and says the answer.
const ASKS: &str = "greet(); take(); ask()\nanswer = heard()['response']['response']\n\
     text(answer['behavior'] + ': All done.'); result(); idle()\nwhile heard() is not None: pass";

/// Ignores SIGTERM, has forked, and names its processes.
const STUBBORN: &str =
    "trap '' TERM; sleep 1000 & one=$!; sleep 1000 & echo \"processes $$ $one $!\" >&2; read -r line;";

pub fn asking() -> Stage {
    let stage = with_agent(ASKS);
    for name in ["a", "b"] {
        stage.write(
            &format!("project/{name}.yaml"),
            "prompt: go\nassert: [{transcript_contains: 'allow: All done.'}]\n",
        );
        stage.write(&format!("project/{name}.script.json"), says(&["allow: All done."]));
    }
    stage
}

fn start(stage: &Stage, decider: &str) -> (Child, BufReader<ChildStderr>) {
    let mut command = command(stage, &["test", "--scripted", "a.yaml", "--decider-cmd", decider]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap());
    (child, lines)
}

/// The processes that a decider names on standard error.
fn processes(lines: &mut BufReader<ChildStderr>) -> Vec<u32> {
    loop {
        let mut line = String::new();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the decider was not started");
        if let Some(list) = line.strip_prefix("processes ") {
            return list.split_whitespace().map(|number| number.parse().unwrap()).collect();
        }
    }
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// The kernel takes a moment to end what was killed.
#[track_caller]
fn assert_gone(processes: &[u32]) {
    assert_eq!(processes.len(), 3, "{processes:?}");
    // One whose parent has ended too waits to be reaped by the system.
    let runs = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    };
    let left = || processes.iter().copied().filter(runs).collect::<Vec<_>>();
    let gone = wait::for_end(left);
    assert!(gone.is_ok(), "{:?} of {processes:?}", left());
}

#[test]
fn a_program_and_its_children_end_with_the_run() {
    require!(Bwrap, Python);
    let stage = asking();
    let answers = format!("{STUBBORN} echo '{{\"id\": \"1\", \"behavior\": \"allow\"}}'; wait; sleep 1000");
    let (mut child, mut lines) = start(&stage, &answers);
    let found = processes(&mut lines);
    let status = child.wait().unwrap();
    assert_gone(&found);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(status.code(), Some(0), "{rest}");
}

#[test]
fn a_program_and_its_children_end_with_an_interrupted_run() {
    require!(Bwrap, Python);
    for ended_by in ["-INT", "-TERM"] {
        let stage = asking();
        let (mut child, mut lines) = start(&stage, &format!("{STUBBORN} wait; sleep 1000"));
        let found = processes(&mut lines);
        signal(&child, ended_by);
        assert_eq!(child.wait().unwrap().code(), Some(130), "{ended_by}");
        assert_gone(&found);
    }
}

/// The kernel ends the program itself; its children get the end of their input.
#[test]
fn a_program_ends_with_a_killed_belljar() {
    require!(Bwrap, Python);
    let stage = asking();
    let (mut child, mut lines) = start(&stage, "echo \"processes $$\" >&2; exec sleep 1000");
    processes(&mut lines);
    signal(&child, "-KILL");
    child.wait().unwrap();
    // The program holds the other end.
    lines.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_program_answers_each_run_of_a_suite() {
    require!(Bwrap, Python);
    let stage = asking();
    let decider = "while read -r line; do echo \"$line\" >> asked.jsonl; echo '{\"id\": \"1\", \"behavior\": \"allow\"}'; done";
    let args = ["test", "--scripted", "a.yaml", "b.yaml", "--repeat", "2", "--decider-cmd", decider];
    let found = stage.finish(&mut command(&stage, &args));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let asked = fs::read_to_string(stage.path("project/asked.jsonl")).unwrap();
    let asked: Vec<Value> = asked.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut names: Vec<&str> = asked.iter().map(|line| line["scenario"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "a", "b", "b"]);
    let runs: std::collections::BTreeSet<&str> =
        asked.iter().map(|line| line["runId"].as_str().unwrap()).collect();
    assert_eq!(runs.len(), 4, "{runs:?}");
}
