//! `./dev install` with a build that is this binary: what it writes, where, how often, and what `--uninstall` removes.

use crate::stage::Stage;
use belljar_testkit::process::{Finished, copy_program, run_within};
use belljar_testkit::require;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(120);

/// A checkout with the scripts, and programs in the place of cargo and rustc.
struct Checkout {
    stage: Stage,
}

impl Checkout {
    fn new() -> Self {
        let stage = Stage::new();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in ["dev", "scripts/install", "rust-toolchain.toml"] {
            let copy = stage.path("checkout").join(file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            copy_program(&repository.join(file), &copy).unwrap();
        }
        let toolchain = fs::read_to_string(repository.join("rust-toolchain.toml")).unwrap();
        let version = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
        let checkout = Self { stage };
        checkout.program("bin/rustc", &format!("echo rustc {version}"));
        let copies = format!(
            "if [ \"$1\" = build ]; then mkdir -p target/release; cp {} target/release/belljar; fi",
            env!("CARGO_BIN_EXE_belljar")
        );
        checkout.program("bin/cargo", &copies);
        checkout
    }

    fn program(&self, name: &str, text: &str) {
        self.stage.write(name, format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(self.stage.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.stage.path(name)
    }

    fn dev(&self, arguments: &[&str], variables: &[(&str, PathBuf)]) -> Finished {
        let mut command = Command::new(self.path("checkout/dev"));
        command.args(arguments).env_clear().current_dir(self.path("project"));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        command.env("HOME", self.path("home")).envs(variables.iter().cloned());
        run_within(&mut command, DEADLINE).unwrap()
    }

    /// All files below the home.
    fn files(&self) -> BTreeSet<String> {
        let (top, mut found) = (self.path("home"), BTreeSet::new());
        let mut open = vec![top.clone()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    open.push(path);
                } else {
                    found.insert(path.strip_prefix(&top).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        found
    }
}

#[track_caller]
fn succeeds(found: &Finished) -> &str {
    assert_eq!((found.status.code(), found.stderr.as_str()), (Some(0), ""), "{found:?}");
    &found.stdout
}

#[test]
fn an_installation_is_used_repeated_and_removed_and_nothing_else_is_touched() {
    let checkout = Checkout::new();
    checkout.stage.write("home/.local/bin/other", "mine\n");
    checkout.stage.write("home/.local/share/man/man1/other.1", "mine\n");
    let before = checkout.files();
    let said = succeeds(&checkout.dev(&["install"], &[])).to_owned();
    let written: BTreeSet<String> = checkout.files().difference(&before).cloned().collect();
    for file in &written {
        let line = format!("wrote   {}", checkout.path("home").join(file).display());
        assert!(said.lines().any(|found| found.starts_with(&line)), "{line} in\n{said}");
    }
    for file in [
        ".local/bin/belljar",
        ".local/share/bash-completion/completions/belljar",
        ".local/share/zsh/site-functions/_belljar",
        ".config/fish/completions/belljar.fish",
        ".local/share/man/man1/belljar.1",
        ".local/share/man/man1/belljar-tape-verify.1",
    ] {
        assert!(written.contains(file), "{file} in {written:?}");
    }
    let bin = checkout.path("home/.local/bin");
    assert!(said.contains(&format!("{} is not on your PATH", bin.display())), "{said}");
    let mut installed = Command::new(bin.join("belljar"));
    let version = run_within(installed.arg("--version").env_clear(), DEADLINE).unwrap();
    assert!(version.stdout.starts_with("belljar "), "{version:?}");

    // Again: nothing is written but the list.
    let again = succeeds(&checkout.dev(&["install"], &[])).to_owned();
    assert_eq!(again.lines().filter(|line| line.starts_with("wrote ")).count(), 1, "{again}");
    assert_eq!(checkout.files(), before.union(&written).cloned().collect());

    let said = succeeds(&checkout.dev(&["install", "--uninstall"], &[])).to_owned();
    assert!(said.contains(&format!("removed {}\n", bin.join("belljar").display())), "{said}");
    assert_eq!(checkout.files(), before);
    assert!(!checkout.path("home/.config").exists(), "a directory that it made is left");
    let nothing = checkout.dev(&["install", "--uninstall"], &[]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(nothing.stderr.contains("nothing is installed below"), "{nothing:?}");
}

#[test]
fn a_file_of_somebody_else_is_neither_overwritten_nor_removed() {
    let checkout = Checkout::new();
    checkout.stage.write("home/.local/bin/belljar", "mine\n");
    let found = checkout.dev(&["install"], &[]);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(found.stderr.contains("is there already and was not installed by this"), "{found:?}");
    assert_eq!(checkout.files().len(), 1, "something was written: {found:?}");
    fs::remove_file(checkout.path("home/.local/bin/belljar")).unwrap();
    // A link would be written through.
    checkout.stage.write("home/target", "mine\n");
    checkout.stage.link("home/.local/bin/belljar", checkout.path("home/target").to_str().unwrap());
    assert_eq!(checkout.dev(&["install"], &[]).status.code(), Some(1));
    fs::remove_file(checkout.path("home/.local/bin/belljar")).unwrap();
    succeeds(&checkout.dev(&["install"], &[]));
    // What was changed since is the user's.
    checkout.stage.write("home/.local/share/man/man1/belljar.1", "mine\n");
    let said = succeeds(&checkout.dev(&["install", "--uninstall"], &[])).to_owned();
    assert!(said.contains("belljar.1 (it was changed since)"), "{said}");
    let left: Vec<String> = checkout.files().into_iter().collect();
    assert_eq!(left, [".local/share/man/man1/belljar.1", "target"]);
}

#[test]
fn another_directory_and_the_directories_of_xdg_are_respected() {
    let checkout = Checkout::new();
    let xdg =
        [("XDG_DATA_HOME", checkout.path("home/da ta")), ("XDG_CONFIG_HOME", checkout.path("home/conf"))];
    succeeds(&checkout.dev(&["install"], &xdg));
    let files = checkout.files();
    for file in [".local/bin/belljar", "da ta/man/man1/belljar.1", "conf/fish/completions/belljar.fish"] {
        assert!(files.contains(file), "{file} in {files:?}");
    }
    succeeds(&checkout.dev(&["install", "--uninstall"], &xdg));
    assert!(checkout.files().is_empty());
    // Relative to where it was called.
    succeeds(&checkout.dev(&["install", "--prefix", "../home/o pt"], &[]));
    let files = checkout.files();
    for file in [
        "o pt/bin/belljar",
        "o pt/share/man/man1/belljar-run.1",
        "o pt/share/fish/vendor_completions.d/belljar.fish",
    ] {
        assert!(files.contains(file), "{file} in {files:?}");
    }
    succeeds(&checkout.dev(&["install", "--uninstall", "--prefix=../home/o pt"], &[]));
    assert!(checkout.files().is_empty());
}

#[test]
fn the_shells_find_the_completions_where_they_are_installed() {
    require!(Zsh, Fish);
    let checkout = Checkout::new();
    succeeds(&checkout.dev(&["install"], &[]));
    let ask = |shell: &str, arguments: &[&str]| {
        let mut command = Command::new(shell);
        command.args(arguments).env_clear().env("HOME", checkout.path("home"));
        command.env("PATH", format!("{}:/usr/bin:/bin", checkout.path("home/.local/bin").display()));
        run_within(&mut command, DEADLINE).unwrap()
    };
    let fish = ask("fish", &["-c", "complete -C 'belljar tra'"]);
    assert!(fish.stdout.contains("trace"), "{fish:?}");
    let functions = checkout.path("home/.local/share/zsh/site-functions").display().to_string();
    let load =
        format!("fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -D; print $_comps[belljar]");
    let zsh = ask("zsh", &["-f", "-c", &load]);
    assert_eq!(zsh.stdout, "_belljar\n", "{zsh:?}");
}
