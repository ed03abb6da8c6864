//! What the user does to the project between a run and its apply is never lost unseen.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_sandbox::{Applied, ApplyMode, ApplyRequest, Kept, OnConflict, Selection};

use super::support::{Project, put, tick, yes_to};

fn kept(project: &Project) -> Kept {
    Kept::new(vec![project.overlay()])
}

fn apply(project: &Project) -> Applied {
    let consent = yes_to(&[]);
    let request = |mode| ApplyRequest {
        selection: &Selection::All,
        consent: &consent,
        on_conflict: OnConflict::Merge,
        mode,
    };
    let dry = kept(project).apply(&request(ApplyMode::DryRun), &mut || false).unwrap();
    let done = kept(project).apply(&request(ApplyMode::Write), &mut || false).unwrap();
    assert_eq!(dry, done, "the dry run says the same");
    done
}

fn refused(applied: &Applied) -> Vec<&Path> {
    applied.refused.iter().map(|refused| refused.path.as_path()).collect()
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

/// The first run deleted the directory, the second made it again: what the user wrote there in between stays.
#[test]
fn a_directory_that_is_made_again_hides_nothing_of_the_user() {
    belljar_testkit::require!(UserNs);
    let project = Project::new();
    let root = project.lower();
    put(&root, "n/k/notes", "v1\n");
    put(&root, "n/old", "old\n");
    project.edit("rm -rf n");
    tick();
    put(&root, "n/k/notes", "v1\nmine\n");
    put(&root, "n/new", "mine\n");
    tick();
    project.edit("mkdir n; echo x > n/x");
    tick();
    project.edit("echo y > n/y");
    let applied = apply(&project);
    assert_eq!(read(root.join("n/k/notes")), "v1\nmine\n");
    assert_eq!(read(root.join("n/new")), "mine\n");
    assert_eq!(read(root.join("n/x")), "x\n");
    assert!(!root.join("n/old").exists(), "nobody but the agent touched it");
    for path in ["n/k/notes", "n/new"] {
        assert!(refused(&applied).contains(&Path::new(path)), "{path}: {applied:?}");
    }
}
