//! A project and a user in a temporary directory, and the binary run in it.

use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::snapshot::Redactor;
use belljar_testkit::wait;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Every run takes milliseconds on an idle machine; a hang is a finding.
pub const DEADLINE: Duration = wait::DEADLINE;

/// A project, a home, a configuration; gone afterwards.
pub struct Stage {
    directory: TempDir,
}

impl Stage {
    /// Empty: no manifest anywhere.
    pub fn new() -> Self {
        let stage = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["project", "home", "config/belljar", "data"] {
            fs::create_dir_all(stage.path(name)).unwrap();
        }
        stage
    }

    /// With this manifest in the project.
    pub fn with(manifest: &str) -> Self {
        let stage = Self::new();
        stage.write("project/belljar.toml", manifest);
        stage
    }

    /// With a copy of a directory as the project; its `home` is the user's home, its `user.toml` the user's manifest.
    pub fn copy_of(source: &Path) -> Self {
        let stage = Self::new();
        copy(source, &stage.path("project"));
        for (from, to) in [("project/user.toml", "config/belljar/belljar.toml"), ("project/home", "home")] {
            if stage.path(from).exists() {
                if stage.path(to).is_dir() {
                    fs::remove_dir(stage.path(to)).unwrap();
                }
                fs::rename(stage.path(from), stage.path(to)).unwrap();
            }
        }
        stage
    }

    /// A path below the stage, links resolved where they can be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    /// Writes a file and the directories above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Makes a symbolic link and the directories above it.
    pub fn link(&self, name: &str, target: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// A skill that is as it should be.
    pub fn skill(&self, parent: &str, name: &str) {
        self.write(
            &format!("{parent}/{name}/SKILL.md"),
            format!("---\nname: {name}\ndescription: Does {name}\n---\nBody.\n"),
        );
    }

    /// The binary in the project, with nothing of this machine's environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belljar"));
        command.args(arguments).current_dir(self.path("project")).env_clear().envs(self.environment());
        command
    }

    /// The environment of every run.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("PATH", "/usr/bin:/bin".into()),
            ("HOME", self.path("home").into()),
            ("XDG_CONFIG_HOME", self.path("config").into()),
            ("XDG_DATA_HOME", self.path("data").into()),
            ("NO_COLOR", "1".into()),
        ]
    }

    /// Runs the binary to its end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        self.finish(&mut self.command(arguments))
    }

    /// Runs a command to its end.
    pub fn finish(&self, command: &mut Command) -> Finished {
        run_within(command, DEADLINE).unwrap()
    }

    /// Runs the binary and gives its outcome with the machine's paths replaced.
    pub fn outcome(&self, arguments: &[&str]) -> String {
        self.shown(&self.run(arguments))
    }

    /// Status and both outputs, with the machine's paths replaced.
    pub fn shown(&self, finished: &Finished) -> String {
        let status = finished.status.code().map_or("a signal".to_owned(), |code| code.to_string());
        let text = format!(
            "exit {status}\n--- stdout\n{}--- stderr\n{}",
            with_newline(&finished.stdout),
            with_newline(&finished.stderr)
        );
        Redactor::new().path(self.directory.path(), "[STAGE]").redact(&text)
    }

    /// The one JSON object on standard output.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let finished = self.run(arguments);
        serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
    }
}

fn with_newline(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n(no newline)\n") }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// Whether what is found is to be written down as what is expected.
pub fn blessing() -> bool {
    std::env::var_os("BELLJAR_BLESS").is_some_and(|value| value == "1")
}

/// Asserts that an outcome is this text, with both shown whole.
#[track_caller]
pub fn assert_outcome(found: &str, expected: &str) {
    assert!(found == expected, "found\n{found}\nexpected\n{expected}");
}
