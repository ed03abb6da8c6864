//! What the host does to a sandbox and its project in the middle of a run: it moves, deletes and replaces what is guarded, and
//! it kills the guard.

use super::{Backend, repository};
use belljar_testkit::require;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

/// A shell inside that does one line after another.
struct Inside {
    child: Child,
    lines: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Inside {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut inside = Self { child, lines, answers };
        inside.works("true");
        inside
    }

    fn status(&mut self, line: &str) -> String {
        writeln!(self.lines, "{line}").unwrap();
        self.answers.next().unwrap_or_else(|| panic!("{line}: the sandbox ended")).unwrap()
    }

    #[track_caller]
    fn works(&mut self, line: &str) {
        assert_eq!(self.status(line), "0", "{line}");
    }

    #[track_caller]
    fn fails(&mut self, line: &str) {
        assert_ne!(self.status(line), "0", "{line}");
    }

    fn end(self) -> Output {
        drop(self.lines);
        self.child.wait_with_output().unwrap()
    }
}

const LINE_BY_LINE: &str = "while read -r line; do eval \"$line\" > /dev/null 2>&1; echo $?; done";

#[test]
fn what_the_host_moves_and_deletes_stays_guarded() {
    require!(Bwrap, Git);
    moves_and_deletes(Backend::Bwrap);
}

#[test]
fn what_the_host_moves_and_deletes_stays_guarded_from_a_container() {
    require!(Podman, Git);
    moves_and_deletes(Backend::Container);
}

fn moves_and_deletes(backend: Backend) {
    let stage = repository();
    stage.write("project/sub/.envrc", "mine");
    stage.write("project/.vscode/settings.json", "mine");
    let (project, away) = (stage.path("project"), stage.path("away"));
    let at = |name: &str| project.join(name);
    let config = fs::read_to_string(at(".git/config")).unwrap();
    let mut inside = Inside::start(backend.command(&stage, LINE_BY_LINE));

    // The repository is moved out of the project while somebody is in it, and comes back.
    inside.works("cd .git && exec 5< config");
    fs::rename(at(".git"), &away).unwrap();
    for line in [
        "echo x >> config",
        "echo x >> /proc/self/fd/5",
        "truncate -s 0 config",
        "echo x > commondir",
        "ln config other",
        "mv config other",
        "mv hooks other",
    ] {
        inside.fails(line);
    }
    inside.works("cd $OLDPWD && mkdir -p .git/hooks");
    inside.fails("echo x > .git/config");
    inside.fails("echo x > .git/hooks/pre-commit");
    fs::remove_dir_all(at(".git")).unwrap();
    fs::rename(&away, at(".git")).unwrap();
    inside.fails("echo x >> .git/config");
    inside.fails("git config core.fsmonitor x");
    inside.works("git -c user.name=t -c user.email=t@x commit -q --allow-empty -m inside");

    // Hooks are deleted and made anew.
    fs::remove_dir_all(at(".git/hooks")).unwrap();
    inside.fails("mkdir .git/hooks && echo x > .git/hooks/pre-commit");
    fs::remove_dir_all(at(".git/hooks")).ok();
    stage.write("project/.git/hooks/pre-push", "mine");
    for line in ["echo x > .git/hooks/pre-commit", "echo x > .git/hooks/pre-push", "mkdir .git/hooks/d"] {
        inside.fails(line);
    }

    // A directory gets another name, and its old one again.
    fs::rename(at("sub"), at("renamed")).unwrap();
    inside.fails("echo x > renamed/.envrc");
    inside.works("mkdir sub && echo x > sub/plain && rm -r sub");
    fs::rename(at("renamed"), at("sub")).unwrap();
    inside.fails("echo x > sub/.envrc");
    inside.works("echo x > sub/plain");

    // A guarded file goes, then its directory.
    fs::remove_file(at(".vscode/settings.json")).unwrap();
    inside.fails("echo x > .vscode/settings.json");
    fs::remove_dir(at(".vscode")).unwrap();
    inside.works("mkdir .vscode");
    inside.fails("echo x > .vscode/settings.json");

    let ended = inside.end();
    let report = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{report}");
    for line in [
        "held back: write .git/config:",
        "held back: create .git/hooks/pre-commit:",
        "held back: write renamed/.envrc:",
        "held back: create .vscode/settings.json:",
    ] {
        assert!(report.contains(line), "{line}\n{report}");
    }
    assert!(report.contains("  .git/hooks/pre-push  new; "), "{report}");
    assert!(!report.contains("  .git/config  "), "{report}");
    assert_eq!(fs::read_to_string(at(".git/config")).unwrap(), config);
    assert_eq!(fs::read_to_string(at("sub/.envrc")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(at(".git/hooks/pre-push")).unwrap(), "mine");
}

/// The guard is a part of the first process inside, so nothing outlives it, and nothing is made without it.
#[test]
fn a_sandbox_ends_with_its_guard() {
    require!(Bwrap);
    ends_with_guard(Backend::Bwrap);
}

#[test]
fn a_container_ends_with_its_guard() {
    require!(Podman);
    ends_with_guard(Backend::Container);
}

fn ends_with_guard(backend: Backend) {
    let stage = crate::stage::Stage::new();
    let mark = stage.path("project").display().to_string();
    let script =
        format!("echo x > plain; echo ready; until echo x > {mark}/.envrc; do true; done; echo planted");
    let mut command = backend.command(&stage, &script);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let shell = || shells(&script).into_iter().find(|(_, parent)| name_of(parent) == "belljar-guest");
    let (_, first) = shell().unwrap();
    let tasks = fs::read_dir(format!("/proc/{first}/task")).unwrap();
    let tasks = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    let guard = tasks.into_iter().find(|task| name_of(&format!("{first}/task/{task}")) == "belljar-guard");
    let killed = Command::new("kill").args(["-9", &guard.unwrap()]).status().unwrap();
    assert!(killed.success());
    assert!(!child.wait().unwrap().success());
    // The last end of the pipe is closed: none of them is left.
    assert!(lines.next().is_none());
    assert!(shell().is_none());
    assert!(stage.path("project/plain").exists() && !stage.path("project/.envrc").exists());
}

fn name_of(process: &str) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// The processes that run a script, with their parents.
fn shells(script: &str) -> Vec<(String, String)> {
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let wanted = format!("sh\0-c\0{script}\0");
    let runs = |process: &String| {
        fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line == wanted)
    };
    let parent = |process: String| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"))?.to_owned();
        Some((process, parent))
    };
    numbers.filter(runs).filter_map(parent).collect()
}
