//! Every key of `assert`, judged on a run of the real agent, on a replay of its tape and on the recorded frames alone.
//!
//! One conversation is orderly and passes, one is disorderly and fails, one is cut off by its time limit.
//! `docs/reference/check-evidence.md` is written from what is found here (`BELLJAR_BLESS=1`). A key without a case fails
//! the test, and so does an outcome that no case shows and no reason rules out.

mod cases;
mod talks;

use crate::cmd::record::{data, with_agent};
use crate::services::{plain, serve};
use crate::stage::{Stage, blessing};
use belljar_testkit::process::run_within;
use belljar_testkit::require;
use cases::{CASES, IMPOSSIBLE, REFUSED_HEADING};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use talks::Talk;

/// Some runs of the agent one after the other, one of them until its time limit.
const DEADLINE: Duration = Duration::from_secs(120);

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

/// The checks that are asked of a conversation. Those that contradict others are in a list of their own.
fn asked(talk: Talk, apart: bool) -> Vec<Expected> {
    let cases = CASES.iter().filter(|case| cases::APART.contains(&case.key) == apart);
    let one = |key, (on, value): (Talk, &'static str), outcome| {
        (on == talk).then_some(Expected { key, value, outcome })
    };
    cases
        .flat_map(|case| match talk {
            Talk::Cut => vec![Some(Expected { key: case.key, value: case.pass.1, outcome: "unknown" })],
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
        .filter(|case| case.key.ends_with("_available"))
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

/// Everything that was found, each list in a thread because the cut ones only wait.
fn everything() -> Vec<(Lane, Found)> {
    let port = serve(|_, _| plain("thanks", "text/plain"));
    let talks = [Talk::Orderly, Talk::Disorderly, Talk::Cut];
    let lists = talks.into_iter().flat_map(|talk| [(talk, false), (talk, true)]);
    let (waiting, busy): (Vec<_>, Vec<_>) = lists.partition(|(talk, _)| *talk == Talk::Cut);
    let in_turn = |lists: Vec<(Talk, bool)>| -> Vec<(Lane, Found)> {
        lists.into_iter().flat_map(|(talk, apart)| judged(&stage(port), talk, apart, port)).collect()
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| in_turn(waiting));
        let mut found = in_turn(busy);
        found.extend(unseen(&stage(port)));
        found.extend(waiting.join().unwrap());
        found
    })
}

/// The outcomes of one key, with a message for each.
type Outcomes<'a> = BTreeMap<(Lane, &'a str), &'a str>;

struct Row<'a> {
    key: &'a str,
    outcomes: Outcomes<'a>,
    /// What a lane says where the run had another outcome.
    otherwise: BTreeMap<(Lane, &'static str), &'a str>,
}

impl Row<'_> {
    fn cell(&self, lane: Lane) -> String {
        let seen = OUTCOMES.iter().filter(|outcome| self.outcomes.contains_key(&(lane, outcome)));
        seen.copied().collect::<Vec<_>>().join(", ")
    }

    /// Why an outcome is missing. What the binary said instead comes first.
    fn reason(&self, lane: Lane, outcome: &'static str) -> String {
        if let Some(message) = self.otherwise.get(&(lane, outcome)) {
            return (*message).to_owned();
        }
        let fits = |reason: &&cases::Impossible| {
            (reason.keys)(self.key) && reason.outcome == outcome && reason.lanes.contains(&lane)
        };
        let reason = IMPOSSIBLE.iter().find(fits);
        reason.unwrap_or_else(|| panic!("no case shows {outcome} of `{}` on a {lane:?}", self.key)).why.to_owned()
    }

    fn line(&self) -> String {
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for outcome in OUTCOMES {
            let lanes = LANES.iter().filter(|(lane, _)| !self.outcomes.contains_key(&(*lane, outcome)));
            for (lane, name) in lanes {
                let why = self.reason(*lane, outcome);
                reasons.entry(why).or_default().push(format!("{outcome} on a {name}"));
            }
        }
        let reasons: Vec<String> =
            reasons.iter().map(|(why, cells)| format!("{}: {why}", grouped(cells))).collect();
        let cells: Vec<String> = LANES.iter().map(|(lane, _)| self.cell(*lane)).collect();
        format!("| `{}` | {} | {} |\n", self.key, cells.join(" | "), reasons.join("; "))
    }
}

/// `no fail`, or the lanes where only some lack it.
fn grouped(cells: &[String]) -> String {
    let outcome = |cell: &String| cell.split(' ').next().unwrap().to_owned();
    let outcomes: BTreeSet<String> = cells.iter().map(outcome).collect();
    let everywhere = cells.len() == outcomes.len() * LANES.len();
    let words: Vec<String> = if everywhere { outcomes.into_iter().collect() } else { cells.to_vec() };
    format!("no {}", words.join(", no "))
}

fn rows<'a>(keys: &'a [String], found: &'a [(Lane, Found)]) -> Vec<Row<'a>> {
    let row = |key: &'a String| {
        let (mut outcomes, mut otherwise) = (Outcomes::new(), BTreeMap::new());
        for (lane, found) in found.iter().filter(|(_, found)| found.key == key) {
            outcomes.insert((*lane, found.outcome.as_str()), found.message.as_str());
            if found.outcome != found.expected && *lane != Lane::Run {
                otherwise.insert((*lane, found.expected), found.message.as_str());
            }
        }
        Row { key, outcomes, otherwise }
    };
    keys.iter().map(row).collect()
}

/// The keys that are refused, from the reference, and what the binary says to each of them.
fn refused() -> String {
    let page = fs::read_to_string(repository().join("docs/reference/checks.md")).unwrap();
    let (_, table) = page.split_once("## Keys that are refused").unwrap();
    let keys: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
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
    for (_, one) in found.iter().filter(|(lane, _)| *lane == Lane::Run) {
        let impossible = IMPOSSIBLE.iter().any(|reason| {
            (reason.keys)(one.key) && reason.outcome == one.expected && reason.lanes.contains(&Lane::Run)
        });
        let cut = one.expected == "unknown" && one.key.ends_with("_available");
        assert!(one.outcome == one.expected || impossible || cut, "{}: {}: {}", one.key, one.outcome, one.message);
    }
    for reason in IMPOSSIBLE {
        let seen = found.iter().find(|(lane, one)| {
            (reason.keys)(one.key) && reason.outcome == one.outcome && reason.lanes.contains(lane)
        });
        assert!(seen.is_none(), "it is possible: {} {}", seen.unwrap().1.key, reason.outcome);
    }
    let lines: String = rows(&keys, &found).iter().map(Row::line).collect();
    let page = format!("{}{lines}{}", cases::INTRODUCTION, refused());
    let path = repository().join("docs/reference/check-evidence.md");
    if blessing() {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), page, "BELLJAR_BLESS=1 writes it anew");
}
