//! Finds the project around a directory, and compares the result with the real git.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use belljar_contract::{AbsPath, InstanceKey};
use belljar_runner::find_project;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::require;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

struct Ground {
    directory: TempDir,
}

struct Found {
    root: PathBuf,
    canonical_root: PathBuf,
    outside: Option<PathBuf>,
    key: InstanceKey,
}

impl Ground {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn make(&self, name: &str) -> PathBuf {
        fs::create_dir_all(self.path(name)).unwrap();
        self.path(name)
    }

    /// git without the configuration of this machine and its user.
    fn try_git(&self, directory: &Path, arguments: &[&str]) -> Finished {
        let mut command = Command::new("git");
        command.current_dir(directory).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.directory.path()).env("GIT_CONFIG_NOSYSTEM", "1");
        for (name, value) in [("NAME", "Ann"), ("EMAIL", "ann@example.org")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command.args(["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"]).args(arguments);
        run_within(&mut command, Duration::from_secs(60)).unwrap()
    }

    fn git(&self, directory: &Path, arguments: &[&str]) -> String {
        let ran = self.try_git(directory, arguments);
        assert!(ran.status.success(), "git {arguments:?}: {}", ran.stderr);
        ran.stdout.trim_end().to_owned()
    }

    /// A repository with one commit.
    fn repository(&self, name: &str) -> PathBuf {
        let path = self.make(name);
        self.git(&path, &["init", "-q"]);
        fs::write(path.join("file"), name).unwrap();
        self.git(&path, &["add", "."]);
        self.git(&path, &["commit", "-q", "-m", "first"]);
        path
    }

    /// Finds the project, and compares the top and the canonical root with git's where git answers.
    fn find(&self, directory: &Path) -> Found {
        let found = self.find_alone(directory);
        let common = self.try_git(directory, &["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        if common.status.success() {
            let common = fs::canonicalize(common.stdout.trim_end()).unwrap();
            assert_eq!(found.canonical_root, common.parent().unwrap(), "git says {}", common.display());
        }
        let top = self.try_git(directory, &["rev-parse", "--path-format=absolute", "--show-toplevel"]);
        if top.status.success() {
            assert_eq!(found.root, fs::canonicalize(top.stdout.trim_end()).unwrap());
        }
        found
    }

    /// Like [`Self::find`], for a claim that git believes although nothing confirms it.
    fn find_alone(&self, directory: &Path) -> Found {
        let facts = find_project(&AbsPath::new(directory).unwrap()).unwrap();
        Found {
            root: facts.root.as_path().to_path_buf(),
            canonical_root: facts.canonical_root.as_path().to_path_buf(),
            outside: facts.outside_repository.map(|path| path.as_path().to_path_buf()),
            key: InstanceKey::of(&facts.canonical_root),
        }
    }

    /// Asserts that a directory which claims another's repository does not get it.
    fn assert_alone(&self, directory: &Path, how: &str) {
        let found = self.find_alone(directory);
        assert_eq!(found.outside, None, "{how}");
        assert_eq!((found.root.as_path(), found.canonical_root.as_path()), (directory, directory), "{how}");
    }
}

#[test]
fn a_plain_repository_and_a_directory_in_it() {
    require!(Git);
    let ground = Ground::new();
    let main = ground.repository("main");
    let below = ground.make("main/a/b");
    let (top, deep) = (ground.find(&main), ground.find(&below));
    assert_eq!((&top.root, &top.canonical_root, &top.outside), (&main, &main, &None));
    assert_eq!((&deep.root, &deep.canonical_root, &deep.outside), (&main, &main, &None));
    assert_eq!(top.key, deep.key);
}

#[test]
fn every_worktree_shares_the_instance() {
    require!(Git);
    let ground = Ground::new();
    let main = ground.repository("main");
    let key = ground.find(&main).key;
    for name in ["outside", "main/inside", "main/deep/er/inside"] {
        let tree = ground.path(name);
        ground.git(&main, &["worktree", "add", "-q", "--detach", tree.to_str().unwrap()]);
        let below = ground.make(&format!("{name}/sub"));
        for directory in [&tree, &below] {
            let found = ground.find(directory);
            assert_eq!(found.root, tree);
            assert_eq!(found.canonical_root, main);
            assert_eq!(found.outside, Some(main.join(".git")), "git inside needs the repository");
            assert_eq!(found.key, key);
        }
    }
}

#[test]
fn a_worktree_that_was_moved_is_still_known_after_a_repair() {
    require!(Git);
    let ground = Ground::new();
    let main = ground.repository("main");
    ground.git(&main, &["worktree", "add", "-q", "--detach", "../old"]);
    ground.git(&main, &["worktree", "move", "../old", "../new"]);
    let found = ground.find(&ground.path("new"));
    assert_eq!((found.canonical_root, found.outside), (main.clone(), Some(main.join(".git"))));
    // After a move without git's knowledge, the repository refers to another path, so it is not exposed.
    fs::rename(ground.path("new"), ground.path("stray")).unwrap();
    ground.assert_alone(&ground.path("stray"), "moved");
}

#[test]
fn a_worktree_of_a_bare_repository() {
    require!(Git);
    let ground = Ground::new();
    let main = ground.repository("main");
    ground.git(&main, &["clone", "-q", "--bare", ".", "../bare.git"]);
    let bare = ground.path("bare.git");
    ground.git(&bare, &["worktree", "add", "-q", "../tree"]);
    let found = ground.find(&ground.path("tree"));
    assert_eq!(found.root, ground.path("tree"));
    assert_eq!(found.canonical_root, ground.path(""));
    assert_eq!(found.outside, Some(bare.clone()));
    // Many users keep the bare repository and its work trees in one directory.
    ground.make("hub");
    ground.git(&main, &["clone", "-q", "--bare", ".", "../hub/.bare"]);
    fs::write(ground.path("hub/.git"), "gitdir: ./.bare\n").unwrap();
    ground.git(&ground.path("hub"), &["worktree", "add", "-q", "feature"]);
    let found = ground.find(&ground.path("hub/feature"));
    assert_eq!((found.canonical_root, found.outside), (ground.path("hub"), Some(ground.path("hub/.bare"))));
}

#[test]
fn a_bare_repository() {
    require!(Git);
    let ground = Ground::new();
    let bare = ground.make("bare.git");
    ground.git(&bare, &["init", "-q", "--bare"]);
    let found = ground.find(&bare);
    assert_eq!((found.root, found.outside), (bare, None));
}

#[test]
fn a_submodule() {
    require!(Git);
    let ground = Ground::new();
    let library = ground.repository("library");
    let main = ground.repository("main");
    ground.git(&main, &["submodule", "--quiet", "add", library.to_str().unwrap(), "vendor/library"]);
    let module = main.join("vendor/library");
    let found = ground.find(&module);
    assert_eq!(found.root, module);
    assert_eq!(found.outside, Some(main.join(".git/modules/vendor/library")));
    assert_ne!(found.key, ground.find(&main).key);
}

#[test]
fn a_git_directory_elsewhere() {
    require!(Git);
    let ground = Ground::new();
    let tree = ground.make("tree");
    ground.make("store");
    ground.git(&tree, &["init", "-q", "--separate-git-dir", "../store/repo.git"]);
    // git writes no reference back here unless `core.worktree` is set, so nothing confirms the claim.
    ground.assert_alone(&tree, "no reference back");
    ground.git(&tree, &["config", "core.worktree", tree.to_str().unwrap()]);
    assert_eq!(ground.find(&tree).outside, Some(ground.path("store/repo.git")));
}

#[test]
fn no_repository() {
    require!(Git);
    let ground = Ground::new();
    let plain = ground.make("plain/deep");
    let found = ground.find(&plain);
    assert_eq!((&found.root, &found.canonical_root, &found.outside), (&plain, &plain, &None));
}

/// A `.git` file may come with code; it must not bring a private repository into the sandbox.
#[test]
fn a_git_file_cannot_claim_anothers_repository() {
    require!(Git);
    let ground = Ground::new();
    let private = ground.repository("private");
    ground.git(&private, &["worktree", "add", "-q", "--detach", "../mine"]);
    let stranger = ground.make("stranger");
    let worktree = private.join(".git/worktrees/mine");
    for target in [private.join(".git"), worktree, PathBuf::from("../private/.git")] {
        fs::write(stranger.join(".git"), format!("gitdir: {}\n", target.display())).unwrap();
        ground.assert_alone(&stranger, &target.display().to_string());
    }
    // A git directory of its own that names the other as its common one is no better.
    fs::remove_file(stranger.join(".git")).unwrap();
    fs::create_dir(stranger.join(".git")).unwrap();
    fs::write(stranger.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(stranger.join(".git/commondir"), private.join(".git").to_str().unwrap()).unwrap();
    fs::write(stranger.join(".git/gitdir"), stranger.join(".git").to_str().unwrap()).unwrap();
    ground.assert_alone(&stranger, "the reference back is not in the repository");
    // Neither is a link.
    fs::remove_dir_all(stranger.join(".git")).unwrap();
    std::os::unix::fs::symlink(private.join(".git"), stranger.join(".git")).unwrap();
    ground.assert_alone(&stranger, "a link");
}

/// A repository of another user around the project does not belong to it.
#[test]
fn a_repository_of_a_third_user_is_not_ours() {
    require!(Git, Root);
    let ground = Ground::new();
    let shared = ground.repository("shared");
    let mine = ground.make("shared/mine");
    assert_eq!(ground.find_alone(&mine).root, shared);
    std::os::unix::fs::chown(shared.join(".git"), Some(65534), None).unwrap();
    ground.assert_alone(&mine, "another user's repository");
    // The owner of the project may differ from the user who runs belljar.
    std::os::unix::fs::chown(&mine, Some(65534), None).unwrap();
    assert_eq!(ground.find_alone(&mine).root, shared);
}

#[test]
fn a_deleted_git_directory_is_none() {
    require!(Git);
    let ground = Ground::new();
    let main = ground.repository("main");
    ground.git(&main, &["worktree", "add", "-q", "--detach", "../tree"]);
    fs::remove_dir_all(main.join(".git")).unwrap();
    let tree = ground.path("tree");
    let found = ground.find(&tree);
    assert_eq!((&found.root, &found.canonical_root, &found.outside), (&tree, &tree, &None));
}

#[test]
fn damaged_git_files_are_none() {
    let ground = Ground::new();
    for (name, text) in [
        ("empty", String::new()),
        ("words", "no git here".to_owned()),
        ("nothing", "gitdir: \n".to_owned()),
        ("missing", "gitdir: ../nowhere\n".to_owned()),
        ("itself", "gitdir: .git\n".to_owned()),
        ("root", "gitdir: /\n".to_owned()),
        ("long", format!("gitdir: {}\n", "a/".repeat(100_000))),
        ("nul", "gitdir: a\0b\n".to_owned()),
    ] {
        let tree = ground.make(name);
        fs::write(tree.join(".git"), text).unwrap();
        let facts = find_project(&AbsPath::new(&tree).unwrap()).unwrap();
        assert_eq!((facts.root.as_path(), facts.outside_repository), (tree.as_path(), None), "{name}");
    }
}
