//! The guides, followed: every command in them runs, in order, for an ordinary user who has a copy of the examples, the
//! agent on the search path and no key; without a terminal and at one.

use crate::stage::Stage;
use belljar_testkit::process::{Finished, copy_program, run_within};
use belljar_testkit::{agent, require};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A reader who is neither root nor the owner of the checkout.
const READER: &str = "4244";

/// The commands of a page together; each takes about a second.
const DEADLINE: Duration = Duration::from_secs(110);

/// The blocks of a page that a reader pastes into a shell. Blocks that show output (`console`) are not among them.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        open = match (open, line) {
            (None, "```sh") => Some(String::new()),
            (None, _) => None,
            (Some(block), "```") => {
                blocks.push(block);
                None
            }
            (Some(block), line) => Some(block + line + "\n"),
        };
    }
    assert!(open.is_none() && !blocks.is_empty(), "the page has blocks, and each is closed");
    blocks
}

struct Reader {
    stage: Stage,
}

impl Reader {
    fn new() -> Self {
        let stage = Stage::copy_of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")));
        for name in ["bin", "run", "tmp"] {
            fs::create_dir(stage.path(name)).unwrap();
        }
        copy_program(Path::new(env!("CARGO_BIN_EXE_belljar")), &stage.path("bin/belljar")).unwrap();
        copy_program(&agent::real().unwrap(), &stage.path("bin/claude")).unwrap();
        fs::set_permissions(stage.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let mut own = Command::new("chown");
        own.arg("-R").arg(format!("{READER}:{READER}"));
        own.args(["project", "home", "config", "data", "run", "tmp"].map(|name| stage.path(name)));
        assert!(own.status().unwrap().success());
        fs::set_permissions(stage.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
        Self { stage }
    }

    /// Runs a program as the reader, in the copy of the examples.
    fn run(&self, program: &str, arguments: &[&str]) -> Finished {
        let stage = &self.stage;
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={READER}")).arg(format!("--regid={READER}"));
        command.args(["--clear-groups", program]).args(arguments).current_dir(stage.path("project"));
        command.env_clear().envs(stage.environment());
        command.env("PATH", format!("{}:/usr/bin:/bin", stage.path("bin").display()));
        command.env("XDG_RUNTIME_DIR", stage.path("run")).env("TMPDIR", stage.path("tmp"));
        command.env("TERM", "xterm").stdin(Stdio::null());
        run_within(&mut command, DEADLINE).unwrap()
    }

    /// Follows a page without a terminal: a block that does not end well ends the test.
    fn follow(&self, page: &str) {
        for block in blocks(page) {
            let found = self.run("sh", &["-euc", &block]);
            assert!(found.status.success(), "{block}\n{}", self.stage.shown(&found));
        }
    }

    /// Follows a page at a terminal of tmux.
    fn follow_at_a_terminal(&self, page: &str) {
        let socket = self.stage.path("run/tmux").display().to_string();
        let tmux = |arguments: &[&str]| self.run("tmux", &[&["-S", &socket], arguments].concat());
        let mut script = String::from("#!/bin/sh\n");
        for (number, block) in blocks(page).iter().enumerate() {
            self.stage.write(&format!("tmp/{number}.sh"), block);
            script.push_str(&format!("sh -eu $TMPDIR/{number}.sh; echo {number} $? >> $TMPDIR/ends\n"));
        }
        script.push_str(&format!("tmux -S {socket} wait-for -S done\nread end\n"));
        self.stage.write("tmp/all.sh", script);
        let line = format!("sh {}", self.stage.path("tmp/all.sh").display());
        let began = tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "50", &line]);
        assert!(began.status.success(), "{began:?}");
        let done = tmux(&["wait-for", "done"]);
        let screen = tmux(&["capture-pane", "-p", "-S", "-"]).stdout;
        tmux(&["kill-server"]);
        assert!(done.status.success(), "{done:?}\n{screen}");
        let ends = fs::read_to_string(self.stage.path("tmp/ends")).unwrap();
        let expected: String = (0..blocks(page).len()).map(|number| format!("{number} 0\n")).collect();
        assert_eq!(ends, expected, "{screen}");
    }
}

const TESTING: &str = include_str!("../../../docs/guides/testing.md");
const TAPES: &str = include_str!("../../../docs/guides/tapes.md");

#[test]
fn testing_is_followed_without_a_terminal() {
    require!(Agent, Bwrap, Root, UserNs);
    Reader::new().follow(TESTING);
}

#[test]
fn testing_is_followed_at_a_terminal() {
    require!(Agent, Bwrap, Root, UserNs, Tmux);
    Reader::new().follow_at_a_terminal(TESTING);
}

#[test]
fn tapes_are_followed_without_a_terminal() {
    require!(Agent, Bwrap, Root, UserNs);
    Reader::new().follow(TAPES);
}

#[test]
fn tapes_are_followed_at_a_terminal() {
    require!(Agent, Bwrap, Root, UserNs, Tmux);
    Reader::new().follow_at_a_terminal(TAPES);
}
