//! Refs of both sides, joined by name: wherever git keeps them, none of the user's is lost.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::require;
use std::path::Path;

/// A commit of the user's that nothing leads to yet.
fn loose(project: &Path, subject: &str) -> String {
    let tree = git(project, &["rev-parse", "HEAD^{tree}"]);
    git(project, &["commit-tree", "-p", "HEAD", "-m", subject, &tree])
}

fn applied(stage: &Stage, args: &[&str]) {
    let done = stage.run(args);
    assert_eq!(done.status.code(), Some(0), "{args:?}: {done:?}");
    git(&stage.path("project"), &["fsck", "--strict", "--no-dangling"]);
    assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n");
}

/// The agent's gc packs refs that it never moved. What the user moved, made or deleted meanwhile stays so.
#[test]
fn packing_inside_does_not_take_back_what_the_user_moved() {
    require!(Bwrap, Git);
    for (mode, packs) in [("overlay", false), ("overlay", true), ("copy", true)] {
        let stage = repository(mode);
        let project = stage.path("project");
        git(&project, &["branch", "gone"]);
        git(&project, &["branch", "theirs"]);
        git(&project, &["tag", "-am", "annotated", "t"]);
        if packs {
            git(&project, &["pack-refs", "--all"]);
        }
        exec(
            &stage,
            "git commit -q --allow-empty -m agent; git branch -q new; git branch -D theirs; git gc -q",
        );
        let mine = loose(&project, "mine");
        git(&project, &["branch", "-f", "old", &mine]);
        git(&project, &["branch", "added", &mine]);
        git(&project, &["branch", "-D", "gone"]);
        if packs {
            git(&project, &["pack-refs", "--all"]);
        }
        let page = stage.run(&["diff"]).stdout;
        assert!(page.contains("theirs: deleted") && page.contains("new: created"), "{page}");
        assert!(!page.contains("old") && !page.contains("gone") && !page.contains("added"), "{page}");
        applied(&stage, &["apply"]);
        let rev = |name: &str| git(&project, &["rev-parse", name]);
        assert_eq!((rev("old"), rev("added")), (mine.clone(), mine), "{mode} {packs}");
        assert_eq!(git(&project, &["log", "-1", "--format=%s", "new"]), "agent");
        let branches = git(&project, &["branch", "--format=%(refname:short)"]);
        assert_eq!(branches, "added\nmain\nnew\nold", "{mode} {packs}");
        assert_eq!(git(&project, &["cat-file", "-t", "t"]), "tag");
        assert_eq!(git(&project, &["rev-parse", "t^{commit}"]), git(&project, &["rev-parse", "main~1"]));
    }
}

/// The user packs what the agent deleted or moved.
#[test]
fn packing_in_the_project_does_not_bring_back_what_the_agent_deleted() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let project = stage.path("project");
        git(&project, &["branch", "moved"]);
        exec(
            &stage,
            "git branch -D old; git commit -q --allow-empty -m agent; git branch -f moved; git branch made",
        );
        git(&project, &["gc", "-q"]);
        applied(&stage, &["apply"]);
        assert_eq!(git(&project, &["branch", "--format=%(refname:short)"]), "made\nmain\nmoved", "{mode}");
        assert_eq!(git(&project, &["log", "-1", "--format=%s", "moved"]), "agent");
    }
}

/// Both sides pack the same refs into the same file, which is then no change: no ref is taken for deleted.
#[test]
fn packing_on_both_sides_deletes_nothing() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let project = stage.path("project");
        exec(&stage, "git pack-refs --all; echo x > other.txt");
        git(&project, &["pack-refs", "--all"]);
        let before = git(&project, &["for-each-ref"]);
        assert_eq!(stage.run(&["diff", "--stat"]).stdout, "M other.txt\n", "{mode}");
        applied(&stage, &["apply"]);
        assert_eq!(git(&project, &["for-each-ref"]), before, "{mode}");
        assert!(!stage.run(&["instances"]).stdout.contains("changes kept"), "{mode}");
    }
}

/// Where both moved a ref, the agent's is written when it is named, and the others are joined.
#[test]
fn one_ref_of_packed_ones_is_taken_or_dropped() {
    require!(Bwrap, Git);
    let start = |mode| {
        let stage = repository(mode);
        let project = stage.path("project");
        git(&project, &["pack-refs", "--all"]);
        exec(
            &stage,
            "git commit -q --allow-empty -m agent; git branch -f old; git branch new; git pack-refs --all",
        );
        let mine = loose(&project, "mine");
        git(&project, &["branch", "-f", "old", &mine]);
        let held = stage.run(&["apply"]);
        assert_eq!(held.status.code(), Some(1), "{held:?}");
        assert!(held.stderr.contains("you moved refs/heads/old"), "{held:?}");
        assert!(!held.stderr.contains("refs/heads/main"), "{held:?}");
        (stage, mine)
    };
    let subject =
        |stage: &Stage, name: &str| git(&stage.path("project"), &["log", "-1", "--format=%s", name]);
    let (stage, mine) = start("overlay");
    applied(&stage, &["apply", "--take", "theirs", "--", "refs/heads/old"]);
    assert_eq!((subject(&stage, "old"), subject(&stage, "new")), ("agent".into(), "agent".into()));
    assert!(git(&stage.path("project"), &["reflog", "--format=%H", "old"]).contains(&mine));

    for mode in ["overlay", "copy"] {
        let (stage, mine) = start(mode);
        let dropped = stage.run(&["discard", "--", "refs/heads/old"]);
        assert_eq!(dropped.status.code(), Some(0), "{dropped:?}");
        assert!(dropped.stdout.contains("dropped .git/refs/heads/old\n"), "{dropped:?}");
        applied(&stage, &["apply"]);
        assert_eq!(git(&stage.path("project"), &["rev-parse", "old"]), mine);
        assert_eq!(subject(&stage, "new"), "agent");
    }
}

/// `a` and `a/b` cannot both be there, packed or not.
#[test]
fn a_name_that_excludes_one_of_the_user_is_held_back() {
    require!(Bwrap, Git);
    for (theirs, mine) in [("topic", "topic/mine"), ("topic/agent", "topic")] {
        for pack in [false, true] {
            let stage = repository("overlay");
            let project = stage.path("project");
            exec(
                &stage,
                &format!("git commit -q --allow-empty -m agent; git branch {theirs}; git pack-refs --all"),
            );
            git(&project, &["branch", mine]);
            if pack {
                git(&project, &["pack-refs", "--all"]);
            }
            let dry = stage.run(&["apply", "--dry-run"]);
            let held = stage.run(&["apply"]);
            assert_eq!((held.status.code(), &held.stderr), (Some(1), &dry.stderr), "{held:?}");
            assert!(held.stderr.contains(&format!("you moved refs/heads/{mine}")), "{held:?}");
            git(&project, &["branch", "-m", mine, "other"]);
            applied(&stage, &["apply"]);
            let branches = git(&project, &["branch", "--format=%(refname:short)"]);
            assert!(branches.contains(theirs) && branches.contains("other"), "{branches}");
        }
    }
}

/// A directory of refs becomes a ref, and a ref a directory.
#[test]
fn names_change_places_with_directories() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let project = stage.path("project");
        git(&project, &["branch", "a/b/c"]);
        git(&project, &["branch", "x"]);
        exec(&stage, "git branch -D a/b/c x; git branch a; git branch x/y/z");
        applied(&stage, &["apply"]);
        assert_eq!(git(&project, &["branch", "--format=%(refname:short)"]), "a\nmain\nold\nx/y/z", "{mode}");
        git(&project, &["branch", "-m", "x/y/z", "x"]);
    }
}

/// Commits that only the user's branch, tag or stash leads to do not go unasked.
#[test]
fn a_ref_whose_commits_nothing_else_has_needs_a_yes() {
    require!(Bwrap, Git);
    let cases = [
        ("refs/heads/work", "git branch -D work"),
        ("refs/heads/work", "git update-ref -d refs/heads/work; git pack-refs --all"),
        ("refs/tags/t", "git tag -f t main"),
        ("refs/tags/t", "git tag -d t"),
        ("refs/stash", "git stash drop -q"),
        ("refs/stash", "git stash drop -q 'stash@{1}'"),
    ];
    for (name, script) in cases {
        let stage = repository("overlay");
        let project = stage.path("project");
        let (work, tagged) = (loose(&project, "work"), loose(&project, "tagged"));
        git(&project, &["update-ref", "refs/heads/work", &work]);
        git(&project, &["tag", "t", &tagged]);
        for text in ["a", "b"] {
            stage.write("project/file.txt", text);
            git(&project, &["stash", "-q"]);
        }
        let before = git(&project, &["rev-list", "--all", "--reflog"]);
        exec(&stage, script);
        let page = stage.run(&["diff"]).stdout;
        assert!(page.contains("! no ref and no reflog would lead to "), "{script}: {page}");
        let held = stage.run(&["apply"]);
        assert_eq!(held.status.code(), Some(1), "{script}: {held:?}");
        assert!(
            held.stderr.contains(&format!("not applied: {name}: needs your confirmation")),
            "{script}: {held:?}"
        );
        assert_eq!(git(&project, &["rev-list", "--all", "--reflog"]), before, "{script}");
        applied(&stage, &["apply", "--allow", name]);
        assert_ne!(git(&project, &["rev-list", "--all", "--reflog"]), before, "{script}");
    }
    // What another ref or a reflog has is not lost.
    let stage = repository("overlay");
    git(&stage.path("project"), &["commit", "-q", "--allow-empty", "-m", "second"]);
    exec(&stage, "git branch -D old; git commit -q --amend --allow-empty -m amended");
    applied(&stage, &["apply"]);
}
