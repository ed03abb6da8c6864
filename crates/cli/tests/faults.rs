//! What goes wrong around a conversation: an agent that breaks its protocol or its process, a decider that fails, a disk
//! that is full, a belljar that is killed. None of it is ever taken for a success, and nothing is left behind.
//!
//! The agent is a small program here, so that it can be made to fail at every point.

use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::{require, wait};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An agent that speaks the protocol and asks the model for its words; what it does is appended.
const AGENT: &str = r#"#!/usr/bin/python3
import http.client, json, os, signal, socket, sys
if "--version" in sys.argv:
    print("2.1.197 (Claude Code)")
    sys.exit()
SESSION = "11111111-2222-4333-8444-555555555555"
numbers = iter(range(1, 1000))
history, calls, last = [], [], [""]
class Gateway(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["ANTHROPIC_UNIX_SOCKET"])
def out(frame):
    sys.stdout.write((frame if isinstance(frame, str) else json.dumps(frame)) + "\n")
    sys.stdout.flush()
def heard():
    line = sys.stdin.readline()
    return json.loads(line) if line else None
def say(kind, **members):
    uuid = "00000000-0000-4000-9000-%012d" % next(numbers)
    out({"type": kind, "session_id": SESSION, "uuid": uuid, **members})
def served(words):
    history.append({"role": "user", "content": words})
    gateway = Gateway("localhost")
    body = {"model": "m", "max_tokens": 9, "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
        "messages": history}
    gateway.request("POST", "/v1/messages", json.dumps(body),
        {"Content-Type": "application/json", "X-Claude-Code-Session-Id": SESSION})
    answer = json.loads(gateway.getresponse().read())
    history.append({"role": "assistant", "content": answer["content"]})
    return answer
def show(answer):
    say("assistant", parent_tool_use_id=None, message={"id": answer["id"], "type": "message",
        "role": "assistant", "model": "m", "content": answer["content"], "stop_reason": None,
        "usage": {"input_tokens": 1, "output_tokens": 1}})
def greet():
    asked = heard()
    out({"type": "control_response", "response": {"subtype": "success", "request_id": asked["request_id"],
        "response": {"commands": [], "agents": [], "models": []}}})
def take():
    message = heard()
    history.append(message["message"])
    say("system", subtype="session_state_changed", state="running")
    say("system", subtype="init", cwd="/workspace", tools=[], mcp_servers=[], model="m",
        permissionMode="default", claude_code_version="2.1.197", agents=[], skills=[])
    out({"type": "user", "message": message["message"], "session_id": SESSION, "parent_tool_use_id": None,
        "uuid": message["uuid"], "isReplay": True})
def returned(call, words="ok"):
    content = [{"type": "tool_result", "tool_use_id": call, "content": words}]
    say("user", parent_tool_use_id=None, message={"role": "user", "content": content})
    history.append({"role": "user", "content": content})
def text(words):
    while calls: returned(calls.pop(0))
    answer = served("say " + words[:40])
    last[0] = answer["content"][0]["text"]
    show(answer)
def claim(words):
    show({"id": "m", "content": [{"type": "text", "text": words}]})
def result(words=None):
    say("result", subtype="success", is_error=False, api_error_status=None, num_turns=1,
        result=last[0] if words is None else words,
        stop_reason="end_turn", total_cost_usd=0, usage={"input_tokens": 1, "output_tokens": 1},
        permission_denials=[], terminal_reason="completed")
def idle():
    say("system", subtype="session_state_changed", state="idle")
def call():
    if not calls:
        show(served("call"))
        calls.append("toolu_1")
def ask(id="ask-1", command="true"):
    call()
    out({"type": "control_request", "request_id": id, "request": {"subtype": "can_use_tool",
        "tool_name": "Bash", "display_name": "Bash", "input": {"command": command}, "tool_use_id": "toolu_1"}})
def whole():
    greet(); take(); text("All done."); result(); idle()
    while heard() is not None: pass
"#;

/// The turns of a model that says these texts when asked to, each once, and calls a tool.
pub fn turns(words: &[&str]) -> Vec<Value> {
    let turn = |asked: &str, block: Value| json!({"when": {"last_message_contains": asked}, "answer": {"reply": {"content": [block]}}});
    let say = |words: &&str| {
        let asked: String = words.chars().take(40).collect();
        turn(&format!("say {asked}"), json!({"text": words}))
    };
    let input = json!({"command": "true"});
    let call = turn("call", json!({"tool_use": {"name": "Bash", "input": input, "id": "toolu_1"}}));
    words.iter().map(say).chain([call]).collect()
}

/// A script of such a model.
pub fn says(words: &[&str]) -> String {
    json!({"version": 1, "turns": turns(words)}).to_string()
}

/// What the agents of these tests say.
const WORDS: [&str; 3] = ["All done.", "I wait.", "One more thing."];

/// The scenario of every such agent: what it must do is not much.
const SCENARIO: &str = "prompt: go\nassert: [{transcript_contains: All done.}, {result: success}]\n";

/// A stage whose agent does this.
pub fn with_agent(does: &str) -> Stage {
    let stage = Stage::new();
    write_agent(&stage, does);
    stage.write("project/a.yaml", SCENARIO);
    stage.write("project/a.script.json", says(&WORDS));
    stage.skill("project/skills", "notes");
    stage
}

pub fn write_agent(stage: &Stage, does: &str) {
    stage.write("bin/claude", format!("{AGENT}\n{does}\n"));
    fs::set_permissions(stage.path("bin/claude"), fs::Permissions::from_mode(0o755)).unwrap();
}

pub fn command(stage: &Stage, args: &[&str]) -> Command {
    let mut command = stage.command(args);
    command.env("PATH", format!("{}:/usr/bin:/bin", stage.path("bin").display()));
    command
}

fn tried(stage: &Stage) -> (Finished, Value) {
    let found = stage.finish(&mut command(stage, &["test", "--scripted", "--json", "a.yaml"]));
    let envelope = serde_json::from_str(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"));
    (found, envelope)
}

/// Processes whose command line names the stage.
fn left(stage: &Stage) -> Vec<(u32, String)> {
    let name = stage.path("").display().to_string();
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|number| Some((number, fs::read(format!("/proc/{number}/cmdline")).ok()?)))
        .map(|(number, line)| (number, String::from_utf8_lossy(&line).replace('\0', " ")))
        .filter(|(_, line)| line.contains(name.trim_end_matches('/')))
        .collect()
}

fn staged(stage: &Stage) -> usize {
    fs::read_dir(stage.path("home/.local/state/belljar/staging")).map_or(0, Iterator::count)
}

/// The kernel takes a moment to end a namespace.
#[track_caller]
fn await_nothing_left(stage: &Stage) {
    let ended = wait::for_end(|| left(stage).into_iter().map(|(number, _)| number).collect());
    assert!(ended.is_ok(), "{:?}", left(stage));
}

#[test]
fn the_agent_of_these_tests_is_a_good_one() {
    require!(Bwrap, Python);
    let stage = with_agent("whole()");
    let (found, envelope) = tried(&stage);
    assert_eq!(found.status.code(), Some(0), "{envelope:#}{}", found.stderr);
    assert_eq!((left(&stage).len(), staged(&stage)), (0, 0));
}

/// An agent that ends at each point of the conversation, in each way.
#[test]
fn an_agent_that_ends_early_is_no_success() {
    require!(Bwrap, Python);
    let points = ["", "greet()", "greet(); take()", "greet(); take(); text('All done.')"];
    let ways = ["os._exit(0)", "os._exit(7)", "os.kill(os.getpid(), 9)"];
    let stage = with_agent("");
    for point in points {
        for way in ways {
            write_agent(&stage, &format!("{point}\n{way}"));
            let (found, envelope) = tried(&stage);
            assert_eq!(found.status.code(), Some(5), "{point} {way}: {envelope:#}");
        }
    }
    assert_eq!((left(&stage).len(), staged(&stage)), (0, 0));
}

/// Everything is as it should be but one thing. The status is 5 where the agent failed, 3 where the evidence has a hole.
#[test]
fn an_agent_that_breaks_its_protocol_is_no_success() {
    require!(Bwrap, Python);
    let stage = with_agent("");
    let turn = "greet(); take(); text('All done.')";
    let end = "result(); idle()\nwhile heard() is not None: pass";
    for (what, does, statuses) in [
        ("noise", format!("{turn}; out('this is no frame')\n{end}"), &[3][..]),
        (
            "noise that is not UTF-8",
            format!("{turn}; sys.stdout.buffer.write(b'\\xff\\xfe\\n')\n{end}"),
            &[3],
        ),
        ("deep nesting", format!("{turn}; out('['*200000 + ']'*200000)\n{end}"), &[3]),
        ("a member twice", format!("{turn}; out('{{\"type\":\"result\",\"type\":\"user\"}}')\n{end}"), &[3]),
        ("a long line", format!("{turn}; claim('x' * (50 << 20))\n{end}"), &[3]),
        ("a line too long", format!("{turn}; out('\"' + 'x' * (70 << 20) + '\"')\n{end}"), &[3]),
        (
            "a line that breaks off",
            format!("{turn}; result(); idle(); sys.stdout.write('{{\"type\"')"),
            &[3, 5],
        ),
        ("7 after a success", format!("{turn}; result(); idle(); heard(); os._exit(7)"), &[5]),
        ("killed after a success", format!("{turn}; result(); idle(); os.kill(os.getpid(), 9)"), &[5]),
        ("0 without a result", format!("{turn}; idle(); os._exit(0)"), &[5]),
        (
            "input closed early",
            "greet(); take(); os.close(0); text('All done.'); os._exit(0)".to_owned(),
            &[5],
        ),
    ] {
        write_agent(&stage, &does);
        let (found, envelope) = tried(&stage);
        let status = found.status.code().unwrap();
        assert!(statuses.contains(&status), "{what}: {status}: {envelope:#}{}", found.stderr);
    }
    assert_eq!((left(&stage).len(), staged(&stage)), (0, 0));
}

/// One id, two questions: the second is no question. What is said after the result is evidence like everything else.
#[test]
fn repeated_ids_and_late_frames_are_on_record() {
    require!(Bwrap, Python);
    let stage = with_agent(
        "greet(); take(); ask(); ask(); heard(); text('All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    stage.write("project/a.yaml", format!("{SCENARIO}answers: [{{when_tool: Bash, decide: allow}}]\n"));
    let (found, envelope) = tried(&stage);
    assert_ne!(found.status.code(), Some(0), "{envelope:#}");
    // It speaks again after its turn has ended, and no turn comes of it.
    write_agent(&stage, "greet(); take(); text('All done.'); result(); text('One more thing.'); os._exit(0)");
    let yaml =
        "prompt: go\nassert: [{transcript_contains: All done.}, {transcript_contains: One more thing.}]\n";
    stage.write("project/a.yaml", yaml);
    let (found, envelope) = tried(&stage);
    let checks = &envelope["data"]["results"][0]["checks"];
    assert_eq!((found.status.code(), &checks[1]["outcome"]), (Some(5), &"pass".into()), "{envelope:#}");
}

#[test]
fn a_decider_that_fails_leaves_the_question_open() {
    const NOTHING: &str = "did not answer in 1 s";
    require!(Bwrap, Python);
    let stage = with_agent(
        "greet(); take(); ask(); heard(); text('All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    let allow = r#"while read l; do echo '{"id":"1","behavior":"allow"}'; done"#;
    for (decider, said) in [
        (allow, None),
        ("exit 3", Some("`exit 3` ")),
        ("read l; kill -9 $$", Some("ended without an answer")),
        (r#"read l; echo '{"id":"2","behavior":"allow"}'; cat"#, Some("wrong id: expected \"1\"")),
        (r#"read l; echo '{"behavior":"allow"}'; cat"#, Some("wrong id: expected \"1\"")),
        ("read l; echo allow; cat", Some("not a JSON object")),
        (r#"read l; echo '{"id":"1","behavior":"allow","and":1}'; cat"#, Some("unknown member \"and\"")),
        (r"read l; printf '\377\n'; cat", Some("not UTF-8")),
        ("read l; head -c 2000000 /dev/zero; cat", Some("a line that is too long")),
        ("exec sleep 1000", Some(NOTHING)),
    ] {
        let args = ["skill", "skills/notes", "go", "--script", "a.script.json", "--decider-cmd", decider];
        // The run waits as long as the program needs for what it says, except where it says nothing.
        let patience = if said == Some(NOTHING) { "1s" } else { "10m" };
        let args = [&args[..], &["--decider-timeout", patience]].concat();
        let found = stage.finish(&mut command(&stage, &args));
        match said {
            None => assert_eq!(found.status.code(), Some(0), "{}", found.stderr),
            Some(said) => {
                assert_eq!(found.status.code(), Some(1), "{decider}: {}", found.stderr);
                assert!(found.stderr.contains(said), "{decider}: {}", found.stderr);
            }
        }
        await_nothing_left(&stage);
    }
    // A question that is longer than a pipe, and no process reads it.
    write_agent(&stage, "greet(); take(); ask(command='x' * 500000); heard()");
    let args = ["skill", "skills/notes", "go", "--script", "a.script.json", "--decider-timeout", "1s"];
    let found =
        stage.finish(&mut command(&stage, &[&args[..], &["--decider-cmd", "exec sleep 1000"]].concat()));
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    assert!(found.stderr.contains(NOTHING), "{}", found.stderr);
    let wrong = stage.run(&["skill", "skills/notes", "go", "--decider-timeout", "soon"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.stderr);
}

/// The run is over before the decider is: it does not outlive belljar.
#[test]
fn a_decider_ends_with_the_run() {
    require!(Bwrap, Python);
    let stage = with_agent("greet(); take(); ask(); heard(); signal.pause()");
    let here = stage.path("project/here");
    let decider = format!("touch {0}; exec python3 -c 'import signal; signal.pause()' {0}", here.display());
    let args = ["skill", "skills/notes", "go", "--script", "a.script.json", "--decider-cmd", &decider];
    let mut run = command(&stage, &args).stderr(Stdio::null()).spawn().unwrap();
    wait::for_files(&stage.path("project"), || here.exists().then_some(())).unwrap();
    kill(&run, "-TERM");
    assert_ne!(run.wait().unwrap().code(), Some(0));
    await_nothing_left(&stage);
}

#[test]
fn an_answer_in_a_directory_must_be_one_to_the_question() {
    require!(Bwrap, Python);
    let stage = with_agent(
        "greet(); take(); ask(); heard(); text('All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    for (number, reply, said) in [
        (1, r#"{"id": "another", "behavior": "allow"}"#, "wrong id"),
        (2, "allow", "not a JSON object"),
        (3, "", "in 1 s"),
    ] {
        let directory = format!("questions-{number}");
        let args = ["skill", "skills/notes", "go", "--script", "a.script.json", "--decider-dir", &directory];
        // The run waits no longer than the answer takes, except where none comes.
        let args = [&args[..], &["--decider-timeout", if reply.is_empty() { "1s" } else { "1m" }]].concat();
        let run = command(&stage, &args).stderr(Stdio::piped()).spawn().unwrap();
        if !reply.is_empty() {
            let asked = stage.path(&format!("project/{directory}/req-1.json"));
            wait::for_files(&stage.path("project"), || asked.exists().then_some(())).unwrap();
            stage.write(&format!("project/{directory}/new"), reply);
            let from = stage.path(&format!("project/{directory}/new"));
            fs::rename(from, stage.path(&format!("project/{directory}/resp-1.json"))).unwrap();
        }
        let found = run.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
        assert!(stage.path(&format!("project/{directory}/done.json")).exists(), "followers are informed");
    }
}

/// The disk takes no more in the middle of the conversation.
#[test]
fn a_disk_that_is_full_is_no_success() {
    require!(Bwrap, Python);
    let stage = with_agent("whole()");
    assert_eq!(tried(&stage).0.status.code(), Some(0), "the guest is unpacked");
    let long = "x".repeat(10_000);
    stage.write("project/a.script.json", says(&[&[long.as_str(); 40][..], &WORDS].concat()));
    let much = "greet(); take()\nfor _ in range(40): text('x' * 10000)\n";
    write_agent(
        &stage,
        &format!("{much}text('All done.'); result(); idle()\nwhile heard() is not None: pass"),
    );
    assert_eq!(tried(&stage).0.status.code(), Some(0), "without the limit it is a success");
    // In units of 512 bytes: less than the frames take, more than everything else does.
    let line = "trap '' XFSZ; ulimit -f 300; exec \"$0\" test --scripted --json a.yaml";
    let mut limited = Command::new("sh");
    limited.args(["-c", line, env!("CARGO_BIN_EXE_belljar")]).current_dir(stage.path("project"));
    limited.env_clear().envs(stage.environment());
    limited.env("PATH", format!("{}:/usr/bin:/bin", stage.path("bin").display()));
    let found = stage.finish(&mut limited);
    // The agent is ended, unless it was done before it heard of it. Neither is its failure.
    assert_eq!(found.status.code(), Some(125), "{}{}", found.stdout, found.stderr);
    assert!(found.stdout.contains("is not complete"), "{}", found.stdout);
}

/// A trial that goes on until it is ended, and has begun.
pub fn begun(stage: &Stage, args: &[&str]) -> Child {
    let mut command = command(stage, args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("I wait.") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended");
    }
    // What it says from now on is not waited for.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    child
}

pub const WAITS: &str = "greet(); take(); text('I wait.'); heard(); signal.pause()";

#[test]
fn one_conversation_has_one_run_at_a_time() {
    require!(Bwrap, Python);
    let stage = with_agent(WAITS);
    let args = ["skill", "skills/notes", "go", "--script", "a.script.json", "--session-id", "talk"];
    let mut first = begun(&stage, &args);
    let second = stage.finish(&mut command(&stage, &args));
    assert_eq!(second.status.code(), Some(2), "{}", second.stderr);
    assert!(second.stderr.contains("another run continues the conversation"), "{}", second.stderr);
    let kept = command(&stage, &["gc", "--runs", "--older-than", "1s"]).output().unwrap();
    assert!(
        stage.path("home/.local/state/belljar/conversations").read_dir().unwrap().any(|_| true),
        "{kept:?}"
    );
    kill(&first, "-TERM");
    assert_ne!(first.wait().unwrap().code(), Some(0));
    await_nothing_left(&stage);
}

/// To the process alone.
pub fn kill(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_killed_belljar_leaves_a_record_that_is_marked_and_nothing_that_runs() {
    require!(Bwrap, Python);
    let stage = with_agent(WAITS);
    let mut run = begun(&stage, &["test", "--scripted", "a.yaml"]);
    kill(&run, "-KILL");
    assert_eq!(run.wait().unwrap().code(), None);
    await_nothing_left(&stage);
    assert_eq!(staged(&stage), 1, "no process was left to remove it");
    let trace = stage.run(&["trace", "last", "--json"]);
    let envelope: Value = serde_json::from_str(&trace.stdout).unwrap();
    assert_eq!(trace.status.code(), Some(3), "{envelope:#}");
    assert!(envelope["data"]["trace"]["incomplete"].is_string(), "{envelope:#}");
    let swept = stage.run(&["gc"]);
    assert!(swept.stdout.contains("removed the stage of a trial"), "{}{}", swept.stdout, swept.stderr);
    assert_eq!(staged(&stage), 0);
}

#[test]
fn an_interrupt_ends_every_trial_of_a_suite() {
    require!(Bwrap, Python);
    let stage = with_agent(WAITS);
    for name in ["b", "c", "d"] {
        stage.write(&format!("project/{name}.yaml"), SCENARIO);
        stage.write(&format!("project/{name}.script.json"), says(&WORDS));
    }
    let mut run = command(&stage, &["test", "--scripted", "--jobs", "3", "."]);
    let mut run = run.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let runs = stage.path("home/.local/state/belljar/runs");
    wait::for_files(&stage.path("home"), || (waiting(&runs) >= 3).then_some(())).unwrap();
    // As a terminal does: to everyone in front of it.
    let group = format!("-{}", run.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let mut said = String::new();
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let status = run.wait().unwrap();
    assert!(!matches!(status.code(), Some(0) | None), "{status}: {said}");
    assert!(said.contains("0 passed, 0 failed, 3 ended early, 1 not started"), "{said}");
    await_nothing_left(&stage);
    assert_eq!(staged(&stage), 0);
}

/// Runs whose agent has said that it waits.
fn waiting(runs: &Path) -> usize {
    let Ok(entries) = fs::read_dir(runs) else { return 0 };
    let logs =
        entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("events.jsonl")).ok());
    logs.filter(|log| log.contains("I wait.")).count()
}

#[test]
fn a_version_is_asked_once_a_newer_one_is_reported_and_one_that_is_too_old_is_refused() {
    require!(Bwrap);
    let stage = with_agent("whole()");
    let claims = |version: &str, does: &str| {
        let asked = format!("open({:?}, \"a\").write(\"asked \")", stage.path("asked").display().to_string());
        let says = format!("{asked}\n    print(\"{version} (Claude Code)\")");
        let text = AGENT.replace("print(\"2.1.197 (Claude Code)\")", &says);
        stage.write("bin/claude", format!("{text}\n{does}\n"));
        fs::set_permissions(stage.path("bin/claude"), fs::Permissions::from_mode(0o755)).unwrap();
    };
    claims("9.0.1", "whole()");
    for _ in 0..2 {
        let (found, envelope) = tried(&stage);
        assert_eq!(found.status.code(), Some(0), "{envelope:#}");
        let notice = envelope["data"]["results"][0]["notice"].as_str().unwrap_or_default().to_owned();
        assert!(notice.contains("9.0.1 is newer") && notice.contains("2.1.327"), "{notice}");
        assert!(found.stderr.contains("9.0.1 is newer"), "{}", found.stderr);
    }
    assert_eq!(fs::read_to_string(stage.path("asked")).unwrap(), "asked ", "once for one file");
    claims("2.1.90", "raise Exception('started')");
    let (found, envelope) = tried(&stage);
    let message = envelope["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(found.status.code(), Some(4), "{envelope:#}");
    assert!(
        message.contains("2.1.90 is too old") && message.contains("telling when it is idle"),
        "{message}"
    );
}
