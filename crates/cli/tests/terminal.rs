//! The user's terminal after a command that had it: a report can be read.

use crate::stage::Stage;
use belljar_testkit::require;
use std::process::Command;

/// A terminal of tmux with a line of shell in it.
struct Pane {
    stage: Stage,
}

impl Pane {
    /// Runs the line to its end; `belljar` stands for the binary.
    fn after(line: &str) -> Self {
        let pane = Self { stage: Stage::new() };
        let line = line.replace("belljar", env!("CARGO_BIN_EXE_belljar"));
        let socket = pane.socket();
        let script =
            format!("#!/bin/sh\necho before\n{line}\ntmux -S {socket} wait-for -S done\nsleep 100\n");
        pane.stage.write("line.sh", script);
        let line = format!("sh {}", pane.stage.path("line.sh").display());
        pane.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40", &line]);
        pane.tmux(&["wait-for", "done"]);
        pane
    }

    fn socket(&self) -> String {
        self.stage.path("tmux").display().to_string()
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket()]).args(args).current_dir(self.stage.path("project"));
        let found =
            self.stage.finish(command.env_clear().envs(self.stage.environment()).env("TERM", "xterm"));
        assert_eq!(found.status.code(), Some(0), "tmux {args:?}: {}", found.stderr);
        found.stdout
    }

    /// The same without colours, and with what has scrolled off.
    fn lines(&self) -> Vec<String> {
        let text = self.tmux(&["capture-pane", "-p", "-S", "-"]);
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// What can be read, with colours.
    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    fn flag(&self, name: &str) -> String {
        self.tmux(&["display-message", "-p", &format!("#{{{name}}}")]).trim().to_owned()
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        // Also after a failure, whose message is the one to be read.
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket(), "kill-server"]);
        self.stage.finish(command.env_clear().envs(self.stage.environment()));
    }
}

/// Everything that would keep a report from being read, one after the other.
const SABOTAGE: [&str; 8] = [
    // The alternate screen, a hidden cursor, a small region that scrolls, line drawing, concealed text.
    r"\033[?1049h\033[2J\033[?25l\033[2;4r\033[?6h\033(0\033[8m",
    r"\033[?47h\033[H",
    r"\033[?1049h",
    // A string that never ends.
    r"\033]0;a title without an end",
    r"\033P",
    // The screen is full of something else, and the cursor is above it.
    r"\033[H0 left by the run\033[K\033[1;1H",
    r"\033[1;2r\033[1;1H",
    // The last line is open, and what follows would be part of it.
    r"this is an example: ",
];

#[test]
fn a_report_is_read_whatever_the_command_did_to_the_terminal() {
    require!(Bwrap, Tmux);
    for sabotage in SABOTAGE {
        let pane = Pane::after(&format!("belljar exec -- sh -c 'ln -s /etc out; printf \"{sabotage}\"'"));
        let screen = pane.screen();
        let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
        let at = lines.iter().position(|line| line.contains("! 1 left by the run"));
        let at = at.unwrap_or_else(|| panic!("{sabotage}:\n{screen}"));
        assert!(lines[at].starts_with("! 1 left"), "{sabotage}:\n{screen}");
        let row = "  out  new; a link that leads out of the project, to /etc";
        assert_eq!(lines[at + 1], row, "{sabotage}:\n{screen}");
        assert!(lines[at + 2..].iter().all(|line| line.is_empty()), "{sabotage}:\n{screen}");
        for (flag, expected) in [
            ("alternate_on", "0"),
            ("cursor_flag", "1"),
            ("scroll_region_upper", "0"),
            ("scroll_region_lower", "39"),
            ("origin_flag", "0"),
            ("wrap_flag", "1"),
        ] {
            assert_eq!(pane.flag(flag), expected, "{sabotage}: {flag}");
        }
    }
}

#[test]
fn modes_of_a_program_end_with_it() {
    require!(Bwrap, Tmux);
    let modes = r"\033[?1h\033=\033[4h\033[?1000h\033[?1003h\033[?1006h";
    let pane = Pane::after(&format!("belljar exec -- printf '{modes}'"));
    for flag in [
        "keypad_cursor_flag",
        "keypad_flag",
        "insert_flag",
        "mouse_any_flag",
        "mouse_standard_flag",
        "mouse_all_flag",
        "mouse_sgr_flag",
    ] {
        assert_eq!(pane.flag(flag), "0", "{flag}");
    }
}

#[test]
fn what_was_on_the_screen_stays_on_it() {
    require!(Bwrap, Tmux);
    // A program that cleans up leaves the cursor where it was, and the next line follows.
    let tidy = r"\033[?1049h\033[H\033[2Jinside\033[?1049l";
    let pane = Pane::after(&format!("belljar exec -- printf '{tidy}'; echo after"));
    let lines = pane.lines();
    assert_eq!(lines[..2], ["before", "after"], "{lines:?}");
    // Nor does one that clears the screen, or an editor that scrolls a part of the other one.
    let cleared = r"\033[H\033[2J\033[3Jinside\n";
    let pane = Pane::after(&format!("belljar exec -- printf '{cleared}'; echo after"));
    assert_eq!(pane.lines()[..2], ["inside", "after"], "{:?}", pane.lines());
    let scrolled = r"\033[?1049h\033[2;4r\033[?1049l";
    let pane = Pane::after(&format!("belljar exec -- printf '{scrolled}'; echo after"));
    assert_eq!(pane.lines()[..2], ["before", "after"], "{:?}", pane.lines());
    assert_eq!(pane.flag("scroll_region_lower"), "39");
    // One that does not is not punished with the screen.
    let pane = Pane::after(r"belljar exec -- printf '\033[?1049hinside'; echo after");
    let lines = pane.lines();
    assert!(lines.contains(&"before".to_owned()) && lines.contains(&"after".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("inside")), "{lines:?}");
    // Plain text gets nothing.
    let pane = Pane::after("belljar exec -- echo plain; echo after");
    let lines = pane.lines();
    assert_eq!(lines[..3], ["before", "plain", "after"], "{lines:?}");
}

#[test]
fn a_file_gets_nothing_that_is_for_the_terminal() {
    require!(Bwrap, Tmux);
    let command = r#"sh -c 'printf "\033[31mred"; echo heard >&2'"#;
    let pane = Pane::after(&format!("belljar exec -- {command} > out.txt; echo after"));
    let written = std::fs::read(pane.stage.path("project/out.txt")).unwrap();
    assert_eq!(written, b"\x1b[31mred");
    assert!(pane.screen().contains("heard"), "{}", pane.screen());
}

/// Where both sides changed the same lines, the question has a third answer.
#[test]
fn markers_are_an_answer_to_the_question_of_apply() {
    require!(Bwrap, Tmux);
    let pane = Pane::after(
        "printf '[agents.a]\\nworkspace = \"overlay\"\\n' > bell'jar'.toml; echo one > text.txt; \
         belljar exec --yes -- sh -c 'echo agent > text.txt' 2> /dev/null; echo mine > text.txt; \
         tmux send-keys m Enter; belljar apply; cat text.txt",
    );
    let lines = pane.lines().join("\n");
    let end = "\nmerged 1 file that both sides changed\n\
               <<<<<<< yours\nmine\n=======\nagent\n>>>>>>> agent\n";
    assert!(
        lines.contains("Write the agent's version over it, or both with markers (m)? [y/m/N]"),
        "{lines}"
    );
    assert!(lines.contains(end), "{lines}");
}

/// A yes to one file of a commit is none to another: the commit waits.
#[test]
fn an_answer_of_apply_is_for_one_path() {
    require!(Bwrap, Git, Tmux);
    let pane = Pane::after(
        "printf '[agents.a]\\nworkspace = \"overlay\"\\n' > bell'jar'.toml; echo one > a; echo one > b; \
         git init -q -b main; git add .; git -c user.name=u -c user.email=u@x commit -qm first; \
         belljar exec --yes -- sh -c 'echo agent > a; echo agent > b; git -c user.name=a -c user.email=a@x commit -qam agent' \
         2> /dev/null; echo mine > a; echo mine > b; git add a; \
         tmux send-keys y Enter y Enter n Enter; belljar apply; cat a b; git log --format=%s",
    );
    let lines = pane.lines().join("\n");
    assert!(lines.contains(".git/index changed in the project as well"), "{lines}");
    assert!(lines.contains("\nmine\nmine\nfirst\n"), "{lines}");
}
