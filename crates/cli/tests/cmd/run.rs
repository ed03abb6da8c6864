use crate::stage::Stage;
use belljar_testkit::{agent, require};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// One tool call that writes a file, then a sentence.
const SCRIPT: &str = r#"{"version": 1, "turns": [
  {"answer": {"reply": {"content": [{"tool_use": {"name": "Bash", "input": {"command": "echo written > made.txt"}}}]}}},
  {"answer": {"reply": {"content": [{"text": "All done."}]}}}
]}"#;

/// A stage with the real agent on its path.
fn with_agent() -> (Stage, String) {
    let stage = Stage::new();
    stage.write("project/script.json", SCRIPT);
    let folder = agent::real().unwrap().parent().unwrap().display().to_string();
    (stage, format!("{folder}:/usr/bin:/bin"))
}

#[test]
fn the_real_agent_runs_sealed_on_a_scripted_model() {
    require!(Agent, Bwrap);
    let (stage, path) = with_agent();
    let mut command = stage.command(&["run", "--script", "script.json", "--", "-p", "write it"]);
    let found = stage.finish(command.env("PATH", &path));
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "All done.\n"), "{}", found.stderr);
    assert_eq!(fs::read_to_string(stage.path("project/made.txt")).unwrap(), "written\n");
}

#[test]
fn a_script_that_is_none_is_named_before_anything_starts() {
    let stage = Stage::new();
    stage.write("project/script.json", "{\"version\": 1, \"turns\": [{}]}");
    let found = stage.run(&["run", "--script", "script.json"]);
    assert_eq!(found.status.code(), Some(125));
    assert!(found.stderr.contains("script.json"), "{}", found.stderr);
    assert!(!stage.path("data/belljar").exists(), "nothing was made");
}

#[test]
fn without_a_model_or_an_agent_it_says_so() {
    require!(Bwrap);
    let stage = Stage::new();
    let found = stage.run(&["run"]);
    assert_eq!(found.status.code(), Some(125));
    assert!(found.stderr.contains("the agent claude-code is not installed"), "{}", found.stderr);
}

/// A terminal of its own, so that the screen can be read.
struct Screen {
    socket: String,
}

impl Screen {
    fn open(stage: &Stage, path: &str, line: &str) -> Self {
        let socket = stage.path("tmux.sock").display().to_string();
        let screen = Self { socket };
        let mut command =
            screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "36", line]);
        command
            .current_dir(stage.path("project"))
            .envs(stage.environment())
            .env_remove("NO_COLOR")
            .env("PATH", path);
        assert!(command.env("SHELL", "/bin/sh").env("LANG", "C.UTF-8").status().unwrap().success());
        screen
    }

    fn tmux(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket, "-u"]).args(words);
        command
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).output().unwrap().stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        assert!(self.tmux(&[&["send-keys"], keys].concat()).status().unwrap().success());
    }

    #[track_caller]
    fn wait_for(&self, part: &str) -> String {
        let began = Instant::now();
        loop {
            let text = self.text();
            if text.contains(part) {
                return text;
            }
            assert!(began.elapsed() < Duration::from_secs(40), "{part:?} never came:\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]).status().ok();
    }
}

#[test]
fn the_terminal_interface_starts_without_a_question_works_and_leaves() {
    require!(Agent, Bwrap, Tmux);
    let (stage, path) = with_agent();
    let line = format!(
        "{} run --script script.json; echo status-$?; stty -a; exec sleep 60",
        env!("CARGO_BIN_EXE_belljar")
    );
    let screen = Screen::open(&stage, &path, &line);
    let start = screen.wait_for("bypass permissions on");
    for question in ["theme", "API key", "trust", "Do you want", "MCP server"] {
        assert!(!start.contains(question), "it asks about {question}:\n{start}");
    }
    screen.keys(&["-l", "write the file, ünïcode ☃"]);
    screen.wait_for("ünïcode ☃");
    screen.keys(&["Enter"]);
    screen.wait_for("All done.");
    assert_eq!(fs::read_to_string(stage.path("project/made.txt")).unwrap(), "written\n");
    screen.tmux(&["resize-window", "-x", "84", "-y", "30"]).status().unwrap();
    screen.keys(&["-l", "/exit"]);
    screen.wait_for("/exit");
    screen.keys(&["Enter"]);
    let end = screen.wait_for("status-0");
    assert!(screen.wait_for("icanon").contains(" icanon"), "the terminal is as it was: {end}");
}
