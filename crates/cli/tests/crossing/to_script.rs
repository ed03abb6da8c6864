//! Tapes that become scripts: what was recorded passes again when the script is played.

use super::shapes::{Shape, bash, done, from, part, slug, stage, sub_agent, turn};
use super::{EXAMPLES, examples, with};
use crate::stage::Stage;
use belljar_testkit::process::Finished;
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::fs;

/// Converts a tape, in the project; the status, and the warnings.
fn converted(stage: &Stage, tape: &str, out: &str) -> (Option<i32>, Value) {
    let found = stage.run(&["tape", "to-script", tape, "--out", out, "--json"]);
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    (found.status.code(), envelope["data"]["warnings"].clone())
}

fn played(stage: &Stage, script: &str, scenario: &str) -> Finished {
    with(stage, &agent::real().unwrap(), &["test", "--script", script, scenario])
}

/// Records a scenario.
fn recorded(stage: &Stage, scenario: &str, more: &[&str]) {
    let args = [&["record", "--scripted", scenario], more].concat();
    let found = with(stage, &agent::real().unwrap(), &args);
    assert_eq!(found.status.code(), Some(0), "{scenario}: {}", found.stderr);
}

/// A script that was made of a recording plays to the same end, and can be read.
fn plays_again(shapes: Vec<Shape>) {
    let names: Vec<String> = shapes.iter().map(|shape| slug(shape.name)).collect();
    let stage = stage(shapes);
    for name in names {
        recorded(&stage, &format!("{name}.yaml"), &[]);
        let (tape, made) = (format!("{name}.tape"), format!("made/{name}.json"));
        assert_eq!(converted(&stage, &tape, &made), (Some(0), json!([])), "{name}");
        let checked = stage.run(&["check", &made]);
        assert_eq!(checked.status.code(), Some(0), "{name}: {checked:?}");
        let text = fs::read_to_string(stage.path(&format!("project/{made}"))).unwrap();
        let opaque = ["content_block", "event:", "msg_scripted"];
        assert!(!opaque.iter().any(|word| text.contains(word)), "{name}: {text}");
        let found = played(&stage, &made, &format!("{name}.yaml"));
        assert_eq!(found.status.code(), Some(0), "{name}: {text}{}", found.stderr);
    }
}

#[test]
fn conversations_play_again_first_part() {
    require!(Agent, Bwrap, Python);
    plays_again(part(0));
}

#[test]
fn conversations_play_again_second_part() {
    require!(Agent, Bwrap, Python);
    plays_again(part(1));
}

#[test]
fn conversations_play_again_third_part() {
    require!(Agent, Bwrap, Python);
    plays_again(part(2));
}

/// Each of several sub-agents gets its own answers, whichever asks first.
#[test]
fn sub_agents_at_once_play_again() {
    require!(Agent, Bwrap, Python);
    let sub = |contains, content: &[Value]| from("sub_agent", Some(contains), content);
    let turns = vec![
        from("main", None, &[sub_agent("count the files"), sub_agent("count the lines")]),
        sub("count the files", &[bash("echo files: three")]),
        sub("count the lines", &[bash("echo lines: seven")]),
        sub("files: three", &[json!({"text": "There are 3 files."})]),
        sub("lines: seven", &[json!({"text": "There are 7 lines."})]),
        from("main", None, &[json!({"text": "All done."})]),
    ];
    plays_again(vec![Shape::of("two sub-agents", &turns).foreground()]);
}

#[test]
fn the_shipped_examples_play_again() {
    require!(Agent, Bwrap);
    let stage = examples();
    for name in EXAMPLES {
        let made = format!("{name}/made.json");
        assert_eq!(converted(&stage, &format!("{name}/{name}.tape"), &made), (Some(0), json!([])), "{name}");
        let found = played(&stage, &made, &format!("{name}/{name}.yaml"));
        assert_eq!(found.status.code(), Some(0), "{name}: {}", found.stderr);
    }
    let shown = stage.run(&["tape", "to-script", "report/report.tape"]);
    assert_eq!((shown.status.code(), shown.stderr.as_str()), (Some(0), ""), "{shown:?}");
    assert_eq!(shown.stdout, fs::read_to_string(stage.path("project/report/made.json")).unwrap());
    let before = shown.stdout;
    let refused = stage.run(&["tape", "to-script", "forecast/forecast.tape", "--out", "report/made.json"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(fs::read_to_string(stage.path("project/report/made.json")).unwrap(), before);
    let forced =
        stage.run(&["tape", "to-script", "forecast/forecast.tape", "--out", "report/made.json", "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{forced:?}");
}

/// What a script cannot express is a warning, and the status says that something is missing.
#[test]
fn what_is_lost_is_named() {
    require!(Agent, Bwrap, Python);
    let cut =
        json!({"answer": {"reply": {"content": [{"text": "this breaks off"}], "cut": {"after_events": 2}}}});
    let says = turn(&[json!({"text": "the key is a-secret-value-of-27-chars"})]);
    let asks = json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [{
        "question": "Which colour?", "header": "H", "multiSelect": false,
        "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]}]}}});
    let shape = |name, turns: &[Value]| Shape::of(name, turns);
    let stage = stage(vec![
        shape("broken", &[cut, done()]),
        shape("redacted", &[says, done()]),
        shape("asked", &[turn(&[asks]), done()]),
    ]);
    stage.write("project/redacted.yaml", "prompt: go\nassert: [{result: success}]\nsession: session.yaml\n");
    stage.write("config/belljar/.env", "SECRET_TOKEN=a-secret-value-of-27-chars\n");
    for (name, more, word) in [
        ("broken", &[][..], "exchange 0: the answer was broken off; the script closes the connection"),
        ("redacted", &[], "a value was redacted"),
        ("asked", &["--answer", "which colour=Blue"], "1 answered by `command-line`"),
    ] {
        let file = format!("{name}.yaml");
        recorded(&stage, &file, more);
        let (status, warnings) = converted(&stage, &format!("{name}.tape"), &format!("made/{name}.json"));
        assert_eq!(status, Some(3), "{name}: {warnings:#}");
        assert!(warnings.to_string().contains(word), "{name}: {warnings:#}");
        let shown = stage.run(&["tape", "to-script", &format!("{name}.tape")]);
        assert!(shown.stderr.starts_with("warning: "), "{shown:?}");
        let found = with(
            &stage,
            &agent::real().unwrap(),
            &[&["test", "--script", &format!("made/{name}.json"), &file][..], more].concat(),
        );
        assert_eq!(found.status.code(), Some(0), "{name}: {}", found.stderr);
    }
}
