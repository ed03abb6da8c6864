use crate::stage::Stage;
use std::fs;

#[test]
fn writes_a_manifest_that_checks_and_never_overwrites_one() {
    let stage = Stage::new();
    stage.skill("project/skills", "changelog");
    stage.skill("home/.claude/skills", "notes");
    let servers =
        r#"{"mcpServers": {"tickets": {"command": "run-it", "args": ["-x"], "env": {"TOKEN": "t"}}}}"#;
    stage.write("project/.mcp.json", servers);
    let found = stage.run(&["init"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert_eq!(found.stdout, "belljar.toml was written; read it, then try `belljar plan`\n");
    let text = fs::read_to_string(stage.path("project/belljar.toml")).unwrap();
    for part in ["[library.skills.changelog]", "#\"notes\",", "#[library.mcp.tickets]", "[agents.project]"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(!text.contains("\"t\""), "no value of a variable is written");
    let check = stage.run(&["check"]);
    assert_eq!(check.status.code(), Some(0), "{}", check.stderr);

    stage.write("project/belljar.toml", "# mine\n");
    let again = stage.run(&["init"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(again.stderr.contains("already exists"), "{}", again.stderr);
    assert_eq!(fs::read_to_string(stage.path("project/belljar.toml")).unwrap(), "# mine\n");
}

#[test]
fn leaves_nothing_behind_where_it_cannot_write() {
    let stage = Stage::new();
    stage.link("project/belljar.toml", "nowhere/at/all");
    let found = stage.run(&["init"]);
    assert_eq!(found.status.code(), Some(2), "a dangling link is not followed");
    let names: Vec<_> =
        fs::read_dir(stage.path("project")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["belljar.toml"]);
}

#[test]
fn prints_instead_of_writing() {
    let stage = Stage::new();
    let found = stage.run(&["init", "--stdout"]);
    assert!(found.stdout.contains("[agents.project]"));
    assert!(!stage.path("project/belljar.toml").exists());
    let json = stage.json(&["init", "--json"]);
    assert_eq!(json["data"]["written"], stage.path("project/belljar.toml").to_str().unwrap());
}
