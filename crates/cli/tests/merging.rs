//! Files that both the user and the agent changed, merged by `apply`.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const BASE: &str = "one\ntwo\nthree\nfour\n";
const OURS: &str = "ONE\ntwo\nthree\nfour\n";
const BOTH: &str = "ONE\ntwo\nthree\nFOUR\n";
const EDIT: &str = "sed -i s/four/FOUR/ text.txt";

fn stage(mode: &str) -> Stage {
    let stage = Stage::with(&format!("[agents.a]\nworkspace = \"{mode}\"\n"));
    stage.write("project/text.txt", BASE);
    stage
}

fn read(stage: &Stage) -> String {
    fs::read_to_string(stage.path("project/text.txt")).unwrap()
}

/// Only the end of the run read the file before the user changed it.
#[test]
fn an_edit_after_the_run_is_merged_in_both_modes() {
    require!(Bwrap);
    for mode in ["overlay", "copy"] {
        let stage = stage(mode);
        exec(&stage, EDIT);
        stage.write("project/text.txt", OURS);
        let page = stage.run(&["diff", "--stat"]).stdout;
        assert_eq!(page, "M text.txt\nmerge: text.txt (both sides changed)\n", "{mode}");
        let json = stage.json(&["diff", "--json"]);
        let change = &json["data"]["changes"][0];
        assert_eq!((&change["both_changed"], &change["not_merged"]), (&true.into(), &().into()));

        let dry = stage.run(&["apply", "--dry-run"]);
        assert_eq!(
            (dry.status.code(), dry.stdout.as_str()),
            (Some(0), "would merge text.txt (both sides changed)\n")
        );
        assert_eq!(read(&stage), OURS, "{mode}: nothing was written");
        let json = stage.json(&["apply", "--dry-run", "--json"]);
        assert_eq!(json["data"]["merged"][0], "text.txt");

        let done = stage.run(&["apply"]);
        assert_eq!(done.stdout, "merged text.txt (both sides changed)\n", "{mode}: {}", done.stderr);
        assert_eq!(
            (done.status.code(), done.stderr.as_str()),
            (Some(0), "merged 1 file that both sides changed\n")
        );
        assert_eq!(read(&stage), BOTH, "{mode}");
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n", "{mode}");
    }
}

#[test]
fn the_same_lines_are_left_alone_and_written_with_markers_when_asked_for() {
    require!(Bwrap);
    let stage = stage("overlay");
    exec(&stage, EDIT);
    let mine = BASE.replace("four", "4");
    stage.write("project/text.txt", &mine);
    let refused = stage.run(&["apply"]);
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(1), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("not applied: text.txt: "), "{}", refused.stderr);
    assert!(refused.stderr.contains("both sides changed the same lines"), "{}", refused.stderr);
    assert!(refused.stderr.contains("belljar apply --take markers -- PATH"), "{}", refused.stderr);
    assert_eq!(read(&stage), mine);
    let page = stage.run(&["diff", "--stat"]).stdout;
    assert!(
        page.contains("conflict: text.txt (both sides changed; both sides changed the same lines)"),
        "{page}"
    );
    let done = stage.run(&["apply", "--take", "markers", "--", "text.txt"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert_eq!(read(&stage), "one\ntwo\nthree\n<<<<<<< yours\n4\n=======\nFOUR\n>>>>>>> agent\n");
}

/// The user saves a file while the agent works; what it was at the start is in the repository alone.
#[test]
fn an_edit_during_the_run_is_merged_with_what_git_has() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let project = stage.path("project");
        fs::write(project.join("text.txt"), BASE).unwrap();
        git(&project, &["add", "."]);
        git(&project, &["commit", "-qm", "text"]);
        let script = format!("echo ready; cat; {EDIT}");
        // Read before the user changes it, as an agent does: what it writes is made of what it read.
        let script = script.replace("echo ready", "cp text.txt /tmp/read; echo ready");
        let script = script.replace(EDIT, "sed s/four/FOUR/ /tmp/read > text.txt");
        let mut run = stage.command(&["exec", "--yes", "--", "sh", "-c", &script]);
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut run = run.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(run.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        stage.write("project/text.txt", OURS);
        drop(run.stdin.take());
        assert!(run.wait().unwrap().success());
        let done = stage.run(&["apply"]);
        assert_eq!(done.stdout, "merged text.txt (both sides changed)\n", "{mode}: {}", done.stderr);
        assert_eq!(read(&stage), BOTH);
    }
}

/// A commit names the file: the commit is the agent's, and the user's change stays one to the work tree.
#[test]
fn a_merged_file_of_a_commit_is_modified_on_top_of_it() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let project = stage.path("project");
        fs::write(project.join("text.txt"), BASE).unwrap();
        git(&project, &["add", "."]);
        git(&project, &["commit", "-qm", "text"]);
        exec(&stage, &format!("{EDIT}; echo more >> other.txt; git commit -qam agent"));
        stage.write("project/text.txt", OURS);
        let before = git(&project, &["rev-parse", "HEAD"]);
        let dry = stage.run(&["apply", "--dry-run"]);
        assert!(dry.stdout.contains("would merge text.txt (both sides changed)\n"), "{dry:?}");
        assert_eq!((git(&project, &["rev-parse", "HEAD"]), read(&stage)), (before, OURS.to_owned()));

        let done = stage.run(&["apply"]);
        assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
        assert!(
            done.stdout.contains("merged text.txt (both sides changed)\napplied other.txt\n")
                || done.stdout.contains("applied other.txt\nmerged text.txt (both sides changed)\n"),
            "{}",
            done.stdout
        );
        assert_eq!(git(&project, &["log", "--format=%s"]), "agent\ntext\nfirst");
        assert_eq!(git(&project, &["status", "--porcelain"]), "M text.txt");
        assert_eq!(git(&project, &["show", "HEAD:text.txt"]), BASE.replace("four", "FOUR").trim());
        assert_eq!(git(&project, &["diff", "--cached", "--name-only"]), "", "the index is the agent's");
        assert_eq!(read(&stage), BOTH);
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n");
    }
}

/// One file of a commit cannot be merged: nothing of the commit is written, the merged file included.
#[test]
fn a_conflict_in_a_commit_holds_its_merged_files_back() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    fs::write(project.join("text.txt"), BASE).unwrap();
    git(&project, &["add", "."]);
    git(&project, &["commit", "-qm", "text"]);
    exec(&stage, &format!("{EDIT}; echo agent > file.txt; git commit -qam agent"));
    stage.write("project/text.txt", OURS);
    stage.write("project/file.txt", "mine\n");
    let held = (git(&project, &["rev-parse", "HEAD"]), fs::read(project.join(".git/index")).unwrap());
    let refused = stage.run(&["apply"]);
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(1), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("not applied: file.txt: "), "{}", refused.stderr);
    let now = (git(&project, &["rev-parse", "HEAD"]), fs::read(project.join(".git/index")).unwrap());
    assert_eq!((now, read(&stage).as_str()), (held, OURS));
    assert_eq!(stage.run(&["apply", "--take", "markers", "--", "file.txt"]).status.code(), Some(0));
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert_eq!(read(&stage), BOTH);
    let marked = "<<<<<<< yours\nmine\n=======\nagent\n>>>>>>> agent\n";
    assert_eq!(fs::read_to_string(project.join("file.txt")).unwrap(), marked);
    assert_eq!(git(&project, &["log", "--format=%s"]), "agent\ntext\nfirst");
}

/// The versions that are kept lie in the layer: they go with it, and what they take is counted.
#[test]
fn kept_versions_go_with_the_layer() {
    require!(Bwrap);
    let stage = stage("overlay");
    stage.write("project/text.txt", BASE.repeat(10_000));
    let size = || stage.json(&["instances", "--json"])["data"]["instances"][0]["bytes"].as_u64().unwrap();
    exec(&stage, "echo more >> text.txt");
    let instances = fs::read_dir(stage.path("data/belljar/instances")).unwrap();
    let mut layers = instances.map(|entry| entry.unwrap().path().join("layers"));
    let layers = layers.find(|path| path.exists()).unwrap();
    assert!(fs::read_dir(layers.join("a/project/originals")).unwrap().count() == 2);
    let kept = size();
    fs::remove_dir_all(layers.join("a/project/originals")).unwrap();
    assert!(size() + 100_000 < kept, "{} {kept}", size());
    assert_eq!(stage.run(&["discard", "--yes"]).status.code(), Some(0));
    assert!(!layers.join("a").exists());
}
