use super::{script, tried, tried_json};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn a_run_is_traced_and_a_run_that_was_cut_short_says_so() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    let played = script(&[
        json!({"tool_use": {"name": "Bash", "input": {"command": "echo 1 > outputs/x; exit 3", "description": "x"}}}),
        json!({"text": "Done."}),
    ]);
    stage.write("project/script.json", played);
    stage.write("project/policy.yaml", "- {when_tool: Bash, decide: allow}\n");
    let words = [
        "skill",
        "skills/notes",
        "go",
        "--script",
        "script.json",
        "--answer-policy",
        "policy.yaml",
        "--json",
    ];
    let (_, envelope) = tried_json(&stage, &words);
    let folder = envelope["data"]["folder"].as_str().unwrap();
    let (status, traced) = tried_json(&stage, &["trace", "last", "--json"]);
    assert_eq!(status, 0, "{traced:#}");
    let trace = &traced["data"]["trace"];
    assert_eq!((&trace["tools"][0]["tool"], &trace["tools"][0]["status"]), (&json!("Bash"), &json!("error")));
    assert_eq!(trace["files"]["created"], json!([["outputs/x", 2]]));
    let page = tried(&stage, &["trace", folder]);
    for part in ["Bash", "error", "outputs/x", "Egress: none", "Questions: none"] {
        assert!(page.stdout.contains(part), "{part}: {}", page.stdout);
    }
    let log = Path::new(folder).join("events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, &text[..text.len() / 2]).unwrap();
    fs::remove_file(Path::new(folder).join("result.json")).unwrap();
    let (status, traced) = tried_json(&stage, &["trace", folder, "--json"]);
    assert_eq!(status, 3, "{traced:#}");
    assert!(traced["data"]["trace"]["incomplete"].is_string(), "{traced:#}");
    assert_eq!(stage.run(&["trace", "nothing"]).status.code(), Some(2));
}
