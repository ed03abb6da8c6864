//! With a person at the terminal, what the guard holds back is a question.

use super::repository;
use crate::stage::Stage;
use belljar_testkit::{require, wait};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longer than everything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// A little longer than nothing must be typed before a key counts.
const QUIET: Duration = Duration::from_millis(650);

/// belljar at a terminal, and a person there.
struct Person {
    child: Child,
    output: Receiver<Vec<u8>>,
    seen: String,
    /// What was looked at already.
    read: usize,
}

impl Person {
    /// Starts a line of shell inside.
    fn starts(stage: &Stage, script: &str) -> Self {
        Self::starts_in(stage, "project", "bwrap", script)
    }

    fn starts_in(stage: &Stage, project: &str, backend: &str, script: &str) -> Self {
        let line = format!(
            "echo $$ > {}; exec {} exec --yes --backend {backend} -- sh -c \"$INSIDE\"",
            stage.path("pid").display(),
            env!("CARGO_BIN_EXE_belljar")
        );
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(stage.path(project));
        command.env_clear().envs(stage.environment()).env("SHELL", "/bin/sh").env("INSIDE", script);
        if backend == "container" {
            command.env("BELLJAR_ENGINE", crate::container::engine());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Person { child, output, seen: String::new(), read: 0 }
    }

    /// Reads on until a text is there.
    #[track_caller]
    fn sees(&mut self, text: &str) {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(at) = self.seen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            let Ok(more) = self.output.recv_timeout(left) else { panic!("no {text:?} in:\n{}", self.seen) };
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    fn types(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Answers a question that is shown.
    #[track_caller]
    fn answers(&mut self, question: &str, key: &str) {
        self.sees(&format!("wants to {question}\r\n"));
        self.sees("allow it?");
        std::thread::sleep(QUIET);
        self.types(key);
    }

    /// Everything that was shown, and the status.
    #[track_caller]
    fn leaves(mut self) -> (String, ExitStatus) {
        loop {
            match self.output.recv_timeout(DEADLINE) {
                Ok(more) => self.seen.push_str(&String::from_utf8_lossy(&more)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end:\n{}", self.seen),
            }
        }
        (std::mem::take(&mut self.seen), self.child.wait().unwrap())
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // After a failure nothing else would.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn questions(seen: &str) -> usize {
    seen.matches("allow it?").count()
}

/// Waits for something that a command inside does.
#[track_caller]
fn until(stage: &Stage, what: impl Fn() -> bool) {
    wait::for_files(&stage.path("project"), || what().then_some(())).unwrap();
}

/// A line of shell that waits until the test writes to the pipe.
const GO: &str = "read -r go < go;";

fn make_pipe(stage: &Stage) {
    assert!(Command::new("mkfifo").arg(stage.path("project/go")).status().unwrap().success());
}

#[test]
fn a_no_leaves_nothing_and_is_remembered() {
    require!(Bwrap);
    for key in ["n", "\r", "\u{1b}", "\u{3}"] {
        let stage = Stage::new();
        let script = "echo x > .envrc; echo first-$?; echo x > .envrc; echo second-$?";
        let mut person = Person::starts(&stage, script);
        person.answers("create .envrc", key);
        person.sees(": no\r\n");
        let (seen, status) = person.leaves();
        // An interrupt at the question is an answer, and does not reach the command.
        assert!(seen.contains("first-2") && seen.contains("second-2"), "{key:?}: {seen}");
        assert_eq!((questions(&seen), status.code()), (1, Some(0)), "{key:?}: {seen}");
        assert!(seen.contains("on this machine the shell runs it"), "{seen}");
        assert!(seen.contains("held back: create .envrc"), "{seen}");
        assert!(!stage.path("project/.envrc").exists());
    }
}

#[test]
fn once_is_for_one_call() {
    require!(Bwrap);
    let stage = Stage::new();
    let mut person = Person::starts(
        &stage,
        "echo one > .envrc; echo two > .envrc; echo {} > .mcp.json; echo three > t; mv t .envrc; mkdir .idea",
    );
    person.answers("create .envrc", "o");
    person.answers("write .envrc", "n");
    person.answers("create .mcp.json", "n");
    person.answers("move .envrc", "o");
    person.answers("create .idea", "o");
    let (seen, _) = person.leaves();
    assert_eq!(questions(&seen), 5, "{seen}");
    assert_eq!(fs::read_to_string(stage.path("project/.envrc")).unwrap(), "three\n");
    assert!(stage.path("project/.idea").is_dir() && !stage.path("project/.mcp.json").exists());
}

#[test]
fn a_run_is_for_one_path_and_is_recorded() {
    require!(Bwrap);
    // A run with egress keeps a record.
    let stage = Stage::with("[agents.a.egress]\nallow = [\"example.org\"]\n");
    let mut person = Person::starts(
        &stage,
        "echo one > .envrc; echo two > .envrc; echo three > t; mv t .envrc; echo x > sub-envrc; ln sub-envrc .mcp.json",
    );
    person.answers("create .envrc", "r");
    person.answers("link .mcp.json", "n");
    let (seen, _) = person.leaves();
    assert_eq!(questions(&seen), 2, "{seen}");
    assert_eq!(fs::read_to_string(stage.path("project/.envrc")).unwrap(), "three\n");
    assert!(!stage.path("project/.mcp.json").exists());
    assert!(!stage.path("config/belljar/agreements").exists());
    let runs = stage.path("data");
    let events = find(&runs, "events.jsonl").or_else(|| find(&stage.path("home"), "events.jsonl")).unwrap();
    let events = fs::read_to_string(events).unwrap();
    assert!(events.contains(r#""kind":"host_executed_asked""#), "{events}");
    let answered = |path: &str, answer: &str| {
        events.lines().any(|line| {
            line.contains("host_executed_answered") && line.contains(path) && line.contains(answer)
        })
    };
    assert!(answered(".envrc", r#""answer":"run""#) && answered(".mcp.json", r#""answer":"no""#), "{events}");
}

fn find(directory: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| match entry.path() {
        path if entry.file_name() == name => Some(path),
        path if entry.file_type().ok()?.is_dir() => find(&path, name),
        _ => None,
    })
}

#[test]
fn always_is_for_one_path_of_one_project_and_can_be_taken_back() {
    require!(Bwrap);
    let stage = Stage::new();
    fs::create_dir_all(stage.path("other")).unwrap();
    let mut person = Person::starts(&stage, "mkdir .husky; echo one > .envrc; echo one > .husky/pre-commit");
    person.answers("create .husky", "o");
    person.answers("create .envrc", "a");
    person.answers("create .husky/pre-commit", "a");
    person.leaves();
    // In the next run there is no question, at a terminal or not; what is there already is not mounted read-only.
    let again = "echo two > .envrc; echo two > .husky/pre-commit; echo x > .husky/pre-push";
    let found = stage.run(&["exec", "--yes", "--", "sh", "-c", again]);
    assert!(
        found.stderr.contains("belljar: allowed by you: changes to .envrc, .husky/pre-commit;"),
        "{found:?}"
    );
    assert!(found.stderr.contains("held back: create .husky/pre-push"), "{found:?}");
    for file in [".envrc", ".husky/pre-commit"] {
        assert_eq!(fs::read_to_string(stage.path("project").join(file)).unwrap(), "two\n");
    }
    assert!(!stage.path("project/.husky/pre-push").exists());
    let plan = stage.run(&["plan"]).stdout;
    assert!(plan.contains("allowed by you: changes to .envrc"), "{plan}");
    // Another project of the same user asks.
    let mut person = Person::starts_in(&stage, "other", "bwrap", "echo x > .envrc");
    person.answers("create .envrc", "n");
    person.leaves();
    assert!(!stage.path("other/.envrc").exists());
    let revoked = stage.run(&["trust", "--revoke"]);
    assert!(revoked.stdout.contains("revoked") && revoked.stderr.contains("guarded files: 2"), "{revoked:?}");
    let found = stage.run(&["exec", "--yes", "--", "sh", "-c", "echo three > .envrc"]);
    assert_ne!(found.status.code(), Some(0), "{found:?}");
    assert_eq!(fs::read_to_string(stage.path("project/.envrc")).unwrap(), "two\n");
}

#[test]
fn what_is_typed_before_is_for_the_command() {
    require!(Bwrap);
    let stage = Stage::new();
    make_pipe(&stage);
    let script = format!("echo ready; {GO} echo x > .envrc; read -r line; echo \"got-$line\"");
    let mut person = Person::starts(&stage, &script);
    person.sees("ready");
    person.types("o");
    stage.write("project/go", "go\n");
    person.sees("allow it?");
    // Typed on, as by somebody who does not look.
    person.types("o");
    std::thread::sleep(QUIET);
    assert!(!stage.path("project/.envrc").exists());
    // The answer of a terminal to a query of the command's is not the user's.
    person.types("\u{1b}]lo\u{1b}\\");
    std::thread::sleep(QUIET);
    assert!(!stage.path("project/.envrc").exists());
    person.types("n");
    person.sees(": no\r\n");
    person.types("\r");
    let (seen, _) = person.leaves();
    assert!(seen.contains("got-oo"), "{seen}");
    assert!(!stage.path("project/.envrc").exists());
}

#[test]
fn other_calls_go_on_and_a_caller_that_is_killed_leaves_nothing() {
    require!(Bwrap);
    let stage = Stage::new();
    make_pipe(&stage);
    let script = format!(
        "sh -c 'echo x > .envrc' & asks=$!; {GO} echo y > meanwhile; mkdir d; mv d e; kill -9 $asks; wait; echo x > .mcp.json; echo ended"
    );
    let mut person = Person::starts(&stage, &script);
    person.sees("allow it?");
    stage.write("project/go", "go\n");
    until(&stage, || stage.path("project/e").is_dir());
    // No call waits for the answer any more, and the next one is asked about.
    person.sees("no (it was not answered in time)");
    person.answers("create .mcp.json", "n");
    person.sees("ended");
    let (seen, status) = person.leaves();
    assert_eq!((questions(&seen), status.code()), (2, Some(0)), "{seen}");
    assert!(stage.path("project/meanwhile").exists() && !stage.path("project/.envrc").exists());
}

#[test]
fn a_flood_of_names_is_refused_after_a_while() {
    require!(Bwrap);
    let stage = Stage::new();
    // One is asked about and 32 wait; the others are refused at once.
    let script = "for i in $(seq 40); do mkdir d$i; done; \
        for i in $(seq 40); do (echo x 2> /dev/null > d$i/.envrc || touch refused-$i) & done; wait; echo ended; \
        mkdir late; echo x > late/.envrc";
    let mut person = Person::starts(&stage, script);
    let refused = || {
        let names = fs::read_dir(stage.path("project")).unwrap().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("refused-")).count()
    };
    person.sees("allow it?");
    until(&stage, || refused() >= 7);
    assert_eq!(refused(), 7);
    for _ in 0..8 {
        std::thread::sleep(QUIET);
        person.types("n");
        person.sees(": no\r\n");
    }
    person
        .sees("belljar: 8 questions in a row were not answered with yes; nothing more is asked in this run");
    person.sees("ended");
    let (seen, _) = person.leaves();
    assert_eq!((questions(&seen), refused()), (8, 40), "{seen}");
    assert!((1..=40).all(|number| !stage.path(&format!("project/d{number}/.envrc")).exists()));
}

/// A yes is for the place that was shown, wherever the path of the call leads when it is given.
#[test]
fn a_path_that_is_swapped_is_another_question() {
    require!(Bwrap);
    let stage = Stage::new();
    make_pipe(&stage);
    let script = format!(
        "ln -s .envrc link; (echo x > link) & {GO} ln -sfn .mcp.json link; echo y > swapped; wait; echo ended"
    );
    let mut person = Person::starts(&stage, &script);
    person.sees("wants to create .envrc");
    person.sees("allow it?");
    stage.write("project/go", "go\n");
    until(&stage, || stage.path("project/swapped").exists());
    std::thread::sleep(QUIET);
    person.types("o");
    person.answers("create .mcp.json", "n");
    person.sees("ended");
    let (seen, _) = person.leaves();
    assert_eq!(questions(&seen), 2, "{seen}");
    for file in [".envrc", ".mcp.json"] {
        assert!(!stage.path("project").join(file).exists(), "{file} was made");
    }
}

/// The question names the setting, and a yes is for the content that was judged.
#[test]
fn a_configuration_that_is_swapped_is_another_question() {
    require!(Bwrap, Git);
    let stage = repository();
    let config = || fs::read_to_string(stage.path("project/.git/config")).unwrap();
    let before = config();
    make_pipe(&stage);
    let script = format!(
        "cp .git/config c; git config -f c core.pager less; (mv c .git/config) & {GO} \
         git config -f c core.pager evil; echo y > swapped; wait; git config core.pager cat; \
         git config core.fsmonitor x; echo ended"
    );
    let mut person = Person::starts(&stage, &script);
    person.sees("wants to write .git/config");
    person.sees("it changes `core.pager`");
    person.sees("allow it?");
    stage.write("project/go", "go\n");
    until(&stage, || stage.path("project/swapped").exists());
    std::thread::sleep(QUIET);
    person.types("o");
    person.sees("it changes `core.pager`");
    person.sees("allow it?");
    assert_eq!(config(), before);
    std::thread::sleep(QUIET);
    person.types("o");
    // No answer opens the configuration to other settings.
    for key in ["a", "r"] {
        person.sees("wants to write .git/config");
        person.sees("allow it? [n]o, [o]nce: ");
        for key in [key, "o"] {
            std::thread::sleep(QUIET);
            person.types(key);
        }
        if key == "a" {
            person.sees("once");
        }
    }
    let (seen, _) = person.leaves();
    assert_eq!(questions(&seen), 4, "{seen}");
    assert!(!stage.path("config/belljar/agreements").exists());
    let after = config();
    assert!(after.contains("pager = cat") && after.contains("t@example.org"), "{after}");
}

/// Where a mount keeps a yes from having an effect, and where a link would lead to more than is shown.
#[test]
fn nobody_is_asked_where_a_yes_has_no_effect() {
    require!(Bwrap, Git);
    let stage = repository();
    stage.write("project/.envrc", "export A=1\n");
    let script = "echo x > .envrc; echo x > t; mv -f t .envrc; echo x > .git/hooks/pre-commit; mv .git g2; \
        ln -s src .vscode; ln .git/config other; echo x > p; ln p .git/config; echo ended";
    let (seen, _) = Person::starts(&stage, script).leaves();
    assert!(seen.contains("ended"), "{seen}");
    assert_eq!(questions(&seen), 0, "{seen}");
    let mounted = "it is mounted read-only in this run, so it can only be changed outside, or with `workspace = \"overlay\"`";
    assert!(seen.matches(mounted).count() >= 3, "{seen}");
    assert_eq!(fs::read_to_string(stage.path("project/.envrc")).unwrap(), "export A=1\n");
    assert!(!stage.path("project/.git/hooks/pre-commit").exists());
}

/// A signal, the time limit and the end of the command are no answers.
#[test]
fn the_end_of_a_run_is_a_no() {
    require!(Bwrap);
    let stage = Stage::new();
    let mut person = Person::starts(&stage, "trap '' TERM; echo x > .envrc; echo never");
    person.sees("allow it?");
    let pid = fs::read_to_string(stage.path("pid")).unwrap();
    let killed = Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap();
    assert!(killed.success());
    let (seen, status) = person.leaves();
    assert!(seen.contains("no (it was not answered in time)"), "{seen}");
    assert_eq!(status.code(), Some(143), "{seen}");
    // The command ends while another process of it waits.
    make_pipe(&stage);
    let mut person = Person::starts(&stage, &format!("sh -c 'echo x > .envrc' & {GO}"));
    person.sees("allow it?");
    stage.write("project/go", "go\n");
    let (seen, status) = person.leaves();
    assert!(seen.contains("no (it was not answered in time)"), "{seen}");
    assert_eq!(status.code(), Some(0), "{seen}");
    let stage = Stage::with("[agents.a.limits]\ntime = \"5s\"\n");
    let (seen, _) = Person::starts(&stage, "echo x > .envrc; echo never").leaves();
    assert!(seen.contains("no (it was not answered in time)"), "{seen}");
    assert!(!stage.path("project/.envrc").exists());
}

#[test]
fn a_program_that_draws_gets_its_screen_back_and_draws_anew() {
    require!(Bwrap);
    let stage = Stage::new();
    let script = "trap 'echo drawn anew; exit' WINCH; printf '\\033[?1049h\\033[?25l\\033[?2004h\\033[>1u\\033[31m'; \
        echo x > .envrc; while :; do sleep 0.1; done";
    let mut person = Person::starts(&stage, script);
    // The question is on the user's own screen, in the user's own colours.
    person.sees("\u{1b}[?1047l");
    person.sees("\u{1b}[0m");
    person.answers("create .envrc", "n");
    person.sees("no\r\n\u{1b}[?1049h\u{1b}[?25l\u{1b}[?2004h\u{1b}[>1u");
    person.sees("drawn anew");
    person.leaves();
}

#[test]
fn containers_ask_alike() {
    require!(Podman);
    let stage = Stage::new();
    let script = "echo one > .envrc; echo two > .envrc; mkdir .idea; echo ended";
    let mut person = Person::starts_in(&stage, "project", "container", script);
    person.answers("create .envrc", "r");
    person.answers("create .idea", "n");
    person.sees("ended");
    person.leaves();
    assert_eq!(fs::read_to_string(stage.path("project/.envrc")).unwrap(), "two\n");
    assert!(!stage.path("project/.idea").exists());
}

#[test]
fn names_are_quoted_in_the_question() {
    require!(Bwrap);
    let stage = Stage::new();
    let script = "d=$(printf 'a\\033[2J\\rb'); mkdir \"$d\"; echo x > \"$d/.envrc\"; echo ended";
    let mut person = Person::starts(&stage, script);
    person.sees("wants to create a\\u{1b}[2J\\rb/.envrc\r\n");
    person.sees("allow it?");
    std::thread::sleep(QUIET);
    person.types("n");
    person.sees("ended");
    person.leaves();
}
