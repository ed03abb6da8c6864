//! Conversations of many shapes, recorded on each version and replayed on the other. The table in the docs is written by
//! these tests.

use super::{pairs, rows, with};
use crate::stage::{Stage, blessing};
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The page. Each direction has a column.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/agent-versions.md");

/// A conversation: its name in the table, the model's turns, and more lines of the scenario.
pub(super) struct Shape {
    pub name: &'static str,
    pub turns: Vec<Value>,
    pub more: &'static str,
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

fn sub_agents() -> Vec<Value> {
    vec![
        from("main", None, &[sub_agent("count the files")]),
        from("sub_agent", Some("count the files"), &[json!({"text": "There are 3."})]),
        from("main", None, &[json!({"text": "All done."})]),
    ]
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
    let plain = |name, turns: &[Value]| Shape { name, turns: turns.to_vec(), more: "" };
    let with = |name, turns: &[Value], more| Shape { name, turns: turns.to_vec(), more };
    vec![
        plain("a text", &[done()]),
        plain("a command", &[turn(&[bash("echo hi > outputs/a.txt; echo hi")]), done()]),
        plain("a command that fails", &[turn(&[bash("echo no >&2; exit 3")]), done()]),
        plain(
            "two commands at once",
            &[turn(&[bash("echo one"), bash("mkdir outputs/x; echo two")]), done()],
        ),
        plain("a command with long output", &[turn(&[bash("seq 1 60000")]), done()]),
        plain("a file written", &[turn(&[write()]), done()]),
        plain("a file written, read, edited", &[turn(&[write()]), turn(&[read()]), turn(&[edit]), done()]),
        plain("a missing file read", &[turn(&[missing]), done()]),
        plain("a search", &[turn(&[write()]), turn(&[glob]), turn(&[grep]), done()]),
        plain("an unknown tool", &[turn(&[call("NoSuchTool", json!({"a": 1}))]), done()]),
        with("a denied tool", &[turn(&[fetch]), done()], "  - {when_tool: WebFetch, decide: deny}\n"),
        with(
            "a question",
            &[turn(&[asks(&[("Which colour?", false)])]), done()],
            "  - {when_question: colour, choose: Blue}\n",
        ),
        with(
            "a question with two answers",
            &[turn(&[asks(&[("Which colours?", true)])]), done()],
            "  - {when_question: colours, choose: [Red, Blue]}\n",
        ),
        with(
            "two questions at once",
            &[turn(&[asks(&[("Which colour?", false), ("Which hat?", false)])]), done()],
            "  - {when_question: colour, choose: Blue}\n  - {when_question: hat, choose: Red}\n",
        ),
        with(
            "a question answered in free text",
            &[turn(&[asks(&[("Which colour?", false)])]), done()],
            "  - {when_question: colour, answer: Green}\n",
        ),
        plain("a skill", &[turn(&[call("Skill", json!({"skill": "hello"}))]), done()]),
        with("a skill typed as a command", &[done()], "prompt: /hello world\n"),
        plain("a server's tool", &[turn(&[note("one")]), done()]),
        plain("a server's tool that fails", &[turn(&[note("fail")]), done()]),
        plain("a hook that blocks", &[turn(&[bash("echo forbidden")]), done()]),
        plain("an overloaded model", &[error, done()]),
        plain("a task list", &[turn(&[task]), done()]),
        with("a sub-agent", &sub_agents(), ""),
        with("a sub-agent in the foreground", &sub_agents(), "fidelity: cowork\n"),
    ]
}

/// A server with one tool, which fails on the text `fail`.
const SERVER: &str = r#"import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    method, result = asked["method"], {}
    if method == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "notes", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "add", "description": "Adds a note",
                  "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}]}
    elif method == "tools/call":
        text = asked["params"]["arguments"]["text"]
        result = {"content": [{"type": "text", "text": "noted " + text}], "isError": text == "fail"}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

const HOOKS: &str = r#"{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [
    {"type": "command", "command": "if grep -q forbidden; then echo not here >&2; exit 2; fi"}]}]}}"#;

pub(super) fn slug(name: &str) -> String {
    name.replace([' ', ','], "-").replace(['\'', '.'], "")
}

pub(super) fn stage(shapes: Vec<Shape>) -> Stage {
    let stage = Stage::new();
    stage.write(
        "project/skills/hello/SKILL.md",
        "---\nname: hello\ndescription: Say hello\n---\nSay hello to $ARGUMENTS.\n",
    );
    stage.write("project/plugin/.claude-plugin/plugin.json", r#"{"name": "guarding", "version": "1.0.0"}"#);
    stage.write("project/plugin/hooks/hooks.json", HOOKS);
    let servers = json!({"mcpServers": {"notes": {"command": "python3", "args": ["-c", SERVER]}}});
    stage.write("project/mcp.json", servers.to_string());
    stage.write(
        "project/session.yaml",
        "model: claude-opus-4-8\nskills: {local: [skills/hello]}\nplugins: {local_plugins: [plugin]}\nmcp: {config: mcp.json}\n",
    );
    for Shape { name, turns, more } in shapes {
        let answers = "answers:\n  - {when_tool: Bash, decide: allow}\n  - {when_tool: Write, decide: allow}\n  \
            - {when_tool: Edit, decide: allow}\n  - {when_tool: Agent, decide: allow}\n  \
            - {when_tool: mcp__notes__add, decide: allow}\n";
        let (prompt, answers, tier) = match more {
            more if more.starts_with("prompt") => (more, answers.to_owned(), ""),
            more if more.starts_with("fidelity") => ("prompt: go\n", answers.to_owned(), more),
            more => ("prompt: go\n", format!("{answers}{more}"), ""),
        };
        let checks = "assert:\n  - transcript_contains: All done\n";
        let file = slug(name);
        stage.write(
            &format!("project/{file}.yaml"),
            format!("{prompt}{tier}session: session.yaml\n{answers}{checks}"),
        );
        stage
            .write(&format!("project/{file}.script.json"), json!({"version": 1, "turns": turns}).to_string());
    }
    stage
}

/// One of three parts of the conversations, which are tried side by side.
pub(super) fn part(number: usize) -> Vec<Shape> {
    let own = shapes().into_iter().enumerate().filter(|(at, _)| at % 3 == number);
    own.map(|(_, shape)| shape).collect()
}

/// How each conversation of a part ends on the other version.
fn outcomes(number: usize, recorder: &Path, replayer: &Path) -> BTreeMap<String, String> {
    let stage = stage(part(number));
    let made = with(&stage, recorder, &["record", "--scripted", "--json", "."]);
    let not_recorded = |name: &str| {
        let envelope: Value = serde_json::from_str(&made.stdout).unwrap();
        let rows = envelope["data"]["results"].as_array().unwrap().clone();
        let row = rows.iter().find(|row| row["scenario"] == json!(name)).cloned();
        row.is_none_or(|row| row["exit_code"] != json!(0))
    };
    let found = with(&stage, replayer, &["replay", "--json", "."]);
    let mut out = BTreeMap::new();
    let replayed = rows(&found);
    for Shape { name, .. } in part(number) {
        let file = slug(name);
        let row = replayed.iter().find(|row| row["scenario"] == json!(file));
        let outcome = match row {
            Some(row) if row["exit_code"] == json!(0) => {
                assert_eq!(row["replay"]["exact"], row["replay"]["exchanges"], "{name}: {row:#}");
                "replays".to_owned()
            }
            Some(row) => {
                assert_eq!(row["exit_code"], json!(7), "{name}: {row:#}");
                let drift = &row["replay"]["drifts"][0];
                let call = drift["differences"][0]["call"]["name"].as_str();
                let kind = drift["kind"].as_str().unwrap_or("unmatched");
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

/// The lines of the table, with one column written anew.
fn compare(column: usize, outcomes: &BTreeMap<String, String>) {
    let page = PathBuf::from(PAGE);
    let text = fs::read_to_string(&page).unwrap_or_default();
    let mut cells: BTreeMap<String, [String; 2]> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let parts: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [name, first, second] = parts[..] {
            cells.insert(name.to_owned(), [first.to_owned(), second.to_owned()]);
        }
    }
    let before = |name: &str| cells.get(name).map(|row| row[column].clone()).unwrap_or_default();
    if !blessing() {
        for (name, outcome) in outcomes {
            assert_eq!(before(name), *outcome, "{name}; BELLJAR_BLESS=1 writes {PAGE}");
        }
        let rows = cells.keys().filter(|name| !["conversation", "---"].contains(&name.as_str())).count();
        assert_eq!(rows, shapes().len(), "the table has a row for each conversation and no other");
        return;
    }
    let (old, new) = (agent::VERSION, agent::NEXT_VERSION);
    let mut out = format!(
        "<!-- Written by a test: BELLJAR_BLESS=1 cargo nextest run -j1 -p belljar-cli -E 'test(/crossing::shapes/)' -->\n\n\
         # Conversations on another version of the agent\n\n\
         Each conversation is recorded on one version and replayed on the other, without `--strict`. `replays` means that every\n\
         request matched on the user's side and every check passed. How this works is in\n\
         [tapes](../guides/tapes.md#another-version-of-the-agent).\n\n\
         | conversation | {old} → {new} | {new} → {old} |\n| --- | --- | --- |\n"
    );
    for Shape { name, .. } in shapes() {
        let mut row = cells.get(name).cloned().unwrap_or_default();
        if let Some(outcome) = outcomes.get(name) {
            row[column].clone_from(outcome);
        }
        out.push_str(&format!("| {name} | {} | {} |\n", row[0], row[1]));
    }
    fs::write(page, out).unwrap();
}

/// Column 0 is recorded on the older version, column 1 on the newer one.
macro_rules! tried {
    ($($name:ident($column:literal, $part:literal)),*) => {$(
        #[test]
        fn $name() {
            require!(Agent, AgentNext, Bwrap, Python);
            let (recorder, replayer, _) = &pairs()[$column];
            compare($column, &outcomes($part, recorder, replayer));
        }
    )*};
}

tried! {
    recorded_on_the_older_version_first_part(0, 0),
    recorded_on_the_older_version_second_part(0, 1),
    recorded_on_the_older_version_third_part(0, 2),
    recorded_on_the_newer_version_first_part(1, 0),
    recorded_on_the_newer_version_second_part(1, 1),
    recorded_on_the_newer_version_third_part(1, 2)
}
