//! `belljar script`.

use super::record::with_agent;
use super::scenario::SKILL;
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;

#[test]
fn a_new_script_is_valid_and_plays_with_a_scenario() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.write("project/skills/hello/SKILL.md", SKILL);
    stage.write("project/session.yaml", "skills: {local: [skills/hello]}\n");
    stage.write("project/bare.yaml", "prompt: go\nassert: [{result: success}, {tool_no_error: Bash}]\n");
    stage.write(
        "project/hello.yaml",
        "prompt: go\nsession: session.yaml\nskills: [hello]\nanswers: [{when_tool: Skill, decide: allow}]\n\
         assert: [{result: success}, {skill_triggered: hello}]\n",
    );
    for (named, file, test) in [
        ("first", "first.script.json", ["--script", "first.script.json", "bare.yaml"]),
        ("mine.json", "mine.json", ["--script", "mine.json", "bare.yaml"]),
        ("hello.yaml", "hello.script.json", ["--scripted", "--quiet", "hello.yaml"]),
    ] {
        let made = stage.json(&["script", "new", named, "--json"]);
        assert_eq!(made["data"]["script"], json!(stage.path(&format!("project/{file}"))), "{made:#}");
        let checked = stage.run(&["check", file]);
        assert_eq!((checked.status.code(), checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
        let tested = stage.finish(&mut with_agent(&stage, &[&["test"][..], &test].concat()));
        assert_eq!(tested.status.code(), Some(0), "{named}: {tested:?}");
    }
    let text = fs::read_to_string(stage.path("project/first.script.json")).unwrap();
    let script: Value = serde_json::from_str(&text).unwrap();
    assert!(script["note"].as_str().unwrap().contains("script.md"), "{text}");
    assert!(script["turns"].as_array().unwrap().iter().all(|turn| turn["note"].is_string()), "{text}");
}

#[test]
fn no_script_is_replaced_without_force_and_a_faulty_scenario_is_reported() {
    let stage = Stage::new();
    stage.write("project/first.script.json", "mine\n");
    let found = stage.run(&["script", "new"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("refusing to replace") && found.stderr.contains("--force"), "{found:?}");
    assert!(!found.stderr.contains("--out"), "the verb has no such option: {found:?}");
    assert_eq!(fs::read_to_string(stage.path("project/first.script.json")).unwrap(), "mine\n");
    let found = stage.run(&["script", "new", "--force"]);
    assert_eq!(
        (found.status.code(), found.stdout.as_str()),
        (Some(0), "wrote first.script.json\n"),
        "{found:?}"
    );
    for part in [
        "belljar skill DIR \"PROMPT\" --script first.script.json",
        "belljar test --script first.script.json SCENARIO",
    ] {
        assert!(found.stderr.contains(part), "{found:?}");
    }
    stage.write("project/odd.yaml", "prompt: [\n");
    for named in ["odd.yaml", "none.yaml"] {
        let found = stage.run(&["script", "new", named]);
        assert_eq!(found.status.code(), Some(2), "{found:?}");
        assert!(!stage.path(&format!("project/{}.script.json", &named[..named.len() - 5])).exists());
    }
}
