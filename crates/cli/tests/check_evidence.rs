//! Every key of `assert`, judged on a run of the real agent, on a replay of its tape and on the recorded frames alone.
//!
//! One conversation is orderly and passes, one is disorderly and fails, one is cut off by its time limit.
//! `docs/reference/check-evidence.md` is written from what is found here (`BELLJAR_BLESS=1`). A key without a case fails
//! the test, and so does an outcome that no case shows and no reason rules out.

mod cases;
mod talks;

use crate::cmd::record::{bash, data, main_turn, script, with_agent};
use crate::services::{plain, serve};
use crate::stage::{Stage, blessing};
use belljar_testkit::process::run_within;
use belljar_testkit::require;
use cases::{CASES, IMPOSSIBLE, REFUSED_HEADING};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use talks::Talk;

/// Some runs of the agent one after the other, one of them until its time limit.
const DEADLINE: Duration = Duration::from_secs(300);

/// How a check comes to its evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Run,
    Replay,
    Protocol,
}

const LANES: [(Lane, &str); 3] =
    [(Lane::Run, "run"), (Lane::Replay, "replay"), (Lane::Protocol, "protocol replay")];
const OUTCOMES: [&str; 3] = ["pass", "fail", "unknown"];

/// What a check is expected to say, and as it is written.
struct Expected {
    key: &'static str,
    value: &'static str,
    outcome: &'static str,
}

/// An outcome as the binary printed it.
struct Found {
    key: &'static str,
    expected: &'static str,
    outcome: String,
    message: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Whether a key is about what the agent reports as it begins.
fn of_the_beginning(key: &str) -> bool {
    key.ends_with("_available")
}

/// The checks that are asked of a conversation. Those that contradict others are in a list of their own.
fn asked(talk: Talk, apart: bool) -> Vec<Expected> {
    let cases = CASES.iter().filter(|case| cases::APART.contains(&case.key) == apart);
    let one = |key, (on, value): (Talk, &'static str), outcome| {
        (on == talk).then_some(Expected { key, value, outcome })
    };
    cases
        .flat_map(|case| match talk {
            // The agent had begun, so what it was offered is known.
            Talk::Cut if of_the_beginning(case.key) => vec![one(case.key, (talk, case.pass.1), "pass")],
            Talk::Cut => vec![one(case.key, (talk, case.pass.1), "unknown")],
            Talk::Orderly | Talk::Disorderly => {
                let fail = case.fail.and_then(|fail| one(case.key, fail, "fail"));
                vec![one(case.key, case.pass, "pass"), fail]
            }
        })
        .flatten()
        .collect()
}

/// Writes the scenario of a list and returns its name.
fn scenario(stage: &Stage, talk: Talk, apart: bool, port: u16) -> String {
    let name = format!("{}{}", talk.name(), if apart { "-apart" } else { "" });
    let mut text = talk.head().to_owned();
    for Expected { key, value, .. } in asked(talk, apart) {
        writeln!(text, "  - {key}: {value}").unwrap();
    }
    stage.write(&format!("project/{name}.yaml"), text);
    stage.write(&format!("project/{name}.script.json"), talk.script(port).to_string());
    name
}

/// Runs a verb on a scenario or a tape, and returns the row of its result.
fn row(stage: &Stage, arguments: &[&str]) -> Value {
    let found = run_within(&mut with_agent(stage, arguments), DEADLINE).unwrap();
    let row = data(&found)["results"][0].clone();
    assert!(row["checks"].is_array(), "{arguments:?}: {row:#}{}", found.stderr);
    row
}

/// The outcome of each check of a list.
fn outcomes(row: &Value, asked: &[Expected]) -> Vec<Found> {
    let checks = row["checks"].as_array().unwrap();
    assert_eq!(checks.len(), asked.len(), "{row:#}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |(check, expected): (&Value, &Expected)| {
        assert!(text(&check["check"]).starts_with(&format!("{}: ", expected.key)), "{check:#}");
        let (outcome, message) = (text(&check["outcome"]), text(&check["message"]));
        Found { key: expected.key, expected: expected.outcome, outcome, message }
    };
    checks.iter().zip(asked).map(one).collect()
}

/// With the network, a replay reaches the host again.
fn replayed_with_the_network(stage: &Stage, tape: &str, asked: &[Expected]) {
    let row = row(stage, &["replay", "--json", "--network", "--yes", tape]);
    for found in outcomes(&row, asked) {
        assert_eq!(found.outcome, "pass", "{}: {}", found.key, found.message);
    }
}

/// A list in the three lanes.
fn judged(stage: &Stage, talk: Talk, apart: bool, port: u16) -> Vec<(Lane, Found)> {
    let name = scenario(stage, talk, apart, port);
    let asked = asked(talk, apart);
    let tape = format!("{name}.tape");
    let recording = ["record", "--json", "--scripted", "--yes", "--allow-failing", &format!("{name}.yaml")];
    let run = row(stage, &recording);
    assert_eq!(run["conclusion"] == "passed", talk == Talk::Orderly && !apart, "{run:#}");
    let replay = row(stage, &["replay", "--json", "--on-drift", "continue", &tape]);
    if talk != Talk::Cut {
        assert_eq!(replay["replay"]["drifts"], json!([]), "{replay:#}");
    }
    if talk == Talk::Orderly && !apart {
        replayed_with_the_network(stage, &tape, &asked);
    }
    let protocol = row(stage, &["replay", "--json", "--protocol", &tape]);
    let lanes = [(Lane::Run, run), (Lane::Replay, replay), (Lane::Protocol, protocol)];
    let each = |(lane, row): &(Lane, Value)| {
        outcomes(row, &asked).into_iter().map(|found| (*lane, found)).collect::<Vec<_>>()
    };
    lanes.iter().flat_map(each).collect()
}

/// A run whose conversation belljar did not see: the inventory of the agent is not known.
fn unseen(stage: &Stage) -> Vec<(Lane, Found)> {
    let asked: Vec<Expected> = CASES
        .iter()
        .filter(|case| of_the_beginning(case.key))
        .map(|case| Expected { key: case.key, value: case.pass.1, outcome: "unknown" })
        .collect();
    let list: String = asked.iter().map(|one| format!("  - {}: {}\n", one.key, one.value)).collect();
    stage.write("project/inventory.yaml", format!("prompt: go\nassert:\n{list}"));
    stage.write("project/belljar.toml", "[agents.a]\n");
    stage.write("project/hello.script.json", crate::cmd::HELLO);
    let run = ["run", "--yes", "--script", "hello.script.json", "--", "-p", "go"];
    let found = run_within(&mut with_agent(stage, &run), DEADLINE).unwrap();
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let judged = stage.json(&["judge", "--json", "last", "inventory.yaml"])["data"].clone();
    outcomes(&judged, &asked).into_iter().map(|found| (Lane::Run, found)).collect()
}

/// A stage with what the conversations use.
fn stage(port: u16) -> Stage {
    let stage = Stage::copy_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check_evidence/project"));
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    let server = fs::read_to_string(stage.path("project/server.py")).unwrap();
    let desk = json!({"command": "python3", "args": ["-c", server]});
    stage.write("project/mcp.json", json!({"mcpServers": {"desk": desk}}).to_string());
    let session = fs::read_to_string(stage.path("project/session.yaml")).unwrap();
    stage.write("project/session.yaml", session.replace("PORT", &port.to_string()));
    stage
}

/// Everything that was found. The cut lists wait most of the time, so each has a thread.
fn everything() -> Vec<(Lane, Found)> {
    let port = serve(|_, _| plain("thanks", "text/plain"));
    let list = move |talk, apart| judged(&stage(port), talk, apart, port);
    std::thread::scope(|scope| {
        let cut = [false, true].map(|apart| scope.spawn(move || list(Talk::Cut, apart)));
        let mut found = unseen(&stage(port));
        for (talk, apart) in [
            (Talk::Orderly, false),
            (Talk::Orderly, true),
            (Talk::Disorderly, false),
            (Talk::Disorderly, true),
        ] {
            found.extend(list(talk, apart));
        }
        found.extend(cut.into_iter().flat_map(|cut| cut.join().unwrap()));
        found
    })
}

/// A key with every outcome that was found.
struct Row<'a> {
    key: &'a str,
    outcomes: BTreeSet<(Lane, &'a str)>,
}

impl Row<'_> {
    /// The outcomes in a lane.
    fn cell(&self, lane: Lane) -> String {
        let seen = OUTCOMES.iter().filter(|outcome| self.outcomes.contains(&(lane, **outcome)));
        seen.copied().collect::<Vec<_>>().join(", ")
    }

    /// Why an outcome is missing.
    fn reason(&self, lane: Lane, outcome: &str) -> &'static str {
        let reason = impossible(self.key, lane, outcome);
        reason.unwrap_or_else(|| panic!("no case shows {outcome} of `{}` on a {lane:?}", self.key)).why
    }

    fn line(&self) -> String {
        let mut reasons: Vec<&str> = Vec::new();
        for outcome in OUTCOMES {
            let missing = LANES.iter().filter(|(lane, _)| !self.outcomes.contains(&(*lane, outcome)));
            reasons.extend(missing.map(|(lane, _)| self.reason(*lane, outcome)));
        }
        reasons.dedup();
        let case = CASES.iter().find(|case| case.key == self.key).unwrap();
        let fail = case.fail.map(|(_, value)| format!("`{value}`")).unwrap_or_default();
        let cells: Vec<String> = LANES.iter().map(|(lane, _)| self.cell(*lane)).collect();
        let (key, pass, cells, reasons) = (self.key, case.pass.1, cells.join(" | "), reasons.join("; "));
        format!("| `{key}` | `{pass}` | {fail} | {cells} | {reasons} |\n")
    }
}

/// Why no run of a lane can have an outcome.
fn impossible(key: &str, lane: Lane, outcome: &str) -> Option<&'static cases::Impossible> {
    IMPOSSIBLE
        .iter()
        .find(|reason| (reason.keys)(key) && reason.outcome == outcome && reason.lanes.contains(&lane))
}

/// A case has the outcome that it was written for, or cannot have it, for the reason that the binary gives.
#[track_caller]
fn assert_expected(lane: Lane, found: &Found) {
    let Found { key, expected, outcome, message } = found;
    match impossible(key, lane, expected) {
        None => assert_eq!(outcome, expected, "{key} on a {lane:?}: {message}"),
        Some(reason) => {
            assert_ne!(outcome, expected, "{key} on a {lane:?} is possible");
            assert!(message.contains(reason.says), "{key} on a {lane:?}: {message}");
        }
    }
}

/// The keys that are refused, from the reference, and what the binary says to each of them.
fn refused() -> String {
    let page = fs::read_to_string(repository().join("docs/reference/checks.md")).unwrap();
    let (_, table) = page.split_once("## Keys that are refused").unwrap();
    let keys: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let stage = Stage::new();
    let list: String = keys.iter().map(|key| format!("  - {key}: true\n")).collect();
    stage.write("project/a.yaml", format!("prompt: go\nassert:\n{list}"));
    let envelope = stage.json(&["test", "--json", "a.yaml"]);
    assert_eq!(envelope["exit_code"], 2, "{envelope:#}");
    let rows = keys.iter().map(|key| {
        let messages = envelope["diagnostics"].as_array().unwrap().iter();
        let mut messages = messages.filter_map(|found| found["message"].as_str());
        let message = messages.find(|message| message.contains(&format!("`{key}`")));
        format!("| `{key}` | {} |\n", message.unwrap_or_else(|| panic!("{key}: {envelope:#}")))
    });
    format!("{REFUSED_HEADING}{}", rows.collect::<String>())
}

#[test]
fn every_check_is_judged_on_a_run_a_replay_and_the_frames_alone() {
    require!(Agent, Bwrap, Curl, Python);
    let schema = belljar_runner::SchemaKind::Scenario.schema();
    let keys = schema["properties"]["assert"]["items"]["properties"].as_object().unwrap();
    let keys: Vec<String> = keys.keys().cloned().collect();
    let cases: Vec<&str> = CASES.iter().map(|case| case.key).collect();
    assert_eq!(cases, keys, "each key has a case, in the order of the reference");
    let found = everything();
    found.iter().for_each(|(lane, found)| assert_expected(*lane, found));
    let row = |key: &String| {
        let of_key = found.iter().filter(|(_, found)| found.key == key);
        let outcomes = of_key.map(|(lane, found)| (*lane, found.outcome.as_str())).collect();
        Row { key, outcomes }.line()
    };
    let lines: String = keys.iter().map(row).collect();
    let page = format!("{}{lines}{}", cases::INTRODUCTION, refused());
    let path = repository().join("docs/reference/check-evidence.md");
    if blessing() {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), page, "BELLJAR_BLESS=1 writes it anew");
}

/// A tool prints a value that the record redacts: what it printed besides is known, what it did not print is not.
#[test]
fn what_is_not_found_beside_a_redacted_value_is_unknown_also_on_a_kept_run() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    stage.write("project/session.yaml", "egress: {extra_allow: [example.org]}\n");
    let turns = [
        main_turn(&json!([bash("echo \"shown: ${HTTPS_PROXY:?}\"")])),
        main_turn(&json!([{"text": "All done."}])),
    ];
    stage.write("project/a.script.json", script(&turns).to_string());
    let checks = [
        ("tool_result_contains: 'shown: '", "pass"),
        ("tool_result_not_contains: 'shown: '", "fail"),
        ("tool_result_not_contains: s3cret", "unknown"),
        ("tool_result_not_matches: '[0-9a-f]{32}'", "unknown"),
        ("tool_result_contains: s3cret", "unknown"),
        ("transcript_not_contains: s3cret", "pass"),
    ];
    for (check, expected) in checks {
        let scenario = format!(
            "session: session.yaml\nprompt: go\nanswers: [{{when_tool: Bash, decide: allow}}]\nassert: [{{{check}}}]\n"
        );
        stage.write("project/a.yaml", scenario);
        let found = if stage.path("project/a.tape").exists() {
            Vec::new()
        } else {
            let run = row(&stage, &["record", "--json", "--scripted", "--yes", "--allow-failing", "a.yaml"]);
            vec![run, row(&stage, &["replay", "--json", "a.tape"])]
        };
        let kept = stage.json(&["judge", "--json", "last", "a.yaml"])["data"].clone();
        let protocol = row(&stage, &["replay", "--json", "--protocol", "a.tape"]);
        for row in found.iter().chain([&kept, &protocol]) {
            let judged = &row["checks"][0];
            assert_eq!(judged["outcome"], expected, "{check}: {judged:#}");
            let named = judged["message"].as_str().unwrap().contains("redacted");
            assert_eq!(named, expected == "unknown", "{check}: {judged:#}");
        }
    }
}
