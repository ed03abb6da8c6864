//! Branches that both sides committed to: the agent's commits become a branch of their own.

use crate::nested_repositories::nested;
use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use std::fs;
use std::process::Command;

/// Everything of the user's: refs, HEAD, index, and files by their content.
fn of_the_user(stage: &Stage, place: &str) -> Vec<String> {
    let directory = stage.path("project").join(place);
    let refs = git(&directory, &["for-each-ref", "--format=%(refname) %(objectname)"]);
    let own = refs.lines().filter(|line| !line.contains("refs/heads/agent-work")).map(str::to_owned);
    let head = git(&directory, &["symbolic-ref", "-q", "HEAD"]);
    let staged = git(&directory, &["ls-files", "--stage"]);
    let files = git(&directory, &["status", "--porcelain", "--ignored"]);
    let hashes = git(&directory, &["ls-files", "--others", "--modified", "--cached"]);
    let text = hashes.lines().map(|path| format!("{path} {:?}", fs::read(directory.join(path)).ok()));
    own.chain([head, staged, files]).chain(text).collect()
}

/// Runs what a hint says, in a shell.
fn typed(stage: &Stage, line: &str) -> Finished {
    let command = line.split('`').nth(1).unwrap_or_else(|| panic!("{line}"));
    let mut shell = Command::new("sh");
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_belljar")).parent().unwrap();
    shell.args(["-c", command]).current_dir(stage.path("project")).env_clear().envs(stage.environment());
    shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    stage.finish(&mut shell)
}

fn diverged(mode: &str) -> Stage {
    let stage = repository(mode);
    let project = stage.path("project");
    let script = "echo agent >> file.txt; mkdir d; echo new > d/new.txt; git rm -q other.txt; git add .; git commit -qm one; \
                  git commit -q --allow-empty -m two; echo loose > loose.txt; echo more >> d/new.txt";
    exec(&stage, script);
    stage.write("project/mine.txt", "mine\n");
    git(&project, &["add", "mine.txt"]);
    git(&project, &["commit", "-qm", "mine"]);
    stage.write("project/other.txt", "edited\n");
    stage
}

/// The refusal says what to type, and that does it: the commits are a branch, nothing of the user's is touched, and what is in no
/// commit is still kept.
#[test]
fn diverged_commits_become_a_branch_of_their_own() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = diverged(mode);
        let project = stage.path("project");
        let before = of_the_user(&stage, ".");
        let held = stage.run(&["apply", "--", ".git"]);
        assert_eq!(held.status.code(), Some(1), "{mode}: {held:?}");
        assert!(held.stderr.contains("you moved refs/heads/main"), "{mode}: {held:?}");
        let hint = held.stderr.lines().find(|line| line.contains("--as-branch")).unwrap();
        assert!(hint.contains("`belljar apply --as-branch agent-main -- refs/heads/main`"), "{hint}");

        let args = ["apply", "--as-branch", "agent-work", "--", "refs/heads/main"];
        let dry = stage.run(&[&args[..2], &["agent-work", "--dry-run"]].concat());
        assert_eq!(dry.status.code(), Some(0), "{mode}: {dry:?}");
        assert!(dry.stdout.starts_with("would make branch agent-work at "), "{mode}: {dry:?}");
        assert_eq!(of_the_user(&stage, "."), before, "{mode}");
        let done = stage.run(&args);
        assert_eq!(done.status.code(), Some(0), "{mode}: {done:?}");
        let commit = git(&project, &["rev-parse", "--short=10", "agent-work"]);
        let line = format!("made branch agent-work at {commit}, 2 new commits of the agent's main\n");
        assert_eq!(done.stdout, line, "{mode}: {done:?}");
        assert!(done.stderr.contains("your branches, index and files are as they were"), "{mode}: {done:?}");
        assert!(
            done.stderr.contains("2 files that agent-work holds are not kept any more"),
            "{mode}: {done:?}"
        );
        assert_eq!(of_the_user(&stage, "."), before, "{mode}");
        assert_eq!(git(&project, &["log", "--format=%s", "agent-work"]), "two\none\nfirst", "{mode}");
        assert_eq!(git(&project, &["show", "agent-work:d/new.txt"]), "new", "{mode}");
        assert_eq!(git(&project, &["log", "-g", "--format=%s", "-1", "agent-work"]), "two", "{mode}");

        // What is in no commit.
        let page = stage.run(&["diff"]).stdout;
        assert!(page.contains("A loose.txt\n") && page.contains("+more\n"), "{mode}: {page}");
        assert!(
            !page.contains("main") && !page.contains("other.txt") && !page.contains("index"),
            "{mode}: {page}"
        );
        let rest = stage.run(&["apply"]);
        assert_eq!(rest.status.code(), Some(0), "{mode}: {rest:?}");
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n", "{mode}");
        git(&project, &["fsck", "--strict", "--no-dangling"]);
    }
}

/// With several agents the commands that are printed name the right one, so that they work when pasted.
#[test]
fn printed_commands_work_when_pasted() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    stage.write(
        "project/belljar.toml",
        "[agents.a]\nworkspace = \"overlay\"\n[agents.b]\nworkspace = \"overlay\"\n",
    );
    git(&project, &["commit", "-qam", "agents"]);
    exec(&stage, "echo agent > file.txt; echo x > .envrc; git commit -qam agent; echo z > other.txt");
    git(&project, &["commit", "-q", "--allow-empty", "-m", "mine"]);
    stage.write("project/other.txt", "mine\n");
    let held = stage.run(&["apply", "a"]);
    assert_eq!(held.status.code(), Some(1), "{held:?}");
    let hints: Vec<&str> = held.stderr.lines().filter(|line| line.contains("`belljar ")).collect();
    assert!(hints.len() > 3, "{held:?}");
    for hint in &hints {
        let commands = hint.split('`').filter(|part| part.starts_with("belljar "));
        for command in commands {
            let verb = command.split(' ').nth(1).unwrap();
            assert!(command.starts_with(&format!("belljar {verb} a")), "{command}");
        }
    }
    let unknown = stage.run(&["apply", "a", "--", "nowhere"]);
    assert!(unknown.stderr.contains("`belljar diff a --stat`"), "{unknown:?}");
    let ours = stage.run(&["apply", "a", "--take", "ours", "--", ".git"]);
    assert!(ours.stderr.contains("`belljar discard a`"), "{ours:?}");
    let hint = hints.iter().find(|line| line.contains("--as-branch")).unwrap();
    let done = typed(&stage, hint);
    assert_eq!(done.status.code(), Some(0), "{hint}: {done:?}");
    let merge = done.stderr.lines().find(|line| line.contains("`git merge ")).unwrap();
    assert!(merge.contains("`git merge a-main`"), "{merge}");
    assert_eq!(git(&project, &["log", "-1", "--format=%s", "a-main"]), "agent");
    assert_eq!(git(&project, &["log", "-1", "--format=%s", "main"]), "mine");
}

/// Repositories in the project have branches, too.
#[test]
fn diverged_commits_of_other_repositories_become_branches() {
    require!(Bwrap, Git);
    for place in ["vendor/sub", "nested"] {
        let stage = nested("overlay");
        let directory = stage.path("project").join(place);
        exec(&stage, &format!("cd {place}; echo agent > new.txt; git add .; git commit -qm agent"));
        git(&directory, &["commit", "-q", "--allow-empty", "-m", "mine"]);
        let before = of_the_user(&stage, place);
        let held = stage.run(&["apply"]);
        let hint = held
            .stderr
            .lines()
            .find(|line| line.contains("--as-branch"))
            .unwrap_or_else(|| panic!("{held:?}"));
        assert!(hint.contains(&format!("-- {place}/.git/refs/heads/main`")), "{hint}");
        let other = stage.run(&["apply", "--as-branch", "agent-work", "--", place]);
        assert_eq!(other.status.code(), Some(0), "{other:?}");
        assert!(other.stdout.starts_with(&format!("made {place}: branch agent-work at ")), "{other:?}");
        assert_eq!(of_the_user(&stage, place), before);
        assert_eq!(git(&directory, &["log", "-1", "--format=%s", "agent-work"]), "agent");
        assert!(other.stderr.contains(&format!("`git -C {place} merge agent-work`")), "{other:?}");
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n");
        git(&directory, &["fsck", "--strict", "--no-dangling"]);
    }
}

/// Nothing happens for a name that git does not take, or that is taken.
#[test]
fn bad_and_taken_names_are_refused_before_anything_happens() {
    require!(Bwrap, Git);
    let stage = diverged("overlay");
    let project = stage.path("project");
    git(&project, &["branch", "topic/one"]);
    let before = of_the_user(&stage, ".");
    let kept = stage.run(&["diff"]).stdout;
    for name in
        ["", "-x", "a b", "a..b", "HEAD", "x.lock", "/x", "x/", "a~1", "refs/../x", "\u{1b}[2J", "a:b"]
    {
        let bad = stage.run(&["apply", &format!("--as-branch={name}")]);
        assert_eq!(bad.status.code(), Some(2), "{name}: {bad:?}");
        assert!(
            bad.stderr.contains("is not a valid branch name") && !bad.stderr.contains('\u{1b}'),
            "{bad:?}"
        );
    }
    for name in ["main", "old", "topic", "old/x"] {
        let taken = stage.run(&["apply", "--as-branch", name]);
        assert_eq!(taken.status.code(), Some(2), "{name}: {taken:?}");
        assert!(taken.stderr.contains("` exists"), "{taken:?}");
    }
    let none = stage.run(&["apply", "--as-branch", "x", "--", "refs/heads/old"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    assert!(none.stderr.contains("no commits"), "{none:?}");
    assert_eq!(of_the_user(&stage, "."), before);
    assert_eq!(stage.run(&["diff"]).stdout, kept);
}

/// What commits carry is asked for here as well, and what only the index has is not dropped.
#[test]
fn a_branch_is_judged_as_any_other_and_loses_nothing() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    exec(&stage, "echo x > .envrc; git add -f .envrc; git commit -qm agent");
    git(&project, &["commit", "-q", "--allow-empty", "-m", "mine"]);
    let held = stage.run(&["apply", "--as-branch", "work"]);
    assert_eq!(held.status.code(), Some(1), "{held:?}");
    assert!(
        held.stderr.contains("not applied: refs/heads/main: needs your confirmation: changes .envrc"),
        "{held:?}"
    );
    assert!(!git(&project, &["branch"]).contains("work"));
    let done = stage.run(&["apply", "--as-branch", "work", "--allow", "refs/heads/main"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(!project.join(".envrc").exists());

    let stage = repository("overlay");
    let project = stage.path("project");
    exec(
        &stage,
        "git commit -q --allow-empty -m agent; echo staged > s.txt; git add s.txt; echo file > s.txt",
    );
    git(&project, &["commit", "-q", "--allow-empty", "-m", "mine"]);
    let held = stage.run(&["apply", "--as-branch", "work"]);
    assert_eq!(held.status.code(), Some(1), "{held:?}");
    assert!(held.stderr.contains("not applied: s.txt: it is staged"), "{held:?}");
    assert!(!git(&project, &["branch"]).contains("work"));
}
