use crate::stage::Stage;

#[test]
fn one_question_is_rehearsed() {
    let stage = Stage::new();
    let policy =
        "- when_tool: Bash\n  allow_if: command.startsWith('ls')\n- when_question: colour\n  choose: red\n";
    stage.write("project/policy.yaml", policy);
    let with = |args: &[&str]| stage.run(&[&["decide", "--answer-policy", "policy.yaml"], args].concat());
    for (args, status, part) in [
        (
            &["--question", "Which colour?", "--option", "Red", "--option", "Blue"][..],
            0,
            "Red  (policy: rule 2",
        ),
        (&["--question", "Which size?", "--option", "S"], 1, "when_question"),
        (&["--tool", "Bash", "--input", r#"{"command": "ls -l"}"#], 0, "allow"),
        (&["--tool", "Bash", "--input", r#"{"command": "rm -r x"}"#], 0, "deny"),
        (&["--tool", "Write", "--strict"], 0, "deny"),
        (&["--tool", "Bash", "--input", "[]"], 2, "--input"),
    ] {
        let found = with(args);
        assert_eq!(found.status.code(), Some(status), "{args:?}: {}{}", found.stdout, found.stderr);
        assert!(format!("{}{}", found.stdout, found.stderr).contains(part), "{args:?}: {found:?}");
    }
    let value = stage.json(&["decide", "--question", "Which?", "--option", "A", "--first", "--json"]);
    assert_eq!((&value["data"]["answer"], &value["data"]["by"]), (&"A".into(), &"first".into()));
}

/// What a run would do depends on the session, too.
#[test]
fn the_session_of_a_scenario_counts() {
    let stage = Stage::new();
    stage.write("project/strict.yaml", "permission_parity: strict\n");
    stage.write("project/usual.yaml", "model: claude-sonnet-4-5\n");
    for (session, answer) in [("strict.yaml", "deny"), ("usual.yaml", "allow"), ("(inline)", "allow")] {
        stage.write("project/s.yaml", format!("prompt: go\nsession: {session}\n"));
        let value = stage.json(&["decide", "--tool", "Bash", "--scenario", "s.yaml", "--json"]);
        assert_eq!(value["data"]["answer"], answer, "{session}: {value:#}");
    }
    let value = stage.json(&["decide", "--tool", "Bash", "--scenario", "s.yaml", "--strict", "--json"]);
    assert_eq!(value["data"]["answer"], "deny", "{value:#}");
    // A session beyond the suite is read after an agreement only.
    stage.write("home/session.yaml", "permission_parity: strict\n");
    stage.write("project/s.yaml", "prompt: go\nsession: ~/session.yaml\n");
    let refused = stage.run(&["decide", "--tool", "Bash", "--scenario", "s.yaml"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("session file"), "{}", refused.stderr);
    let value = stage.json(&["decide", "--tool", "Bash", "--scenario", "s.yaml", "--yes", "--json"]);
    assert_eq!(value["data"]["answer"], "deny", "{value:#}");
}
