//! Bad input that a file in a repository cannot hold: odd bytes, odd kinds of files, no files.

use crate::stage::{Stage, assert_outcome};
use belljar_testkit::{process::run_within, require};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

const AGENT: &str = "[agents.reviewer]\nhome = \"clean\"\n";

#[test]
fn a_byte_order_mark_shifts_no_column() {
    let stage = Stage::with("\u{feff}homee = 1\n[agents.reviewer]\n");
    assert_outcome(
        &stage.outcome(&["check"]),
        "\
exit 2
--- stdout
--- stderr
error[unknown-key]: unknown key `homee` in a manifest
 --> belljar.toml:1:1
  |
1 | homee = 1
  | ^^^^^ not a known key
  |
  = help: known keys are `library` and `agents`

1 error
",
    );
    assert_eq!(Stage::with(&format!("\u{feff}{AGENT}")).run(&["check"]).status.code(), Some(0));
}

#[test]
fn bytes_that_are_no_text_are_shown_where_they_are() {
    let stage = Stage::new();
    stage.write("project/belljar.toml", b"[agents.caf\xe9]\nhome = \"clean\"\n");
    assert_outcome(
        &stage.outcome(&["check"]),
        "\
exit 2
--- stdout
--- stderr
error[not-utf8]: `belljar.toml` is not UTF-8
 --> belljar.toml:1:12
  |
1 | [agents.caf\u{fffd}]
  |            ^ this byte is not UTF-8
  |
  = help: save the file as UTF-8

1 error
",
    );
}

/// A runaway file is refused by its size; one below the limit, however odd, ends soon and within bounds.
#[test]
fn huge_files_are_quick_and_bounded() {
    let half = 1 << 20;
    let texts = [
        ("too large", "# x\n".repeat(5 << 20), "larger than 4 MiB"),
        ("dotted key", format!("a{} = 1\n", ".a".repeat(half)), "nested too deeply"),
        ("nested lists", format!("a = {}", "[".repeat(half)), "error[syntax]"),
        ("no TOML at all", "a\n".repeat(half), "error[syntax]"),
        ("unknown keys", (0..100_000).map(|n| format!("k{n} = 1\n")).collect(), "and 160 more like these"),
        (
            "dangling names",
            format!(
                "[agents.a]\nskills = [{}]\n",
                (0..200_000).map(|n| format!("\"s{n}\",\n")).collect::<String>()
            ),
            "more like these",
        ),
    ];
    for (name, text, expected) in texts {
        let stage = Stage::with(&text);
        // The bound is on address space, which an optimised build hardly needs a tenth of.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 1500000; exec \"$0\" check", env!("CARGO_BIN_EXE_belljar")]);
        command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
        let finished = run_within(&mut command, Duration::from_secs(60)).unwrap();
        assert_eq!(finished.status.code(), Some(2), "{name}: {}", finished.stderr);
        assert!(finished.stderr.contains(expected), "{name}: {}", finished.stderr);
        assert!(finished.stderr.len() < 100_000, "{name}: {} bytes", finished.stderr.len());
    }
}

#[test]
fn the_list_for_machines_is_bounded_too() {
    let stage = Stage::with(&(0..20_000).map(|n| format!("k{n} = 1\n")).collect::<String>());
    let envelope = stage.json(&["check", "--json"]);
    let list = envelope["diagnostics"].as_array().unwrap();
    assert_eq!(list.len(), 200);
    assert_eq!(list[199]["code"], "too-many-faults");
}

#[test]
fn a_manifest_that_is_no_file_does_not_hang() {
    let stage = Stage::new();
    fs::create_dir(stage.path("project/belljar.toml")).unwrap();
    let expected = |what: &str| {
        format!(
            "exit 2\n--- stdout\n--- stderr\nerror: cannot read `[STAGE]/project/belljar.toml`\n  caused by: {what}\n"
        )
    };
    assert_outcome(&stage.outcome(&["check"]), &expected("it is a directory"));

    let stage = Stage::new();
    let made = Command::new("mkfifo").arg(stage.path("project/belljar.toml")).status().unwrap();
    assert!(made.success());
    assert_outcome(&stage.outcome(&["check"]), &expected("it is not a regular file"));
    assert_outcome(&stage.outcome(&["plan"]), &expected("it is not a regular file"));
}

#[test]
fn a_manifest_that_is_a_link_to_nothing_is_not_taken_for_absent() {
    let stage = Stage::new();
    stage.link("project/belljar.toml", "nowhere.toml");
    assert_outcome(
        &stage.outcome(&["plan"]),
        "exit 2\n--- stdout\n--- stderr\nerror: cannot read `[STAGE]/project/belljar.toml`\n  \
         caused by: it is a symbolic link to something that does not exist\n",
    );
}

#[test]
fn a_manifest_that_cannot_be_read_says_so() {
    require!(Root);
    let stage = Stage::with(AGENT);
    for name in ["", "project", "home", "config", "config/belljar"] {
        fs::set_permissions(stage.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(stage.path("project/belljar.toml"), fs::Permissions::from_mode(0o000)).unwrap();
    // The build may lie in a directory that other users cannot read.
    let program = stage.path("belljar");
    belljar_testkit::process::copy_program(env!("CARGO_BIN_EXE_belljar").as_ref(), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).arg("check");
    command.current_dir(stage.path("project")).env_clear().envs(stage.environment());
    assert_outcome(
        &stage.shown(&stage.finish(&mut command)),
        "exit 2\n--- stdout\n--- stderr\nerror: cannot read `[STAGE]/project/belljar.toml`\n  \
         caused by: Permission denied (os error 13)\n",
    );
}

#[test]
fn a_loop_of_links_is_named() {
    let stage = Stage::with(
        "[library.skills.a]\nsource = \"a\"\n[agents.reviewer]\nrole = \"a\"\nmounts = [{ source = \"a\", target = \"/d\" }]\n",
    );
    stage.link("project/a", "b");
    stage.link("project/b", "a");
    let said = stage.outcome(&["check"]);
    for expected in [
        "the skill `a`: `[STAGE]/project/a` is a loop of symbolic links",
        "the role: `[STAGE]/project/a` cannot be read: it is a loop of symbolic links",
        "a mount: `[STAGE]/project/a` is a loop of symbolic links",
        "\n3 errors\n",
    ] {
        assert!(said.contains(expected), "{expected} in\n{said}");
    }
}

#[test]
fn sources_of_other_kinds_are_named() {
    let stage = Stage::with(
        "[agents.reviewer]\nmounts = [{ source = \"pipe\", target = \"/d\" }]\nrole = \"pipe\"\n[agents.reviewer.env]\nKEY = { file = \"pipe\" }\n",
    );
    assert!(Command::new("mkfifo").arg(stage.path("project/pipe")).status().unwrap().success());
    let said = stage.outcome(&["check"]);
    assert_eq!(said.matches("is neither a file nor a directory").count(), 2, "{said}");
    assert!(said.contains("cannot be read: it is not a regular file"), "{said}");
}

#[test]
fn without_any_manifest() {
    let stage = Stage::new();
    let looked = "  hint: looked for [STAGE]/config/belljar/belljar.toml\n  hint: looked for belljar.toml\n  \
                  hint: `belljar init` writes a starting manifest\n";
    let expected = format!("exit 2\n--- stdout\n--- stderr\nerror: no manifest was found\n{looked}");
    let suite = "  hint: `belljar check DIR` checks the scenarios of a directory\n";
    assert_outcome(&stage.outcome(&["check"]), &format!("{expected}{suite}"));
    assert_outcome(&stage.outcome(&["plan", "reviewer"]), &expected);
    let plan = stage.json(&["plan", "--json"]);
    assert_eq!((&plan["ok"], &plan["data"]["plan"]["agent"]), (&true.into(), &"default".into()));
    assert_eq!(plan["data"]["plan"]["egress"]["rules"], serde_json::json!([]));
}

#[test]
fn the_nearest_manifest_of_the_project_counts() {
    let stage = Stage::new();
    stage.write("project/.git/HEAD", "ref: refs/heads/main\n");
    for name in ["objects", "refs"] {
        fs::create_dir_all(stage.path("project/.git").join(name)).unwrap();
    }
    stage.write("project/belljar.toml", "[agents.outer]\n");
    stage.write("project/sub/deep/x", "");
    let agent = |directory: &str| {
        stage.json(&["-C", directory, "plan", "--json"])["data"]["plan"]["agent"].as_str().unwrap().to_owned()
    };
    assert_eq!(agent("sub/deep"), "outer");
    stage.write("project/sub/belljar.toml", "[agents.inner]\n");
    assert_eq!((agent("sub/deep"), agent(".")), ("inner".into(), "outer".into()));
    // Above the project nothing is looked for.
    stage.write("belljar.toml", "[agents.above]\n");
    fs::remove_file(stage.path("project/belljar.toml")).unwrap();
    assert_eq!(agent("."), "default");
}

#[test]
fn an_unset_variable_warns_in_a_check_and_stops_a_plan() {
    let stage = Stage::with("[agents.reviewer.env]\nREGION = \"${BELLJAR_TEST_UNSET}\"\n");
    let check = stage.run(&["check"]);
    assert_eq!(check.status.code(), Some(0));
    assert!(check.stderr.starts_with("warning[unset-variable]"), "{}", check.stderr);
    let plan = stage.run(&["plan"]);
    assert_eq!(plan.status.code(), Some(2));
    assert!(plan.stderr.starts_with("error[unset-variable]"), "{}", plan.stderr);
    let set = stage.finish(stage.command(&["plan"]).env("BELLJAR_TEST_UNSET", ""));
    assert_eq!(set.status.code(), Some(0), "set to nothing is set");
}

#[test]
fn a_home_is_not_a_project() {
    let stage = Stage::new();
    for directory in [stage.path("home"), stage.path("")] {
        let found = stage.finish(stage.command(&["plan"]).current_dir(&directory));
        assert_eq!(found.status.code(), Some(2), "{}", found.stdout);
        assert!(found.stderr.contains("which holds your whole home"), "{}", found.stderr);
    }
    stage.write("home/project/x", "");
    let found = stage.finish(stage.command(&["plan"]).current_dir(stage.path("home/project")));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

/// A path of the command line that does not exist is a fault of the command line with every verb that takes one.
#[test]
fn a_named_path_that_does_not_exist_is_invalid_input() {
    let stage = Stage::new();
    stage.skill("project", "hello");
    stage.write("project/a.yaml", "prompt: go\n");
    stage.write(
        "project/a.script.json",
        r#"{"version": 1, "turns": [{"answer": {"reply": {"content": []}}}]}"#,
    );
    for line in [
        "replay none.tape",
        "replay none",
        "replay --protocol none.tape",
        "tape verify none.tape",
        "tape show none.tape",
        "tape show hello",
        "tape diff none.tape none.tape",
        "tape export none.tape --har none.har",
        "tape to-script none.tape",
        "tape scrub none.tape",
        "tape refresh none.tape",
        "test none.yaml",
        "test a.yaml none",
        "test a.yaml --script none",
        "test a.yaml --scripted --answer-policy none",
        "record none.yaml",
        "check none.yaml",
        "judge none",
        "judge none.tape",
        "trace none",
        "trace none.tape",
        "skill none go",
        "skill hello go --upload none",
        "scenario from none",
        "scenario new none",
        "gates none",
        "import none",
    ] {
        let found = stage.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(found.status.code(), Some(2), "{line}: {}", found.stderr);
        assert!(found.stderr.contains("none") || found.stderr.contains("hello"), "{line}: {}", found.stderr);
    }
}
