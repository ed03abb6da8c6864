//! `apply --dry-run` says what `apply` then does, also where something of the user's is in the way.

use crate::repositories::{exec, git, repository};
use belljar_testkit::require;
use std::fs;
use std::path::Path;
use std::process::Command;

fn sh(directory: &Path, script: &str) {
    let mut command = Command::new("sh");
    assert!(command.args(["-euc", script]).current_dir(directory).status().unwrap().success(), "{script}");
}

/// A directory goes or becomes a file, or a file comes where the user made a directory.
#[test]
fn an_entry_of_the_user_in_a_directory_that_goes_is_predicted() {
    require!(Bwrap, Git);
    let commit = "git add -A; git commit -qm agent";
    let cases = [
        ("rm -r d; echo agent > d", "echo mine > d/mine", "d/mine"),
        ("rm -r d; echo agent > d", "mkdir d/mine", "d/mine"),
        ("rm -r d", "echo mine > d/mine", "d/mine"),
        ("rm -r d", "mkdir d/mine", "d/mine"),
        ("rm -r d; echo agent > d", "rm -r d; mkdir d", "d"),
        ("rm -r d", "rm -r d; mkdir -p d/mine", "d/mine"),
        ("rm -r d/e; echo agent > d/e", "mkdir d/e/mine", "d/e/mine"),
        ("echo agent > x", "mkdir -p x/mine", "x/mine"),
        ("echo agent > x", "mkdir x", "x"),
    ];
    for (mode, with_commit) in [("overlay", true), ("copy", false)] {
        for (agent, user, mine) in cases {
            let when = format!("{mode}, {agent}, {user}");
            let stage = repository(mode);
            let project = stage.path("project");
            for path in ["d/a", "d/e/b"] {
                stage.write(&format!("project/{path}"), "one\n");
            }
            git(&project, &["add", "."]);
            git(&project, &["commit", "-qm", "directory"]);
            exec(&stage, &format!("{agent}; {}", if with_commit { commit } else { "true" }));
            sh(&project, user);
            let dry = stage.run(&["apply", "--dry-run"]);
            let done = stage.run(&["apply"]);
            assert_eq!(dry.status.code(), done.status.code(), "{when}: {dry:?} {done:?}");
            assert_eq!(dry.stdout.replace("would apply ", "applied "), done.stdout, "{when}: {done:?}");
            assert_eq!(dry.stderr, done.stderr, "{when}");
            assert_eq!(done.status.code(), Some(1), "{when}: {done:?}");
            assert!(fs::symlink_metadata(project.join(mine)).is_ok(), "{when}: {done:?}");
            assert!(mine != "x" || project.join("x").is_dir(), "{when}: {done:?}");
        }
    }
}
