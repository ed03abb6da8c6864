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

/// What the run would refuse is not written; what is written is what it reads.
#[test]
fn an_answer_fits_its_question_and_is_given_once() {
    let stage = Stage::new();
    let options = r#""options": [{"label": "Red"}, {"label": "Blue=1"}]"#;
    let one = format!(r#", "questions": [{{"question": "a=b?", "multiSelect": false, {options}}}]"#);
    let many = one.replace("false", "true");
    let free = r#", "questions": [{"question": "Name?"}]"#.to_owned();
    let tool = r#", "tool": "Bash", "input": {}"#.to_owned();
    let refused = |kind: &str, rest: &str, args: &[&str], part: &str| {
        asked(&stage, kind, rest);
        let found = stage.run(&[&["answer", "q", "--gate", "1"], args].concat());
        assert_eq!(found.status.code(), Some(2), "{args:?}: {}", found.stderr);
        assert!(found.stderr.contains(part), "{args:?}: {}", found.stderr);
        assert!(!stage.path("project/q/resp-1.json").exists(), "{args:?}");
    };
    for (args, part) in [
        (&["--choose", "Green"][..], "has no option \"Green\""),
        (&["--choose", "first"], "has no option \"first\""),
        (&["--choose", "3"], "has no option \"3\""),
        (&["--choose", "0"], "has no option \"0\""),
        (&["--choose", "Red", "--choose", "2"], "takes one option"),
        (&["--answer", "a=b?=Green"], "has no option \"Green\""),
        (&["--answer", "a=b?=first"], "has no option \"first\""),
        (&["--answer", "a=b?=Red", "--answer", "a=b?=2"], "takes one option"),
        (&["--answer", "a=Red"], "was not asked"),
        (&["--say", " "], "must not be empty"),
        (&["--say", "x", "--choose", "Red"], "not both"),
        (&[], "has no answer"),
    ] {
        refused("question", &one, args, part);
    }
    refused("question", &many, &["--choose", "Red", "--choose", "first"], "has no option \"first\"");
    for (args, part) in [
        (&["--choose", "Allow"][..], "`allow` or `deny`"),
        (&["--answer", "Bash=allow"], "`allow` or `deny`"),
        (&["--choose", "allow", "--choose", "deny"], "`allow` or `deny`"),
        (&["--choose", "allow", "--answer", "x=y"], "`allow` or `deny`"),
        (&["--choose", "allow", "--say", "x"], "only a denial has a message"),
        (&["--choose", "deny", "--say", ""], "must not be empty"),
        (&["--say", "allow"], "`allow` or `deny`"),
        (&[], "`allow` or `deny`"),
    ] {
        refused("permission", &tool, args, part);
    }
    for (kind, rest, args, expected) in [
        ("question", &one, &["--choose", "2"][..], r#"{"id":"run-1","answers":{"a=b?":"2"}}"#),
        ("question", &one, &["--answer", "a=b?=Blue=1"], r#"{"id":"run-1","answers":{"a=b?":"Blue=1"}}"#),
        ("question", &one, &["--say", "first"], r#"{"id":"run-1","answers":{"a=b?":{"text":"first"}}}"#),
        (
            "question",
            &many,
            &["--answer", "a=b?=1", "--answer", "a=b?=2"],
            r#"{"id":"run-1","answers":{"a=b?":["1","2"]}}"#,
        ),
        ("question", &free, &["--say", "Quill"], r#"{"id":"run-1","answers":{"Name?":{"text":"Quill"}}}"#),
        (
            "permission",
            &tool,
            &["--choose", "deny", "--say", "no"],
            r#"{"id":"run-1","behavior":"deny","message":"no"}"#,
        ),
    ] {
        asked(&stage, kind, rest);
        let args = [&["answer", "q", "--gate", "1"], args].concat();
        let found = stage.run(&args);
        assert_eq!(found.status.code(), Some(0), "{args:?}: {}", found.stderr);
        let text = std::fs::read_to_string(stage.path("project/q/resp-1.json")).unwrap();
        assert_eq!(text.trim(), expected);
        let again = stage.run(&args);
        assert_eq!(again.status.code(), Some(2), "{args:?}");
        assert!(again.stderr.contains("is answered already"), "{}", again.stderr);
        std::fs::remove_file(stage.path("project/q/resp-1.json")).unwrap();
    }
}
