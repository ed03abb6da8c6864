use super::project;
use crate::stage::{Stage, assert_outcome};
use serde_json::json;

#[test]
fn a_good_manifest() {
    assert_outcome(
        &project().outcome(&["check"]),
        "exit 0\n--- stdout\nbelljar.toml: 1 agent, 1 library entry, all good\n--- stderr\n",
    );
}

#[test]
fn for_an_editor() {
    let stage = Stage::with("# é\n[agents.reviewer]\nmodle = \"é\"\nhome = \"claen\"\n");
    let found = stage.json(&["check", "--json"]);
    let keys: Vec<&String> = found.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["belljar", "version", "verb", "ok", "exit_code", "exit_meaning", "data", "diagnostics"]
    );
    assert_eq!(
        (&found["ok"], &found["exit_code"], &found["verb"]),
        (&json!(false), &json!(2), &json!("check"))
    );
    assert_eq!(found["data"], json!({"files": ["belljar.toml"], "agents": 1, "library": 0}));
    let first = &found["diagnostics"][0];
    assert_eq!(first["code"], "unknown-key");
    assert_eq!(
        first["place"],
        json!({"file": "belljar.toml", "line": 3, "column": 1, "end_line": 3, "end_column": 6,
               "label": "did you mean `model`?"})
    );
    assert_eq!(found["diagnostics"][1]["place"]["column"], 8);
    let good = project().json(&["check", "--json"]);
    assert_eq!(
        (&good["ok"], &good["exit_code"], &good["diagnostics"]),
        (&json!(true), &json!(0), &json!([]))
    );
}

/// A failure before anything was read still is one JSON object.
#[test]
fn for_an_editor_without_a_manifest() {
    let found = Stage::new().json(&["check", "--json"]);
    assert_eq!(found["error"]["message"], "no manifest was found");
    assert_eq!((&found["ok"], &found["exit_code"], &found["data"]), (&json!(false), &json!(2), &json!(null)));
}

#[test]
fn in_another_directory() {
    let stage = project();
    for arguments in [["-C", "skills", "check"], ["check", "-C", "skills"]] {
        // Outside a repository a directory is a project of its own.
        let found = stage.run(&arguments);
        assert_eq!(found.status.code(), Some(2), "{found:?}");
        assert!(found.stderr.contains("looked for belljar.toml"), "{}", found.stderr);
    }
    let there = stage.path("project");
    let found = stage.finish(stage.command(&["-C", there.to_str().unwrap(), "check"]).current_dir("/"));
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert_outcome(
        &stage.outcome(&["-C", "nowhere", "check"]),
        "exit 2\n--- stdout\n--- stderr\nerror: cannot find `nowhere`\n  caused by: No such file or directory (os error 2)\n",
    );
}

#[test]
fn colours() {
    let stage = Stage::with("modle = 1\n[agents.a]\n");
    let escapes = |arguments: &[&str], no_color: bool| {
        let mut command = stage.command(arguments);
        if !no_color {
            command.env_remove("NO_COLOR");
        }
        stage.finish(&mut command).stderr.contains('\u{1b}')
    };
    assert!(!escapes(&["check"], false), "not on a terminal");
    assert!(!escapes(&["check", "--color", "never"], false));
    assert!(escapes(&["check", "--color", "always"], false));
    assert!(escapes(&["--color=always", "check"], true), "asked for by name");
}

/// On a terminal colours are used, unless the user wants none.
#[test]
fn colours_on_a_terminal() {
    let stage = Stage::with("modle = 1\n[agents.a]\n");
    let on_terminal = |variables: &str| {
        let line = format!("{variables} {} check", env!("CARGO_BIN_EXE_belljar"));
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(stage.path("project"));
        command.env_clear().envs(stage.environment()).env_remove("NO_COLOR").env("SHELL", "/bin/sh");
        stage.finish(&mut command).stdout.contains("\u{1b}[")
    };
    assert!(on_terminal(""));
    assert!(!on_terminal("NO_COLOR=1"));
    assert!(on_terminal("NO_COLOR="), "an empty value counts as not set");
}

#[test]
fn without_a_home() {
    let stage = project();
    let expected = "exit 2\n--- stdout\n--- stderr\nerror: HOME is not set to an absolute path\n  hint: export HOME=/path/to/your/home\n";
    let found = stage.finish(stage.command(&["check"]).env_remove("HOME"));
    assert_outcome(&stage.shown(&found), expected);
    for value in ["", "relative/home"] {
        assert_outcome(&stage.shown(&stage.finish(stage.command(&["check"]).env("HOME", value))), expected);
    }
    let found = stage.finish(stage.command(&["check"]).env("HOME", "/nonexistent"));
    assert_eq!(found.status.code(), Some(2));
    assert!(found.stderr.starts_with("error: cannot find `/nonexistent`\n"), "{}", found.stderr);
}

#[test]
fn relative_directories_of_the_user_count_as_not_set() {
    let stage = Stage::new();
    stage.write("home/.config/belljar/belljar.toml", "[agents.mine]\n");
    let mut command = stage.command(&["check"]);
    command.env("XDG_CONFIG_HOME", "relative");
    assert_outcome(
        &stage.shown(&stage.finish(&mut command)),
        "exit 0\n--- stdout\n~/.config/belljar/belljar.toml: 1 agent, 0 library entries, all good\n--- stderr\n",
    );
}

/// A suite with a skill, a scenario, its session and its script, all as they should be.
fn suite() -> Stage {
    super::record::scenario(&super::record::plain())
}

/// The codes of the diagnostics, each with its file and line.
fn found(stage: &Stage, arguments: &[&str]) -> Vec<(String, String, u64)> {
    let envelope = stage.json(&[&["check", "--json"], arguments].concat());
    let one = |found: &serde_json::Value| {
        let file = found["place"]["file"].as_str().unwrap_or_default().to_owned();
        (
            found["code"].as_str().unwrap().to_owned(),
            file,
            found["place"]["line"].as_u64().unwrap_or_default(),
        )
    };
    envelope["diagnostics"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn a_good_suite() {
    assert_outcome(
        &suite().outcome(&["check", "."]),
        "exit 0\n--- stdout\n1 scenario, 1 session, 1 script, all good\n--- stderr\n",
    );
}

#[test]
fn a_dotenv_file_is_read_for_a_suite_as_well() {
    let found = suite().run(&["check", ".", "--dotenv", "../absent.env"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("cannot read") && found.stderr.contains("absent.env"), "{}", found.stderr);
}

#[test]
fn all_faults_of_all_files_are_reported_at_once() {
    let stage = suite();
    stage.write("project/skills/hello/SKILL.md", "---\nname: hello\n---\n");
    stage.write(
        "project/scenarios/hello.yaml",
        "nmae: hello\nsession: session.yaml\nprompt: Say hello\nanswers:\n  - when_tool: Bash\n    decide: alow\n\
         assert:\n  - file_exists: a\n  - file_absent: a\n",
    );
    stage.write(
        "project/scenarios/session.yaml",
        "skills:\n  local: [../skills/hello, ../skills/none]\nuploads: [missing.txt]\nmcp:\n  config: missing.json\n",
    );
    stage.write(
        "project/scenarios/hello.script.json",
        "{\"version\": 1,\n\"turns\": [\n{\"anser\": 1},\n{\"answer\": \"hangup\"}]}",
    );
    stage.write("project/scenarios/other.yaml", "prompt: Hi\nsession: none.yaml\n");
    let all = found(&stage, &["scenarios"]);
    let scenario = "scenarios/hello.yaml";
    for (code, file, line) in [
        ("unknown-key", scenario, 1),
        ("invalid-value", scenario, 6),
        ("contradiction", scenario, 9),
        ("skill-front-matter", "skills/hello/SKILL.md", 1),
        ("not-found", "scenarios/session.yaml", 2),
        ("not-found", "scenarios/session.yaml", 3),
        ("not-found", "scenarios/session.yaml", 5),
        ("unknown-key", "scenarios/hello.script.json", 3),
        ("invalid-value", "scenarios/hello.script.json", 4),
        ("not-found", "scenarios/other.yaml", 2),
        ("no-checks", "scenarios/other.yaml", 1),
    ] {
        let expected = (code.to_owned(), file.to_owned(), line);
        assert!(all.contains(&expected), "{expected:?} is not among {all:#?}");
    }
    assert_eq!(all.len(), 11, "{all:#?}");
    let text = stage.run(&["check", "scenarios/hello.script.json"]);
    assert_eq!(text.status.code(), Some(2));
    assert!(text.stderr.contains("did you mean `answer`?"), "{}", text.stderr);
    assert!(text.stderr.contains("3 | {\"anser\": 1},\n  |  ^^^^^^^"), "{}", text.stderr);
}

#[test]
fn a_skill_that_the_session_lacks_is_named_with_the_nearest() {
    let stage = suite();
    stage.write(
        "project/scenarios/hello.yaml",
        super::record::SCENARIO.replace("name: hello", "skills: [helo]"),
    );
    let text = stage.run(&["check", "scenarios/hello.yaml"]);
    assert_eq!(text.status.code(), Some(2), "{text:?}");
    for part in ["the session has no skill `helo`", "hello.yaml:1:10", "did you mean `hello`?"] {
        assert!(text.stderr.contains(part), "{part}: {}", text.stderr);
    }
}

#[test]
fn answers_are_compared_with_the_questions_of_the_script() {
    let question = json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [
        {"question": "Which format?", "header": "Format", "multiSelect": false,
         "options": [{"label": "PDF", "description": "p"}, {"label": "HTML", "description": "h"}]}]}}});
    let stage =
        super::record::scenario(&super::record::script(&[super::record::main_turn(&json!([question]))]));
    let scenario = |choose: &str| {
        let rule = format!("answers:\n  - when_question: which format\n    choose: {choose}");
        let text = super::record::SCENARIO.replace("answers:", &rule);
        stage.write("project/scenarios/hello.yaml", text);
    };
    scenario("HTML");
    assert_eq!(found(&stage, &["scenarios"]), []);
    scenario("Word");
    let all = found(&stage, &["scenarios"]);
    assert_eq!(all, [("unanswered-question".to_owned(), "scenarios/hello.script.json".to_owned(), 1)]);
    let written = std::fs::read_to_string(stage.path("project/scenarios/hello.yaml")).unwrap();
    for (what, count) in [("fail", 1), ("first", 0)] {
        stage.write("project/scenarios/hello.yaml", format!("{written}on_unanswered: {what}\n"));
        assert_eq!(found(&stage, &["scenarios"]).len(), count, "{what}");
    }
}

#[test]
fn a_rule_that_is_never_reached_is_a_warning() {
    let stage = suite();
    let twice = "answers:\n  - when_tool: Bash\n    decide: deny\n";
    stage.write("project/scenarios/hello.yaml", super::record::SCENARIO.replace("answers:\n", twice));
    let text = stage.run(&["check", "scenarios"]);
    assert_eq!(text.status.code(), Some(0), "{text:?}");
    assert!(text.stderr.contains("warning[unreached-rule]"), "{}", text.stderr);
    assert!(text.stdout.ends_with("no errors\n"), "{}", text.stdout);
}

#[test]
fn the_kind_of_a_file_is_found_or_named() {
    let stage = suite();
    stage.write("project/rules.yaml", "- when_tool: Bash\n  decide: alow\n");
    stage.write("project/policy.yaml", "answers:\n  - when_tool: Bash\n    decide: alow\n");
    stage.write("project/session.yaml", "modle: x\neffort: hihg\n");
    stage.write("project/talk.json", "{\"version\": 1, \"turns\": 5}");
    stage.write("project/odd.yaml", "a: 1\nb: 2\n");
    stage.write("project/belljar.toml", "[agents.a]\nmodle = \"x\"\n");
    for (file, code, line) in [
        ("rules.yaml", "invalid-value", 2),
        ("policy.yaml", "invalid-value", 3),
        ("session.yaml", "unknown-key", 1),
        ("talk.json", "wrong-type", 1),
        ("belljar.toml", "unknown-key", 2),
    ] {
        let all = found(&stage, &[file]);
        assert_eq!(all[0], (code.to_owned(), file.to_owned(), line), "{all:?}");
    }
    assert_eq!(found(&stage, &["odd.yaml"]), [("unknown-kind".to_owned(), String::new(), 0)]);
    let named = found(&stage, &["--kind", "session", "odd.yaml"]);
    assert_eq!(named.iter().map(|(code, _, _)| code.as_str()).collect::<Vec<_>>(), ["unknown-key"; 2]);
}

/// A stranger's suite has nothing of the user's quoted.
#[test]
fn a_file_beyond_the_suite_is_neither_opened_nor_quoted() {
    let stage = suite();
    stage.write("home/key", "SECRET-LINE: [\n");
    let beyond = super::record::SCENARIO.replace("session.yaml", "~/key");
    stage.write("project/scenarios/hello.yaml", beyond);
    stage.link("project/scenarios/link.yaml", stage.path("home/key").to_str().unwrap());
    let text = stage.run(&["check", "scenarios"]);
    assert_eq!(text.status.code(), Some(2), "{text:?}");
    assert!(text.stderr.contains("error[not-agreed]") && text.stderr.contains("--yes"), "{}", text.stderr);
    assert!(!text.stderr.contains("SECRET-LINE"), "{}", text.stderr);
    for arguments in [&["check", "--yes", "scenarios"][..], &["check", "scenarios/link.yaml"]] {
        let text = stage.run(arguments);
        assert_eq!(text.status.code(), Some(2), "{text:?}");
        assert!(!text.stderr.contains("SECRET-LINE"), "{}", text.stderr);
    }
}

#[test]
fn a_directory_without_a_scenario_is_an_error() {
    let found = project().run(&["check", "skills"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("a scenario is a `.yaml` file with a `prompt`"), "{}", found.stderr);
}

#[test]
fn a_script_with_a_fault_is_refused_at_its_place_before_a_run() {
    let stage = suite();
    stage.write("project/scenarios/hello.script.json", "{\"version\": 1,\n\"turns\": [{\"anser\": 1}]}");
    for arguments in [
        &["test", "--scripted", "scenarios/hello.yaml"][..],
        &["test", "--script", "scenarios/hello.script.json", "scenarios/hello.yaml"],
    ] {
        let found = stage.run(arguments);
        assert_eq!(found.status.code(), Some(2), "{found:?}");
        assert!(found.stderr.contains("hello.script.json:2:12"), "{}", found.stderr);
        assert!(found.stderr.contains("did you mean `answer`?"), "{}", found.stderr);
    }
}

/// What `test` would refuse, or never answer, is said before.
#[test]
fn what_a_run_would_refuse_or_never_use_is_reported() {
    let stage = Stage::new();
    stage.write(
        "project/a.yaml",
        "prompt: Go\nfidelity: microvm\nanswers:\n  - {when_tool: \"mcp__*\", decide: allow}\n  \
         - {when_tool: bash, decide: allow}\n  - {when_tool: Bash, decide: allow}\n  \
         - {when_tool: Bash, decide: deny}\nassert:\n  - result: success\n",
    );
    let found = stage.json(&["check", "--json", "a.yaml"]);
    let codes: Vec<&str> =
        found["diagnostics"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect();
    let expected = ["no-backend", "unreached-rule", "unmatched-rule", "unmatched-rule"];
    assert_eq!((codes.as_slice(), &found["exit_code"]), (expected.as_slice(), &json!(0)), "{found:#}");
    stage.write(
        "project/a.yaml",
        "prompt: Go\nanswers:\n  - {when_tool: Bash, decide: allow}\n  - {when_tool: Bash, decide: deny}\n\
         assert:\n  - tool_called: Bash\n  - tool_not_called: B*\n",
    );
    let found = stage.run(&["check", "a.yaml"]);
    for part in ["cannot both hold", "this one never answers"] {
        assert!(found.stderr.contains(part), "{part}: {}", found.stderr);
    }
    let found = stage.run(&["replay", "a.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("`a.yaml` is a scenario") && found.stderr.contains("a.tape"), "{found:?}");
}

/// A run would refuse it; here it is a warning, as `--install` brings it.
#[test]
fn a_version_of_the_agent_that_is_not_installed_is_a_warning() {
    let stage = Stage::new();
    stage.write("project/session.yaml", "agent: claude-code@9.9.9\n");
    stage.write("project/a.yaml", "prompt: go\nsession: session.yaml\nassert: [{result: success}]\n");
    stage.write("project/belljar.toml", "[agents.one]\nagent = \"claude-code@9.9.9\"\n");
    for (line, place) in [
        (&["check", "--json"][..], "belljar.toml"),
        (&["check", "--json", "belljar.toml"], "belljar.toml"),
        (&["check", "--json", "a.yaml"], "session.yaml"),
        (&["check", "--json", "session.yaml"], "session.yaml"),
    ] {
        let found = stage.json(line);
        assert_eq!(found["exit_code"], 0, "{line:?}: {found:#}");
        let warned = &found["diagnostics"][0];
        assert_eq!(
            (&warned["code"], &warned["severity"]),
            (&json!("not-installed"), &json!("warning")),
            "{found:#}"
        );
        assert_eq!(warned["place"]["file"], place, "{found:#}");
        assert!(
            warned["message"].as_str().unwrap().contains("claude-code@9.9.9 is not installed"),
            "{found:#}"
        );
        assert!(
            warned["help"].as_str().unwrap().contains("`belljar agent install claude-code@9.9.9`"),
            "{found:#}"
        );
        assert_eq!(found["diagnostics"].as_array().unwrap().len(), 1, "{found:#}");
    }
}
