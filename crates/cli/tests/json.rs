//! `--json`: every verb prints one envelope that the published schema describes, and nothing else, whether it succeeds,
//! fails or was called wrongly.

use crate::cmd::{agent_path, script, tried_json, verbs};
use crate::container::from::Own;
use crate::help::fixture;
use crate::stage::Stage;
use belljar_testkit::require;
use belljar_testkit::schema::conforms;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// A verb, a call that succeeds, and one that fails once its arguments are understood.
struct Row {
    verb: &'static str,
    succeeds: &'static [&'static str],
    /// Without one, a directory that does not exist is the failure.
    fails: Option<&'static [&'static str]>,
}

const fn row(
    verb: &'static str,
    succeeds: &'static [&'static str],
    fails: Option<&'static [&'static str]>,
) -> Row {
    Row { verb, succeeds, fails }
}

const ROWS: &[Row] = &[
    row("run", &["--dry-run"], Some(&["--dry-run", "nobody"])),
    row("exec", &["--dry-run", "--", "true"], Some(&["--dry-run", "nobody", "--", "true"])),
    row("shell", &["--dry-run"], Some(&["--dry-run", "nobody"])),
    row("plan", &[], Some(&["nobody"])),
    row("check", &[], None),
    row("init", &["--stdout"], None),
    row("import", &["claude-bottle.json", "--stdout"], Some(&["missing.json", "--stdout"])),
    row("trust", &["--yes"], Some(&["--yes", "nobody"])),
    row("findings", &[], Some(&["nothing"])),
    row("diff", &[], Some(&["nobody"])),
    row("apply", &["--dry-run"], Some(&["--dry-run", "nobody"])),
    row("discard", &["--yes"], Some(&["--yes", "nobody"])),
    row("instances", &[], None),
    row("gc", &["--dry-run"], None),
    row("image", &["list"], None),
    row("agent", &["list"], Some(&["which", "nobody"])),
    row("doctor", &[], None),
    row("prove", &[], None),
    row("skill", &["skills/changelog", "Hello", "--script", "hello.json"], Some(&["missing", "Hello"])),
    row("scenario", &["new", "skills/changelog", "--out", "made/first.yaml"], Some(&["from", "nothing"])),
    row("script", &["new", "made/first"], Some(&["new", "missing.yaml"])),
    row("test", &["--scripted", "scenarios/hello.yaml"], Some(&["--scripted", "missing.yaml"])),
    row("record", &["--scripted", "scenarios/hello.yaml"], Some(&["--scripted", "missing.yaml"])),
    row("replay", &["scenarios/hello.tape"], Some(&["missing.tape"])),
    row("tape", &["verify", "scenarios"], Some(&["show", "missing.tape"])),
    row(
        "chat",
        &["skills/changelog", "--say", "Hello", "--script", "hello.json"],
        Some(&["missing", "--script", "hello.json"]),
    ),
    row("runs", &[], None),
    row("trace", &["last"], Some(&["nothing"])),
    row("judge", &["last"], Some(&["nothing"])),
    row(
        "decide",
        &["--question", "Which?", "--option", "A", "--answer", "which=A"],
        Some(&["--question", "Which?"]),
    ),
    row("gates", &["questions"], Some(&["missing"])),
    row(
        "answer",
        &["questions", "--gate", "1", "--choose", "PDF"],
        Some(&["questions", "--gate", "9", "--choose", "PDF"]),
    ),
    row("schema", &["output"], None),
    row("completions", &["bash"], None),
    row("man", &[], Some(&["nothing"])),
];

/// These read nothing but their arguments.
const CANNOT_FAIL: [&str; 2] = ["schema", "completions"];

pub fn published() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/output.schema.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Calls the binary without input, and returns the envelope that is all of its standard output.
fn envelope(stage: &Stage, arguments: &[&str]) -> Value {
    let mut command = stage.command(arguments);
    command.env("PATH", agent_path()).stdin(Stdio::null());
    if arguments.contains(&"image") {
        command.envs(Own::environment(stage));
    }
    let found = stage.finish(&mut command);
    let envelope: Value = serde_json::from_str(&found.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: not one JSON value: {error}\n{found:?}"));
    assert!(conforms(&published(), &envelope), "{arguments:?}: {envelope:#}");
    assert_eq!(Some(&json!(found.status.code())), envelope.get("exit_code"), "{arguments:?}");
    envelope
}

fn with<'a>(verb: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&[verb, "--json"], arguments].concat()
}

/// `tape`, `image`, `agent`, `scenario` and `script` have the option behind their own verb.
fn placed<'a>(verb: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    match verb {
        "tape" | "image" | "agent" | "scenario" | "script" => {
            [&[verb, arguments[0], "--json"], &arguments[1..]].concat()
        }
        _ => with(verb, arguments),
    }
}

#[test]
fn every_verb_is_in_the_table() {
    let rows: Vec<&str> = ROWS.iter().map(|row| row.verb).collect();
    assert_eq!(verbs(), rows);
}

#[test]
fn a_wrong_command_line_is_an_envelope() {
    let stage = Stage::new();
    for Row { verb, .. } in ROWS {
        let found = envelope(&stage, &[verb, "--json", "--nonsense"]);
        assert_eq!((&found["verb"], &found["exit_code"]), (&json!(verb), &json!(2)), "{found:#}");
        assert!(found["error"]["message"].as_str().unwrap().contains("unexpected argument"), "{found:#}");
    }
    let found = envelope(&stage, &["nonsense", "--json"]);
    assert_eq!((&found["verb"], &found["exit_code"]), (&Value::Null, &json!(2)), "{found:#}");
    // The option of a command that would be started is not belljar's.
    let found = stage.run(&["exec", "--nonsense", "--", "tool", "--json"]);
    assert_eq!((found.status.code(), found.stdout.as_str()), (Some(2), ""), "{found:?}");
    // A stranger's text is escaped.
    let found = stage.run(&["plan", "--json", "--\u{1b}[2J"]);
    assert!(!found.stdout.contains('\u{1b}'), "{found:?}");
}

#[test]
fn a_failure_is_an_envelope() {
    let stage = fixture("skill");
    for Row { verb, fails, succeeds } in ROWS.iter().filter(|row| !CANNOT_FAIL.contains(&row.verb)) {
        let arguments = match fails {
            Some(fails) => placed(verb, fails),
            None => [&["-C", "/nowhere"], &placed(verb, succeeds)[..]].concat(),
        };
        let found = envelope(&stage, &arguments);
        assert_eq!((&found["verb"], &found["ok"]), (&json!(verb), &json!(false)), "{arguments:?}: {found:#}");
    }
}

#[test]
fn a_success_is_an_envelope() {
    require!(Agent, Bwrap, Podman);
    for Row { verb, succeeds, .. } in ROWS {
        let stage = fixture(verb);
        let arguments = placed(verb, succeeds);
        let found = envelope(&stage, &arguments);
        assert_eq!((&found["verb"], &found["ok"]), (&json!(verb), &json!(true)), "{arguments:?}: {found:#}");
        if *verb == "image" {
            Own { stage }.end();
        }
    }
}

/// What a run was, for machines; a secret in the last message stays out of it.
#[test]
fn a_result_says_what_was_done_and_keeps_secrets() {
    require!(Agent, Bwrap);
    const SECRET: &str = "correct-horse-battery-staple";
    let stage = fixture("skill");
    let turns = [
        json!({"tool_use": {"name": "Write", "input": {"file_path": "/workspace/outputs/a", "content": "x"}}}),
        json!({"text": format!("Done, {SECRET}.")}),
    ];
    stage.write("project/scenarios/hello.script.json", script(&turns));
    let scenario = "prompt: Hello\nsession: s.yaml\nanswers:\n  - {when_tool: Write, decide: allow, why: it may}\n\
        assert:\n  - tool_called: Write\n";
    stage.write("project/scenarios/hello.yaml", scenario);
    stage.write("project/scenarios/s.yaml", "mcp: {config: mcp.json}\n");
    let server = json!({"mcpServers": {"s": {"command": "true", "env": {"TOKEN": "${TOKEN}"}}}});
    stage.write("project/scenarios/mcp.json", server.to_string());
    let mut command = stage.command(&["test", "--json", "--yes", "--scripted", "--repeat", "2", "scenarios"]);
    let found = stage.finish(command.env("PATH", agent_path()).env("TOKEN", SECRET));
    assert!(!found.stdout.contains(SECRET), "{found:?}");
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    let results = envelope["data"]["results"].as_array().unwrap();
    let numbers: Vec<&Value> = results.iter().map(|result| &result["repetition"]).collect();
    assert_eq!(numbers, [&json!(1), &json!(2)], "{envelope:#}");
    for result in results {
        assert!(result["final_message"].as_str().unwrap().starts_with("Done, "), "{result:#}");
        assert_eq!(result["tools"]["Write"]["calls"], 1, "{result:#}");
        assert!(result["decisions"][0].to_string().contains("it may"), "{result:#}");
        assert!(result["directory"].is_string() && result["checks"][0].is_object(), "{result:#}");
    }
    // The record has a mark in its place, so that neither its presence nor its absence can be shown.
    for check in ["transcript_not_contains", "transcript_contains"] {
        stage.write("project/scenarios/hello.yaml", format!("{scenario}  - {check}: {SECRET}\n"));
        let mut command = stage.command(&["test", "--json", "--yes", "--scripted", "scenarios"]);
        let found = stage.finish(command.env("PATH", agent_path()).env("TOKEN", SECRET));
        assert_eq!(found.status.code(), Some(3), "{check}: {found:?}");
        assert!(!found.stdout.contains(SECRET), "{check}: {found:?}");
        assert!(found.stdout.contains("holds a value that the record redacts"), "{check}: {found:?}");
    }
    let (status, alone) = tried_json(&stage, &["test", "--json", "--scripted", "scenarios/missing.yaml"]);
    assert_eq!((status, &alone["ok"]), (2, &json!(false)), "{alone:#}");
}
