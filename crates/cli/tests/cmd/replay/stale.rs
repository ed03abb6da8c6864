//! A recording whose scenario or skill has changed since is not green in either lane, unless the user allows it.

use super::super::record::{SCENARIO, plain, recorded, scenario, with_agent};
use super::replay;
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::Value;
use std::fs;

const SKILL: &str = "---\nname: hello\ndescription: Says hello\n---\nRun scripts/hello.sh twice\n";
const SESSION: &str = "skills:\n  local: [../skills/hello]\nplugins: {local_plugins: [../plug]}\n";

/// What is changed, with what text, and how it is named.
fn changes() -> Vec<(&'static str, String, &'static str)> {
    let more = |from: &str, to: &str| SCENARIO.replacen(from, to, 1);
    let scenario = "project/scenarios/hello.yaml";
    vec![
        (scenario, more("Say hello", "Say hello to me"), "`prompt`"),
        (scenario, more("assert:", "  - when_tool: Read\n    decide: deny\nassert:"), "`answers`"),
        (scenario, format!("{SCENARIO}  - tool_called: Bash\n"), "`assert`"),
        ("project/scenarios/session.yaml", format!("{SESSION}model: claude-sonnet-4-5\n"), "the session"),
        ("project/skills/hello/SKILL.md", SKILL.to_owned(), "the skill `hello`"),
        ("project/skills/hello/scripts/hello.sh", "exit 3\n".to_owned(), "the skill `hello`"),
        ("project/plug/hooks/notes.txt", "other\n".to_owned(), "the plugin `plug`"),
    ]
}

fn stage() -> Stage {
    let stage = scenario(&plain());
    stage.write("project/plug/.claude-plugin/plugin.json", "{\"name\": \"plug\"}");
    stage.write("project/plug/hooks/notes.txt", "notes\n");
    stage.write("project/scenarios/session.yaml", SESSION);
    recorded(&stage);
    stage
}

fn named(row: &Value) -> Vec<String> {
    row["changed"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_change_is_named_and_not_green_without_running() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!((status, &row["changed"]), (Some(0), &serde_json::json!([])), "{row:#}");
    for (file, text, what) in changes() {
        let before = fs::read(stage.path(file)).unwrap();
        stage.write(file, text);
        let (status, row) = replay(&stage, &["--protocol"]);
        assert_eq!((status, &row["conclusion"]), (Some(3), &Value::from("unverified")), "{what}: {row:#}");
        assert!(named(&row).iter().any(|one| one.contains(what)), "{what}: {row:#}");
        let found = stage.run(&["replay", "--protocol", "scenarios/hello.tape"]);
        assert!(found.stderr.contains(what) && found.stderr.contains("tape refresh"), "{}", found.stderr);
        let (status, row) = replay(&stage, &["--protocol", "--allow-stale"]);
        assert_eq!(status, Some(0), "{what}: {row:#}");
        assert!(named(&row).iter().any(|one| one.contains(what)), "{what}: {row:#}");
        stage.write(file, before);
    }
    // A comment changes nothing that is tested.
    stage.write("project/scenarios/hello.yaml", format!("# About hello.\n{SCENARIO}"));
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(0), "{row:#}");
    // What is missing is not what was recorded either.
    fs::remove_file(stage.path("project/skills/hello/SKILL.md")).unwrap();
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(3), "{row:#}");
}

#[test]
fn a_full_replay_whose_requests_still_match_is_not_green_either() {
    require!(Agent, Bwrap);
    let stage = stage();
    for (file, text, what) in changes() {
        if what == "`prompt`" || what == "the session" || file.ends_with(".sh") {
            // The requests differ.
            continue;
        }
        let before = fs::read(stage.path(file)).unwrap();
        stage.write(file, text);
        let (status, row) = replay(&stage, &[]);
        assert_eq!((status, &row["conclusion"]), (Some(3), &Value::from("unverified")), "{what}: {row:#}");
        assert!(named(&row).iter().any(|one| one.contains(what)), "{what}: {row:#}");
        let (status, row) = replay(&stage, &["--allow-stale"]);
        assert_eq!(status, Some(0), "{what}: {row:#}");
        stage.write(file, before);
    }
    let found = stage.finish(&mut with_agent(&stage, &["replay", "scenarios/hello.tape"]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

/// Without an agreement nothing beyond the suite's directory is read, so it is not known whether it changed.
#[test]
fn what_may_not_be_read_is_not_taken_for_unchanged() {
    require!(Agent, Bwrap);
    let stage = stage();
    stage.write("home/session.yaml", SESSION);
    fs::remove_file(stage.path("project/scenarios/session.yaml")).unwrap();
    stage.link("project/scenarios/session.yaml", "../../home/session.yaml");
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(3), "{row:#}");
    assert!(row["changed"].to_string().contains("beyond its own directory"), "{row:#}");
}
