//! The sources of mounts are identified before the user agrees: what is replaced after that is not mounted.

use super::early::{answer, asked};
use super::{assert_prints, sh};
use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;
use std::process::Command;

/// A project with files in it that are guarded where it is changed in place, and a mount from elsewhere. `more` is added to the
/// manifest.
fn guarded(workspace: &str, more: &str) -> Stage {
    let manifest = format!(
        "[agents.a]\nworkspace = {workspace:?}\nmounts = [{{ source = \"../data-set\", target = \"/data\" }}]\n{more}"
    );
    let stage = Stage::with(&manifest);
    stage.write("data-set/x", "content\n");
    stage.write("project/.envrc", "export A=1\n");
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    stage.write("project/.git/config", "[core]\n\tbare = false\n");
    stage.write("project/.git/hooks/pre-commit", "true\n");
    stage
}

/// Replaces a file or directory by a copy of itself.
fn replacement(path: &str) -> String {
    format!("cp -a {path} {path}.copy && rm -rf {path} && mv {path}.copy {path}")
}

/// Replaces a source after the user agreed and before the launch: the command for a value runs outside the sandbox then.
#[track_caller]
fn assert_refused_if_replaced(workspace: &str, name: &str) {
    let stage = guarded(workspace, "");
    let path = stage.path(name).display().to_string();
    // In a file elsewhere: what the manifest itself names in the project is mounted in another way.
    stage.write("replace.sh", format!("{} && echo value\n", replacement(&path)));
    let script = stage.path("replace.sh");
    let manifest = fs::read_to_string(stage.path("project/belljar.toml")).unwrap();
    let env = format!("[agents.a.env]\nTOKEN = {{ command = [\"sh\", {script:?}] }}\n");
    stage.write("project/belljar.toml", format!("{manifest}{env}"));
    let found = sh(&stage, "echo begun");
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(125), ""), "{name}: {}", found.stderr);
    let message = format!("`{path}` is not what it was when the plan was made");
    assert!(found.stderr.contains(&message), "{name}: {}", found.stderr);
}

#[test]
fn a_source_that_is_replaced_after_the_user_agreed_is_refused() {
    require!(Bwrap);
    for name in ["data-set", "project", "project/.envrc", "project/.git/hooks"] {
        assert_refused_if_replaced("direct", name);
    }
    let stage = guarded("direct", "[agents.a.env]\nTOKEN = { command = [\"echo\", \"value\"] }\n");
    assert_prints(&sh(&stage, "echo begun"), "begun\n");
}

#[test]
fn a_replaced_project_is_not_copied() {
    require!(Bwrap);
    assert_refused_if_replaced("copy", "project");
    assert_prints(&sh(&guarded("copy", ""), "echo begun"), "begun\n");
}

#[test]
fn a_replaced_project_is_not_the_lower_layer_of_an_overlay() {
    require!(Bwrap);
    assert_refused_if_replaced("overlay", "project");
    assert_prints(&sh(&guarded("overlay", ""), "echo begun"), "begun\n");
}

#[test]
fn a_source_that_is_replaced_while_the_user_is_asked_is_refused() {
    require!(Bwrap);
    for name in ["data-set", "project/.envrc"] {
        let stage = guarded("direct", "");
        let mut child = asked(&stage);
        let path = stage.path(name).display().to_string();
        let replaced = Command::new("sh").args(["-c", &replacement(&path)]).status().unwrap();
        assert!(replaced.success());
        let (status, rest) = answer(&mut child, "y\n");
        assert_eq!(status, Some(125), "{name}: {rest}");
        assert!(rest.contains("is not what it was when the plan was made"), "{name}: {rest}");
        assert!(!rest.contains("begun"), "{name}: {rest}");
    }
}
