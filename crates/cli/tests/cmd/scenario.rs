//! `belljar scenario`.

use super::record::{main_turn, script};
use super::{tried, tried_json};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::json;
use std::fs;

pub const SKILL: &str = "---\nname: hello\ndescription: 'Says \"hello\": to people. Use it to greet.'\n---\nRun scripts/hello.sh\n";

/// A repository with a skill that has a script, a plugin and a marketplace.
fn repository() -> Stage {
    let stage = Stage::new();
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    for skill in ["skills/hello", "market/greeter/skills/hello"] {
        stage.write(&format!("project/{skill}/SKILL.md"), SKILL);
        stage.write(&format!("project/{skill}/scripts/hello.sh"), "echo hello from the script\n");
    }
    stage.write("project/market/greeter/.claude-plugin/plugin.json", r#"{"name": "greeter"}"#);
    stage.write(
        "project/market/.claude-plugin/marketplace.json",
        r#"{"name": "market", "owner": {"name": "x"}, "plugins": [{"name": "greeter", "source": "./greeter"}]}"#,
    );
    stage
}

#[test]
fn a_new_scenario_is_valid_and_passes_without_a_key() {
    require!(Agent, Bwrap);
    let stage = repository();
    for (directory, skill) in
        [("skills/hello", "hello"), ("market/greeter", "greeter:hello"), ("market", "greeter:hello")]
    {
        let out = format!("scenarios/{}.yaml", directory.replace('/', "-"));
        let found = stage.json(&["scenario", "new", directory, "--out", &out, "--json"]);
        assert_eq!(found["ok"], json!(true), "{found:#}");
        assert_eq!(found["data"]["files"].as_array().unwrap().len(), 3, "{found:#}");
        assert_eq!(found["data"]["notes"], json!([]), "{found:#}");
        let text = fs::read_to_string(stage.path(&format!("project/{out}"))).unwrap();
        assert!(text.contains(r#"prompt: "Says \"hello\": to people.""#), "{text}");
        assert!(text.contains("- when_tool: Bash"), "{text}");
        assert!(text.contains(&format!("skill_triggered: \"^{skill}$\"")), "{text}");
        let checked = stage.run(&["check", &out]);
        assert_eq!((checked.status.code(), checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
        assert!(checked.stdout.ends_with("all good\n"), "{checked:?}");
        let tested = tried(&stage, &["test", "--scripted", "--include-untracked", &out]);
        assert_eq!(tested.status.code(), Some(0), "{directory}: {tested:?}");
        assert!(tested.stderr.contains("ok skill_triggered"), "{tested:?}");
    }
}

#[test]
fn no_file_is_replaced_without_force() {
    let stage = repository();
    stage.write("project/scenarios/hello.script.json", "mine\n");
    let found = stage.run(&["scenario", "new", "skills/hello"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(
        found.stderr.contains("hello.script.json`") && found.stderr.contains("--force"),
        "{}",
        found.stderr
    );
    assert!(!found.stderr.contains("hello.yaml"), "{}", found.stderr);
    assert!(!stage.path("project/scenarios/hello.yaml").exists(), "all or nothing");
    assert_eq!(fs::read_to_string(stage.path("project/scenarios/hello.script.json")).unwrap(), "mine\n");
    let found = stage.run(&["scenario", "new", "skills/hello", "--force"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert_eq!(
        found.stdout,
        "wrote scenarios/hello.yaml\nwrote scenarios/hello.session.yaml\nwrote scenarios/hello.script.json\n"
    );
}

/// `--force` replaces a link, and never what it leads to; the usual directory must not be a link.
#[test]
fn a_strangers_link_is_not_followed() {
    let stage = repository();
    stage.write("home/mine", "mine\n");
    stage.link("project/scenarios/hello.yaml", stage.path("home/mine").to_str().unwrap());
    let found = stage.run(&["scenario", "new", "skills/hello", "--force"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert_eq!(fs::read_to_string(stage.path("home/mine")).unwrap(), "mine\n");
    fs::remove_dir_all(stage.path("project/scenarios")).unwrap();
    stage.link("project/scenarios", stage.path("home").to_str().unwrap());
    let found = stage.run(&["scenario", "new", "skills/hello"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("leads elsewhere"), "{}", found.stderr);
    fs::remove_file(stage.path("project/skills/hello/SKILL.md")).unwrap();
    stage.write("home/key", "---\nname: hello\ndescription: TOPSECRET\n---\n");
    stage.link("project/skills/hello/SKILL.md", stage.path("home/key").to_str().unwrap());
    let found = stage.run(&["scenario", "new", "skills/hello", "--out", "made.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(!found.stderr.contains("TOPSECRET") && !stage.path("project/made.yaml").exists(), "{found:?}");
}

#[test]
fn a_directory_without_a_skill_is_an_error() {
    let stage = Stage::new();
    stage.write("project/empty/README.md", "nothing\n");
    let found = stage.run(&["scenario", "new", "empty"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("SKILL.md"), "{}", found.stderr);
}

/// A run with a question that the command line answers, a file and a skill becomes a scenario that passes with the same
/// script.
#[test]
fn a_scenario_from_a_run_passes_with_the_same_script() {
    require!(Agent, Bwrap);
    let stage = repository();
    let ask = json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [
        {"question": "Which format? (a=b)", "header": "Format", "multiSelect": false,
         "options": [{"label": "PDF", "description": "p"}, {"label": "HTML", "description": "h"}]}]}}});
    let write = json!({"tool_use": {"name": "Bash", "input": {"command": "echo hi > outputs/note.txt", "description": "d"}}});
    let skill = json!({"tool_use": {"name": "Skill", "input": {"skill": "hello"}}});
    let turns = [json!([ask]), json!([skill]), json!([write]), json!([{"text": "All is done now."}])];
    stage.write("project/talk.json", script(&turns.map(|blocks| main_turn(&blocks))).to_string());
    stage.write("project/scenarios/session.yaml", "skills:\n  local: [../skills/hello]\n");
    stage.write(
        "project/scenarios/a.yaml",
        "prompt: 'Say: \"hello\"'\nsession: session.yaml\ntimeout_ms: 50000\n\
         answers: [{when_question: format, choose: PDF}]\n",
    );
    let first = [
        "test",
        "--include-untracked",
        "--script",
        "talk.json",
        "scenarios/a.yaml",
        "--answer",
        "which format=HTML",
        "--allow-tool",
        "Bash",
    ];
    let found = tried(&stage, &first);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let found = stage.run(&["scenario", "from", "last", "--out", "scenarios/again.yaml"]);
    assert_eq!((found.status.code(), found.stderr.as_str()), (Some(0), ""), "{found:?}");
    let text = fs::read_to_string(stage.path("project/scenarios/again.yaml")).unwrap();
    for part in [
        r#"prompt: "Say: \"hello\"""#,
        "timeout_ms: 50000",
        r#"choose: "HTML""#,
        "decide: allow",
        r#"skill_triggered: "^hello$""#,
        r#"tool_called: "Bash""#,
        r#"file_exists: "outputs/note.txt""#,
        r#"# - transcript_contains: "All is done now.""#,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(
        at(r#"choose: "HTML""#) < at(r#""choose": "PDF""#),
        "the command line came first in the run: {text}"
    );
    let checked = stage.run(&["check", "scenarios/again.yaml"]);
    assert_eq!((checked.status.code(), checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
    let again = ["test", "--json", "--include-untracked", "--script", "talk.json", "scenarios/again.yaml"];
    let (status, envelope) = tried_json(&stage, &again);
    assert_eq!(status, 0, "{envelope:#}");
    let decisions = envelope["data"]["results"][0]["decisions"].to_string();
    assert!(decisions.contains(r#""chosen":["HTML"]"#), "the command line decided: {decisions}");
    let found = stage.run(&["scenario", "from", "last", "--out", "scenarios/again.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("--force"), "{}", found.stderr);
    // Elsewhere the session is named from there.
    let found = stage.run(&["scenario", "from", "last", "--out", "elsewhere.yaml"]);
    assert_eq!((found.status.code(), found.stderr.as_str()), (Some(0), ""), "{found:?}");
    let checked = stage.run(&["check", "elsewhere.yaml"]);
    assert_eq!((checked.status.code(), checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
    let found = stage.run(&["scenario", "from", "last", "--out", "none.yaml", "--session", "nosuch.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("nosuch.yaml` is not a file"), "{}", found.stderr);
}

/// A run of `skill` has no session of its own: the scenario gets one with the skill, the uploads and the directories.
#[test]
fn a_scenario_from_a_run_of_skill_has_what_the_command_line_named() {
    require!(Agent, Bwrap);
    let stage = repository();
    stage.write("project/data/list.txt", "one\ntwo\n");
    stage.write("project/site/index.html", "<p>hello</p>\n");
    stage.link("project/linked.txt", "data/list.txt");
    let command = json!({"tool_use": {"name": "Bash", "input":
        {"command": "cat uploads/list.txt uploads/linked.txt site/index.html > outputs/all.txt", "description": "d"}}});
    let skill = json!({"tool_use": {"name": "Skill", "input": {"skill": "hello"}}});
    let turns = [json!([skill]), json!([command]), json!([{"text": "All is done now."}])];
    stage.write("project/talk.json", script(&turns.map(|blocks| main_turn(&blocks))).to_string());
    let first = [
        "skill",
        "skills/hello",
        "Greet",
        "--include-untracked",
        "--script",
        "talk.json",
        "--allow-tool",
        "Bash",
        "--upload",
        "data/list.txt",
        "--upload",
        "linked.txt",
        "--folder",
        "site",
        "--allow",
        "api.example.org",
    ];
    let found = tried(&stage, &first);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let found = stage.run(&["scenario", "from", "last", "--out", "scenarios/again.yaml"]);
    assert_eq!((found.status.code(), found.stderr.as_str()), (Some(0), ""), "{found:?}");
    assert_eq!(found.stdout, "wrote scenarios/again.yaml\nwrote scenarios/again.session.yaml\n");
    let session = fs::read_to_string(stage.path("project/scenarios/again.session.yaml")).unwrap();
    for part in [
        r#"skills: {"local": ["../skills/hello"]}"#,
        r#"uploads: ["../data/list.txt", "../linked.txt"]"#,
        r#"folders: [{"from": "../site", "mode": "rwd"}]"#,
        r#"egress: {"extra_allow": ["api.example.org"]}"#,
    ] {
        assert!(session.contains(part), "{part}: {session}");
    }
    let checked = stage.run(&["check", "scenarios/again.yaml"]);
    assert_eq!((checked.status.code(), checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
    let again = ["test", "--yes", "--include-untracked", "--script", "talk.json", "scenarios/again.yaml"];
    let found = tried(&stage, &again);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(
        found.stderr.contains("ok skill_triggered") && found.stderr.contains("ok file_exists"),
        "{found:?}"
    );
    // Elsewhere the files are those of another suite, and one that is gone is named.
    fs::remove_file(stage.path("project/data/list.txt")).unwrap();
    stage.write("other/.git/HEAD", "ref: refs/heads/main\n");
    let run = stage.json(&["runs", "--json"])["data"]["runs"][1]["id"].as_str().unwrap().to_owned();
    let out = stage.path("other/again.yaml");
    let found = stage.run(&["scenario", "from", &run, "--out", out.to_str().unwrap()]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(
        found.stderr.contains("list.txt`, which the run used, does not exist any more"),
        "{}",
        found.stderr
    );
    assert!(found.stderr.contains("asks for your agreement"), "{}", found.stderr);
}

/// A run for which nothing holds, or not what its scenario expected, is not made into a scenario that says so.
#[test]
fn a_check_that_does_not_hold_for_the_run_is_left_out_with_a_note() {
    require!(Agent, Bwrap);
    let stage = repository();
    // The agent sends a refused request several times.
    let refused =
        json!({"answer": {"error": {"status": 400, "type": "invalid_request_error", "message": "x"}}});
    let failing = json!({"version": 1, "turns": vec![refused; 12]});
    stage.write("project/fails.json", failing.to_string());
    stage.write("project/talk.json", script(&[main_turn(&json!([{"text": "Done."}]))]).to_string());
    stage.write("project/a.yaml", "prompt: go\nexpect_denied: [evil.test]\n");
    let made = |script: &str, status: i32| {
        let found = tried(&stage, &["test", "--script", script, "a.yaml"]);
        assert_eq!(found.status.code(), Some(status), "{found:?}");
        let found = stage.run(&["scenario", "from", "last", "--out", "made.yaml", "--force"]);
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        assert!(found.stderr.contains("`expect_denied: evil.test`"), "{}", found.stderr);
        let checked = stage.run(&["check", "made.yaml"]);
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
        (fs::read_to_string(stage.path("project/made.yaml")).unwrap(), found.stderr)
    };
    let (text, _) = made("talk.json", 1);
    assert!(text.contains("assert:\n  - result: \"success\"\n"), "{text}");
    let (text, notes) = made("fails.json", 5);
    assert!(text.contains("assert: []\n") && notes.contains("no check holds"), "{text}{notes}");
}

#[test]
fn a_redacted_value_is_never_written() {
    require!(Agent, Bwrap);
    const SECRET: &str = "tok-5f2b8c1e9d7a4460";
    let stage = repository();
    stage.write("project/talk.json", super::HELLO);
    stage.write(
        "project/scenarios/mcp.json",
        r#"{"mcpServers": {"taker": {"command": "cat", "args": [], "env": {"T": "${TOKEN_OF_MINE}"}}}}"#,
    );
    stage.write("project/scenarios/session.yaml", "mcp:\n  config: mcp.json\n  enabled: [taker]\n");
    let scenario =
        format!("prompt: Send {SECRET} along\nsession: session.yaml\nassert:\n  - result: success\n");
    stage.write("project/scenarios/a.yaml", scenario);
    let mut command = stage.command(&["test", "--yes", "--script", "talk.json", "scenarios/a.yaml"]);
    command.env("PATH", super::agent_path()).env("TOKEN_OF_MINE", SECRET);
    let found = stage.finish(&mut command);
    assert!(found.stderr.contains("the run is recorded"), "{found:?}");
    let found = stage.run(&["scenario", "from", "last", "--out", "again.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("contains a secret"), "{}", found.stderr);
    assert!(!found.stderr.contains(SECRET) && !stage.path("project/again.yaml").exists(), "{found:?}");
}
