//! Kept changes that the user has changes of their own to: what is asked for by name is done, and nothing else.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::require;
use std::fs;
use std::path::Path;

fn read(stage: &Stage, path: &str) -> String {
    fs::read_to_string(stage.path("project").join(path)).unwrap_or_else(|error| format!("{path}: {error}"))
}

fn kept_nothing(stage: &Stage) -> bool {
    stage.run(&["diff"]).stderr == "No changes are kept.\n"
}

fn in_directory(stage: &Stage, directory: &Path, args: &[&str]) -> Finished {
    stage.finish(stage.command(args).current_dir(directory))
}

/// A commit of the agent's changes two files, and so does the user.
fn two_conflicts() -> Stage {
    let stage = repository("overlay");
    exec(&stage, "echo agent > file.txt; echo agent > other.txt; git commit -qam agent");
    stage.write("project/file.txt", "mine\n");
    stage.write("project/other.txt", "mine\n");
    stage
}

#[test]
fn only_named_paths_of_a_group_are_overwritten() {
    require!(Bwrap, Git);
    for named in [".git/index", ".git", ".git/refs/heads/main", "refs/heads/main"] {
        let stage = two_conflicts();
        let project = stage.path("project");
        let forced = stage.run(&["apply", "--force", "--", named]);
        assert_eq!((forced.status.code(), read(&stage, "file.txt").as_str()), (Some(1), "mine\n"), "{named}");
        let held = stage.run(&["apply", "--take", "theirs", "--", named]);
        assert_eq!(held.status.code(), Some(1), "{named}: {}{}", held.stdout, held.stderr);
        assert_eq!(held.stdout, "", "{named}");
        assert!(held.stderr.contains("not applied: file.txt: "), "{}", held.stderr);
        assert!(held.stderr.contains("not applied: other.txt: "), "{}", held.stderr);
        assert_eq!((read(&stage, "file.txt"), read(&stage, "other.txt")), ("mine\n".into(), "mine\n".into()));
        assert_eq!(git(&project, &["log", "--format=%s"]), "first");
        let all = ["apply", "--take", "theirs", "--", named, "file.txt", "other.txt"];
        let done = stage.run(&all);
        assert_eq!(done.status.code(), Some(0), "{named}: {}", done.stderr);
        assert_eq!(
            (read(&stage, "file.txt"), read(&stage, "other.txt")),
            ("agent\n".into(), "agent\n".into())
        );
        assert_eq!(git(&project, &["log", "--format=%s"]), "agent\nfirst");
    }
}

/// The user moved a tag and a branch, and git packed them: no file of the refs is left to compare.
#[test]
fn a_ref_that_the_user_moved_and_packed_is_a_conflict() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    git(&project, &["tag", "t"]);
    git(&project, &["branch", "feature"]);
    exec(&stage, "git commit -q --allow-empty -m agent; git tag -f t; git branch -f feature");
    let tree = git(&project, &["rev-parse", "HEAD^{tree}"]);
    let mine = git(&project, &["commit-tree", "-p", "HEAD", "-m", "mine", &tree]);
    git(&project, &["tag", "-f", "t", &mine]);
    git(&project, &["branch", "-f", "feature", &mine]);
    git(&project, &["pack-refs", "--all"]);
    let held = stage.run(&["apply"]);
    assert_eq!(held.status.code(), Some(1), "{}{}", held.stdout, held.stderr);
    for name in ["refs/heads/feature", "refs/tags/t"] {
        assert!(held.stderr.contains(&format!("you moved {name}")), "{}", held.stderr);
        assert_eq!(git(&project, &["rev-parse", name]), mine);
    }
    assert!(!held.stderr.contains("refs/heads/main:"), "{}", held.stderr);
    let one = stage.run(&["apply", "--take", "theirs", "--", ".git/refs/tags/t"]);
    assert_eq!(one.status.code(), Some(1), "the branch was not named: {}", one.stderr);
    assert_eq!(git(&project, &["rev-parse", "t"]), mine);
    let args = ["apply", "--take", "theirs", "--", "refs/tags/t", "refs/heads/feature"];
    let done = stage.run(&args);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    let head = git(&project, &["rev-parse", "HEAD"]);
    assert_eq!(
        (git(&project, &["rev-parse", "t"]), git(&project, &["rev-parse", "feature"])),
        (head.clone(), head)
    );
    git(&project, &["fsck", "--strict"]);
}

#[test]
fn objects_stay_kept_until_their_refs_are_written() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    exec(&stage, "echo two >> file.txt; git commit -qam second");
    fs::write(project.join(".git/index.lock"), "").unwrap();
    let dry = stage.run(&["apply", "--dry-run"]);
    let locked = stage.run(&["apply"]);
    assert_eq!(locked.status.code(), Some(1), "{}", locked.stdout);
    assert_eq!((dry.status.code(), dry.stderr), (Some(1), locked.stderr), "a dry run says the same");
    fs::remove_file(project.join(".git/index.lock")).unwrap();
    git(&project, &["prune", "--expire=now"]);
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert_eq!(git(&project, &["log", "--format=%s"]), "second\nfirst");
    git(&project, &["fsck", "--strict"]);
    assert!(kept_nothing(&stage));
}

/// A yes to a branch is a yes to what it holds, not to what is missing of it.
#[test]
fn a_ref_without_its_objects_is_never_written() {
    require!(Bwrap, Git);
    let of = |rev: &str| {
        format!("o=$(git rev-parse {rev}); rm -f .git/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-)")
    };
    for (rev, name) in [("HEAD", "commit"), ("HEAD^{tree}", "tree"), ("HEAD:file.txt", "blob")] {
        let stage = repository("overlay");
        let project = stage.path("project");
        exec(&stage, &format!("echo two >> file.txt; git commit -qam second; {}", of(rev)));
        let held = stage.run(&["apply", "--allow", "refs/heads/main"]);
        assert_eq!(held.status.code(), Some(1), "{name}: {}{}", held.stdout, held.stderr);
        let held = stage.run(&["apply"]);
        assert_eq!(held.status.code(), Some(1), "{name}: {}{}", held.stdout, held.stderr);
        assert_eq!(git(&project, &["log", "--format=%s"]), "first", "{name}");
        git(&project, &["fsck", "--strict"]);
    }
}

/// The user's git has objects where belljar does not look: what is missed is not known to be missing.
#[test]
fn borrowed_objects_are_not_taken_for_missing() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    exec(&stage, "git commit -q --allow-empty -m agent");
    git(&project, &["clone", "-q", "--bare", ".", "../lender.git"]);
    stage.write("project/.git/objects/info/alternates", "../../../lender.git/objects\n");
    git(&stage.path("lender.git"), &["repack", "-adq"]);
    git(&project, &["prune-packed", "-q"]);
    let held = stage.run(&["apply"]);
    assert_eq!(held.status.code(), Some(1), "{}", held.stdout);
    assert!(!held.stderr.contains("which is not there"), "{}", held.stderr);
    let allowed = stage.run(&["apply", "--allow", "refs/heads/main"]);
    assert_eq!(allowed.status.code(), Some(0), "{}", allowed.stderr);
    assert_eq!(git(&project, &["log", "--format=%s"]), "agent\nfirst");
    git(&project, &["fsck", "--strict"]);
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

/// Something else below `.git` was written, and nothing of the commits.
#[test]
fn refs_that_are_held_back_are_not_reported_as_applied() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    exec(&stage, "echo agent > file.txt; git commit -qam agent; git tag t; git config core.pager evil");
    stage.write("project/file.txt", "mine\n");
    let held = stage.run(&["apply", "--allow", ".git/config"]);
    assert_eq!(held.status.code(), Some(1), "{}", held.stderr);
    assert_eq!(held.stdout, "applied .git/config\n", "{}", held.stderr);
}

/// A rebase that stopped is taken over as a whole, or not at all.
#[test]
fn a_rebase_in_progress_waits_for_its_commands() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    let script = "git checkout -q old; echo old > file.txt; git commit -qam old; git checkout -q main; \
                  echo agent > file.txt; git commit -qam agent; git rebase -x 'touch ran' old || true; \
                  test -d .git/rebase-merge";
    exec(&stage, script);
    let page = stage.run(&["diff"]).stdout;
    assert!(page.contains("A .git/rebase-merge/git-rebase-todo  ! git runs its `exec` lines"), "{page}");
    let held = stage.run(&["apply"]);
    assert_eq!((held.status.code(), held.stdout.as_str()), (Some(1), ""), "{}", held.stderr);
    assert!(
        held.stderr.contains("not applied: .git/rebase-merge/git-rebase-todo: needs your confirmation"),
        "{}",
        held.stderr
    );
    assert!(!project.join(".git/rebase-merge").exists());
    assert_eq!(git(&project, &["log", "--format=%s"]), "first");
    let done = stage.run(&["apply", "--allow", ".git/rebase-merge/git-rebase-todo"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert!(git(&project, &["status"]).contains("rebas"));
    git(&project, &["rebase", "--abort"]);
    assert_eq!(git(&project, &["log", "--format=%s"]), "agent\nfirst");
}

/// What the user did before is not the agent's to forget.
#[test]
fn lines_that_the_agent_dropped_from_a_reflog_stay() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    git(&project, &["commit", "-q", "--allow-empty", "-m", "lost"]);
    let lost = git(&project, &["rev-parse", "HEAD"]);
    git(&project, &["reset", "-q", "--hard", "HEAD~1"]);
    exec(
        &stage,
        "git commit -q --allow-empty -m agent; git reflog expire --expire=all --all; rm -f .git/logs/HEAD",
    );
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    for name in ["HEAD", "main"] {
        assert!(git(&project, &["reflog", "--format=%H", name]).contains(&lost), "{name}");
    }
    assert_eq!(git(&project, &["log", "--format=%s"]), "agent\nfirst");
    assert!(kept_nothing(&stage));
}

/// Stashes of both sides: the agent's pop is taken over where the user did nothing, and says so: the entry is lost.
#[test]
fn a_stash_is_popped_or_held_back() {
    require!(Bwrap, Git);
    for user in [false, true] {
        let stage = repository("overlay");
        let project = stage.path("project");
        for text in ["a", "b"] {
            stage.write("project/file.txt", text);
            git(&project, &["stash", "-q"]);
        }
        exec(&stage, "git stash drop -q");
        if user {
            stage.write("project/other.txt", "mine");
            git(&project, &["stash", "-q"]);
        }
        let held = stage.run(&["apply"]);
        assert_eq!(held.status.code(), Some(1), "{}", held.stderr);
        let done = stage.run(&["apply", "--allow", "refs/stash"]);
        assert_eq!(done.status.code(), Some(i32::from(user)), "{}", done.stderr);
        assert_eq!(done.stderr.contains("you moved refs/stash"), user, "{}", done.stderr);
        assert_eq!(git(&project, &["stash", "list"]).lines().count(), if user { 3 } else { 1 });
        git(&project, &["fsck", "--strict"]);
    }
}

/// Reflogs grow on both sides, and mean nothing but what happened.
#[test]
fn reflogs_are_joined() {
    require!(Bwrap, Git);
    for user in ["switch", "gc"] {
        let stage = repository("overlay");
        let project = stage.path("project");
        exec(&stage, "echo two >> file.txt; git commit -qam agent");
        if user == "gc" {
            git(&project, &["gc", "-q"]);
        } else {
            git(&project, &["checkout", "-q", "old"]);
            git(&project, &["checkout", "-q", "main"]);
        }
        let done = stage.run(&["apply"]);
        assert_eq!(done.status.code(), Some(0), "{user}: {}", done.stderr);
        assert!(!done.stderr.contains("merged"), "{}", done.stderr);
        let log = git(&project, &["reflog", "--format=%gs", "HEAD"]);
        let moves = "checkout: moving from old to main\ncheckout: moving from main to old\n";
        let between = if user == "gc" { "" } else { moves };
        assert_eq!(log, format!("commit: agent\n{between}commit (initial): first"));
        assert!(kept_nothing(&stage), "{user}");
    }
}

/// The agent's branch is taken: the user's commit is no longer on it, and the reflog still has it.
#[test]
fn a_commit_that_is_overwritten_stays_in_the_reflog() {
    require!(Bwrap, Git);
    for args in [
        &["apply", "--take", "theirs", "--", ".git"][..],
        &["apply", "--force"],
        &["apply", "--take", "theirs", "--", ".git/refs/heads/main", ".git/logs/refs/heads/main"],
    ] {
        let stage = repository("overlay");
        let project = stage.path("project");
        exec(&stage, "git commit -q --allow-empty -m agent");
        git(&project, &["commit", "-q", "--allow-empty", "-m", "mine"]);
        let mine = git(&project, &["rev-parse", "HEAD"]);
        let done = stage.run(args);
        assert_eq!(done.status.code(), Some(0), "{args:?}: {}", done.stderr);
        assert_eq!(git(&project, &["log", "--format=%s"]), "agent\nfirst");
        for name in ["HEAD", "main"] {
            assert!(git(&project, &["reflog", "--format=%H", name]).contains(&mine), "{args:?} {name}");
        }
    }
}

/// Index and files of a branch are not written over those of another.
#[test]
fn a_branch_that_the_user_left_waits() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    exec(&stage, "echo two >> file.txt; git commit -qam agent");
    git(&project, &["checkout", "-q", "old"]);
    for args in [&["apply"][..], &["apply", "--force"]] {
        let held = stage.run(args);
        assert_eq!((held.status.code(), held.stdout.as_str()), (Some(1), ""), "{}", held.stderr);
        assert!(held.stderr.contains("not applied: .git/HEAD: you have left main"), "{}", held.stderr);
        assert_eq!(git(&project, &["status", "--porcelain", "-uno"]), "");
    }
    git(&project, &["checkout", "-q", "main"]);
    let done = stage.run(&["apply"]);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert_eq!(git(&project, &["status", "--porcelain", "-uno"]), "");
    assert_eq!(git(&project, &["log", "--format=%s"]), "agent\nfirst");
}

#[test]
fn paths_are_relative_to_the_current_directory() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    stage.write("project/d/a", "one\n");
    let found = stage.run(&[
        "exec",
        "--yes",
        "--",
        "sh",
        "-c",
        "echo x > a; echo x > d/a; echo x > b; echo x > .envrc",
    ]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let below = stage.path("project/d");
    let diff = in_directory(&stage, &below, &["diff", "--stat", "--", "a"]);
    assert_eq!(diff.stdout, "M d/a\n", "{}", diff.stderr);
    let dropped = in_directory(&stage, &below, &["discard", "--", "a"]);
    assert_eq!(dropped.stdout, "dropped d/a\n", "{}", dropped.stderr);
    let dry = in_directory(&stage, &below, &["apply", "--dry-run", "--", "../a"]);
    assert_eq!(dry.stdout, "would apply a\n", "{}", dry.stderr);
    let allowed = in_directory(&stage, &below, &["apply", "--allow", "../.envrc", "--", "../.envrc"]);
    assert_eq!(allowed.stdout, "applied .envrc\n", "{}", allowed.stderr);
    let absolute = stage.path("project/a");
    let done = in_directory(&stage, &below, &["apply", "--", absolute.to_str().unwrap()]);
    assert_eq!(done.stdout, "applied a\n", "{}", done.stderr);
    for args in [
        &["diff", "--", "b"][..],
        &["apply", "--", "b"],
        &["apply", "--dry-run", "--", "b"],
        &["discard", "--", "b"],
        &["apply", "--take", "theirs", "--", "b"],
        &["apply", "--take", "ours", "--", "b"],
        &["apply", "--allow", "b"],
    ] {
        let none = in_directory(&stage, &below, args);
        assert_eq!(none.status.code(), Some(2), "{args:?}: {}{}", none.stdout, none.stderr);
        assert!(none.stderr.contains("d/b"), "{args:?}: {}", none.stderr);
    }
    assert_eq!(stage.run(&["diff", "--stat"]).stdout, "A b\n");
}

#[test]
fn keeping_ours_drops_nothing_but_conflicts() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    for name in ["both", "theirs", "gone"] {
        stage.write(&format!("project/d/{name}"), "one\n");
    }
    let script = "echo x > d/both; echo x > d/theirs; echo x > d/new; echo x > d/gone";
    let found = stage.run(&["exec", "--yes", "--", "sh", "-c", script]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    stage.write("project/d/both", "mine\n");
    fs::remove_file(stage.path("project/d/gone")).unwrap();
    let dry = stage.run(&["apply", "--take", "ours", "--dry-run", "--", "d"]);
    let lines = "would keep your d/both\nwould drop d/gone (you deleted it)\n";
    assert_eq!((dry.status.code(), dry.stdout.as_str()), (Some(0), lines), "{}", dry.stderr);
    assert_eq!(
        stage.run(&["diff", "--stat"]).stdout.lines().filter(|line| line.starts_with(['A', 'M'])).count(),
        4
    );
    let done = stage.run(&["apply", "--take", "ours", "--", "d"]);
    let lines = "kept your d/both\ndropped d/gone (you deleted it)\n";
    assert_eq!((done.status.code(), done.stdout.as_str()), (Some(0), lines), "{}", done.stderr);
    assert!(done.stderr.contains("2 other changes are still kept"), "{}", done.stderr);
    assert_eq!(stage.run(&["diff", "--stat"]).stdout, "A d/new\nM d/theirs\n");
    let none = stage.run(&["apply", "--take", "ours", "--", "d/theirs"]);
    assert_eq!((none.status.code(), none.stdout.as_str()), (Some(0), ""), "{}", none.stderr);
    assert_eq!(stage.run(&["diff", "--stat"]).stdout, "A d/new\nM d/theirs\n");
    assert_eq!(read(&stage, "d/both"), "mine\n");
}

/// Nothing is said to be gone that is still there.
#[test]
fn what_cannot_be_read_is_reported_as_left() {
    require!(Bwrap);
    let stage = Stage::with("[agents.a]\nworkspace = \"overlay\"\n");
    // Deeper than belljar looks.
    let deep = format!("deep{}", "/x".repeat(520));
    fs::create_dir_all(stage.path("project").join(&deep)).unwrap();
    let script = &format!("echo q > {deep}/q");
    let found = stage.run(&["exec", "--yes", "--", "sh", "-c", script]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    for _ in 0..2 {
        let left = stage.run(&["apply"]);
        assert!(!left.stderr.contains("Nothing is kept"), "{}", left.stderr);
        assert!(left.stderr.contains("not applied: deep/x/"), "{}", left.stderr);
        assert_eq!(left.status.code(), Some(1));
    }
    let dropped = stage.run(&["discard", "--", "deep"]);
    assert_eq!(dropped.status.code(), Some(0), "{}", dropped.stderr);
    assert!(kept_nothing(&stage));
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

/// Half of what git wrote cannot be dropped without the other half.
#[test]
fn keeping_ours_does_not_take_a_commit_apart() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    exec(&stage, "echo agent > file.txt; git commit -qam agent");
    stage.write("project/mine.txt", "mine\n");
    git(&project, &["add", "mine.txt"]);
    let refused = stage.run(&["apply", "--take", "ours", "--", ".git/index"]);
    assert_eq!(refused.status.code(), Some(1), "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("not applied: .git/index: "), "{}", refused.stderr);
    assert!(refused.stderr.contains("cannot be dropped without its commits"), "{}", refused.stderr);
    let held = stage.run(&["apply"]);
    assert_eq!(held.status.code(), Some(1), "the conflict is still there: {}", held.stdout);
    assert_eq!(git(&project, &["diff", "--cached", "--name-only"]), "mine.txt");
}
