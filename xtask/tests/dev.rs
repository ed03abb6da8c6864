//! How `./dev` finds or installs a suitable Rust, on simulated machines: directories with the programs that they
//! have.
//!
//! Only its decisions are tested here; the installation itself is tested on a fresh machine.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use belljar_testkit::process::{Finished, copy_program, run_within};
use tempfile::TempDir;

/// Programs that every Debian has and `./dev` relies on.
const ESSENTIAL: [&str; 21] = [
    "sh", "cat", "cksum", "cmp", "cp", "cut", "date", "dirname", "env", "grep", "head", "id", "mkdir", "mv",
    "rm", "sed", "sort", "tail", "touch", "tr", "uname",
];

/// Packages that are installed; the tests vary only Rust.
const PRESENT: [&str; 15] = [
    "pip3",
    "git",
    "cc",
    "bwrap",
    "tmux",
    "zsh",
    "fish",
    "curl",
    "ssh",
    "ssh-keygen",
    "podman",
    "runc",
    "newuidmap",
    "slirp4netns",
    "strace",
];

const TOO_OLD: &str = "1.63.0";

/// A checkout of `./dev`, on a machine of which only the programs exist.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn fresh() -> Self {
        let machine = Self { root: TempDir::new().unwrap() };
        fs::create_dir_all(machine.path("bin")).unwrap();
        fs::create_dir_all(machine.path("home")).unwrap();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for file in [
            "dev",
            "rust-toolchain.toml",
            "dev-deps/agent/package.json",
            "dev-deps/agent/package-lock.json",
            "dev-deps/agent-older/package.json",
            "dev-deps/agent-older/package-lock.json",
        ] {
            let copy = machine.path("checkout").join(file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            copy_program(&repository.join(file), &copy).unwrap();
        }
        for name in ESSENTIAL {
            let real = ["/bin", "/usr/bin"].map(|bin| Path::new(bin).join(name));
            symlink(real.iter().find(|path| path.exists()).unwrap(), machine.path("bin").join(name)).unwrap();
        }
        for name in PRESENT {
            machine.program(name, "exit 0");
        }
        machine.program("node", "echo v18.0.0");
        machine.program("npm", "echo no registry >&2; exit 1");
        machine.program("sudo", "shift; exec \"$@\"");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn program(&self, name: &str, script: &str) {
        write_program(&self.path("bin").join(name), script);
    }

    /// An installed Rust without rustup, as a distribution packages it.
    fn with_rust(self, version: &str) -> Self {
        self.program("rustc", &format!("echo 'rustc {version} (0000000 2020-01-01)'"));
        self.program("cargo", "exit 0");
        self
    }

    /// `plan` is the output of apt-get's simulation of installing rustup.
    fn with_apt(self, plan: &str) -> Self {
        let log = self.path("apt");
        self.program(
            "apt-get",
            &format!(
                "case \"$*\" in '-s install'*) echo '{plan}' ;; *) echo \"$*\" >>{} ;; esac",
                log.display()
            ),
        );
        self
    }

    /// A python3 whose virtual environments contain a puccinialin that leaves a rustup behind.
    fn with_python(self, rust: &str) -> Self {
        let environment = self.path("environment");
        write_program(
            &self.path("proxy"),
            &format!(
                "case $0 in *rustc) echo 'rustc {rust} (0)' ;; *rustup) echo {rust}; echo \"$*\" >>{} ;; esac",
                self.path("rustup").display()
            ),
        );
        write_program(
            &environment,
            &format!(
                "case \"$*\" in *puccinialin*) ;; *) exit 0 ;; esac
                for last; do :; done
                grep -q {rust} \"$last/rustup/settings.toml\" || exit 1
                mkdir -p \"$last/cargo/bin\" \"$last/rustup-init\"
                for name in rustup rustc cargo; do cp {} \"$last/cargo/bin/$name\"; done",
                self.path("proxy").display()
            ),
        );
        self.program(
            "python3",
            &format!(
                "if [ \"$2\" = venv ]; then mkdir -p \"$3/bin\"; cp {} \"$3/bin/python\"; fi",
                environment.display()
            ),
        );
        self
    }

    fn dev(&self, arguments: &[&str]) -> Finished {
        let mut command = Command::new(self.path("checkout/dev"));
        command.args(arguments).env_clear().env("PATH", self.path("bin")).env("HOME", self.path("home"));
        run_within(&mut command, Duration::from_secs(60)).unwrap()
    }

    fn apt_was_asked_for(&self, package: &str) -> bool {
        fs::read_to_string(self.path("apt")).unwrap_or_default().lines().any(|call| call.ends_with(package))
    }
}

/// Written by another process, for the reason that `copy_program` of the testkit gives.
fn write_program(path: &Path, script: &str) {
    let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
    let mut command = Command::new("sh");
    assert!(command.args(["-c", write, "sh"]).arg(path).arg(script).status().unwrap().success());
}

fn wanted_rust() -> String {
    let toolchain = concat!(env!("CARGO_MANIFEST_DIR"), "/../rust-toolchain.toml");
    let text = fs::read_to_string(toolchain).unwrap();
    text.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"').to_owned()
}

/// The line of `./dev doctor` about Rust, with its columns separated by one space.
fn rust_line(doctor: &Finished) -> String {
    let line = doctor.stdout.lines().find(|line| line.starts_with("rust ")).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn doctor_tells_a_rust_that_fits_from_one_that_is_too_old_and_from_none() {
    let line = |machine: Machine| {
        let doctor = machine.dev(&["doctor"]);
        assert!(!machine.path("checkout/.dev").exists(), "doctor changed something: {doctor:?}");
        rust_line(&doctor)
    };
    let wanted = wanted_rust();
    assert_eq!(line(Machine::fresh().with_rust(&wanted)), format!("rust yes {wanted} test -"));
    assert!(line(Machine::fresh().with_rust(TOO_OLD)).starts_with(&format!("rust NO {TOO_OLD} test ")));
    assert!(line(Machine::fresh()).starts_with("rust NO none test "));
}

#[test]
fn a_rust_that_fits_is_left_alone() {
    let machine =
        Machine::fresh().with_rust(&wanted_rust()).with_apt("Inst rustup (1)").with_python(&wanted_rust());
    let tested = machine.dev(&["test", "--yes"]);
    assert!(tested.stderr.contains("the agent could not be installed"), "not got as far: {tested:?}");
    assert!(!machine.path("checkout/.dev/rust").exists());
    assert!(!machine.path("apt").exists());
}

#[test]
fn the_package_of_the_distribution_comes_first() {
    let machine = Machine::fresh().with_apt("Inst rustup (1)").with_python(&wanted_rust());
    machine.dev(&["test", "--yes"]);
    assert!(machine.apt_was_asked_for("rustup"));
    assert!(!machine.path("checkout/.dev/rust").exists());
}

#[test]
fn a_package_that_would_remove_the_installed_rust_is_not_taken() {
    let plan = "Remv cargo [1]\nRemv rustc [1]\nInst rustup (1)";
    let machine = Machine::fresh().with_rust(TOO_OLD).with_apt(plan).with_python(&wanted_rust());
    let tested = machine.dev(&["test", "--yes"]);
    assert!(tested.stdout.contains(&format!("here is {TOO_OLD}")), "{tested:?}");
    assert!(!machine.apt_was_asked_for("rustup"));
    assert!(machine.path("checkout/.dev/rust").exists());
}

#[test]
fn rust_comes_into_the_project_where_there_is_no_package_and_is_found_again() {
    let wanted = wanted_rust();
    let machine = Machine::fresh().with_rust(TOO_OLD).with_apt("").with_python(&wanted);
    let first = machine.dev(&["test", "--yes"]);
    assert!(first.stderr.contains("the agent could not be installed"), "not got as far: {first:?}");
    let asked = fs::read_to_string(machine.path("rustup")).unwrap();
    assert!(asked.lines().any(|call| call.starts_with("target add ") && call.ends_with("-musl")), "{asked}");
    assert_eq!(rust_line(&machine.dev(&["doctor"])), format!("rust yes {wanted} test -"));
    machine.program("python3", "exit 1");
    let second = machine.dev(&["test", "--yes"]);
    assert!(second.stderr.contains("the agent could not be installed"), "not got as far: {second:?}");
    assert!(!second.stdout.contains("Rust"), "asked again: {second:?}");
}

#[test]
fn a_rustup_that_cannot_be_installed_is_reported_and_leaves_nothing_behind() {
    let machine = Machine::fresh().with_apt("");
    machine.program("python3", "case $2 in venv) echo no room >&2; exit 1 ;; esac");
    let tested = machine.dev(&["test", "--yes"]);
    assert!(!tested.status.success());
    assert!(tested.stderr.contains("no room"), "{tested:?}");
    assert!(tested.stderr.contains("rustup could not be brought into .dev/rust"), "{tested:?}");
    assert!(!machine.path("checkout/.dev/rust").exists());
}

#[test]
fn a_machine_that_cannot_build_a_sandbox_is_reported_before_anything_is_built() {
    let machine = Machine::fresh().with_rust(&wanted_rust()).with_python(&wanted_rust());
    machine.program("bwrap", "echo no namespaces for you >&2; exit 1");
    machine.program("cargo", "case $1 in fmt | clippy) ;; *) touch built ;; esac");
    let tested = machine.dev(&["test", "--yes"]);
    assert!(!tested.status.success());
    assert!(tested.stderr.contains("no sandbox here: no namespaces for you"), "{tested:?}");
    assert!(!machine.path("checkout/built").exists());
}
