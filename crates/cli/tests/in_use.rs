//! Branches that a work tree of the user has in use: git neither moves nor deletes them, and so does `apply`.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;
use std::path::Path;
use std::process::Command;

const COMMIT: &str =
    "git checkout -q feat; echo two >> file.txt; git commit -qam agent; git checkout -q main";

fn sh(directory: &Path, script: &str) {
    let script = format!(
        "export GIT_AUTHOR_NAME=U GIT_AUTHOR_EMAIL=u@x GIT_COMMITTER_NAME=U GIT_COMMITTER_EMAIL=u@x; {script}"
    );
    let mut command = Command::new("sh");
    let command = command.args(["-euc", &script]).current_dir(directory);
    let command = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{script}: {done:?}");
}

/// A repository with a branch `feat` of two commits.
fn with_feat(mode: &str) -> Stage {
    let stage = repository(mode);
    sh(
        &stage.path("project"),
        "git checkout -qb feat; echo f > f; git add f; git commit -qm f; git checkout -q main",
    );
    stage
}

/// `apply` holds the branch back for this reason and changes no ref, as the dry run says.
fn held_back(stage: &Stage, at: &Path, reason: &str) {
    let before = git(at, &["for-each-ref"]);
    let run = |args: &[&str]| stage.finish(stage.command(args).current_dir(stage.path("project")));
    let (dry, done) = (run(&["apply", "--dry-run"]), run(&["apply"]));
    assert_eq!((dry.status.code(), done.status.code()), (Some(1), Some(1)), "{reason}: {dry:?} {done:?}");
    assert!(done.stderr.contains(&format!("{reason}\n")), "{reason}: {done:?}");
    assert_eq!(dry.stderr, done.stderr);
    assert_eq!(git(at, &["for-each-ref"]), before, "{reason}");
    // `--force` chooses between versions; it does not move a branch that is in use.
    let forced = run(&["apply", "--force"]);
    assert_eq!((forced.status.code(), git(at, &["for-each-ref"])), (Some(1), before), "{forced:?}");
}

#[test]
fn a_branch_that_the_user_has_in_use_is_neither_moved_nor_deleted() {
    require!(Bwrap, Git);
    let delete = "git branch -D feat";
    let rebase = "GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' git rebase -q -i feat~1 feat";
    let in_linked = format!("git worktree add -q ../w feat; cd ../w; {rebase}");
    let bisect = "git checkout -q feat; git bisect start; git checkout -q --detach";
    let outside = "git worktree add -q ../w feat";
    let cases = [
        (COMMIT, "git checkout -q feat", "feat is checked out in the project"),
        (COMMIT, outside, "feat is checked out in ../w"),
        (COMMIT, "git worktree add -q w feat", "feat is checked out in w"),
        (COMMIT, rebase, "feat is being rebased in the project"),
        (COMMIT, &in_linked, "feat is being rebased in ../w"),
        (COMMIT, bisect, "feat is being bisected in the project"),
        (delete, "git checkout -q feat", "feat is checked out in the project"),
        (delete, outside, "feat is checked out in ../w"),
        ("git branch new", "git checkout -q --orphan new", "new is checked out in the project"),
    ];
    for (agent, user, reason) in cases {
        let stage = with_feat("overlay");
        exec(&stage, agent);
        sh(&stage.path("project"), user);
        held_back(&stage, &stage.path("project"), reason);
    }
    let stage = with_feat("copy");
    exec(&stage, COMMIT);
    git(&stage.path("project"), &["checkout", "-q", "feat"]);
    held_back(&stage, &stage.path("project"), "feat is checked out in the project");
}

/// The way out: the commits become another branch, or the user leaves this one.
#[test]
fn a_branch_in_use_is_made_another_or_applied_once_it_is_left() {
    require!(Bwrap, Git);
    let start = || {
        let stage = with_feat("overlay");
        exec(&stage, COMMIT);
        git(&stage.path("project"), &["checkout", "-q", "feat"]);
        stage
    };
    let stage = start();
    let held = stage.run(&["apply"]);
    assert!(held.stderr.contains("`belljar apply --as-branch agent-feat -- refs/heads/feat`"), "{held:?}");
    let made = stage.run(&["apply", "--as-branch", "agent-feat", "--", "refs/heads/feat"]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let project = stage.path("project");
    assert_eq!(git(&project, &["log", "-1", "--format=%s", "agent-feat"]), "agent");
    assert_eq!(git(&project, &["log", "-1", "--format=%s", "feat"]), "f");
    assert_eq!(git(&project, &["status", "--porcelain"]), "");

    let stage = start();
    let project = stage.path("project");
    git(&project, &["checkout", "-q", "main"]);
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(git(&project, &["log", "-1", "--format=%s", "feat"]), "agent");
    assert_eq!(git(&project, &["status", "--porcelain"]), "");
}

/// The same in a repository below the project.
#[test]
fn a_branch_in_use_in_a_nested_repository_is_held_back() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    stage.write("project/sub/file.txt", "one\n");
    let sub = stage.path("project/sub");
    sh(&sub, "git init -q -b main; git add .; git commit -qm first; git branch feat");
    exec(&stage, &format!("cd sub; {COMMIT}"));
    git(&sub, &["checkout", "-q", "feat"]);
    held_back(&stage, &sub, "feat is checked out in sub");
}

/// A bare repository has no work tree, so its HEAD uses no branch.
#[test]
fn the_head_of_a_bare_repository_holds_nothing_back() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    sh(&project, "git clone -q --bare . origin.git; echo origin.git > .git/info/exclude");
    exec(&stage, "git commit -q --allow-empty -m agent; git push -q ./origin.git main");
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(git(&project.join("origin.git"), &["log", "-1", "--format=%s", "main"]), "agent");
}

/// The agent is in one work tree and moves the branch of another.
#[test]
fn a_branch_moved_from_another_work_tree_is_held_back() {
    require!(Bwrap, Git);
    let moves = "commit=$(git commit-tree -p feat -m agent $(git rev-parse feat^{tree})); git update-ref refs/heads/main $commit";
    // The project is the linked one.
    let stage = with_feat("overlay");
    let main = stage.path("main");
    fs::rename(stage.path("project"), &main).unwrap();
    git(&main, &["worktree", "add", "-q", "../project", "feat"]);
    exec(&stage, moves);
    held_back(&stage, &main, "main is checked out in ../main");

    // Both lie in the project.
    let stage = with_feat("overlay");
    let project = stage.path("project");
    git(&project, &["worktree", "add", "-q", "w", "feat"]);
    exec(&stage, &format!("cd w; {moves}"));
    held_back(&stage, &project, "main is checked out in the project");
}

/// What the agent does in the work tree that has the branch goes along.
#[test]
fn the_agents_own_work_trees_go_along() {
    require!(Bwrap, Git);
    let cases = [
        "git commit -q --allow-empty -m agent",
        "echo s > staged; git add staged; git commit -qm agent",
        "git checkout -q feat; git branch -D main",
        "git checkout -q feat; echo x >> f; git commit -qam agent",
        "git checkout -q feat; git reset -q --soft main; git commit -qm agent",
        "cd w; echo x >> file.txt; git commit -qam agent",
    ];
    for script in cases {
        let stage = with_feat("overlay");
        let project = stage.path("project");
        sh(&project, "git worktree add -q w -b linked; echo w > .git/info/exclude");
        exec(&stage, script);
        let done = stage.run(&["apply"]);
        assert_eq!(done.status.code(), Some(0), "{script}: {done:?}");
        assert_eq!(git(&project, &["status", "--porcelain"]), "", "{script}");
    }
}

/// A rebase that the user began before the run, and that the agent finishes.
#[test]
fn a_rebase_that_the_agent_finishes_goes_along() {
    require!(Bwrap, Git);
    let stage = with_feat("overlay");
    let project = stage.path("project");
    sh(&project, "GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' git rebase -q -i feat~1 feat");
    exec(&stage, "git commit -q --amend -m agent; git rebase --continue");
    let done = stage.run(&["apply", "--allow", ".git/rebase-merge/git-rebase-todo"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(git(&project, &["log", "-1", "--format=%s", "feat"]), "agent");
    assert_eq!(git(&project, &["rev-parse", "--abbrev-ref", "HEAD"]), "feat");
}
