use super::record::{SCENARIO, files, plain, recorded, scenario, with_agent};
use super::runs::{stage, tested};
use super::{tried, tried_json};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn judged(stage: &Stage, arguments: &[&str]) -> (Value, Value) {
    let envelope = stage.json(&[&["judge", "--json"], arguments].concat());
    (envelope["exit_code"].clone(), envelope["data"].clone())
}

#[test]
fn a_kept_run_is_judged_as_it_was_and_by_an_edited_scenario() {
    require!(Agent, Bwrap);
    let stage = stage();
    for (name, status) in [("good", 0), ("bad", 1)] {
        let (live, directory) = tested(&stage, name);
        assert_eq!(live, status);
        let (exit, data) = judged(&stage, &["last"]);
        assert_eq!(exit, status, "{data:#}");
        let summary: Value =
            serde_json::from_str(&fs::read_to_string(directory.join("summary.json")).unwrap()).unwrap();
        for part in ["conclusion", "checks", "signals"] {
            assert_eq!(data[part], summary["verdict"][part], "{part}");
        }
        assert_eq!(data["before"]["exit_code"], status);
        assert_eq!(data["changed"], json!([]));
    }
    let page = stage.run(&["judge", "last"]);
    assert_eq!(page.status.code(), Some(1), "{page:?}");
    assert!(page.stderr.contains("A bad one, run ") && page.stderr.contains("FAILED"), "{page:?}");
    let edited = "prompt: Go\nassert:\n  - transcript_contains: All done\n  - tool_called: Bash\n";
    stage.write("project/edited.yaml", edited);
    let (exit, data) = judged(&stage, &["last", "edited.yaml"]);
    assert_eq!((&exit, &data["scenario"]), (&json!(0), &json!("edited")), "{data:#}");
    assert_eq!(data["before"]["exit_code"], 1);
    stage.write("project/edited.yaml", "prompt: Go\nassert:\n  - no_such_check: 1\n");
    let (exit, _) = judged(&stage, &["last", "edited.yaml"]);
    assert_eq!(exit, 2);
    assert_eq!(judged(&stage, &["last", "absent.yaml"]).0, 2);
}

#[test]
fn a_file_that_was_edited_after_the_run_is_named_and_nothing_is_green() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (_, directory) = tested(&stage, "good");
    let (exit, data) = judged(&stage, &["last"]);
    assert_eq!(exit, 0, "{data:#}");
    let all = files(&directory);
    let below = |path: &Path| path.strip_prefix(&directory).unwrap().to_str().unwrap().to_owned();
    for needed in ["events.jsonl", "files.json", "summary.json", "egress.jsonl", "artifacts/files/outputs/x"]
    {
        assert!(all.iter().any(|path| below(path) == needed), "{needed}: {all:?}");
    }
    for path in all.iter().filter(|path| below(path) != "lock") {
        let (name, before) = (below(path), fs::read(path).unwrap());
        let mut edited = before.clone();
        match edited.iter().rposition(u8::is_ascii_alphanumeric) {
            Some(at) => edited[at] = if edited[at] == b'7' { b'8' } else { b'7' },
            None => edited.push(b' '),
        }
        for content in [Some(edited), None] {
            match &content {
                Some(edited) => fs::write(path, edited).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            let how = if content.is_some() { "edited" } else { "removed" };
            noticed(&stage, &name, how);
        }
        fs::write(path, before).unwrap();
    }
    let added = directory.join("artifacts/transcript-new.jsonl");
    fs::write(&added, "{}").unwrap();
    noticed(&stage, "artifacts/transcript-new.jsonl", "added");
    fs::remove_file(added).unwrap();
    assert_eq!(judged(&stage, &["last"]).0, 0, "as it was");
    fs::remove_file(stage.path("home/.local/state/belljar/digest.key")).unwrap();
    noticed(&stage, "manifest.json", "the key is lost");
}

fn noticed(stage: &Stage, name: &str, how: &str) {
    for verb in ["judge", "trace"] {
        let found = stage.run(&[verb, "last"]);
        let said = format!("{}{}", found.stdout, found.stderr);
        // A head that is not one cannot be read at all.
        let unread = name == "run.json" || name == "result.json" || name == "scenario.yaml";
        match found.status.code() {
            Some(3) => assert!(said.contains(&format!("`{name}`")), "{verb} {name} {how}: {said}"),
            Some(2) if unread => assert!(
                said.contains(name) || said.contains("no run") || said.contains("no scenario"),
                "{verb} {name} {how}: {said}"
            ),
            other => panic!("{verb} {name} {how}: {other:?} {said}"),
        }
        assert!(!said.contains("passed"), "{verb} {name} {how}: {said}");
    }
}

#[test]
fn what_was_not_kept_is_unknown() {
    require!(Agent, Bwrap);
    let stage = stage();
    let found = tried(&stage, &["run", "--yes", "--script", "script.json", "--", "-p", "go"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let refused = stage.run(&["judge", "last"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("belljar judge RUN SCENARIO"), "{refused:?}");
    stage.write("project/empty.yaml", "prompt: Go\n");
    for scenario in ["scenarios/good.yaml", "empty.yaml"] {
        let (exit, data) = judged(&stage, &["last", scenario]);
        assert_eq!(exit, 3, "belljar did not see the conversation: {data:#}");
    }
    // A skill has no checks of its own; its run is judged all the same.
    let args = ["skill", "skills/notes", "Go", "--script", "script.json", "--json"];
    let (live, _) = tried_json(&stage, &args);
    let (exit, data) = judged(&stage, &["last"]);
    assert_eq!((exit, &data["scenario"]), (json!(live), &json!("notes")), "{data:#}");
}

fn replayed(stage: &Stage, more: &[&str]) -> Option<i32> {
    let args = [&["replay", "scenarios/hello.tape"], more].concat();
    stage.finish(&mut with_agent(stage, &args)).status.code()
}

/// What a replay found out about its tape is not in the record of the run, and holds all the same.
#[test]
fn a_replay_that_was_not_green_is_not_green_when_it_is_judged_again() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    let judged_as_it_was = |status: i32| {
        let (exit, data) = judged(&stage, &["last"]);
        assert_eq!((&exit, &data["before"]["exit_code"]), (&json!(status), &json!(status)), "{data:#}");
        let summary = fs::read(Path::new(data["directory"].as_str().unwrap()).join("summary.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        for part in ["conclusion", "checks", "signals"] {
            assert_eq!(data[part], summary["verdict"][part], "{part}");
        }
    };
    stage.write("project/scenarios/hello.yaml", SCENARIO.replace("all done", "done"));
    assert_eq!(replayed(&stage, &[]), Some(3));
    judged_as_it_was(3);
    assert_eq!(judged(&stage, &["last", "scenarios/hello.yaml"]).0, 3);
    assert_eq!(replayed(&stage, &["--allow-stale"]), Some(0));
    judged_as_it_was(0);
    stage.write("project/scenarios/hello.yaml", SCENARIO);
    stage.write("project/skills/hello/scripts/hello.sh", "echo hellp from the script\n");
    for more in [&[][..], &["--on-drift", "continue"]] {
        assert_eq!(replayed(&stage, more), Some(7));
        judged_as_it_was(7);
    }
}

/// A tape is evidence about what was recorded. Only the checks may be others.
#[test]
fn a_tape_whose_skill_or_session_changed_is_not_green() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    let (tape, own) = ("scenarios/hello.tape", "scenarios/hello.yaml");
    stage.write("project/scenarios/other.yaml", format!("{SCENARIO}  - tool_called: Bash\n"));
    let (skill, session) = ("project/skills/hello/SKILL.md", "project/scenarios/session.yaml");
    for (file, text, what) in [
        (
            skill,
            "---\nname: hello\ndescription: Says hello\n---\nRun it twice\n".to_owned(),
            "the skill `hello`",
        ),
        (
            session,
            "skills:\n  local: [../skills/hello]\nmodel: claude-sonnet-4-5\n".to_owned(),
            "the session",
        ),
    ] {
        for named in [own, "scenarios/other.yaml"] {
            let (exit, data) = judged(&stage, &[tape, named]);
            assert_eq!((&exit, &data["changed"]), (&json!(0), &json!([])), "{data:#}");
        }
        let before = fs::read(stage.path(file)).unwrap();
        stage.write(file, text);
        for named in [own, "scenarios/other.yaml"] {
            let (exit, data) = judged(&stage, &[tape, named]);
            assert_eq!(exit, 3, "{data:#}");
            assert!(data["signals"].to_string().contains(what), "{data:#}");
        }
        stage.write(file, before);
    }
    for (from, to) in [("Say hello", "Say goodbye"), ("session: session.yaml\n", "")] {
        stage.write("project/scenarios/other.yaml", SCENARIO.replace(from, to));
        let (exit, data) = judged(&stage, &[tape, "scenarios/other.yaml"]);
        assert_eq!(exit, 3, "it is not what the agent was asked: {data:#}");
    }
}

#[test]
fn a_run_with_the_files_of_another_one_is_not_verified() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (failed, bad) = tested(&stage, "bad");
    let (passed, good) = tested(&stage, "good");
    assert_eq!((failed, passed), (1, 0));
    fs::remove_dir_all(&bad).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").args([&good, &bad]).status().unwrap();
    assert!(copied.success());
    let name = bad.file_name().unwrap().to_str().unwrap();
    let (exit, data) = judged(&stage, &[name]);
    assert_eq!(exit, 3, "{data:#}");
    assert!(data["signals"].to_string().contains("its files are those of the run"), "{data:#}");
    assert_eq!(judged(&stage, &[good.file_name().unwrap().to_str().unwrap()]).0, 0);
}
