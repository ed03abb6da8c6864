//! Many scenarios at once: asked once, and each worker holds to what was agreed to.

use super::{commands, digest_in, refused, state, suite, typed};
use crate::cmd::record::with_agent;
use belljar_testkit::{require, wait};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

/// Two scenarios with a session each.
fn two() -> crate::stage::Stage {
    let stage = suite("uploads: [~/.ssh/id_ed25519]\n");
    let text = |name: &str| fs::read_to_string(stage.path(&format!("project/tests/{name}"))).unwrap();
    stage.write("project/tests/b.yaml", text("a.yaml").replace("session.yaml", "other.yaml"));
    stage.write("project/tests/other.yaml", "egress: {extra_allow: [one.example]}\n");
    stage.write("project/tests/b.script.json", text("a.script.json"));
    stage
}

#[test]
fn what_many_ask_for_is_asked_once_before_the_first() {
    require!(Agent, Bwrap);
    let stage = two();
    let args = ["test", "--scripted", "tests"];
    let said = refused(&stage, &args, "upload: ").stderr;
    assert!(said.contains("egress to one.example"), "{said}");
    let digest = digest_in(&said);
    let found = stage.finish(&mut with_agent(&stage, &[&args[..], &["--agree-to", &digest]].concat()));
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    stage.write("project/tests/other.yaml", "egress: {extra_allow: [two.example]}\n");
    let found = stage.finish(&mut with_agent(&stage, &[&args[..], &["--agree-to", &digest]].concat()));
    assert_eq!(found.status.code(), Some(2), "{}{}", found.stdout, found.stderr);
    assert!(found.stderr.contains("two.example"), "{}", found.stderr);
}

#[test]
fn workers_are_held_to_what_was_shown_at_the_question() {
    require!(Agent, Bwrap);
    let stage = suite("uploads: [key]\n");
    stage.write("home/other", "other");
    stage.write("home/first", "first");
    stage.link("project/tests/key", "../../home/first");
    // The link changes while the user reads.
    let typing = "sleep 3; ln -sfn ../../home/other tests/key; printf 'y\\n'; sleep 1";
    let said = typed(&stage, typing, "test --scripted --repeat 2 tests/a.yaml").stdout;
    assert!(said.contains("/home/first") && said.contains("[y/N]"), "{said}");
    assert!(said.contains("--agree-to names sha256:"), "{said}");
    assert!(state(&stage, "runs").is_empty(), "{said}");
}

#[test]
fn what_changed_after_the_agreement_is_refused_by_the_worker() {
    require!(Agent, Bwrap);
    let stage = two();
    // The first goes on when the session of the second has changed.
    commands(&stage, "mkfifo go; read -r go < go; rm go");
    let args = ["test", "--scripted", "--json", "--yes", "--jobs", "1", "tests/a.yaml", "tests/b.yaml"];
    let mut command = with_agent(&stage, &args);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pipe = || {
        let mut pipes = state(&stage, "staging").into_iter().map(|one| one.join("workspace/go"));
        pipes.find(|pipe| pipe.exists())
    };
    let pipe = wait::for_files(&stage.path("home"), pipe).unwrap();
    stage.write("project/tests/other.yaml", "uploads: [~/.ssh/id_ed25519]\n");
    fs::write(pipe, "go\n").unwrap();
    let found = child.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&found.stdout).unwrap();
    let results = &envelope["data"]["results"];
    assert_eq!((&results[0]["exit_code"], &results[1]["exit_code"]), (&0.into(), &2.into()), "{envelope:#}");
    let error = results[1]["error"]["message"].as_str().unwrap();
    assert!(error.matches("sha256:").count() == 2, "{error}");
}
