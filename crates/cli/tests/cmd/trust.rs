use super::{MANIFEST, project};
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

fn agreements(stage: &Stage) -> Vec<PathBuf> {
    let directory = stage.path("config/belljar/agreements");
    fs::read_dir(directory).map(|list| list.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

/// Types an answer at a terminal.
fn at_a_terminal(stage: &Stage, answer: &str) -> Finished {
    let line =
        format!("printf '{answer}' | script -qec \"{} trust\" /dev/null", env!("CARGO_BIN_EXE_belljar"));
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(stage.path("project"));
    stage.finish(command.env_clear().envs(stage.environment()).env("SHELL", "/bin/sh"))
}

#[test]
fn from_never_to_agreed_to_changed_to_taken_back() {
    let stage = project();
    let standing = || stage.json(&["trust", "--json"])["data"]["standing"].as_str().unwrap().to_owned();
    let advice = || stage.json(&["plan", "--json"])["data"]["advice"].clone();
    assert_eq!(standing(), "not agreed to yet");
    assert!(agreements(&stage).is_empty(), "to ask is not to agree");

    let agreed = stage.run(&["trust", "--yes"]);
    assert_eq!(agreed.status.code(), Some(0));
    assert!(
        agreed.stdout.starts_with("reviewer sha256:") && agreed.stdout.ends_with(": agreed\n"),
        "{}",
        agreed.stdout
    );
    assert!(agreed.stderr.contains("\nReaches\n"), "what is agreed to is shown: {}", agreed.stderr);
    assert_eq!((standing(), advice()), ("agreed".into(), json!([])));

    stage.write(
        "project/belljar.toml",
        MANIFEST.replace("[\"api.github.com\"]", "[\"api.github.com\", \"evil.example\"]"),
    );
    assert_eq!(standing(), "changed since the agreement");
    assert_eq!(advice(), json!(["this has changed since you agreed: `belljar trust reviewer` shows how"]));
    let asked = stage.run(&["trust"]);
    assert_eq!(asked.status.code(), Some(2), "there was no answer");
    assert!(asked.stderr.contains("egress.rules.allow-2.host\n  + evil.example\n"), "{}", asked.stderr);
    assert_eq!(standing(), "changed since the agreement", "nothing was written");

    stage.write("project/belljar.toml", MANIFEST);
    assert_eq!(standing(), "agreed", "back to what was agreed to");
    assert!(stage.run(&["trust", "--revoke"]).stdout.ends_with(": revoked\n"));
    assert_eq!(standing(), "not agreed to yet");
    assert!(stage.run(&["trust", "--revoke"]).stdout.ends_with(": there was no agreement\n"));
}

#[test]
fn a_literal_counts_and_is_not_kept() {
    let stage = Stage::with(&MANIFEST.replace("debug", "first-literal"));
    stage.skill("project/skills", "changelog");
    assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(0));
    let kept = fs::read_to_string(&agreements(&stage)[0]).unwrap();
    assert!(!kept.contains("first-literal"));
    stage.write("project/belljar.toml", MANIFEST.replace("debug", "second-literal"));
    let said = stage.run(&["trust"]).stderr;
    assert!(said.contains("A literal value of the environment has changed"), "{said}");
    assert!(!said.contains("-literal"), "{said}");
}

#[test]
fn without_a_terminal_nothing_is_agreed_to() {
    let stage = project();
    let found = stage.run(&["trust"]);
    assert_eq!(found.status.code(), Some(2));
    assert!(found.stderr.ends_with("error: there is no terminal to ask at\n  hint: agree with --yes\n"));
    assert!(agreements(&stage).is_empty());
    let both = stage.run(&["trust", "--yes", "--revoke"]);
    assert_eq!(both.status.code(), Some(2), "yes and no at once is neither");
}

#[test]
fn at_a_terminal_only_a_yes_is_one() {
    for answer in ["n\\n", "\\n", "\\004", "yess\\n"] {
        let stage = project();
        let found = at_a_terminal(&stage, answer);
        assert_eq!(found.status.code(), Some(1), "{answer}: {}", found.stdout);
        assert!(found.stdout.contains("Nothing was changed."), "{}", found.stdout);
        assert!(agreements(&stage).is_empty());
    }
    for answer in ["y\\n", "yes\\n"] {
        let stage = project();
        let found = at_a_terminal(&stage, answer);
        assert_eq!(found.status.code(), Some(0), "{answer}: {}", found.stdout);
        assert!(found.stdout.contains("Agree to this? [y/N]"), "{}", found.stdout);
        assert_eq!(agreements(&stage).len(), 1);
    }
}

#[test]
fn the_agreement_is_the_users_alone_and_outside_the_project() {
    let stage = project();
    stage.run(&["trust", "--yes"]);
    let file = agreements(&stage).remove(0);
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(&stage.path("config/belljar/agreements")), 0o700);
    let names: Vec<_> =
        fs::read_dir(stage.path("project")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the project is as it was: {names:?}");
}

/// Whatever lies there instead of an agreement, it is not one.
#[test]
fn a_damaged_agreement_is_an_error() {
    let stage = project();
    stage.run(&["trust", "--yes"]);
    let file = agreements(&stage).remove(0);
    let good = fs::read_to_string(&file).unwrap();
    let damaged = [
        String::new(),
        "{}".to_owned(),
        "null".to_owned(),
        good[..good.len() / 2].to_owned(),
        good.replace("\"format\": 1", "\"format\": 2"),
        good.replace("\"format\": 1", "\"format\": \"1\""),
        good.replacen("sha256:", "sha1:", 1),
        good.replacen("\"digest\"", "\"digset\"", 1),
        format!("{good}{good}"),
    ];
    for text in &damaged {
        assert_ne!(text, &good);
        fs::write(&file, text).unwrap();
        for arguments in [vec!["trust", "--yes"], vec!["trust"], vec!["plan"]] {
            let found = stage.run(&arguments);
            assert_eq!(found.status.code(), Some(2), "{arguments:?} {text}");
            assert!(
                found.stderr.contains("is not one that this version of belljar wrote"),
                "{}",
                found.stderr
            );
        }
        assert_eq!(&fs::read_to_string(&file).unwrap(), text, "it is left for the user to look at");
    }
    fs::write(&file, b"\xff\xfe").unwrap();
    assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(2));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(2));
    fs::remove_dir(&file).unwrap();
    assert_eq!(stage.run(&["trust", "--yes"]).status.code(), Some(0), "deleted, it can be agreed to anew");
}

/// An agreement is to one agent of one project.
#[test]
fn another_project_and_another_agent_need_their_own() {
    let stage = project();
    stage.write("project/belljar.toml", format!("{MANIFEST}\n[agents.second]\n"));
    assert_eq!(stage.run(&["trust", "reviewer", "--yes"]).status.code(), Some(0));
    assert_eq!(stage.json(&["trust", "second", "--json"])["data"]["standing"], "not agreed to yet");
    stage.write("other/belljar.toml", MANIFEST);
    stage.skill("other/skills", "changelog");
    let other = stage.json(&["-C", "../other", "trust", "reviewer", "--json"]);
    assert_eq!(other["data"]["standing"], "not agreed to yet");
}

#[test]
fn an_agreement_that_cannot_be_kept_is_an_error() {
    let stage = project();
    stage.write("config/belljar/agreements", "a file where the directory belongs");
    let found = stage.run(&["trust", "--yes"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(!found.stdout.contains("agreed"), "{}", found.stdout);
}
