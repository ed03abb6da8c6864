//! The egress of a run, with real programs inside and hosts that this test serves on the loopback.

mod credentials;
mod faults;
mod no_rules;
mod ssh;

use crate::stage::Stage;
use belljar_contract::{EgressLogState, read_egress_log};
use belljar_testkit::process::Finished;
use belljar_testkit::{agent, require};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A server on the loopback that hands every request to `answer`; it ends with the test's process.
pub fn serve(answer: impl Fn(&str, &[u8]) -> String + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that leaves in the middle is none of the server's business.
            one(stream, &answer).ok();
        }
    });
    port
}

fn one(mut stream: impl Read + Write, answer: &impl Fn(&str, &[u8]) -> String) -> std::io::Result<()> {
    let mut reader = BufReader::new(&mut stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    stream.write_all(answer(&head, &body).as_bytes())?;
    stream.flush()
}

pub fn plain(body: &str, kind: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Runs the binary where these names lead to the loopback: in a mount namespace with its own `/etc/hosts`.
fn with_names(stage: &Stage, names: &str, arguments: &[&str]) -> Finished {
    stage.finish(&mut named(stage, names, "true", arguments))
}

/// The same, not started yet; `first` is done in that namespace before.
fn named(stage: &Stage, names: &str, first: &str, arguments: &[&str]) -> Command {
    stage.write("hosts", format!("127.0.0.1 localhost {names}\n"));
    let mut command = Command::new("unshare");
    let root = rustix_is_root();
    command.args(if root { &["-m"][..] } else { &["-rm"][..] });
    let script = format!("mount --bind \"$0\" /etc/hosts && {first} && exec \"$@\"");
    command.args(["sh", "-c", &script]).arg(stage.path("hosts"));
    command.arg(env!("CARGO_BIN_EXE_belljar")).args(arguments);
    command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    command
}

fn rustix_is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn run_directory(stage: &Stage) -> PathBuf {
    let runs = stage.path("home/.local/state/belljar/runs");
    let mut all: Vec<PathBuf> = fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    all.pop().unwrap()
}

/// The log of the last run, which has to be whole.
fn log(stage: &Stage) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(run_directory(stage).join("egress.jsonl")).unwrap();
    let read = read_egress_log(&text, None);
    assert!(matches!(read.state, EgressLogState::Complete), "{read:?}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn programs_that_know_no_proxy_reach_what_is_allowed_and_nothing_else() {
    require!(Bwrap, Curl, Root);
    let port = serve(|_, _| plain("hello", "text/plain"));
    let manifest = format!(
        "[agents.a.egress]\nallow = [\"one.test:{port}\", \"*.two.test:{port}\", \"127.0.0.1:{port}\"]\ndeny = [\"no.two.test\"]\n"
    );
    let stage = Stage::with(&manifest);
    let curl = "curl -sS -m 10";
    let script = format!(
        "{curl} http://one.test:{port}/ && {curl} --noproxy '*' http://one.test:{port}/ \
         && {curl} --noproxy '*' http://x.two.test:{port}/ \
         && {curl} --proxy \"socks5h://belljar:$BELLJAR_PROXY_TOKEN@$BELLJAR_PROXY\" http://one.test:{port}/ \
         && python3 -c 'import urllib.request as u; print(u.urlopen(\"http://one.test:{port}/\").read().decode())'"
    );
    let found = with_names(
        &stage,
        "one.test x.two.test no.two.test evil.test",
        &["exec", "--yes", "--", "sh", "-c", &script],
    );
    assert_eq!(
        (found.status.code(), found.stdout.as_str()),
        (Some(0), "hellohellohellohellohello\n"),
        "{}",
        found.stderr
    );
    let ways: Vec<String> = log(&stage)
        .iter()
        .filter(|row| row["kind"] == "decided" && row["decision"]["verdict"]["is"] == "allowed")
        .map(|row| row["decision"]["way"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ways, ["http", "transparent", "transparent", "socks", "http"]);
    // A host that is not allowed has no address, the proxy refuses it, and the report has the line that would allow it.
    for (host, words) in [
        ("evil.test", format!("add \"evil.test:{port}\" to [agents.a.egress] allow")),
        ("no.two.test", "the rule deny-1 denies it".to_owned()),
    ] {
        let script = format!(
            "{curl} --noproxy '*' http://{host}:{port}/; echo $?; {curl} -o /dev/null -w '%{{http_code}}' http://{host}:{port}/"
        );
        let found = with_names(
            &stage,
            "one.test evil.test no.two.test",
            &["exec", "--yes", "--", "sh", "-c", &script],
        );
        assert_eq!(found.stdout, "6\n403", "{}", found.stderr);
        assert!(found.stderr.contains(&words), "{}", found.stderr);
        assert!(log(&stage).iter().all(|row| row["decision"]["verdict"]["is"] != "allowed"));
    }
    // Learning proposes, and opens nothing.
    let script = format!("{curl} -o /dev/null -w '%{{http_code}}' http://evil.test:{port}/");
    let found = with_names(&stage, "evil.test", &["exec", "--yes", "--learn", "--", "sh", "-c", &script]);
    assert_eq!(found.stdout, "403");
    assert!(found.stderr.contains(&format!("      \"evil.test:{port}\", # new\n")), "{}", found.stderr);
    assert_eq!(fs::read_to_string(stage.path("project/belljar.toml")).unwrap(), manifest);
}

/// They are made for the machine's C library, and belljar brings its own.
#[test]
fn names_are_found_without_the_modules_of_the_machine() {
    require!(Bwrap, Curl, Root);
    let port = serve(|_, _| plain("hello", "text/plain"));
    let stage =
        Stage::with(&format!("[agents.a.egress]\nallow = [\"one.test:{port}\", \"127.0.0.1:{port}\"]\n"));
    stage.write("nsswitch.conf", "hosts: nosuchmodule [NOTFOUND=return UNAVAIL=return]\n");
    let first = format!("mount --bind {} /etc/nsswitch.conf", stage.path("nsswitch.conf").display());
    let url = format!("http://one.test:{port}/");
    let args = ["exec", "--yes", "--", "curl", "-sS", "-m", "10", &url];
    let found = stage.finish(&mut named(&stage, "one.test", &first, &args));
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "hello"), "{}", found.stderr);
}

#[test]
fn node_fetch_needs_no_settings() {
    require!(Bwrap, Node, Root);
    let port = serve(|_, _| plain("hello", "text/plain"));
    let manifest = format!("[agents.a.egress]\nallow = [\"one.test:{port}\", \"127.0.0.1:{port}\"]\n");
    let stage = Stage::with(&manifest);
    let script =
        format!("node -e 'fetch(\"http://one.test:{port}/\").then(r => r.text()).then(console.log)'");
    let found = with_names(&stage, "one.test", &["exec", "--yes", "--", "sh", "-c", &script]);
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "hello\n"), "{}", found.stderr);
}

pub const KEY: &str = "sk-ant-real-0123456789abcdef-outside-only";

/// The events of a streamed answer with one block.
pub fn streamed(start: &str, delta: &str, stop: &str) -> String {
    let usage = r#"{"input_tokens":11,"output_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}"#;
    let head = format!(
        r#"{{"type":"message_start","message":{{"id":"msg_1","type":"message","role":"assistant","model":"claude-opus-4-8","content":[],"stop_reason":null,"stop_sequence":null,"usage":{usage}}}}}"#
    );
    let events = [
        ("message_start", head),
        (
            "content_block_start",
            format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#),
        ),
        ("content_block_delta", format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#)),
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#.to_owned()),
        (
            "message_delta",
            format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}","stop_sequence":null}},"usage":{{"output_tokens":7}}}}"#
            ),
        ),
        ("message_stop", r#"{"type":"message_stop"}"#.to_owned()),
    ];
    let body: String = events.iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).collect();
    plain(&body, "text/event-stream")
}

/// Looks for the key wherever a program inside can look.
const SEARCH: &str = "env > seen.txt; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline >> seen.txt 2>/dev/null; \
                      find / -xdev -type f -size -200k -not -path '/usr/*' -not -path '/proc/*' -exec cat {} + >> seen.txt 2>/dev/null; true";

#[test]
fn the_real_agent_runs_on_a_key_that_it_never_sees() {
    require!(Agent, Bwrap);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&keys);
    let port = serve(move |head, body| {
        let key = head.lines().find_map(|line| line.strip_prefix("x-api-key: ").map(str::to_owned));
        seen.lock().unwrap().push(key);
        if String::from_utf8_lossy(body).contains("tool_result") {
            return streamed(
                r#"{"type":"text","text":""}"#,
                r#"{"type":"text_delta","text":"All done."}"#,
                "end_turn",
            );
        }
        let input = serde_json::json!({ "command": SEARCH }).to_string();
        let delta = serde_json::json!({ "type": "input_json_delta", "partial_json": input }).to_string();
        streamed(r#"{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}"#, &delta, "tool_use")
    });
    let stage = Stage::with("[agents.a]\npermissions = { skip_prompts = true }\n");
    let directory = agent::real().unwrap().parent().unwrap().display().to_string();
    let mut command = stage.command(&["run", "--yes", "--", "-p", "look around"]);
    command.env("PATH", format!("{directory}:/usr/bin:/bin")).env("ANTHROPIC_API_KEY", KEY);
    command.env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    let found = stage.finish(&mut command);
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(0), "All done.\n"), "{}", found.stderr);
    let keys = keys.lock().unwrap();
    assert!(keys.len() >= 2 && keys.iter().all(|key| key.as_deref() == Some(KEY)), "{keys:?}");
    let seen = String::from_utf8_lossy(&fs::read(stage.path("project/seen.txt")).unwrap()).into_owned();
    assert!(seen.contains("ANTHROPIC_API_KEY=belljar-placeholder-not-a-key"), "the search sees variables");
    assert!(!seen.contains(KEY), "the key is inside");
    assert!(found.stderr.contains("tokens read") && !found.stderr.contains(KEY), "{}", found.stderr);
    let directory = run_directory(&stage);
    let search = Command::new("grep")
        .args(["-rFl", "-e", KEY])
        .arg(&directory)
        .arg(stage.path("data"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&search.stdout), "", "the key is in what the run left");
    let rows = log(&stage);
    assert_eq!(rows[0]["kind"], "opened", "something was watching");
    let model = rows.iter().filter(|row| row["decision"]["way"] == "model").count();
    assert_eq!(model, keys.len());
    assert!(rows.iter().any(|row| row["decision"]["credential"] == "ANTHROPIC_API_KEY"));
}

#[test]
fn a_missing_or_refused_credential_is_one_clear_error() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let directory = agent::real().unwrap().parent().unwrap().display().to_string();
    let path = format!("{directory}:/usr/bin:/bin");
    let mut command = stage.command(&["run", "--", "-p", "hi"]);
    let found = stage.finish(command.env("PATH", &path));
    assert_eq!(found.status.code(), Some(125));
    assert!(found.stderr.contains("no credential for the model: set ANTHROPIC_API_KEY"), "{}", found.stderr);
    for way in ["`--script FILE`", "`test --scripted`", "`belljar replay`", "`belljar record`"] {
        assert!(found.stderr.contains(way), "{way}: {}", found.stderr);
    }
    let port = serve(|_, _| {
        let body = r#"{"type":"error","error":{"type":"authentication_error","message":"invalid key"}}"#;
        format!(
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    });
    let mut command = stage.command(&["run", "--", "-p", "hi"]);
    command.env("PATH", &path).env("ANTHROPIC_API_KEY", KEY);
    let found = stage.finish(command.env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}")));
    assert_ne!(found.status.code(), Some(0));
    assert!(
        found.stderr.contains("does not accept the credential from ANTHROPIC_API_KEY (status 401)"),
        "{}",
        found.stderr
    );
    assert!(!found.stderr.contains(KEY) && !found.stdout.contains(KEY));
}
