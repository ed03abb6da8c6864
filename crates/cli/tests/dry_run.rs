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

/// Something on the way to a file is a link or a file of the user's, or becomes a directory only with a commit.
#[test]
fn what_is_in_the_way_is_predicted() {
    require!(Bwrap, Git);
    let to_link = "mv d real; ln -s real d";
    let commit = "git add -A; git commit -qm agent";
    let dir = "rm x; mkdir x; echo new > x/in";
    let cases = [
        ("echo new > d/new", to_link, "not applied: d/new: `d` is a link now\n"),
        (&format!("echo new > d/new; {commit}"), to_link, "not applied: d/new: `d` is a link now\n"),
        ("echo new > d/new", "rm -r d; echo mine > d", "not applied: d/new: `d` was not applied\n"),
        (dir, "echo mine >> x", "not applied: x/in: `x` was not applied\n"),
        // The commit has a file where the directory is.
        (&format!("echo two >> x; git commit -qam agent; {dir}"), "true", ""),
        (
            &format!("echo two >> x; git commit -qam agent; {dir}"),
            "echo mine >> x",
            "not applied: x/in: `x` was not applied\n",
        ),
    ];
    for mode in ["overlay", "copy"] {
        for (agent, user, reason) in cases {
            let when = format!("{mode}, {agent}, {user}");
            let stage = repository(mode);
            let project = stage.path("project");
            stage.write("project/d/a", "one\n");
            stage.write("project/x", "one\n");
            git(&project, &["add", "."]);
            git(&project, &["commit", "-qm", "more"]);
            exec(&stage, agent);
            sh(&project, user);
            let dry = stage.run(&["apply", "--dry-run"]);
            let done = stage.run(&["apply"]);
            assert_eq!(dry.stdout.replace("would apply ", "applied "), done.stdout, "{when}: {done:?}");
            assert_eq!((&dry.stderr, dry.status.code()), (&done.stderr, done.status.code()), "{when}");
            assert!(done.stderr.contains(reason), "{when}: {done:?}");
            assert_eq!(done.status.code(), Some(i32::from(!reason.is_empty())), "{when}: {done:?}");
            assert_eq!(project.join("x/in").exists(), reason.is_empty(), "{when}: {done:?}");
        }
    }
}
