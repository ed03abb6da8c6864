//! A tape that a stranger made.

use super::{KEY, PLAIN, command, passed, refused, state, suite};
use crate::stage::Stage;
use belljar_contract::TapeHead;
use belljar_testkit::require;
use std::fs;

/// A recorded suite whose session then asks for the key.
fn recorded() -> Stage {
    let stage = suite(PLAIN);
    passed(&stage, &["record", "--scripted", "tests/a.yaml"]);
    stage.write("project/tests/session.yaml", "uploads: [~/.ssh/id_ed25519]\n");
    stage
}

/// Lets the tape name another scenario, with everything about it as it should be.
fn names(stage: &Stage, file: &str) {
    let path = stage.path("project/tests/a.tape/tape.json");
    let mut head: TapeHead = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    file.clone_into(&mut head.scenario.file);
    head.integrity = head.reckoned();
    fs::write(&path, serde_json::to_vec(&head).unwrap()).unwrap();
}

#[test]
fn a_tapes_scenario_takes_nothing_unasked_either() {
    require!(Agent, Bwrap);
    let stage = recorded();
    for args in [
        &["replay", "tests/a.tape"][..],
        &["replay", "tests"],
        &["tape", "verify", "tests"],
        &["tape", "refresh", "--scripted", "tests"],
    ] {
        refused(&stage, args, "upload: ");
    }
    stage.link("project/tests/key.txt", "../../home/.ssh/id_ed25519");
    stage.link("project/tests/inner/keys", "../../../home/.ssh");
    let server = r#"{"mcpServers": {"forge": {"command": "cat", "env": {"TOKEN": "${GITHUB_TOKEN}"}}}}"#;
    stage.write("project/tests/mcp.json", server);
    for session in ["uploads: [key.txt]\n", "uploads: [inner/keys/id_ed25519]\n"] {
        stage.write("project/tests/session.yaml", session);
        refused(&stage, &["replay", "tests/a.tape"], "upload: ");
        refused(&stage, &["tape", "verify", "tests"], "upload: ");
    }
    stage.write("project/tests/session.yaml", "mcp: {config: mcp.json}\n");
    refused(&stage, &["replay", "tests/a.tape"], "variable GITHUB_TOKEN: ");
    stage.write("project/tests/session.yaml", "uploads: [key.txt]\n");
    let found = stage.finish(&mut command(&stage, &["replay", "--yes", "--allow-stale", "tests/a.tape"]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let found = stage.finish(&mut command(&stage, &["tape", "verify", "--yes", "tests"]));
    assert_eq!(found.status.code(), Some(1), "the session changed: {}{}", found.stdout, found.stderr);
    assert!(found.stdout.contains("the session"), "{}", found.stdout);
}

#[test]
fn a_recorded_conversation_is_judged_without_what_the_scenario_names() {
    require!(Agent, Bwrap);
    let stage = recorded();
    stage.write("project/tests/session.yaml", "not: a session\n");
    let found = stage.run(&["replay", "--protocol", "tests/a.tape"]);
    assert_eq!(found.status.code(), Some(3), "the session changed: {}", found.stderr);
    passed(&stage, &["replay", "--protocol", "--allow-stale", "tests/a.tape"]);
    let decide = ["decide", "--tool", "Bash", "--scenario", "tests/a.yaml"];
    let found = stage.run(&decide);
    assert_eq!(found.status.code(), Some(2), "what the session says counts for a question: {}", found.stderr);
}

#[test]
fn a_tape_names_no_scenario_beyond_its_suite() {
    require!(Agent, Bwrap);
    let stage = recorded();
    stage.write("home/passwd", format!("root:x:0:0:{KEY}\n"));
    stage.link("project/tests/link.yaml", "../../home/passwd");
    stage.link("project/tests/inner", "../../home");
    let absolute = stage.path("home/passwd").display().to_string();
    let runs = state(&stage, "runs").len();
    for file in ["../../home/passwd", &absolute, "link.yaml", "inner/passwd"] {
        names(&stage, file);
        for args in [
            &["replay", "--yes", "tests/a.tape"][..],
            &["replay", "--protocol", "tests/a.tape"],
            &["tape", "verify", "--yes", "tests/a.tape"],
            &["tape", "refresh", "--yes", "--scripted", "tests/a.tape"],
        ] {
            let found = stage.finish(&mut command(&stage, args));
            let said = format!("{}{}", found.stdout, found.stderr);
            assert_eq!(found.status.code(), Some(2), "{args:?} {file}: {said}");
            assert!(!said.contains("root:x") && !said.contains(KEY), "{args:?} {file}: {said}");
            assert!(said.contains("lies beyond"), "{args:?} {file}: {said}");
        }
    }
    assert_eq!(state(&stage, "runs").len(), runs);
    let found = stage.finish(&mut command(&stage, &["tape", "show", "tests/a.tape"]));
    assert!(!found.stdout.contains("root:x"), "{}", found.stdout);
}

#[test]
fn a_tape_is_not_recorded_where_it_could_not_name_its_scenario() {
    let stage = suite(PLAIN);
    let found = stage.run(&["record", "--scripted", "tests/a.yaml", "--out", "../elsewhere"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("could not name its scenario"), "{}", found.stderr);
    assert!(state(&stage, "runs").is_empty());
}
