use crate::stage::Stage;

fn asked(stage: &Stage, kind: &str, rest: &str) {
    stage.write("project/q/req-1.json", format!(r#"{{"id": "run-1", "kind": "{kind}"{rest}}}"#));
}

#[test]
fn an_answer_names_what_was_asked() {
    let stage = Stage::new();
    asked(&stage, "question", r#", "questions": [{"question": "A?"}, {"question": "B?"}]"#);
    for (args, part) in [
        (&["--choose", "x"][..], "2 questions were asked"),
        (&["--answer", "A?=x"], "\"B?\" has no answer"),
        (&["--answer", "C?=x"], "\"C?\" was not asked"),
        (&["--answer", "nothing"], "has no `=`"),
    ] {
        let found = stage.run(&[&["answer", "q", "--gate", "1"], args].concat());
        assert_eq!(found.status.code(), Some(2));
        assert!(found.stderr.contains(part), "{args:?}: {}", found.stderr);
        assert!(!stage.path("project/q/resp-1.json").exists(), "{args:?}");
    }
    let found = stage.run(&["answer", "q", "--gate", "1", "--answer", "A?=x", "--answer", "B?=y", "--json"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let text = std::fs::read_to_string(stage.path("project/q/resp-1.json")).unwrap();
    assert_eq!(text.trim(), r#"{"id":"run-1","answers":{"A?":"x","B?":"y"}}"#);
}

#[test]
fn what_is_no_question_is_not_answered() {
    let stage = Stage::new();
    stage.write("project/q/req-1.json", "[]");
    stage.write("project/q/req-2.json", r#"{"kind": "question"}"#);
    stage.write("project/q/req-3.json", r#"{"id": "1", "kind": "weather"}"#);
    for gate in ["1", "2", "3", "4"] {
        let found = stage.run(&["answer", "q", "--gate", gate, "--choose", "x"]);
        assert_eq!(found.status.code(), Some(2), "{gate}");
    }
}
