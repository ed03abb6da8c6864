//! The real agent, run to its end against the scripted model: tool calls of the script change files on disk, and failures
//! of the script are failures of the agent.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use belljar_egress::script::{
    AnsweredBy, CutEnd, ErrorReply, Listen, LoggedRequest, RequestConditions, Script, ScriptReply,
    ScriptedModel, Sender, Transcript, Turn,
};
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A run takes about a second on an idle machine.
const DEADLINE: Duration = Duration::from_secs(120);

const KEY: &str = "sk-placeholder";

/// A project, a home and a socket of one run, gone afterwards.
struct Stage {
    directory: TempDir,
}

/// The result of one run of the agent.
struct Run {
    finished: Finished,
    result: Value,
    transcript: Transcript,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["project", "home", "tmp"] {
            fs::create_dir(stage.path(name)).unwrap();
        }
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn model_on_socket(&self, script: Script) -> ScriptedModel {
        ScriptedModel::start(script, Listen::unix(self.path("model.sock"))).unwrap()
    }

    /// The agent's complete environment: nothing of the machine's configuration reaches it.
    fn environment(&self, model: &ScriptedModel) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", self.path("home").into()),
            ("CLAUDE_CONFIG_DIR", self.path("home/config").into()),
            ("TMPDIR", self.path("tmp").into()),
            ("CLAUDE_CODE_TMPDIR", self.path("tmp").into()),
            ("ANTHROPIC_API_KEY", KEY.into()),
            ("ANTHROPIC_BASE_URL", model.base_url().into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
            ("CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL", "1".into()),
            ("CLAUDE_CODE_MAX_RETRIES", "1".into()),
        ];
        environment.extend(model.socket_path().map(|socket| ("ANTHROPIC_UNIX_SOCKET", socket.into())));
        environment
    }

    /// Runs the agent in print mode.
    fn run(&self, model: ScriptedModel) -> Run {
        let mut command = Command::new(agent::real().unwrap());
        command.args(["-p", "--output-format", "stream-json", "--verbose", "--setting-sources", ""]);
        command.args([
            "--strict-mcp-config",
            "--model",
            "claude-opus-4-8",
            "--allowedTools",
            "Bash,Write,Agent",
        ]);
        command.args(["--", "do as the script says"]);
        command.current_dir(self.path("project")).env_clear().envs(self.environment(&model));
        let finished = run_within(&mut command, DEADLINE).unwrap();
        let mut events = finished.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let result = events.rfind(|event| event["type"] == "result");
        let result = result.unwrap_or_else(|| panic!("no result: {finished:?}"));
        Run { finished, result, transcript: model.finish() }
    }
}

impl Run {
    fn assert_good(&self) {
        assert_eq!(self.result["is_error"], false, "{}", self.result);
        assert_eq!(self.finished.status.code(), Some(0), "{:?}", self.finished);
        assert_eq!(self.transcript.unplayed, [0_usize; 0]);
    }

    fn assert_failed(&self) {
        assert_eq!(self.result["is_error"], true, "{}", self.result);
        assert_eq!(self.finished.status.code(), Some(1), "{:?}", self.finished);
    }

    /// What answered the messages requests, in order.
    fn answers(&self) -> Vec<AnsweredBy> {
        let messages = self.transcript.requests.iter().filter(|request| request.path == "/v1/messages");
        messages.map(|request| request.answered_by).collect()
    }
}

/// One turn that thinks and calls two tools, and one that ends.
fn writes_two_files(project: &Path) -> Script {
    let reply = ScriptReply::new()
        .thinking("Two files, two ways.", "c2lnbmF0dXJl")
        .text("I write them.")
        .tool_use(
            "Bash",
            json!({"command": "printf shell > by-shell && echo shell-done", "description": "w"}),
        )
        .tool_use("Write", json!({"file_path": project.join("by-tool"), "content": "tool"}));
    Script::new().turn(Turn::reply(reply)).turn(Turn::text("both are written"))
}

fn assert_two_files(stage: &Stage, run: &Run) {
    run.assert_good();
    assert_eq!(fs::read_to_string(stage.path("project/by-shell")).unwrap(), "shell");
    assert_eq!(fs::read_to_string(stage.path("project/by-tool")).unwrap(), "tool");
    assert_eq!(run.result["result"], "both are written");
    assert_eq!(run.answers(), [AnsweredBy::Turn(0), AnsweredBy::Turn(1)]);

    let mut messages = run.transcript.requests.iter().filter(|request| request.path == "/v1/messages");
    let (first, second) = (messages.next().unwrap(), messages.next().unwrap());
    assert!(first.last_message().contains("do as the script says"), "{}", first.last_message());
    assert_eq!(first.tool_results(), []);
    assert!(first.sent_secret("x-api-key", KEY));
    let results = second.tool_results();
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results.iter().any(|(_, text)| text.contains("shell-done")), "{results:?}");
    assert!(results.iter().all(|(id, _)| id.starts_with("toolu_scripted_")), "{results:?}");
}

#[test]
fn tools_run_and_report_over_a_unix_socket() {
    require!(Agent);
    let stage = Stage::new();
    let model = stage.model_on_socket(writes_two_files(&stage.path("project")));
    let run = stage.run(model);
    assert_two_files(&stage, &run);
    assert!(!stage.path("model.sock").exists());
}

#[test]
fn tools_run_and_report_over_tcp() {
    require!(Agent);
    let stage = Stage::new();
    let script = writes_two_files(&stage.path("project"));
    let run = stage.run(ScriptedModel::start(script, Listen::loopback()).unwrap());
    assert_two_files(&stage, &run);
}

#[test]
fn a_script_file_drives_the_agent() {
    require!(Agent);
    let stage = Stage::new();
    let script = br#"{"version": 1, "turns": [
        {"when": {"last_message_contains": "as the script"},
         "answer": {"reply": {"delta_chars": 3, "pause_ms": 1, "content": [
            {"tool_use": {"name": "Bash", "input": {"command": "echo from-file > here"}}}]}}},
        {"answer": {"reply": {"content": [{"text": "fine"}], "usage": {"output_tokens": 77}}}}
    ]}"#;
    let run = stage.run(stage.model_on_socket(Script::parse(script).unwrap()));
    run.assert_good();
    assert_eq!(fs::read_to_string(stage.path("project/here")).unwrap(), "from-file\n");
    assert_eq!(run.result["usage"]["output_tokens"], 82);
}

#[test]
fn an_error_is_the_agents_error() {
    require!(Agent);
    let stage = Stage::new();
    // It sends a refused request several times.
    let refusal = || Turn::error(ErrorReply::new(400, "the script says no"));
    let script = (0..12).fold(Script::new(), |script, _| script.turn(refusal()));
    let run = stage.run(stage.model_on_socket(script));
    run.assert_failed();
    let answers = run.answers();
    assert!((1..12).contains(&answers.len()), "{answers:?}");
    assert!(answers.iter().enumerate().all(|(at, by)| *by == AnsweredBy::Turn(at)), "{answers:?}");
    assert!(run.result["result"].as_str().unwrap().contains("the script says no"), "{}", run.result);
}

#[test]
fn an_exhausted_script_is_the_agents_error() {
    require!(Agent);
    let stage = Stage::new();
    let script = Script::new().turn(Turn::tool_use("Bash", json!({"command": "true"})));
    let run = stage.run(stage.model_on_socket(script));
    run.assert_failed();
    let answers = run.answers();
    let (first, others) = answers.split_first().unwrap();
    assert_eq!(*first, AnsweredBy::Turn(0));
    assert!(!others.is_empty() && others.iter().all(|by| *by == AnsweredBy::Exhausted), "{answers:?}");
    assert!(
        run.result["result"].as_str().unwrap().contains("this request came after its only turn"),
        "{}",
        run.result
    );
}

#[test]
fn an_overload_is_retried_and_overcome() {
    require!(Agent);
    let stage = Stage::new();
    let overload = ErrorReply::new(529, "come again").retry_after(0);
    let run = stage.run(
        stage.model_on_socket(Script::new().turn(Turn::error(overload)).turn(Turn::text("here you are"))),
    );
    run.assert_good();
    assert_eq!(run.result["result"], "here you are");
}

/// A tool call whose delivery is cut off, and the text for the agent's next request. The call is complete after five
/// events: start, ping, and the three of its block.
fn broken_call(after_events: usize, end: CutEnd) -> Script {
    let call =
        ScriptReply::new().tool_use("Bash", json!({"command": "echo x > here"})).cut(after_events, end);
    Script::new().turn(Turn::reply(call)).turn(Turn::text("went on"))
}

/// This version of the agent executes a call that was complete when its stream ended too early, and continues.
#[test]
fn a_call_that_was_complete_when_its_stream_ended_is_executed() {
    require!(Agent);
    let stage = Stage::new();
    let run = stage.run(stage.model_on_socket(broken_call(5, CutEnd::EndOfBody)));
    run.assert_good();
    assert!(stage.path("project/here").exists());
    assert_eq!(run.result["result"], "went on");
    assert_eq!(run.transcript.requests[1].tool_results().len(), 1);
}

/// If nothing was complete, it repeats the request.
#[test]
fn a_stream_that_ended_in_a_block_is_asked_for_again() {
    require!(Agent);
    let stage = Stage::new();
    let run = stage.run(stage.model_on_socket(broken_call(4, CutEnd::EndOfBody)));
    run.assert_good();
    assert!(!stage.path("project/here").exists());
    assert_eq!(run.result["result"], "went on");
    let [first, second] = run.transcript.requests.as_slice() else { panic!("{:?}", run.answers()) };
    assert_eq!(first.json().unwrap()["messages"], second.json().unwrap()["messages"]);
}

/// After a broken connection it repeats the request with the same conversation. Whether it then streams, and whether it
/// first executes a complete call, depends on when it notices the break; so the call here is incomplete.
#[test]
fn a_broken_connection_is_tried_again() {
    require!(Agent);
    let stage = Stage::new();
    let run = stage.run(stage.model_on_socket(broken_call(4, CutEnd::Close)));
    run.assert_good();
    assert!(!stage.path("project/here").exists());
    assert_eq!(run.result["result"], "went on");
    let [first, second] = run.transcript.requests.as_slice() else { panic!("{:?}", run.answers()) };
    assert_eq!(first.json().unwrap()["messages"], second.json().unwrap()["messages"]);
}

#[test]
fn a_sub_agent_plays_its_own_turns() {
    require!(Agent);
    let stage = Stage::new();
    let task = json!({"description": "d", "prompt": "write it", "subagent_type": "general-purpose",
        "run_in_background": false});
    let sub = || RequestConditions::any().sender(Sender::SubAgent);
    // Listed out of order on purpose: the sender decides.
    let script = Script::new()
        .turn(Turn::tool_use("Bash", json!({"command": "echo sub > by-sub"})).when(sub()))
        .turn(Turn::text("sub is done").when(sub()))
        .turn(Turn::tool_use("Agent", task))
        .turn(Turn::text("main is done"));
    let run = stage.run(stage.model_on_socket(script));
    run.assert_good();
    assert!(stage.path("project/by-sub").exists());
    assert_eq!(run.result["result"], "main is done");
    assert_eq!(run.answers(), [2, 0, 1, 3].map(AnsweredBy::Turn));
    let last = run.transcript.requests.last().unwrap();
    assert!(last.tool_results().iter().any(|(_, text)| text.contains("sub is done")));
}

/// A tmux server of its own; it ends with the test and ends the agent.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(["-f", "/dev/null"]);
        command
    }

    fn screen(&self) -> String {
        let shown = run_within(self.tmux().args(["capture-pane", "-p"]), DEADLINE);
        shown.map(|shown| shown.stdout).unwrap_or_default()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        run_within(self.tmux().arg("kill-server"), DEADLINE).ok();
    }
}

/// In a terminal the older agent also asks for a title; that must not take the turn of the conversation.
#[test]
fn a_title_takes_no_turn() {
    require!(AgentOlder, Tmux);
    let stage = Stage::new();
    let project = stage.path("project").canonicalize().unwrap();
    fs::create_dir(stage.path("home/config")).unwrap();
    let answered_dialogs = json!({
        "hasCompletedOnboarding": true,
        "customApiKeyResponses": {"approved": [KEY], "rejected": []},
        "projects": {project.to_str().unwrap(): {"hasTrustDialogAccepted": true}},
    });
    fs::write(stage.path("home/config/.claude.json"), answered_dialogs.to_string()).unwrap();
    let script = Script::new().turn(Turn::text("first")).turn(Turn::text("second"));
    let model = stage.model_on_socket(script);

    let terminal = Terminal { socket: stage.path("tmux.sock") };
    let mut start = terminal.tmux();
    start.args(["new-session", "-d", "-x", "120", "-y", "40", "env", "-i", "TERM=xterm-256color"]);
    for (name, value) in stage.environment(&model) {
        let mut pair = OsString::from(format!("{name}="));
        pair.push(value);
        start.arg(pair);
    }
    start
        .arg(agent::older().unwrap())
        .args(["--model", "claude-opus-4-8", "write a file"])
        .current_dir(project);
    assert!(run_within(&mut start, DEADLINE).unwrap().status.success());

    let both = |requests: &[Arc<LoggedRequest>]| {
        let answered = |by| requests.iter().any(|request| request.answered_by == by);
        answered(AnsweredBy::SideReply) && answered(AnsweredBy::Turn(0))
    };
    model.wait_until(DEADLINE, both).unwrap_or_else(|error| panic!("{error}\n{}", terminal.screen()));
    assert_eq!(model.unplayed(), [1]);
}
