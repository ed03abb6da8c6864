//! Submodules, repositories inside the project, bare ones and linked worktrees: each git directory is a repository of its own.

use crate::repositories::{exec, git, repository};
use crate::stage::Stage;
use belljar_testkit::require;
use std::fs;
use std::path::{Path, PathBuf};

/// A project with a submodule, a repository that it ignores, and a bare one.
pub fn nested(mode: &str) -> Stage {
    let stage = repository(mode);
    let project = stage.path("project");
    stage.write("library/lib.txt", "lib\n");
    let library = stage.path("library");
    git(&library, &["init", "-q", "-b", "main"]);
    git(&library, &["add", "."]);
    git(&library, &["commit", "-qm", "library"]);
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../library", "vendor/sub"];
    git(&project, &add);
    stage.write("project/.gitignore", "nested/\n*.git\n");
    git(&project, &["add", "."]);
    git(&project, &["commit", "-qm", "submodule"]);
    stage.write("project/nested/n.txt", "n\n");
    let inner = project.join("nested");
    git(&inner, &["init", "-q", "-b", "main"]);
    git(&inner, &["add", "."]);
    git(&inner, &["commit", "-qm", "nested"]);
    git(&project, &["clone", "-q", "--bare", "nested", "store.git"]);
    stage
}

/// The repositories of [`nested`], by the directory in which git is run, and by how refs of each are called.
const PLACES: [(&str, &str); 3] =
    [("vendor/sub", "vendor/sub/.git"), ("nested", "nested/.git"), ("store.git", "store.git")];

fn at(stage: &Stage, place: &str) -> PathBuf {
    stage.path("project").join(place)
}

/// A commit of the user's on this branch, made without a work tree.
fn commit(directory: &Path, branch: &str, subject: &str) -> String {
    let tree = git(directory, &["rev-parse", "main^{tree}"]);
    let made = git(directory, &["commit-tree", "-p", "main", "-m", subject, &tree]);
    git(directory, &["update-ref", &format!("refs/heads/{branch}"), &made]);
    made
}

/// A script for each of the repositories.
fn everywhere(script: &str) -> String {
    PLACES.map(|(place, _)| format!("(cd {place}; {script}); ")).concat()
}

const COMMIT: &str = "tree=$(git rev-parse main^{tree}); \
    git update-ref refs/heads/agent $(git commit-tree -p main -m agent $tree)";

/// The user's branches and objects of the meantime stay, whatever the agent's git did to the files.
#[test]
fn branches_of_both_sides_are_joined() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = nested(mode);
        exec(&stage, &everywhere(&format!("{COMMIT}; git tag t main; git gc -q --prune=now")));
        let mine = PLACES.map(|(place, _)| {
            let directory = at(&stage, place);
            let mine = commit(&directory, "mine", "mine");
            git(&directory, &["gc", "-q"]);
            mine
        });
        let page = stage.run(&["diff"]).stdout;
        for (place, _) in PLACES {
            assert!(page.contains(&format!("{place}: agent: created at ")), "{mode}: {page}");
            assert!(page.contains(&format!("{place}: tags/t: created at ")), "{mode}: {page}");
        }
        assert!(page.contains("1 new commit\n") && !page.contains("objects"), "{mode}: {page}");
        let json = stage.json(&["diff", "--json"]);
        let others = json["data"]["other_repositories"].as_array().unwrap();
        let paths: Vec<_> = others.iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert_eq!(paths.len(), 3, "{json}");
        assert!(PLACES.iter().all(|(place, _)| paths.contains(place)), "{paths:?}");
        let done = stage.run(&["apply"]);
        assert_eq!(done.status.code(), Some(0), "{mode}: {done:?}");
        for ((place, _), mine) in PLACES.iter().zip(&mine) {
            assert!(
                done.stdout.contains(&format!("applied {place}: agent: created at ")),
                "{mode}: {done:?}"
            );
            let directory = at(&stage, place);
            assert_eq!(git(&directory, &["rev-parse", "mine"]), *mine, "{mode} {place}");
            assert_eq!(git(&directory, &["log", "-1", "--format=%s", "agent"]), "agent", "{mode} {place}");
            git(&directory, &["fsck", "--strict", "--no-dangling"]);
        }
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n", "{mode}");
        assert!(!stage.run(&["instances"]).stdout.contains("changes kept"), "{mode}");
    }
}

/// A branch or a tag that both sides moved is the user's until they say otherwise.
#[test]
fn refs_that_both_sides_moved_are_held_back_with_their_repository() {
    require!(Bwrap, Git);
    for (place, label) in PLACES {
        let stage = nested("overlay");
        let directory = at(&stage, place);
        git(&directory, &["tag", "t"]);
        exec(&stage, &format!("cd {place}; {COMMIT}; git tag -f t agent; echo free > ../free.txt"));
        let mine = commit(&directory, "mine", "mine");
        git(&directory, &["tag", "-f", "t", "mine"]);
        let held = stage.run(&["apply"]);
        assert_eq!(held.status.code(), Some(1), "{held:?}");
        let line = format!("not applied: {label}/refs/tags/t: you moved refs/tags/t since the run began");
        assert!(held.stderr.contains(&line), "{held:?}");
        assert!(held.stdout.contains("free.txt") && !held.stdout.contains("agent"), "{held:?}");
        assert_eq!(git(&directory, &["rev-parse", "t"]), mine);
        assert!(!git(&directory, &["branch", "--format=%(refname:short)"]).contains("agent"));
        let done = stage.run(&["apply", "--take", "theirs", "--", &format!("{label}/refs/tags/t")]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert_eq!(git(&directory, &["log", "-1", "--format=%s", "t"]), "agent");
        assert_eq!(git(&directory, &["rev-parse", "mine"]), mine);
        git(&directory, &["fsck", "--strict", "--no-dangling"]);
    }
}

/// What a commit would check out is judged wherever it is.
#[test]
fn commits_with_files_of_the_class_need_a_yes_everywhere() {
    require!(Bwrap, Git);
    const PLANT: &str = "blob=$(echo evil | git hash-object -w --stdin); \
        tree=$( (git ls-tree main; printf '100644 blob %s\\t.envrc\\n' $blob) | git mktree); \
        git update-ref refs/heads/planted $(git commit-tree -p main -m planted $tree)";
    for (place, label) in PLACES {
        let stage = nested("overlay");
        let end = exec(&stage, &format!("cd {place}; {PLANT}")).stderr;
        assert!(end.contains(".envrc") && end.contains("a commit on `planted` changes it"), "{place}: {end}");
        let name = format!("{label}/refs/heads/planted");
        let held = stage.run(&["apply"]);
        assert_eq!(held.status.code(), Some(1), "{held:?}");
        let line = format!("not applied: {name}: needs your confirmation: changes ");
        assert!(held.stderr.contains(&line), "{held:?}");
        let branches = || git(&at(&stage, place), &["branch", "--format=%(refname:short)"]);
        assert!(!branches().contains("planted"));
        let done = stage.run(&["apply", "--allow", &name]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert!(branches().contains("planted"));
    }
}

/// A commit of a submodule with its files, and the commit of the project that names it: all of it or nothing.
#[test]
fn commits_of_a_submodule_go_with_their_files_and_before_those_that_name_them() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = nested(mode);
        let (project, sub) = (stage.path("project"), at(&stage, "vendor/sub"));
        let script = "cd vendor/sub; echo two >> lib.txt; git commit -qam inner; cd ../..; \
                      git add vendor/sub; git commit -qm outer; echo n >> nested/n.txt; git -C nested commit -qam n";
        exec(&stage, script);
        stage.write("project/vendor/sub/lib.txt", "mine\n");
        let dry = stage.run(&["apply", "--dry-run"]);
        let held = stage.run(&["apply"]);
        assert_eq!((held.status.code(), &dry.stderr), (Some(1), &held.stderr), "{mode}: {held:?}");
        for line in [
            "not applied: vendor/sub/lib.txt: the project's own file has changed",
            "not applied: vendor/sub/.git: commits, index and files go together",
            "not applied: vendor/sub: it names commits of `vendor/sub`, which is not written",
            "not applied: .git: commits, index and files go together",
        ] {
            assert!(held.stderr.contains(line), "{mode}: {line}: {held:?}");
        }
        assert!(held.stdout.contains("applied nested: main: "), "{mode}: {held:?}");
        assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "submodule");
        assert_eq!(git(&sub, &["log", "-1", "--format=%s"]), "library");
        assert_eq!(git(&at(&stage, "nested"), &["status", "--porcelain"]), "");
        assert_eq!(fs::read_to_string(sub.join("lib.txt")).unwrap(), "mine\n");

        let done = stage.run(&["apply", "--take", "theirs", "--", "vendor/sub"]);
        assert_eq!(done.status.code(), Some(0), "{mode}: {done:?}");
        assert_eq!(git(&sub, &["log", "-1", "--format=%s"]), "inner");
        assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "submodule", "only the submodule was named");
        let rest = stage.run(&["apply"]);
        assert_eq!(rest.status.code(), Some(0), "{mode}: {rest:?}");
        assert_eq!(git(&project, &["status", "--porcelain"]), "", "{mode}");
        assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "outer");
        for directory in [&project, &sub] {
            git(directory, &["fsck", "--strict", "--no-dangling"]);
        }
    }
}

/// A linked worktree that lies in the project is written as the main one is.
#[test]
fn commits_of_a_worktree_in_the_project_go_with_its_files() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = repository(mode);
        let (project, tree) = (stage.path("project"), stage.path("project/trees/work"));
        stage.write("project/.git/info/exclude", "trees\n");
        git(&project, &["worktree", "add", "-q", "-b", "work", "trees/work"]);
        exec(&stage, "cd trees/work; echo two >> file.txt; git commit -qam linked");
        stage.write("project/trees/work/file.txt", "mine\n");
        let held = stage.run(&["apply"]);
        assert_eq!(held.status.code(), Some(1), "{mode}: {held:?}");
        assert_eq!(git(&tree, &["log", "-1", "--format=%s"]), "first", "{mode}");
        stage.write("project/trees/work/file.txt", "one\n");
        let done = stage.run(&["apply", "--force"]);
        assert_eq!(done.status.code(), Some(0), "{mode}: {done:?}");
        assert_eq!(git(&tree, &["log", "-1", "--format=%s"]), "linked", "{mode}");
        assert_eq!(git(&tree, &["status", "--porcelain"]), "", "{mode}");
        assert_eq!(git(&project, &["status", "--porcelain", "-uno"]), "", "{mode}");
    }
}

/// A repository goes when the user says so, and never with commits that it got meanwhile.
#[test]
fn a_repository_that_the_agent_deleted_needs_a_yes() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        let stage = nested(mode);
        let inner = at(&stage, "nested");
        exec(&stage, "rm -rf nested");
        let page = stage.run(&["diff", "--stat"]).stdout;
        assert!(page.contains("nested: repository deleted\n"), "{mode}: {page}");
        let held = stage.run(&["apply"]);
        assert_eq!((held.status.code(), held.stdout.as_str()), (Some(1), ""), "{mode}: {held:?}");
        let line = "not applied: nested/.git: needs your confirmation: the repository is deleted";
        assert!(held.stderr.contains(line), "{mode}: {held:?}");
        assert_eq!(git(&inner, &["status", "--porcelain"]), "");
        let mine = commit(&inner, "mine", "mine");
        let held = stage.run(&["apply", "--allow", "nested/.git"]);
        assert_eq!(held.status.code(), Some(1), "{mode}: {held:?}");
        assert!(held.stderr.contains("you moved refs/heads/mine"), "{mode}: {held:?}");
        assert_eq!(git(&inner, &["rev-parse", "mine"]), mine);
        git(&inner, &["fsck", "--strict", "--no-dangling"]);

        let stage = nested(mode);
        exec(&stage, "rm -rf nested");
        let done = stage.run(&["apply", "--allow", "nested/.git"]);
        assert_eq!(done.status.code(), Some(0), "{mode}: {done:?}");
        assert!(!at(&stage, "nested").exists(), "{mode}: {done:?}");
        assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n", "{mode}");
    }
}

/// A repository that the agent made is written whole, with its configuration, or not at all; its files are files.
#[test]
fn a_new_repository_is_written_whole() {
    require!(Bwrap, Git);
    for mode in ["overlay", "copy"] {
        for place in ["fresh", "."] {
            let stage = Stage::with(&format!("[agents.a]\nworkspace = \"{mode}\"\n"));
            let script = format!(
                "mkdir -p {place}; cd {place}; git init -qb main .; echo f > f.txt; git add f.txt; git commit -qm f; git gc -q"
            );
            exec(&stage, &script);
            let directory = at(&stage, place);
            let config = format!("{}.git/config", if place == "." { "" } else { "fresh/" });
            let held = stage.run(&["apply"]);
            assert_eq!(held.status.code(), Some(1), "{mode} {place}: {held:?}");
            assert!(
                held.stderr.contains(&format!("not applied: {config}: needs your confirmation")),
                "{held:?}"
            );
            assert!(directory.join("f.txt").exists() && !directory.join(".git/HEAD").exists());
            let done = stage.run(&["apply", "--allow", &config]);
            assert_eq!(done.status.code(), Some(0), "{mode} {place}: {done:?}");
            assert!(done.stdout.contains("new repository\n"), "{mode} {place}: {done:?}");
            assert_eq!(git(&directory, &["log", "--format=%s"]), "f", "{mode} {place}");
            assert_eq!(git(&directory, &["status", "--porcelain", "-uno"]), "", "{mode} {place}");
            git(&directory, &["fsck", "--strict"]);
            assert_eq!(stage.run(&["diff"]).stderr, "No changes are kept.\n", "{mode} {place}");
        }
    }
}

/// Directories that git would not take for a repository hold ordinary files, and so does one whose files are committed.
#[test]
fn what_only_looks_like_a_repository_is_written_as_files() {
    require!(Bwrap, Git);
    let stage = repository("overlay");
    let project = stage.path("project");
    git(&project, &["init", "-q", "--bare", "fixture.git"]);
    fs::remove_dir_all(project.join("fixture.git/hooks")).unwrap();
    for path in ["fixture.git/refs/heads/.keep", "fixture.git/objects/info/.keep"] {
        stage.write(&format!("project/{path}"), "");
    }
    git(&project, &["add", "-f", "."]);
    git(&project, &["commit", "-qm", "fixture"]);
    let script = "mkdir -p src/objects src/refs; echo x > src/objects/x; echo x > src/refs/x; echo text > src/HEAD; \
        cd fixture.git; echo note > objects/info/note; \
        id=$(echo '' | git hash-object -w -t blob --stdin); rm objects/info/.keep; \
        cd ..; git add -f fixture.git; git commit -qm agent";
    exec(&stage, script);
    let named = ["src/HEAD", "src/objects", "src/refs"].map(|path| ["--allow", path]).concat();
    let done = stage.run(&[&["apply"], &named[..]].concat());
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    for path in ["src/objects/x", "src/refs/x", "src/HEAD", "fixture.git/objects/info/note"] {
        assert!(project.join(path).exists(), "{path}: {done:?}");
    }
    assert_eq!(git(&project, &["log", "-1", "--format=%s"]), "agent");
    assert_eq!(git(&project, &["status", "--porcelain", "-uno"]), "");
}
