//! Kept changes that the user has changes of their own to: what is asked for by name is done, and nothing else.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;

fn kept_nothing(stage: &Stage) -> bool {
    stage.run(&["diff"]).stderr == "Nothing is kept aside.\n"
}

#[test]
fn objects_stay_kept_until_their_refs_are_written() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    exec(&stage, "echo two >> file.txt; git commit -qam second");
    fs::write(project.join(".git/index.lock"), "").unwrap();
    let locked = stage.run(&["apply"]);
    assert_eq!(locked.status.code(), Some(1), "{}", locked.stdout);
    fs::remove_file(project.join(".git/index.lock")).unwrap();
    git(&project, &["prune", "--expire=now"]);
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert_eq!(git(&project, &["log", "--format=%s"]), "second\nfirst");
    git(&project, &["fsck", "--strict"]);
    assert!(kept_nothing(&stage));
}

#[test]
fn objects_are_written_with_the_present_time() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    exec(
        &stage,
        "git commit -q --allow-empty -m agent; find .git/objects -type f -exec touch -d 2001-01-01 {} +",
    );
    assert_eq!(stage.run(&["apply"]).status.code(), Some(0));
    let id = git(&project, &["rev-parse", "HEAD"]);
    let object = project.join(".git/objects").join(&id[..2]).join(&id[2..]);
    let age = fs::metadata(object).unwrap().modified().unwrap().elapsed().unwrap();
    assert!(age.as_secs() < 3600, "{age:?}");
}

#[test]
fn a_status_inside_is_no_change() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        fs::write(stage.path("project/file.txt"), "one\n").unwrap();
        let end =
            exec(&stage, "sleep 1.1; touch other.txt; git status >/dev/null; git update-index --refresh")
                .stderr;
        assert!(!end.contains("kept in"), "{mode}: {end}");
        assert!(kept_nothing(&stage), "{mode}");
    }
}

#[test]
fn changes_that_a_run_has_are_in_use_whatever_they_hold() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    let mut run = stage.command(&["exec", "--yes", "--", "sh", "-c", "echo ready; cat"]);
    run.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut run = run.stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(run.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    let busy = stage.run(&["apply", "--layer", "a"]);
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
    assert_eq!(busy.status.code(), Some(2));
    assert!(busy.stderr.contains("the changes `a` are in use"), "{}", busy.stderr);
}
