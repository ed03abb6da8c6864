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
