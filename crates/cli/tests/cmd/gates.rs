use super::{agent_path, script};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn questions_wait_in_a_directory_for_their_answers() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    let played = script(&[
        json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [
            {"question": "Which format?", "header": "Format", "multiSelect": false, "options": [
                {"label": "PDF", "description": "p"}, {"label": "HTML", "description": "h"}]}]}}}),
        json!({"tool_use": {"name": "Bash", "input": {"command": "touch outputs/x", "description": "x"}}}),
        json!({"text": "Thank you."}),
    ]);
    stage.write("project/script.json", played);
    std::fs::create_dir(stage.path("project/questions")).unwrap();
    let args = ["skill", "skills/notes", "go", "--script", "script.json", "--decider-dir", "questions"];
    let run = stage.command(&args).env("PATH", agent_path()).stderr(Stdio::piped()).spawn().unwrap();
    let mut follow =
        stage.command(&["gates", "questions", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!((&first["seq"], &first["kind"]), (&json!(1), &json!("question")), "{first}");
    let wrong = stage.run(&["answer", "questions", "--gate", "7", "--choose", "PDF"]);
    assert_eq!(wrong.status.code(), Some(2));
    let left = stage.run(&["answer", "questions", "--gate", "1", "--choose", "HTML"]);
    assert_eq!(left.status.code(), Some(0), "{}", left.stderr);
    let second = next();
    assert_eq!((&second["seq"], &second["kind"]), (&json!(2), &json!("permission")), "{second}");
    let wrong = stage.run(&["answer", "questions", "--gate", "2", "--choose", "perhaps"]);
    assert!(wrong.stderr.contains("`allow` or `deny`"), "{}", wrong.stderr);
    stage.run(&["answer", "questions", "--gate", "2", "--choose", "allow"]);
    assert_eq!(next(), json!({"done": true}));
    assert!(follow.wait().unwrap().success());
    let found = run.wait_with_output().unwrap();
    assert_eq!(found.status.code(), Some(0), "{}", String::from_utf8_lossy(&found.stderr));
    let again = stage.command(&args).env("PATH", agent_path()).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "a directory with another run's questions is not taken");
}

/// A kept run and a tape have a file of the name that a decider's mark has.
#[test]
fn a_directory_in_which_no_decider_asked_is_refused() {
    let stage = Stage::new();
    stage.write("project/kept/a.tape/run.json", r#"{"format": 1, "id": "a"}"#);
    for directory in [".", "kept", "kept/a.tape"] {
        let found = stage.run(&["gates", directory]);
        assert_eq!(found.status.code(), Some(2), "{directory}: {found:?}");
        assert!(found.stderr.contains("has no questions of a decider"), "{directory}: {}", found.stderr);
    }
}
