use crate::stage::Stage;
use std::fs;

const PROJECT: &str = r#"{"agents": {"reviewer": {
  "env": {"LOG": "debug", "PASSWORD": "?Password"},
  "skills": ["notes"],
  "prompt": "You review."
}}}"#;

#[test]
fn lays_the_projects_file_over_the_one_in_the_home() {
    let stage = Stage::new();
    stage.write("project/claude-bottle.json", PROJECT);
    let home = r#"{"agents": {"reviewer": {"env": {}, "skills": [], "prompt": "x"}, "writer": {"env": {}, "skills": [], "prompt": "Write."}}}"#;
    stage.write("home/claude-bottle.json", home);
    stage.skill("home/.claude/skills", "notes");
    let found = stage.run(&["import", "claude-bottle.json"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert_eq!(found.stdout, "belljar.toml was written from ~/claude-bottle.json and claude-bottle.json\n");
    assert!(found.stderr.contains("note: network: it was open"), "{}", found.stderr);
    let text = fs::read_to_string(stage.path("project/belljar.toml")).unwrap();
    assert!(text.contains("[agents.writer]") && text.contains("You review."), "{text}");
    let check = stage.run(&["check"]);
    assert_eq!(check.status.code(), Some(0), "{}", check.stderr);
    let again = stage.run(&["import", "claude-bottle.json"]);
    assert_eq!(again.status.code(), Some(2), "never overwrites");
}

#[test]
fn says_where_a_file_is_wrong_and_writes_nothing() {
    let stage = Stage::new();
    stage.write("project/claude-bottle.json", "{\"agents\": {\"a/b\": {\"promt\": 1}}}");
    let found = stage.run(&["import", "claude-bottle.json"]);
    assert_eq!(found.status.code(), Some(2));
    assert!(found.stderr.contains("claude-bottle.json:1:13"), "{}", found.stderr);
    assert!(found.stderr.contains("did you mean `prompt`?"), "{}", found.stderr);
    assert!(!stage.path("project/belljar.toml").exists());
    let missing = stage.run(&["import", "nothing.json"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(missing.stderr.contains("nothing.json` does not exist"), "{}", missing.stderr);
}
