//! Ways in which an agent can bring a commit to a repository without a name that belljar reads.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;

/// A commit that holds a file which the user's machine executes, made without a work tree: `$evil`.
const EVIL: &str = "blob=$(echo evil | git hash-object -w --stdin); \
    tree=$( (git ls-tree HEAD; printf '100644 blob %s\\t.envrc\\n' $blob) | git mktree); \
    evil=$(git commit-tree -p HEAD -m evil $tree); ";

/// Applies, and expects that this name is held back and nothing is written.
fn held_back(stage: &Stage, name: &str) {
    let before = git(&stage.path("project"), &["for-each-ref"]);
    let held = stage.run(&["apply"]);
    let line = format!("not applied: {name}: needs your confirmation");
    assert_eq!(held.status.code(), Some(1), "{name}: {}{}", held.stdout, held.stderr);
    assert!(held.stderr.contains(&line), "{name}: {}", held.stderr);
    assert_eq!(git(&stage.path("project"), &["for-each-ref"]), before);
    assert_eq!(git(&stage.path("project"), &["log", "-1", "--format=%s"]), "first");
}

#[test]
fn refs_in_a_reftable_need_a_yes() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy", "direct"] {
        let stage = Stage::with(&format!("[agents.a]\nworkspace = \"{mode}\"\n"));
        let project = stage.path("project");
        git(&project, &["init", "-q", "-b", "main", "--ref-format=reftable"]);
        stage.write("project/file.txt", "one\n");
        git(&project, &["add", "file.txt"]);
        git(&project, &["commit", "-qm", "first"]);
        let quiet = exec(&stage, "git log --oneline -1").stderr;
        assert!(!quiet.contains("not all refs"), "{mode}: {quiet}");
        let end = exec(&stage, &format!("{EVIL} git update-ref refs/heads/main $evil")).stderr;
        assert!(end.contains("not all refs can be read"), "{mode}: {end}");
        if mode == "direct" {
            continue;
        }
        let page = stage.run(&["diff"]).stdout;
        assert!(page.contains("! not known: not all refs can be read"), "{mode}: {page}");
        held_back(&stage, "refs");
        // A yes to the index is none to the refs, and nothing asks for it.
        assert_eq!(stage.run(&["apply", "--allow", "index"]).status.code(), Some(2));
        assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "first");
        let allowed = stage.run(&["apply", "--allow", "refs"]);
        assert_eq!(allowed.status.code(), Some(0), "{}{}", allowed.stdout, allowed.stderr);
        assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "evil");
        git(&project, &["fsck", "--strict"]);
    }
}

/// A ref that git follows and belljar does not read needs confirmation, and is reported where it is written at once.
#[test]
fn names_that_cannot_be_followed_need_a_yes() {
    require!(Bwrap, Git);
    let scripts = [
        (
            "a name beside HEAD",
            "echo $evil > .git/FOO_HEAD; echo 'ref: FOO_HEAD' > .git/refs/heads/x; \
            echo 'ref: refs/heads/x' > .git/HEAD",
        ),
        ("a link as HEAD", "echo $evil > x; rm .git/HEAD; ln -s refs/../../x .git/HEAD"),
        (
            "a directory of names elsewhere",
            "mkdir .git/z; echo $evil > .git/z/main; mv .git/refs/heads .git/old; \
            ln -s ../z .git/refs/heads",
        ),
        (
            "packed names elsewhere",
            "git pack-refs --all; echo \"$evil refs/heads/new\" >> .git/packed-refs; \
            mv .git/packed-refs .git/p; ln -s p .git/packed-refs",
        ),
        (
            "a name that is packed twice",
            "git pack-refs --all; old=$(git rev-parse HEAD); \
            printf '%s refs/heads/main\\n%s refs/heads/main\\n' $evil $old > .git/packed-refs",
        ),
    ];
    let missed = scripts.iter().filter(|(what, script)| {
        let stage = repository("overlay");
        let end = exec(&stage, &format!("{EVIL} {script}; git log -1 --format=%s")).stderr;
        let page = stage.run(&["diff"]).stdout;
        let held = stage.run(&["apply"]);
        eprintln!("{what}: {end}{page}{}{}", held.stdout, held.stderr);
        !(end.contains("not all refs can be read")
            && page.contains("! not known: not all refs can be read")
            && held.stderr.contains("not applied: refs: needs your confirmation")
            && git(&stage.path("project"), &["log", "-1", "--format=%s"]) == "first")
    });
    assert_eq!(missed.map(|(what, _)| *what).collect::<Vec<_>>(), [""; 0]);
    let stage = repository("direct");
    let end = exec(&stage, &format!("{EVIL} {}", scripts[0].1)).stderr;
    assert!(end.contains("not all refs can be read: refs/heads/x"), "{end}");
}

/// What `git merge --continue`, `git stash pop` or `git rebase --abort` would take up is looked at as branches are.
#[test]
fn commits_that_git_goes_on_with_are_judged() {
    require!(Bwrap, Git);
    let scripts = [
        ("MERGE_HEAD", "echo $evil > .git/MERGE_HEAD"),
        ("MERGE_AUTOSTASH", "echo $evil | cut -c1-12 > .git/MERGE_AUTOSTASH"),
        (
            "logs/refs/stash",
            "echo x > .envrc; git add -f .envrc; git stash -q; echo y >> file.txt; git stash -q",
        ),
        ("info/grafts", "echo $(git rev-parse HEAD) $evil > .git/info/grafts"),
        ("worktrees/tree/HEAD", "echo $evil > .git/worktrees/tree/HEAD"),
        ("rebase-merge/orig-head", "mkdir .git/rebase-merge; echo $evil > .git/rebase-merge/orig-head"),
        ("refs/replace/", "git replace HEAD $evil; git pack-refs --all"),
        (".git/sequencer/todo", "mkdir .git/sequencer; echo pick $evil > .git/sequencer/todo"),
        (
            ".git/rebase-apply/0001",
            "mkdir .git/rebase-apply; git format-patch -q -1 $evil --stdout > .git/rebase-apply/0001",
        ),
        (
            "index",
            "export GIT_INDEX_FILE=.git/worktrees/tree/index; \
             git update-index --add --cacheinfo 100644,$blob,.envrc",
        ),
        (".git/BISECT_START", "echo $evil > .git/BISECT_START"),
    ];
    let missed = scripts.iter().filter(|(name, script)| {
        let stage = repository("overlay");
        let project = stage.path("project");
        git(&project, &["worktree", "add", "-q", "--detach", stage.path("tree").to_str().unwrap()]);
        exec(&stage, &format!("{EVIL} {script}"));
        let held = stage.run(&["apply"]);
        eprintln!("{name}: {}{}", held.stdout, held.stderr);
        let line = held.stderr.lines().find(|line| line.starts_with(&format!("not applied: {name}")));
        !line.is_some_and(|line| line.contains("needs your confirmation"))
    });
    assert_eq!(missed.map(|(name, _)| *name).collect::<Vec<_>>(), [""; 0]);
}

/// None of what git does every day is asked for.
#[test]
fn ordinary_work_is_not_asked_for() {
    require!(Bwrap, Git);
    let work = "git checkout -qb a; echo a > a.txt; git add .; git commit -qm a; git tag -am t t1; git tag t2; \
        git checkout -q main; echo b > b.txt; git add .; git commit -qm b; git merge -q -m merged a; \
        git checkout -qb c old; echo c > c.txt; git add .; git commit -qm c; git rebase -q main; \
        echo s >> c.txt; git stash -q; echo s2 >> c.txt; git stash -q; git stash pop -q; git commit -qam s2; \
        git notes add -m note; git pack-refs --all; git branch d; git branch -m d e; \
        git update-ref refs/remotes/origin/main old; git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main; ";
    for end in [
        "git checkout -q --detach",
        "git checkout -q --orphan fresh",
        "git checkout -qb x; echo 1 > c.txt; git commit -qam 1; git checkout -q c; echo 2 > c.txt; git commit -qam 2; \
         git merge -q x || true",
        "git checkout -qb y; echo 1 > c.txt; git commit -qam 1; git checkout -q c; echo 2 > c.txt; git commit -qam 2; \
         git cherry-pick y || true",
        "git bisect start HEAD HEAD~2; git bisect reset",
    ] {
        let stage = repository("overlay");
        let found = exec(&stage, &format!("{work} {end}")).stderr;
        assert!(!found.contains("not all refs"), "{end}: {found}");
        let done = stage.run(&["apply"]);
        assert_eq!(done.status.code(), Some(0), "{end}: {}{}", done.stdout, done.stderr);
        git(&stage.path("project"), &["fsck", "--strict"]);
    }
}

/// Files that would make a repository of a directory, with programs for git to run, in the index alone.
#[test]
fn a_repository_in_the_index_is_seen() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let script = "blob=$(printf '[core]\\n fsmonitor = evil\\n' | git hash-object -w --stdin); \
        for name in HEAD config objects/a refs/a; do git update-index --add --cacheinfo 100644,$blob,lib/$name; done";
    let end = exec(&stage, script).stderr;
    assert!(end.contains("lib/config") && end.contains("the git index changes it"), "{end}");
    let held = stage.run(&["apply"]);
    assert_eq!(held.status.code(), Some(1), "{}", held.stdout);
    assert!(held.stderr.contains("not applied: index: needs your confirmation: "), "{}", held.stderr);
    assert!(held.stderr.contains("changes lib/config"), "{}", held.stderr);
    assert_eq!(stage.run(&["apply", "--allow", "index"]).status.code(), Some(0));
}

/// Without a note of how things were, nothing of the user's counts as unchanged.
#[test]
fn a_moved_branch_stays_when_the_note_of_the_start_is_gone() {
    require!(Bwrap, Git);
    for note in [None, Some("belljar refs 1\nwho")] {
        let stage = repository("overlay");
        let project = stage.path("project");
        // Logs of both sides would be a conflict by themselves.
        git(&project, &["config", "core.logAllRefUpdates", "false"]);
        fs::remove_dir_all(project.join(".git/logs")).unwrap();
        exec(&stage, "git commit -q --allow-empty -m agent");
        let instances = fs::read_dir(stage.path("data/belljar/instances")).unwrap();
        let notes = instances.map(|entry| entry.unwrap().path().join("layers/a/project/repositories"));
        let notes =
            notes.filter_map(|path| fs::read_dir(path).ok()).flatten().map(|entry| entry.unwrap().path());
        let kept = notes.into_iter().find(|path| path.extension().is_some_and(|end| end == "refs")).unwrap();
        match note {
            None => fs::remove_file(kept).unwrap(),
            Some(text) => fs::write(kept, text).unwrap(),
        }
        git(&project, &["commit", "-q", "--allow-empty", "-m", "mine"]);
        // A further run does not take the present state for the one at the start.
        exec(&stage, "true");
        let held = stage.run(&["apply"]);
        assert_eq!(held.status.code(), Some(1), "{}", held.stdout);
        assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "mine", "{}", held.stderr);
    }
}
