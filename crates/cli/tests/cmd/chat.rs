use super::{agent_path, script, tried};
use crate::cmd::run::Screen;
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::json;

#[test]
fn messages_of_a_pipe_are_said_one_after_the_other() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    stage.write("project/script.json", script(&[json!({"text": "One."}), json!({"text": "Two."})]));
    stage.write("project/input", "first\n\nsecond\n");
    let mut command = stage.command(&["chat", "skills/notes", "--script", "script.json"]);
    command.env("PATH", agent_path()).stdin(std::fs::File::open(stage.path("project/input")).unwrap());
    let found = command.output().unwrap();
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    assert_eq!(found.status.code(), Some(0), "{said}");
    assert!(said.contains("One.") && said.contains("Two."), "{said}");
    let nothing = tried(&stage, &["chat", "skills/notes", "--script", "script.json"]);
    assert_eq!(nothing.status.code(), Some(2), "{}", nothing.stderr);
}

#[test]
fn a_person_talks_answers_and_stops_a_turn() {
    require!(Agent, Bwrap, Tmux);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    let played = script(&[
        json!({"text": "Hello there."}),
        json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [
            {"question": "Which format?", "header": "Format", "multiSelect": false, "options": [
                {"label": "PDF", "description": "p"}, {"label": "HTML", "description": "h"}]}]}}}),
        json!({"text": "So be it."}),
        json!({"tool_use": {"name": "Bash", "input": {"command": "touch outputs/x; sleep 600", "description": "x"}}}),
        json!({"text": "Back again."}),
    ]);
    stage.write("project/script.json", played);
    let line = format!(
        "trap : INT; {} chat skills/notes --script script.json; echo status-$?; exec sleep 60",
        env!("CARGO_BIN_EXE_belljar")
    );
    let screen = Screen::open(&stage, &agent_path(), &line);
    screen.wait_for(">");
    screen.keys(&["hi", "Enter"]);
    screen.wait_for("Hello there.");
    screen.keys(&["ask", "Space", "me", "Enter"]);
    screen.wait_for("number or label");
    screen.keys(&["2", "Enter"]);
    screen.wait_for("So be it.");
    screen.keys(&["sleep", "Enter"]);
    screen.wait_for("May `Bash` run");
    screen.keys(&["y", "Enter"]);
    screen.wait_for("> Bash touch");
    screen.keys(&["C-c"]);
    screen.keys(&["again", "Enter"]);
    screen.wait_for("Back again.");
    screen.keys(&["/exit", "Enter"]);
    screen.wait_for("status-0");
}

#[test]
fn a_question_that_no_one_answers_fails_the_conversation() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    let asked = json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [
        {"question": "Which format?", "header": "Format", "multiSelect": false, "options": [
            {"label": "PDF", "description": "p"}, {"label": "HTML", "description": "h"}]}]}}});
    stage.write("project/script.json", script(&[asked]));
    let chat = ["chat", "skills/notes", "--say", "Go", "--script", "script.json", "--answer", "format=Word"];
    let found = tried(&stage, &chat);
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    assert!(found.stderr.contains("correct --answer \"format=Word\""), "{}", found.stderr);
    assert!(!found.stderr.contains("would answer it"), "{}", found.stderr);
}
