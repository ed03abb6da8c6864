use super::{HELLO, script, tried, tried_json};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn a_directory_is_tried_with_what_it_needs() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/data/in.txt", "in\n");
    stage.write("project/more.txt", "more\n");
    let played = script(&[
        json!({"tool_use": {"name": "Skill", "input": {"skill": "notes"}}}),
        json!({"tool_use": {"name": "Bash", "input": {
            "command": "cat data/in.txt uploads/more.txt > outputs/both.txt; rm data/in.txt", "description": "x"}}}),
        json!({"text": "Done."}),
    ]);
    stage.write("project/script.json", played);
    stage.write("project/policy.yaml", "answers:\n  - when_tool: Bash\n    decide: allow\n");
    let args = [
        "skill",
        "skills/notes",
        "go",
        "--script",
        "script.json",
        "--folder",
        "data",
        "--upload",
        "more.txt",
        "--answer-policy",
        "policy.yaml",
        "--json",
    ];
    let (status, envelope) = tried_json(&stage, &args);
    assert_eq!(status, 0, "{envelope:#}");
    let directory = Path::new(envelope["data"]["directory"].as_str().unwrap());
    assert_eq!(fs::read_to_string(directory.join("artifacts/files/outputs/both.txt")).unwrap(), "in\nmore\n");
    assert_eq!(fs::read_to_string(stage.path("project/data/in.txt")).unwrap(), "in\n", "the original stays");
    let events = fs::read_to_string(directory.join("events.jsonl")).unwrap();
    assert!(events.contains("skill_activated"), "{events}");
}

#[test]
fn plugins_and_marketplaces_are_tried_as_well() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.write("project/plug/.claude-plugin/plugin.json", r#"{"name": "plug", "version": "1.0.0"}"#);
    stage.skill("project/plug/skills", "greet");
    let market =
        r#"{"name": "shop", "owner": {"name": "x"}, "plugins": [{"name": "plug", "source": "./plug"}]}"#;
    stage.write("project/.claude-plugin/marketplace.json", market);
    let played = script(&[
        json!({"tool_use": {"name": "Skill", "input": {"skill": "plug:greet"}}}),
        json!({"text": "Done."}),
    ]);
    stage.write("project/script.json", played);
    for directory in ["plug", "."] {
        let (status, envelope) =
            tried_json(&stage, &["skill", directory, "go", "--script", "script.json", "--json"]);
        assert_eq!(status, 0, "{directory}: {envelope:#}");
        let directory = Path::new(envelope["data"]["directory"].as_str().unwrap());
        let events = fs::read_to_string(directory.join("events.jsonl")).unwrap();
        assert!(events.contains("\"skill\":\"plug:greet\""), "{events}");
    }
    stage.skill("project/other", "one");
    let args = ["skill", "other/one", "go", "--marketplace", ".", "--enable", "nothing@shop"];
    let found = stage.run(&args);
    assert_eq!(found.status.code(), Some(2));
    assert!(found.stderr.contains("has no plugin `nothing`"), "{}", found.stderr);
}

#[test]
fn a_conversation_is_gone_on_with() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/one.json", HELLO);
    let args = ["skill", "skills/notes", "my name is Quill", "--script", "one.json", "--session-id", "talk"];
    let found = tried(&stage, &args);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let args = ["skill", "skills/notes", "who am I?", "--script", "one.json", "--resume", "talk", "--json"];
    let (status, envelope) = tried_json(&stage, &args);
    assert_eq!(status, 0, "{envelope:#}");
    let directory = Path::new(envelope["data"]["directory"].as_str().unwrap());
    let requests = fs::read_to_string(directory.join("artifacts/model-requests.jsonl")).unwrap();
    assert!(requests.contains("my name is Quill") && requests.contains("who am I?"), "{requests}");
    let found = tried(&stage, &["skill", "skills/notes", "x", "--script", "one.json", "--resume", "nobody"]);
    assert!(found.stderr.contains("no conversation is called `nobody`"), "{}", found.stderr);
    assert_ne!(found.status.code(), Some(0));
}

/// The agent would refuse the id in words of its own, after everything was started.
#[test]
fn a_conversation_is_begun_once() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/one.json", HELLO);
    let args = ["skill", "skills/notes", "hello", "--script", "one.json", "--session-id", "talk"];
    let planned = tried(&stage, &[&args[..], &["--dry-run"]].concat());
    assert_eq!(planned.status.code(), Some(0), "a plan begins nothing: {}", planned.stderr);
    let missing = ["skill", "skills/notes", "hello", "--session-id", "talk"];
    assert_ne!(tried(&stage, &missing).status.code(), Some(0), "without a credential nothing begins");
    let first = tried(&stage, &args);
    assert_eq!(first.status.code(), Some(0), "{}", first.stderr);
    let runs = || fs::read_dir(stage.path("home/.local/state/belljar/runs")).unwrap().count();
    let before = runs();
    let again = tried(&stage, &args);
    assert_eq!(again.status.code(), Some(2), "{}", again.stderr);
    assert!(again.stderr.contains("a conversation named `talk` exists already"), "{}", again.stderr);
    assert!(again.stderr.contains("hint: continue it with --resume talk"), "{}", again.stderr);
    assert_eq!(runs(), before, "nothing was started");
}

#[test]
fn what_cannot_be_tried_is_named() {
    let stage = Stage::new();
    stage.write("project/empty/x.txt", "");
    stage.skill("project/skills", "notes");
    for (args, part) in [
        (&["skill", "nowhere", "go"][..], "does not exist"),
        (&["skill", "empty", "go"], "has no SKILL.md"),
        (&["skill", "skills/notes", " "], "the prompt is empty"),
        (
            &["skill", "skills/notes", "go", "--upload", "nowhere.txt", "--dry-run"],
            "nowhere.txt` does not exist",
        ),
        (&["skill", "skills/notes", "go", "--session-id", "a/b"], "cannot be the name of a conversation"),
        (&["skill", "skills/notes", "go", "--answer", "no equals"], "no equals"),
        (&["skill", "skills/notes", "go", "--allow", "http://x/y"], "http://x/y"),
    ] {
        let found = stage.run(args);
        assert_eq!(found.status.code(), Some(2), "{args:?}: {}", found.stderr);
        assert!(found.stderr.contains(part), "{args:?}: {}", found.stderr);
    }
}

/// A prompt that is cut would test something else.
#[test]
fn a_prompt_that_is_too_long_is_refused() {
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/long.txt", "x".repeat((4 << 20) + 1));
    stage.write("project/script.json", script(&[json!({"text": "Done."})]));
    let found = stage.run(&["skill", "skills/notes", "--prompt-file", "long.txt", "--script", "script.json"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("the prompt in `long.txt` is longer than 4 MiB"), "{}", found.stderr);
}

#[test]
fn turns_of_a_script_that_were_not_played_are_counted() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/script.json", script(&[json!({"text": "One."}), json!({"text": "Two."})]));
    let found = tried(&stage, &["skill", "skills/notes", "Go", "--script", "script.json"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert!(found.stderr.contains("a turn of the script was not played"), "{}", found.stderr);
}

/// The agent asks for the tool `Skill` where the skill allows tools; those are not asked about then. It asks about no other skill.
#[test]
fn a_skill_that_allows_tools_is_asked_about_and_the_rule_to_paste_says_why() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let skill = |more: &str| format!("---\nname: notes\ndescription: Takes notes.\n{more}---\nTake notes.\n");
    let played = script(&[
        json!({"tool_use": {"name": "Skill", "input": {"skill": "notes"}}}),
        json!({"tool_use": {"name": "Bash", "input": {"command": "touch outputs/made.txt", "description": "x"}}}),
        json!({"text": "Done."}),
    ]);
    stage.write("project/script.json", played);
    let args = ["skill", "notes", "go", "--script", "script.json", "--on-unanswered", "fail"];
    for (more, asked) in [("allowed-tools: Bash(touch:*)\n", ["Skill"]), ("", ["Bash"])] {
        stage.write("project/notes/SKILL.md", skill(more));
        let found = tried(&stage, &args);
        assert_eq!(found.status.code(), Some(1), "{more}: {}", found.stderr);
        let options: Vec<&str> =
            found.stderr.lines().filter_map(|line| line.trim().strip_prefix("--allow-tool ")).collect();
        assert_eq!(options, asked, "{more}: {}", found.stderr);
        let says_why = found
            .stderr
            .contains("- when_tool: \"Skill\"  # the agent asks before a skill with `allowed-tools`");
        assert_eq!(says_why, asked == ["Skill"], "{more}: {}", found.stderr);
        let found = tried(&stage, &[&args[..], &["--allow-tool", asked[0]]].concat());
        assert_eq!(found.status.code(), Some(0), "{more}: {}", found.stderr);
    }
}
