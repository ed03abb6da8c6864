//! Recordings on another version of the agent than the one that they were made with, in both directions.

mod shapes;
mod to_script;

use crate::stage::Stage;
use belljar_contract::TapeHead;
use belljar_testkit::process::{Finished, run_within};
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Several conversations are recorded or replayed in one call.
const DEADLINE: Duration = Duration::from_secs(110);

const EXAMPLES: [&str; 3] = ["changelog", "forecast", "report"];

fn examples() -> Stage {
    Stage::copy_of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")))
}

fn with(stage: &Stage, program: &Path, arguments: &[&str]) -> Finished {
    let directory = program.parent().unwrap().display().to_string();
    let mut command = stage.command(arguments);
    run_within(command.env("PATH", format!("{directory}:/usr/bin:/bin")), DEADLINE).unwrap()
}

fn rows(found: &Finished) -> Vec<Value> {
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    envelope["data"]["results"].as_array().unwrap_or_else(|| panic!("{envelope:#}")).clone()
}

/// Both versions, each with the other: recorded with the first, replayed with the second.
fn pairs() -> [(PathBuf, PathBuf, bool); 2] {
    let (pinned, older) = (agent::real().unwrap(), agent::older().unwrap());
    [(pinned.clone(), older.clone(), true), (older, pinned, false)]
}

fn the_examples_replay_on_the_other_version_and_the_differences_are_listed(
    (recorder, replayer, shipped): &(PathBuf, PathBuf, bool),
) {
    let stage = recorded(recorder, *shipped);
    let found = with(&stage, replayer, &["replay", "--json", "."]);
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    let rows = rows(&found);
    assert_eq!(rows.len(), EXAMPLES.len());
    for row in &rows {
        let replay = &row["replay"];
        assert_eq!(replay["exact"], replay["exchanges"], "{row:#}");
        assert_eq!(replay["crossed"], replay["exchanges"], "{row:#}");
        assert_ne!(row["agents"]["recorded"], row["agents"]["present"], "{row:#}");
        let tools = if *shipped { "tools_removed" } else { "tools_added" };
        assert!(replay["agent"][tools].to_string().contains("ToolSearch"), "{row:#}");
    }
    let shown = with(&stage, replayer, &["replay", "report"]);
    let line = format!(
        "replayed on {}, recorded on {}",
        rows[0]["agents"]["present"].as_str().unwrap(),
        rows[0]["agents"]["recorded"].as_str().unwrap()
    );
    assert!(shown.stderr.contains(&line), "{}", shown.stderr);
    let strict = with(&stage, replayer, &["replay", "--strict", "--json", "report"]);
    assert_eq!(strict.status.code(), Some(7), "{}", strict.stdout);
}

/// The examples as they were while the older version was the pinned one: what was recorded then stays of use.
#[test]
fn examples_that_were_recorded_on_the_older_version_replay_on_the_pinned_one() {
    require!(Agent, Bwrap);
    let museum = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/museum").join(agent::OLDER_VERSION);
    let stage = Stage::copy_of(&museum);
    let pinned = agent::real().unwrap();
    let found = with(&stage, &pinned, &["replay", "--json", "."]);
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    let rows = rows(&found);
    assert_eq!(rows.len(), EXAMPLES.len());
    for row in &rows {
        let replay = &row["replay"];
        assert_eq!(
            row["agents"],
            json!({"recorded": agent::OLDER_VERSION, "present": agent::VERSION}),
            "{row:#}"
        );
        assert_eq!(replay["exact"], replay["exchanges"], "{row:#}");
        assert_eq!(replay["crossed"], replay["exchanges"], "{row:#}");
        assert!(!replay["agent"]["tools_added"].as_array().unwrap().is_empty(), "{row:#}");
    }
    let shown = with(&stage, &pinned, &["replay", "report"]);
    let line = format!("replayed on {}, recorded on {}", agent::VERSION, agent::OLDER_VERSION);
    assert!(shown.stderr.contains(&line) && shown.stderr.contains("tools added: "), "{}", shown.stderr);
}

/// The examples as one version records them.
fn recorded(recorder: &Path, shipped: bool) -> Stage {
    let stage = examples();
    if !shipped {
        let found = with(&stage, recorder, &["record", "--scripted", "."]);
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    }
    stage
}

/// What the user's side changed is found on either version, with its place.
fn a_changed_script_drifts_on_both_versions((recorder, replayer, shipped): &(PathBuf, PathBuf, bool)) {
    let stage = recorded(recorder, *shipped);
    let script = stage.path("project/changelog/skill/changelog/scripts/changelog.sh");
    let text = fs::read_to_string(&script).unwrap();
    assert!(text.contains("entries"));
    fs::write(&script, text.replace("entries", "Entries")).unwrap();
    for program in [recorder, replayer] {
        let found = with(&stage, program, &["replay", "--json", "changelog"]);
        let row = &rows(&found)[0];
        assert_eq!(found.status.code(), Some(7), "{row:#}");
        let drift = &row["replay"]["drifts"][0];
        assert_eq!(drift["kind"], json!("tool-result"), "{row:#}");
        let difference = &drift["differences"][0];
        assert_eq!(difference["recorded"], json!("3 entries"), "{row:#}");
        assert_eq!(difference["present"], json!("3 Entries"), "{row:#}");
        assert_eq!(difference["call"]["name"], json!("Bash"), "{row:#}");
        assert!(difference["call"]["input"].as_str().unwrap().contains("changelog.sh"), "{row:#}");
        let pointer = difference["pointer"].as_str().unwrap();
        assert!(pointer.starts_with("/messages/") && pointer.contains("/content/"), "{row:#}");
    }
}

/// What reaches the model in a reminder is compared by the digests of the files, and white space counts.
#[test]
fn instructions_in_a_directory_and_white_space_are_noticed() {
    require!(Agent, AgentOlder, Bwrap);
    let (recorder, replayer, _) = &pairs()[0];
    let stage = Stage::new();
    stage.write("project/session.yaml", "folders: [{from: notes}]\nuploads: [say.sh]\n");
    stage.write("project/notes/CLAUDE.md", "Revenue is 100.\n");
    stage.write("project/say.sh", "echo 3 entries\n");
    stage.write(
        "project/a.yaml",
        "prompt: go\nsession: session.yaml\nanswers: [{when_tool: Bash, decide: allow}]\nassert: [{result: success}]\n",
    );
    let call = json!({"tool_use": {"name": "Bash", "input": {"command": "sh uploads/say.sh; cat notes/CLAUDE.md", "description": "x"}}});
    let turn = |content: Value| json!({"answer": {"reply": {"content": content}}});
    let turns = [turn(json!([call])), turn(json!([{"text": "done"}]))];
    stage.write("project/a.script.json", json!({"version": 1, "turns": turns}).to_string());
    let found = with(&stage, recorder, &["record", "--scripted", "a.yaml"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let replayed = || with(&stage, replayer, &["replay", "--json", "a.tape"]);
    assert_eq!(replayed().status.code(), Some(0), "{}", replayed().stdout);
    for (file, before, after, status) in [
        ("say.sh", "echo 3 entries\n", "echo '  3 entries'\n", 7),
        ("notes/other.md", "", "Be brief.\n", 3),
        ("notes/CLAUDE.md", "Revenue is 100.\n", "Revenue is 999.\n", 7),
    ] {
        let path = stage.path(&format!("project/{file}"));
        fs::write(&path, after).unwrap();
        let found = replayed();
        assert_eq!(found.status.code(), Some(status), "{file}: {}", found.stdout);
        if before.is_empty() { fs::remove_file(path).unwrap() } else { fs::write(path, before).unwrap() }
    }
    // Without its digests it is not known whether the instructions changed, and a version that was written over relaxes nothing.
    let head = stage.path("project/a.tape/tape.json");
    let text = fs::read_to_string(&head).unwrap();
    for change in [&(|tape: &mut TapeHead| tape.scenario.inputs = None) as &dyn Fn(&mut TapeHead), &|tape| {
        tape.agent.version = Some("9.9.9".to_owned())
    }] {
        let mut tape: TapeHead = serde_json::from_str(&text).unwrap();
        change(&mut tape);
        tape.integrity = tape.reckoned();
        fs::write(&head, serde_json::to_string(&tape).unwrap()).unwrap();
        let found = replayed();
        assert!(matches!(found.status.code(), Some(3 | 7)), "{}", found.stdout);
    }
}

/// A mention of an upload puts its text into a reminder, which another version words in its own way.
#[test]
fn a_tape_without_digests_of_its_uploads_is_not_green_on_another_version() {
    require!(Agent, AgentOlder, Bwrap);
    let (recorder, replayer, _) = &pairs()[0];
    let stage = Stage::new();
    stage.write("project/session.yaml", "uploads: [notes.txt]\n");
    stage.write("project/notes.txt", "Revenue is 100.\n");
    stage.write(
        "project/a.yaml",
        "prompt: Read @uploads/notes.txt\nsession: session.yaml\nassert: [{result: success}]\n",
    );
    let turns = json!([{"answer": {"reply": {"content": [{"text": "done"}]}}}]);
    stage.write("project/a.script.json", json!({"version": 1, "turns": turns}).to_string());
    let found = with(&stage, recorder, &["record", "--scripted", "a.yaml"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let replayed = || with(&stage, replayer, &["replay", "--json", "a.tape"]);
    assert_eq!(replayed().status.code(), Some(0), "{}", replayed().stdout);
    let head = stage.path("project/a.tape/tape.json");
    let mut tape: TapeHead = serde_json::from_slice(&fs::read(&head).unwrap()).unwrap();
    tape.scenario.inputs = None;
    tape.integrity = tape.reckoned();
    fs::write(&head, serde_json::to_string(&tape).unwrap()).unwrap();
    let found = replayed();
    assert_eq!(found.status.code(), Some(3), "{}", found.stdout);
    assert!(found.stdout.contains("recording_contradicts"), "{}", found.stdout);
}

/// A prompt, an answer, an upload, a skill's text and the keys of a session belong to the user's side.
fn no_change_of_the_users_side_is_green_on_another_version(
    (recorder, replayer, shipped): &(PathBuf, PathBuf, bool),
) {
    let stage = recorded(recorder, *shipped);
    for (file, from, to) in [
        ("report/report.yaml", "prompt: ", "prompt: Please "),
        ("report/report.yaml", "HTML", "Markdown"),
        ("report/session.yaml", "model: ", "effort: low\nmodel: "),
        ("report/figures.csv", "1200", "1201"),
        ("report/skill/report/SKILL.md", "# Report", "# A report"),
        ("report/skill/report/scripts/report.sh", "<table>", "<table class=x>"),
    ] {
        let path = stage.path(&format!("project/{file}"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}: {text}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let found = with(&stage, replayer, &["replay", "--json", "report"]);
        assert!(matches!(found.status.code(), Some(1 | 3 | 7)), "{file}: {}", found.stdout);
        fs::write(&path, text).unwrap();
    }
    assert_eq!(with(&stage, replayer, &["replay", "report"]).status.code(), Some(0));
}

/// Even where a stale recording is allowed, no answer is given for a model or an effort that nobody asked then.
fn a_parameter_that_the_session_chose_drifts_on_the_other_version(
    (recorder, replayer, shipped): &(PathBuf, PathBuf, bool),
) {
    let stage = recorded(recorder, *shipped);
    let path = stage.path("project/report/session.yaml");
    let text = fs::read_to_string(&path).unwrap();
    for (changed, pointer) in [
        (text.replace("model: claude-opus-4-8", "model: claude-sonnet-4-5"), "/model"),
        (format!("effort: low\n{text}"), "/output_config/effort"),
    ] {
        assert_ne!(changed, text);
        fs::write(&path, changed).unwrap();
        let found = with(&stage, replayer, &["replay", "--json", "--allow-stale", "report"]);
        let row = &rows(&found)[0];
        assert_eq!(found.status.code(), Some(7), "{row:#}");
        assert_eq!(row["replay"]["drifts"][0]["differences"][0]["pointer"], pointer, "{row:#}");
    }
    fs::write(&path, format!("{text}# The same values.\n")).unwrap();
    let found = with(&stage, replayer, &["replay", "--json", "--allow-stale", "report"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stdout);
}

/// Each as recorded on the pinned version, and as recorded on the other one.
macro_rules! in_both_directions {
    ($($name:ident),*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn from_the_pinned_version() {
                require!(Agent, AgentOlder, Bwrap);
                super::$name(&pairs()[0]);
            }

            #[test]
            fn from_the_other_version() {
                require!(Agent, AgentOlder, Bwrap);
                super::$name(&pairs()[1]);
            }
        }
    )*};
}

in_both_directions! {
    the_examples_replay_on_the_other_version_and_the_differences_are_listed,
    a_changed_script_drifts_on_both_versions,
    no_change_of_the_users_side_is_green_on_another_version,
    a_parameter_that_the_session_chose_drifts_on_the_other_version
}
