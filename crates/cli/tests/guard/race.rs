//! An attacker inside that changes what its calls mean while they are under way, against a host that works in the same
//! project: it saves guarded files by rename, changes git's configuration and asks for the status all the time.
//!
//! `BELLJAR_RACE_SECONDS` sets how long.

use super::{Backend, repository};
use crate::stage::Stage;
use belljar_testkit::process::run_within;
use belljar_testkit::require;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const RACE: &str = include_str!("race.py");
/// The examples of the table are the names that are attacked.
const TABLE: &str = include_str!("../../../class/src/table.rs");
/// Guarded files that the host saves.
const SAVED: [&str; 3] = [".envrc", ".vscode/settings.json", ".claude/settings.local.json"];
/// What the host writes to them begins with this.
const MINE: &str = "host ";

#[test]
fn nothing_is_planted_while_the_host_works() {
    require!(Bwrap, Git, Python);
    race(Backend::Bwrap);
}

#[test]
fn nothing_is_planted_from_a_container_while_the_host_works() {
    require!(Podman, Git, Python);
    race(Backend::Container);
}

fn seconds() -> u32 {
    std::env::var("BELLJAR_RACE_SECONDS").map_or(3, |text| text.parse().unwrap())
}

/// The examples of the guarded lines of the class.
fn names() -> BTreeSet<&'static str> {
    let lines = TABLE.split("\n    guarded(").skip(1);
    let examples = lines.map(|line| line.split_once("&[").unwrap().1.split_once(']').unwrap().0);
    let names: BTreeSet<&str> = examples.flat_map(|list| list.split('"').skip(1).step_by(2)).collect();
    assert!(
        names.len() > 100 && names.contains(".envrc") && names.contains(".git/hooks/pre-commit"),
        "{names:?}"
    );
    names
}

fn race(backend: Backend) {
    let stage = repository();
    let (project, ran, mark) = (stage.path("project"), stage.path("ran"), stage.path("mark.sh"));
    stage.write("mark.sh", format!("#!/bin/sh\ntouch {}\n", ran.display()));
    fs::set_permissions(&mark, fs::Permissions::from_mode(0o755)).unwrap();
    super::git(&stage, &project, &["init", "-q", "--bare", "bare-repo"]);
    stage.write("project/race.py", RACE);
    stage.write("project/names", names().into_iter().collect::<Vec<_>>().join("\n"));
    for name in SAVED {
        stage.write(&format!("project/{name}"), MINE);
    }
    let host = Host { stage: &stage, project: &project, mark: &mark, ended: AtomicBool::new(false) };
    let script = format!(
        "mkdir /var/tmp/r r; python3 race.py /var/tmp/r 1 {mark} $PWD/names; \
         python3 race.py $PWD/r {} {mark} $PWD/names $PWD",
        seconds(),
        mark = mark.display()
    );
    let mut command = backend.command(&stage, &script);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // From here on the sandbox stands.
    let open = lines.next().map_or_else(String::new, |line| line.unwrap());
    let (output, worked) = thread::scope(|scope| {
        let works = scope.spawn(|| host.works());
        let output = child.wait_with_output().unwrap();
        host.ended.store(true, Ordering::Relaxed);
        (output, works.join().unwrap())
    });
    host.look();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let guarded = lines.next().map_or_else(String::new, |line| line.unwrap());
    // The attacks work where nothing guards.
    assert!(open.starts_with("seen ") && !open.starts_with("seen 0 "), "{open}\n{stderr}");
    assert!(guarded.starts_with("seen 0 [] tries "), "{guarded}\n{stderr}");
    assert!(worked.configured > 0 && worked.asked > 0, "{worked:?}");
    assert!(!ran.exists(), "the host ran what was planted");
    let figures = format!("{backend:?}: {guarded}, {worked:?}\n");
    std::io::stderr().write_all(figures.as_bytes()).unwrap();
    // The mark tells.
    super::git(&stage, &project, &["config", "core.fsmonitor", mark.to_str().unwrap()]);
    host.git(&["status"]);
    assert!(ran.exists());
}

#[derive(Debug, Default)]
struct Worked {
    saved: usize,
    configured: usize,
    asked: usize,
    committed: usize,
}

struct Host<'stage> {
    stage: &'stage Stage,
    project: &'stage Path,
    mark: &'stage Path,
    ended: AtomicBool,
}

impl Host<'_> {
    fn is_on(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    /// What the attacker disturbs may fail.
    fn git(&self, args: &[&str]) -> bool {
        let mut command = Command::new("git");
        command.args(args).current_dir(self.project);
        command.env("HOME", self.stage.path("home")).env("GIT_CONFIG_NOSYSTEM", "1");
        run_within(&mut command, super::DEADLINE).unwrap().status.success()
    }

    fn works(&self) -> Worked {
        let mut worked = Worked::default();
        while self.is_on() {
            for name in SAVED {
                let beside = self.project.join(format!("{name}.{}.tmp", worked.saved));
                fs::write(&beside, format!("{MINE}{}\n", worked.saved)).unwrap();
                fs::rename(&beside, self.project.join(name)).unwrap();
                worked.saved += 1;
                self.look();
            }
            worked.configured += usize::from(self.git(&["config", "my.key", &worked.saved.to_string()]));
            self.look();
            worked.asked += usize::from(self.git(&["status", "--short", "--ignore-submodules"]));
            if worked.asked.is_multiple_of(8) {
                worked.committed += usize::from(self.git(&["commit", "-q", "--allow-empty", "-m", "host"]));
            }
            self.look();
        }
        worked
    }

    /// Looks at every name of the class: what the host did not make must not be there, what it made must be as it made it.
    fn look(&self) {
        for name in names() {
            let path = self.project.join(name);
            let is_directory = match path.symlink_metadata() {
                Ok(found) => found.is_dir(),
                Err(_absent) => {
                    assert!(!SAVED.contains(&name) && !is_config(name), "{name} is gone");
                    continue;
                }
            };
            if !is_directory {
                self.judge(name, &path);
            }
        }
    }

    fn judge(&self, name: &str, path: &PathBuf) {
        // A pipe would be waited for, and a link leads elsewhere.
        assert!(path.symlink_metadata().is_ok_and(|found| found.is_file()), "{name}");
        let text = fs::read_to_string(path).unwrap_or_default();
        if SAVED.contains(&name) {
            assert!(text.starts_with(MINE), "{name}: {text}");
        } else if is_config(name) {
            let mark = self.mark.to_str().unwrap();
            assert!(text.starts_with("[core]") && !text.contains(mark), "{name}: {text}");
        } else {
            // The guard writes this one itself.
            assert!(name.ends_with("worktrees/w/commondir") && text == "../..\n", "{name}: {text}");
        }
    }
}

fn is_config(name: &str) -> bool {
    name == ".git/config" || name == "bare-repo/config"
}
