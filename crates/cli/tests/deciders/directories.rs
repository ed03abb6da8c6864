//! Questions in a directory: those of a suite, of a run that was killed, and of no one.

use super::programs::asking;
use crate::faults::command;
use crate::stage::Stage;
use belljar_testkit::{require, wait};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn of(stage: &Stage) -> Self {
        fs::create_dir_all(stage.path("project/q")).unwrap();
        let mut child = stage.command(&["gates", "q", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn status(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn the_runs_of_a_suite_ask_below_one_directory() {
    require!(Bwrap, Python);
    let stage = asking();
    let mut follower = Follower::of(&stage);
    let args = ["test", "--scripted", "a.yaml", "b.yaml", "--repeat", "2", "--decider-dir", "q"];
    let suite = command(&stage, &args).stderr(Stdio::piped()).spawn().unwrap();
    let mut names = Vec::new();
    for _ in 0..4 {
        let line = follower.next();
        let gate = line["gate"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
        let scenario = line["scenario"].as_str().unwrap();
        assert!(gate.starts_with(&format!("{scenario}-")) && gate.ends_with("/1"), "{line}");
        let left = stage.run(&["answer", "q", "--gate", &gate, "--choose", "allow"]);
        assert_eq!(left.status.code(), Some(0), "{}", left.stderr);
        names.push(gate);
    }
    names.sort();
    assert_eq!(names, ["a-1/1", "a-2/1", "b-3/1", "b-4/1"]);
    assert_eq!(follower.next(), json!({"done": true}));
    assert_eq!(follower.status(), Some(0));
    let found = suite.wait_with_output().unwrap();
    assert_eq!(found.status.code(), Some(0), "{}", String::from_utf8_lossy(&found.stderr));
    let again = stage.finish(&mut command(&stage, &args));
    assert_eq!(again.status.code(), Some(2), "another run's questions are there: {}", again.stderr);
}

#[test]
fn a_killed_run_ends_those_who_follow_it() {
    require!(Bwrap, Python);
    let stage = asking();
    let mut follower = Follower::of(&stage);
    let mut run = command(&stage, &["test", "--scripted", "a.yaml", "--decider-dir", "q"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(follower.next()["gate"], "1");
    signal(&run, "-KILL");
    run.wait().unwrap();
    assert_eq!(follower.next(), json!({"done": true}));
    assert_eq!(follower.status(), Some(1));
    let found = stage.run(&["answer", "q", "--gate", "1", "--choose", "allow"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("has ended"), "{}", found.stderr);
    let found = stage.run(&["gates", "q", "--json"]);
    assert_eq!(found.status.code(), Some(1), "{}{}", found.stdout, found.stderr);
}

#[test]
fn an_interrupted_run_marks_its_end() {
    require!(Bwrap, Python);
    let stage = asking();
    let mut follower = Follower::of(&stage);
    let mut run = command(&stage, &["test", "--scripted", "a.yaml", "--decider-dir", "q"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    follower.next();
    signal(&run, "-TERM");
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert_eq!(follower.next(), json!({"done": true}));
    assert_eq!(follower.status(), Some(0));
}

#[test]
fn a_signal_ends_a_list_that_is_followed() {
    for ended_by in ["-TERM", "-INT"] {
        let stage = Stage::new();
        let asked = json!({"type": "decision_request", "id": "r-1", "kind": "permission", "tool": "Bash"});
        stage.write("project/q/req-1.json", asked.to_string());
        let mut follower = Follower::of(&stage);
        assert_eq!(follower.next()["seq"], 1);
        signal(&follower.child, ended_by);
        assert_eq!(follower.status(), Some(130), "{ended_by}");
    }
}

#[test]
fn a_list_is_followed_before_its_run_begins() {
    let stage = Stage::new();
    let mut child = stage.command(&["gates", "later", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    let mut follower = Follower { child, lines };
    let later = stage.path("project/later");
    wait::for_files(&stage.path("project"), || later.is_dir().then_some(())).unwrap();
    assert!(follower.child.try_wait().unwrap().is_none(), "it waits");
    let asked = json!({"type": "decision_request", "id": "r-1", "kind": "permission", "tool": "Bash"});
    stage.write("project/later/req-1.json", asked.to_string());
    assert_eq!(follower.next()["seq"], 1);
    signal(&follower.child, "-TERM");
    assert_eq!(follower.status(), Some(130));
}

#[test]
fn a_directory_of_no_decider_is_an_error() {
    let stage = Stage::new();
    stage.write("project/src/a.txt", "");
    fs::create_dir(stage.path("project/empty")).unwrap();
    for args in [
        &["gates", "src"][..],
        &["gates", "src", "--follow"],
        &["gates", "empty"],
        &["answer", "src", "--gate", "1", "--choose", "x"],
        &["answer", ".", "--gate", "src/1", "--choose", "x"],
    ] {
        let found = stage.run(args);
        assert_eq!(found.status.code(), Some(2), "{args:?}: {}", found.stderr);
        assert!(found.stderr.contains("has no questions of a decider"), "{args:?}: {}", found.stderr);
        assert!(
            found.stderr.contains("hint: ") && found.stderr.contains("--decider-dir"),
            "{}",
            found.stderr
        );
    }
    let found = stage.run(&["answer", ".", "--gate", "../1", "--choose", "x"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
}

/// Both ask before either is answered, so they run at the same time.
#[test]
fn recordings_ask_below_one_directory_at_the_same_time() {
    require!(Bwrap, Python);
    let stage = asking();
    let mut follower = Follower::of(&stage);
    let args = ["record", "--scripted", "a.yaml", "b.yaml", "-j", "2", "--decider-dir", "q"];
    let suite = command(&stage, &args).stderr(Stdio::piped()).spawn().unwrap();
    let mut gates = [follower.next(), follower.next()].map(|line| line["gate"].as_str().unwrap().to_owned());
    gates.sort();
    assert_eq!(gates, ["a-1/1", "b-2/1"]);
    for gate in gates {
        let left = stage.run(&["answer", "q", "--gate", &gate, "--choose", "allow"]);
        assert_eq!(left.status.code(), Some(0), "{}", left.stderr);
    }
    let found = suite.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(0), "{said}");
    assert!(said.contains("answers: 1 by external"), "{said}");
    assert!(stage.path("project/a.tape").is_dir() && stage.path("project/b.tape").is_dir(), "{said}");
    assert_eq!(follower.next(), json!({"done": true}));
    assert_eq!(follower.status(), Some(0));
}
