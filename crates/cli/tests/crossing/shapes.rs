//! Conversations of many shapes, recorded on each version and replayed on the other. The table in the docs is written by
//! these tests.

use super::{pairs, rows, with};
use crate::stage::{Stage, blessing};
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How many tests the conversations are divided into.
const PARTS: usize = 12;

/// How a conversation ends that crosses.
const REPLAYS: &str = "replays";

/// The page. Each direction has a column.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/agent-versions.md");

/// The requests that these conversations made, a file for each version.
const REQUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../egress/fixtures/conversations");

/// A conversation.
pub(super) struct Shape {
    /// Its name in the table.
    pub name: &'static str,
    /// The model's turns.
    pub turns: Vec<Value>,
    prompt: &'static str,
    session: &'static str,
    /// Lines of the scenario before its answers.
    pub more: &'static str,
    answers: &'static str,
    check: &'static str,
    /// Why it drifts; empty if it replays in both directions.
    why: &'static str,
}

impl Shape {
    pub(super) fn of(name: &'static str, turns: &[Value]) -> Self {
        let (prompt, session, check) = ("go", "session.yaml", "transcript_contains: All done");
        Self { name, turns: turns.to_vec(), prompt, session, more: "", answers: "", check, why: "" }
    }

    fn prompt(self, prompt: &'static str) -> Self {
        Self { prompt, ..self }
    }

    fn session(self, session: &'static str) -> Self {
        Self { session, ..self }
    }

    fn answers(self, answers: &'static str) -> Self {
        Self { answers, ..self }
    }

    fn check(self, check: &'static str) -> Self {
        Self { check, ..self }
    }

    pub(super) fn foreground(self) -> Self {
        Self { more: "fidelity: cowork\n", ..self }
    }

    fn why(self, why: &'static str) -> Self {
        Self { why, ..self }
    }
}

pub(super) fn turn(content: &[Value]) -> Value {
    json!({"answer": {"reply": {"content": content}}})
}

pub(super) fn done() -> Value {
    turn(&[json!({"text": "All done."})])
}

fn call(tool: &str, input: Value) -> Value {
    json!({"tool_use": {"name": tool, "input": input}})
}

pub(super) fn bash(command: &str) -> Value {
    call("Bash", json!({"command": command, "description": "x"}))
}

fn asks(questions: &[(&str, bool)]) -> Value {
    let question = |(text, multi): &(&str, bool)| {
        json!({"question": text, "header": "H", "multiSelect": multi, "options": [
            {"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]})
    };
    call("AskUserQuestion", json!({"questions": questions.iter().map(question).collect::<Vec<_>>()}))
}

pub(super) fn sub_agent(prompt: &str) -> Value {
    call("Agent", json!({"description": "part", "prompt": prompt, "subagent_type": "general-purpose"}))
}

pub(super) fn from(sender: &str, contains: Option<&str>, content: &[Value]) -> Value {
    let mut out = turn(content);
    out["when"] = json!({"sender": sender});
    if let Some(text) = contains {
        out["when"]["last_message_contains"] = json!(text);
    }
    out
}

/// When a sub-agent in the background ends, the agent reports it to the main conversation, which takes a further turn.
fn sub_agents(prompts: &[&str]) -> Vec<Value> {
    let calls: Vec<Value> = prompts.iter().map(|prompt| sub_agent(prompt)).collect();
    let mut turns = vec![from("main", None, &calls)];
    turns.extend(prompts.iter().map(|prompt| {
        from("sub_agent", Some(prompt), &[json!({"text": format!("Told to {prompt}:\n\n  3")})])
    }));
    turns.extend((0..=prompts.len()).map(|_| from("main", None, &[json!({"text": "All done."})])));
    turns
}

/// Its conversation becomes so long that it is made shorter.
fn made_shorter() -> Vec<Value> {
    let long = |command: &str| {
        json!({"when": {"sender": "main"}, "answer": {"reply": {
            "content": [bash(command)], "usage": {"input_tokens": 90_000}}}})
    };
    let summary = "<analysis>a</analysis><summary>one was said</summary>";
    let mut shorter = turn(&[json!({"text": summary})]);
    shorter["when"] = json!({"last_message_contains": "followed by a <summary> block"});
    vec![long("echo one"), long("echo two"), shorter, turn(&[bash("echo three")]), done()]
}

fn shapes() -> Vec<Shape> {
    let file = "/workspace/outputs/a.txt";
    let write = || call("Write", json!({"file_path": file, "content": "one\ntwo\n"}));
    let read = || call("Read", json!({"file_path": file}));
    let edit = call("Edit", json!({"file_path": file, "old_string": "one", "new_string": "three"}));
    let error = json!({"answer": {"error": {"status": 529, "type": "overloaded_error", "message": "x"}}});
    let missing = call("Read", json!({"file_path": "/workspace/none.txt"}));
    let fetch = call("WebFetch", json!({"url": "https://example.org/", "prompt": "x"}));
    let task = call("TaskCreate", json!({"subject": "a", "description": "b"}));
    let grep = call("Grep", json!({"pattern": "one", "path": "/workspace"}));
    let glob = call("Glob", json!({"pattern": "**/*.txt"}));
    let note = |text: &str| call("mcp__notes__add", json!({"text": text}));
    let image = call("Read", json!({"file_path": "/workspace/uploads/dot.png"}));
    let table = call("Read", json!({"file_path": "/workspace/uploads/figures.csv"}));
    let noted = call("Read", json!({"file_path": "/workspace/notes/a.txt"}));
    let thought = json!({"thinking": {"text": "I look first.", "signature": "c2ln"}});
    let refused =
        json!({"answer": {"error": {"status": 400, "type": "invalid_request_error", "message": "no"}}});
    let background = "The newer version starts a sub-agent in the background and goes on without its report.";
    let again = "The newer version sends a refused request several times, the older one once.";
    let summary = "The agent asks for the summary in words of its own, as if the user had said them.";
    let gone = "The newer version has no such tool for the model `claude-opus-4-8`.";
    let shape = |name, turns: &[Value]| Shape::of(name, turns);
    vec![
        shape("a text", &[done()]),
        shape("a thought", &[turn(&[thought, bash("echo hi")]), done()]),
        shape("a command", &[turn(&[bash("echo hi > outputs/a.txt; echo hi")]), done()]),
        shape("a command that fails", &[turn(&[bash("echo no >&2; exit 3")]), done()]),
        shape(
            "two commands at once",
            &[turn(&[bash("echo one"), bash("mkdir outputs/x; echo two")]), done()],
        ),
        shape("a command with long output", &[turn(&[bash("seq 1 60000")]), done()]),
        shape("a file written", &[turn(&[write()]), done()]),
        shape("a file written, read, edited", &[turn(&[write()]), turn(&[read()]), turn(&[edit]), done()]),
        shape("a missing file read", &[turn(&[missing]), done()]),
        shape("an upload read", &[turn(&[table]), done()]).session("uploads.yaml"),
        shape("an image read", &[turn(&[image]), done()]).session("uploads.yaml"),
        shape("a file named with @", &[done()]).session("uploads.yaml").prompt("see @uploads/figures.csv"),
        shape("a directory with a CLAUDE.md", &[turn(&[noted]), done()]).session("notes.yaml"),
        shape("a search", &[turn(&[write()]), turn(&[glob]), turn(&[grep]), done()]),
        shape("an unknown tool", &[turn(&[call("NoSuchTool", json!({"a": 1}))]), done()]),
        shape("a denied tool", &[turn(&[fetch]), done()])
            .answers("  - {when_tool: WebFetch, decide: deny}\n"),
        shape("a question", &[turn(&[asks(&[("Which colour?", false)])]), done()])
            .answers("  - {when_question: colour, choose: Blue}\n"),
        shape("a question with two answers", &[turn(&[asks(&[("Which colours?", true)])]), done()])
            .answers("  - {when_question: colours, choose: [Red, Blue]}\n"),
        shape(
            "two questions at once",
            &[turn(&[asks(&[("Which colour?", false), ("Which hat?", false)])]), done()],
        )
        .answers("  - {when_question: colour, choose: Blue}\n  - {when_question: hat, choose: Red}\n"),
        shape("a question answered in free text", &[turn(&[asks(&[("Which colour?", false)])]), done()])
            .answers("  - {when_question: colour, answer: Green}\n"),
        shape("a skill", &[turn(&[call("Skill", json!({"skill": "hello"}))]), done()]),
        shape("a skill typed as a command", &[done()]).prompt("/hello world"),
        shape("a server's tool", &[turn(&[note("one")]), done()]),
        shape("a server's tool that fails", &[turn(&[note("fail")]), turn(&[note("fail")]), done()]),
        shape("a server that offers a further tool", &[turn(&[note("grow")]), turn(&[note("one")]), done()]),
        shape("a hook that blocks", &[turn(&[bash("echo forbidden")]), done()]),
        shape("a hook that refuses with a reason", &[turn(&[bash("echo unwise")]), done()]),
        shape("a hook that lets pass and prints", &[turn(&[bash("echo noted")]), done()]),
        shape("an overloaded model", &[error, done()]),
        shape("an error that ends the run", &[vec![turn(&[bash("echo hi")])], vec![refused; 12]].concat())
            .check("result: error")
            .why(again),
        shape("a conversation made shorter", &made_shorter())
            .session("short.yaml")
            .check("compaction_occurred: true")
            .why(summary),
        shape("a task list", &[turn(&[task]), done()]).why(gone),
        shape("a sub-agent", &sub_agents(&["count the files"])).why(background),
        shape("a sub-agent in the foreground", &sub_agents(&["count the files"])).foreground(),
        shape("two sub-agents at once", &sub_agents(&["count the files", "count the lines"])).foreground(),
    ]
}

/// A server with one tool, which fails on the text `fail` and has a further tool after the text `grow`.
const SERVER: &str = r#"import json, sys
tools = ["add"]
def send(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    method, result = asked["method"], {}
    if method == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
                  "serverInfo": {"name": "notes", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "description": "Adds a note",
                  "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}} for name in tools]}
    elif method == "tools/call":
        text = asked["params"]["arguments"]["text"]
        result = {"content": [{"type": "text", "text": "noted " + text}], "isError": text == "fail"}
        if text == "grow":
            tools.append("more")
            send({"method": "notifications/tools/list_changed"})
    send({"id": asked["id"], "result": result})
"#;

/// A hook that blocks the word `forbidden`, refuses `unwise`, and says something of `noted`.
const HOOKS: &str = r#"in=$(cat)
say() { printf '{"hookSpecificOutput": {"hookEventName": "PreToolUse", %s}}' "$1"; }
case $in in
*forbidden*) echo not here >&2; exit 2 ;;
*unwise*) say '"permissionDecision": "deny", "permissionDecisionReason": "not wise"' ;;
*noted*) say '"additionalContext": "mind the gap"' ;;
esac
"#;

/// An image of one dot.
const DOT: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0, 1, 0, 0,
    0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 0x0a, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63,
    0x60, 0, 0, 0, 2, 0, 1, 0x48, 0xaf, 0xa4, 0x71, 0, 0, 0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60,
    0x82,
];

pub(super) fn slug(name: &str) -> String {
    name.replace([' ', ','], "-").replace(['\'', '.', '@'], "")
}

pub(super) fn stage(shapes: Vec<Shape>) -> Stage {
    let stage = Stage::new();
    stage.write(
        "project/skills/hello/SKILL.md",
        "---\nname: hello\ndescription: Say hello\n---\nSay hello to $ARGUMENTS.\n",
    );
    stage.write("project/plugin/.claude-plugin/plugin.json", r#"{"name": "guarding", "version": "1.0.0"}"#);
    stage.write("project/plugin/hooks/hook.sh", HOOKS);
    let hook = json!({"type": "command", "command": "sh ${CLAUDE_PLUGIN_ROOT}/hooks/hook.sh"});
    let hooks = json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}});
    stage.write("project/plugin/hooks/hooks.json", hooks.to_string());
    let servers = json!({"mcpServers": {"notes": {"command": "python3", "args": ["-c", SERVER]}}});
    stage.write("project/mcp.json", servers.to_string());
    stage.write("project/notes/CLAUDE.md", "Be brief about notes.\n");
    stage.write("project/notes/a.txt", "a note\n");
    stage.write("project/figures.csv", "visitors,1200\n");
    stage.write("project/dot.png", DOT);
    for (file, more) in [
        ("session.yaml", ""),
        ("uploads.yaml", "uploads: [figures.csv, dot.png]\n"),
        ("notes.yaml", "folders: [{from: notes, mode: r}]\n"),
        ("short.yaml", "agent_env: {auto_compact_window: 100000}\n"),
    ] {
        let session = "model: claude-opus-4-8\nskills: {local: [skills/hello]}\n\
            plugins: {local_plugins: [plugin]}\nmcp: {config: mcp.json}\n";
        stage.write(&format!("project/{file}"), format!("{session}{more}"));
    }
    for Shape { name, turns, prompt, session, more, answers, check, why: _ } in shapes {
        let allowed = ["Bash", "Write", "Edit", "Agent", "mcp__notes__add"]
            .map(|tool| format!("  - {{when_tool: {tool}, decide: allow}}\n"))
            .concat();
        let file = slug(name);
        stage.write(
            &format!("project/{file}.yaml"),
            format!("prompt: '{prompt}'\n{more}session: {session}\nanswers:\n{allowed}{answers}assert:\n  - {check}\n"),
        );
        let script = json!({"version": 1, "turns": turns});
        stage.write(&format!("project/{file}.script.json"), script.to_string());
    }
    stage
}

/// Keeps the last request of each conversation that crosses, for the tests of what belongs to whom.
fn keep_requests(stage: &Stage, version: &str, names: &[&'static str]) {
    let _alone = alone();
    let path = PathBuf::from(REQUESTS).join(format!("{version}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|_| "[]".to_owned());
    let mut kept: Vec<(String, String, Value)> = serde_json::from_str(&text).unwrap();
    kept.retain(|(name, ..)| {
        !names.contains(&name.as_str())
            && shapes().iter().any(|shape| shape.name == name && shape.why.is_empty())
    });
    for name in names {
        let (tape, har) = (format!("{}.tape", slug(name)), stage.path("archive.har"));
        let found = stage.run(&["tape", "export", &tape, "--har", har.to_str().unwrap()]);
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        let archive: Value = serde_json::from_str(&fs::read_to_string(&har).unwrap()).unwrap();
        fs::remove_file(&har).unwrap();
        let mut conversations: BTreeMap<&str, Value> = BTreeMap::new();
        for entry in archive["log"]["entries"].as_array().unwrap() {
            let request =
                serde_json::from_str(entry["request"]["postData"]["text"].as_str().unwrap()).unwrap();
            conversations.insert(entry["comment"].as_str().unwrap(), request);
        }
        kept.extend(
            conversations.into_iter().map(|(who, request)| ((*name).to_owned(), who.to_owned(), request)),
        );
    }
    kept.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    let lines: Vec<String> = kept.iter().map(|line| json!(line).to_string()).collect();
    fs::write(path, format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
}

/// One of the parts of the conversations, which are tried side by side.
pub(super) fn part(number: usize) -> Vec<Shape> {
    let own = shapes().into_iter().enumerate().filter(|(at, _)| at % PARTS == number);
    own.map(|(_, shape)| shape).collect()
}

/// How each conversation of a part ends on the other version.
fn outcomes(number: usize, version: &str, (recorder, replayer): (&Path, &Path)) -> BTreeMap<String, String> {
    let stage = stage(part(number));
    let made = with(&stage, recorder, &["record", "--scripted", "--json", "."]);
    let not_recorded = |name: &str| {
        let envelope: Value = serde_json::from_str(&made.stdout).unwrap();
        let rows = envelope["data"]["results"].as_array().unwrap().clone();
        let row = rows.iter().find(|row| row["scenario"] == json!(name)).cloned();
        row.is_none_or(|row| row["exit_code"] != json!(0))
    };
    if blessing() {
        let crossing = part(number).into_iter().filter(|shape| shape.why.is_empty());
        keep_requests(&stage, version, &crossing.map(|shape| shape.name).collect::<Vec<_>>());
    }
    let found = with(&stage, replayer, &["replay", "--json", "."]);
    let mut out = BTreeMap::new();
    let replayed = rows(&found);
    for Shape { name, .. } in part(number) {
        let file = slug(name);
        let row = replayed.iter().find(|row| row["scenario"] == json!(file));
        let outcome = match row {
            Some(row) if row["exit_code"] == json!(0) => {
                let replay = &row["replay"];
                assert_eq!(
                    (&replay["drifts"], &replay["unconsumed"]),
                    (&json!([]), &json!([])),
                    "{name}: {row:#}"
                );
                REPLAYS.to_owned()
            }
            Some(row) => {
                assert_eq!(row["exit_code"], json!(7), "{name}: {row:#}");
                let drift = &row["replay"]["drifts"][0];
                let call = drift["differences"][0]["call"]["name"].as_str();
                let kind = drift["kind"].as_str().unwrap_or("not asked for");
                format!("drifts ({kind}{})", call.map(|call| format!(" of `{call}`")).unwrap_or_default())
            }
            None => {
                assert!(not_recorded(&file), "{name}: {}", made.stdout);
                "cannot be recorded with this script".to_owned()
            }
        };
        out.insert(name.to_owned(), outcome);
    }
    out
}

/// Keeps other tests from the files that are written, until it is dropped.
fn alone() -> fs::File {
    let directory = fs::File::open(REQUESTS).unwrap();
    directory.lock().unwrap();
    directory
}

/// The lines of the table, with one column written anew.
fn compare(column: usize, outcomes: &BTreeMap<String, String>) {
    let _alone = alone();
    let page = PathBuf::from(PAGE);
    let text = fs::read_to_string(&page).unwrap_or_default();
    let mut cells: BTreeMap<String, [String; 2]> = BTreeMap::new();
    let whys: BTreeMap<&str, &str> = shapes().iter().map(|shape| (shape.name, shape.why)).collect();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let parts: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [name, first, second, why] = parts[..] {
            assert!(
                blessing() || *why == **whys.get(name).unwrap_or(&why),
                "{name}; BELLJAR_BLESS=1 writes {PAGE}"
            );
            cells.insert(name.to_owned(), [first.to_owned(), second.to_owned()]);
        }
    }
    let before = |name: &str| cells.get(name).map(|row| row[column].clone()).unwrap_or_default();
    if !blessing() {
        for (name, outcome) in outcomes {
            assert_eq!(before(name), *outcome, "{name}; BELLJAR_BLESS=1 writes {PAGE}");
            let drifts = cells[name].iter().any(|cell| cell != REPLAYS);
            assert_eq!(
                drifts,
                !whys[name.as_str()].is_empty(),
                "{name}: a drift has a reason, and nothing else has"
            );
        }
        let rows = cells.keys().filter(|name| !["conversation", "---"].contains(&name.as_str())).count();
        assert_eq!(rows, shapes().len(), "the table has a row for each conversation and no other");
        return;
    }
    let (old, new) = (agent::OLDER_VERSION, agent::VERSION);
    let mut out = format!(
        "<!-- Written by a test: BELLJAR_BLESS=1 cargo nextest run -p belljar-cli -E 'test(/crossing::shapes/)' -->\n\n\
         # Conversations on another version of the agent\n\n\
         Each conversation is recorded on one version and replayed on the other, without `--strict`. `replays` means that every\n\
         request matched on the user's side and every check passed. How this works is in\n\
         [tapes](../guides/tapes.md#another-version-of-the-agent). A conversation that is resumed is not among them: a scenario\n\
         is always a new one.\n\n\
         | conversation | {old} → {new} | {new} → {old} | why |\n| --- | --- | --- | --- |\n"
    );
    for Shape { name, why, .. } in shapes() {
        let mut row = cells.get(name).cloned().unwrap_or_default();
        if let Some(outcome) = outcomes.get(name) {
            row[column].clone_from(outcome);
        }
        out.push_str(&format!("| {name} | {} | {} | {why} |\n", row[0], row[1]));
    }
    fs::write(page, out).unwrap();
}

/// Column 0 is recorded on the older version, column 1 on the newer one.
macro_rules! tried {
    ($($name:ident($column:literal, $part:literal)),*) => {$(
        #[test]
        fn $name() {
            require!(Agent, AgentOlder, Bwrap, Python);
            let [newer, older] = pairs();
            let (recorder, replayer, _) = [older, newer][$column].clone();
            let version = [agent::OLDER_VERSION, agent::VERSION][$column];
            compare($column, &outcomes($part, version, (&recorder, &replayer)));
        }
    )*};
}

tried! {
    recorded_on_the_older_version_first_part(0, 0),
    recorded_on_the_older_version_second_part(0, 1),
    recorded_on_the_older_version_third_part(0, 2),
    recorded_on_the_older_version_fourth_part(0, 3),
    recorded_on_the_older_version_fifth_part(0, 4),
    recorded_on_the_older_version_sixth_part(0, 5),
    recorded_on_the_older_version_seventh_part(0, 6),
    recorded_on_the_older_version_eighth_part(0, 7),
    recorded_on_the_older_version_ninth_part(0, 8),
    recorded_on_the_older_version_tenth_part(0, 9),
    recorded_on_the_older_version_eleventh_part(0, 10),
    recorded_on_the_older_version_twelfth_part(0, 11),
    recorded_on_the_newer_version_first_part(1, 0),
    recorded_on_the_newer_version_second_part(1, 1),
    recorded_on_the_newer_version_third_part(1, 2),
    recorded_on_the_newer_version_fourth_part(1, 3),
    recorded_on_the_newer_version_fifth_part(1, 4),
    recorded_on_the_newer_version_sixth_part(1, 5),
    recorded_on_the_newer_version_seventh_part(1, 6),
    recorded_on_the_newer_version_eighth_part(1, 7),
    recorded_on_the_newer_version_ninth_part(1, 8),
    recorded_on_the_newer_version_tenth_part(1, 9),
    recorded_on_the_newer_version_eleventh_part(1, 10),
    recorded_on_the_newer_version_twelfth_part(1, 11)
}
