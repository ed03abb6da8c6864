//! A recording whose scenario or skill has changed since is not green in either lane, unless the user allows it.

use super::super::record::{SCENARIO, plain, recorded, recorded_with, scenario, with_agent};
use super::replay;
use crate::repositories::git;
use crate::stage::Stage;
use belljar_contract::TapeHead;
use belljar_testkit::require;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const SKILL: &str = "---\nname: hello\ndescription: Says hello\n---\nRun scripts/hello.sh twice\n";
const SESSION: &str = "skills:\n  local: [../skills/hello]\nplugins: {local_plugins: [../plug]}\n\
    uploads: [../given/figures.csv, ../given/set]\nfolders: [{from: ../given/data}]\n\
    projects: [{uuid: 00000000-0000-4000-8000-000000000001, from: ../given/notes}]\n";
/// What the agent of this test does not look at, so that no request differs.
const GIVEN: [(&str, &str); 5] = [
    ("project/given/figures.csv", "the upload `figures.csv`"),
    ("project/given/set/inner/one.txt", "the upload `set`"),
    ("project/given/data/in.txt", "the directory `data`"),
    ("project/given/data/deep/in.txt", "the directory `data`"),
    ("project/given/notes/note.md", "the project `00000000-0000-4000-8000-000000000001`"),
];

/// What is changed, with what text, and how it is named.
fn changes() -> Vec<(&'static str, String, &'static str)> {
    let more = |from: &str, to: &str| SCENARIO.replacen(from, to, 1);
    let scenario = "project/scenarios/hello.yaml";
    let own = vec![
        (scenario, more("Say hello", "Say hello to me"), "`prompt`"),
        (scenario, more("assert:", "  - when_tool: Read\n    decide: deny\nassert:"), "`answers`"),
        (scenario, format!("{SCENARIO}  - tool_called: Bash\n"), "`assert`"),
        ("project/scenarios/session.yaml", format!("{SESSION}model: claude-sonnet-4-5\n"), "the session"),
        ("project/skills/hello/SKILL.md", SKILL.to_owned(), "the skill `hello`"),
        ("project/skills/hello/scripts/hello.sh", "exit 3\n".to_owned(), "the skill `hello`"),
        ("project/plug/hooks/notes.txt", "other\n".to_owned(), "the plugin `plug`"),
    ];
    own.into_iter().chain(GIVEN.map(|(file, what)| (file, "other\n".to_owned(), what))).collect()
}

fn stage() -> Stage {
    let stage = scenario(&plain());
    stage.write("project/plug/.claude-plugin/plugin.json", "{\"name\": \"plug\"}");
    stage.write("project/plug/hooks/notes.txt", "notes\n");
    stage.write("project/scenarios/session.yaml", SESSION);
    GIVEN.iter().for_each(|(file, _)| stage.write(file, "given\n"));
    recorded(&stage);
    stage
}

fn named(row: &Value) -> Vec<String> {
    row["changed"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_change_is_named_and_not_green_without_running() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!((status, &row["changed"]), (Some(0), &serde_json::json!([])), "{row:#}");
    for (file, text, what) in changes() {
        let before = fs::read(stage.path(file)).unwrap();
        stage.write(file, text);
        let (status, row) = replay(&stage, &["--protocol"]);
        assert_eq!((status, &row["conclusion"]), (Some(3), &Value::from("unverified")), "{what}: {row:#}");
        assert!(named(&row).iter().any(|one| one.contains(what)), "{what}: {row:#}");
        let found = stage.run(&["replay", "--protocol", "scenarios/hello.tape"]);
        assert!(found.stderr.contains(what) && found.stderr.contains("tape refresh"), "{}", found.stderr);
        let (status, row) = replay(&stage, &["--protocol", "--allow-stale"]);
        assert_eq!(status, Some(0), "{what}: {row:#}");
        assert!(named(&row).iter().any(|one| one.contains(what)), "{what}: {row:#}");
        stage.write(file, before);
    }
    // A comment changes nothing that is tested.
    stage.write("project/scenarios/hello.yaml", format!("# About hello.\n{SCENARIO}"));
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(0), "{row:#}");
    // What is missing is not what was recorded either.
    fs::remove_file(stage.path("project/skills/hello/SKILL.md")).unwrap();
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(3), "{row:#}");
}

#[test]
fn a_full_replay_whose_requests_still_match_is_not_green_either() {
    require!(Agent, Bwrap);
    let stage = stage();
    for (file, text, what) in changes() {
        if what == "`prompt`" || what == "the session" || file.ends_with(".sh") {
            // The requests differ.
            continue;
        }
        let before = fs::read(stage.path(file)).unwrap();
        stage.write(file, text);
        let (status, row) = replay(&stage, &[]);
        assert_eq!((status, &row["conclusion"]), (Some(3), &Value::from("unverified")), "{what}: {row:#}");
        assert!(named(&row).iter().any(|one| one.contains(what)), "{what}: {row:#}");
        let (status, row) = replay(&stage, &["--allow-stale"]);
        assert_eq!(status, Some(0), "{what}: {row:#}");
        stage.write(file, before);
    }
    let found = stage.finish(&mut with_agent(&stage, &["replay", "scenarios/hello.tape"]));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

/// Without an agreement nothing beyond the suite's directory is read, so it is not known whether it changed.
#[test]
fn what_may_not_be_read_is_not_taken_for_unchanged() {
    require!(Agent, Bwrap);
    let stage = stage();
    stage.write("home/session.yaml", SESSION);
    fs::remove_file(stage.path("project/scenarios/session.yaml")).unwrap();
    stage.link("project/scenarios/session.yaml", "../../home/session.yaml");
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(3), "{row:#}");
    assert!(row["changed"].to_string().contains("beyond its own directory"), "{row:#}");
}

/// A session of the user's own is part of the test as well.
#[test]
fn a_session_below_the_home_is_compared() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let session = |model: &str| {
        let skill = stage.path("project/skills/hello").display().to_string();
        stage.write("home/session.yaml", format!("skills:\n  local: [{skill}]\n{model}"));
    };
    session("");
    stage.write("project/scenarios/hello.yaml", SCENARIO.replace("session.yaml", "~/session.yaml"));
    recorded_with(&stage, &["--yes"]);
    for more in [&["--protocol", "--yes"][..], &["--yes"]] {
        let (status, row) = replay(&stage, more);
        assert_eq!((status, named(&row)), (Some(0), Vec::new()), "{more:?}: {row:#}");
    }
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(3), "{row:#}");
    assert!(row["changed"].to_string().contains("cannot be compared"), "{row:#}");
    session("# Another comment is another text.\n");
    for more in [&["--protocol", "--yes"][..], &["--yes"]] {
        let (status, row) = replay(&stage, more);
        assert_eq!((status, named(&row)), (Some(3), vec!["the session".to_owned()]), "{more:?}: {row:#}");
    }
}

/// A file that is new, gone or executable is a change of its directory, and one that cannot be read is not taken for
/// unchanged.
#[test]
fn an_input_is_compared_with_all_of_its_files() {
    require!(Agent, Bwrap);
    let stage = stage();
    let (new, old) = ("project/given/data/new.txt", stage.path("project/given/data/in.txt"));
    let directory = |what: &str| {
        let (status, row) = replay(&stage, &["--protocol"]);
        assert_eq!(status, Some(3), "{what}: {row:#}");
        assert_eq!(named(&row), ["the directory `data`"], "{what}: {row:#}");
        assert_eq!(row["changed"][0]["cause"], "input", "{what}: {row:#}");
    };
    stage.write(new, "new\n");
    directory("a new file");
    fs::remove_file(stage.path(new)).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    directory("an executable file");
    fs::remove_file(&old).unwrap();
    directory("a missing file");
    stage.link("project/given/data/in.txt", "elsewhere");
    directory("a link in the place of a file");
    fs::remove_file(&old).unwrap();
    stage.write("project/given/data/in.txt", "given\n");
    fs::create_dir(stage.path("project/given/data/empty")).unwrap();
    directory("a directory without a file");
    fs::remove_dir_all(stage.path("project/given/data")).unwrap();
    stage.link("project/given/data", "../../home");
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(3), "{row:#}");
    assert!(row["changed"].to_string().contains("cannot be compared"), "{row:#}");
}

/// A skill may look for a directory. A tape of an earlier version does not say whether there was one.
#[test]
fn a_directory_without_files_is_compared_unless_the_tape_is_older() {
    require!(Agent, Bwrap);
    let stage = stage();
    let head = stage.path("project/scenarios/hello.tape/tape.json");
    let empty = stage.path("project/skills/hello/cache");
    fs::create_dir(&empty).unwrap();
    for more in [&["--protocol"][..], &[]] {
        let (status, row) = replay(&stage, more);
        assert_eq!((status, named(&row)), (Some(3), vec!["the skill `hello`".to_owned()]), "{row:#}");
    }
    fs::remove_dir(&empty).unwrap();
    // As an earlier version wrote it: names have no spaces here, so that only the member differs.
    let mut tape: TapeHead = serde_json::from_slice(&fs::read(&head).unwrap()).unwrap();
    tape.scenario.trees = belljar_contract::TapeTrees::Files;
    tape.integrity = tape.reckoned();
    let text = serde_json::to_string(&tape).unwrap();
    assert!(!text.contains("\"trees\""), "{text}");
    fs::write(&head, text).unwrap();
    for made in [false, true] {
        if made {
            fs::create_dir(&empty).unwrap();
        }
        for more in [&["--protocol"][..], &[]] {
            let (status, row) = replay(&stage, more);
            assert_eq!((status, named(&row)), (Some(0), Vec::new()), "{made}: {row:#}");
        }
    }
}

/// Tapes of the first format may lack them; there, nothing was taken out.
#[test]
fn a_tape_from_which_the_digests_of_inputs_were_taken_is_not_green() {
    require!(Agent, Bwrap);
    let stage = stage();
    let path = stage.path("project/scenarios/hello.tape/tape.json");
    let mut head: TapeHead = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(head.scenario.inputs.take().unwrap().len(), 4);
    head.integrity = head.reckoned();
    fs::write(&path, serde_json::to_vec(&head).unwrap()).unwrap();
    for lane in [&["--protocol"][..], &[]] {
        let (status, row) = replay(&stage, lane);
        assert_eq!((status, named(&row)), (Some(3), Vec::new()), "{row:#}");
        assert!(row["signals"].to_string().contains("which its format has"), "{row:#}");
    }
    let verified = stage.finish(&mut with_agent(&stage, &["tape", "verify", "scenarios/hello.tape"]));
    assert_eq!(verified.status.code(), Some(3), "{verified:?}");
}

/// The rule that a tape was recorded with is the one that it is compared with.
#[test]
fn a_tape_that_was_recorded_with_untracked_files_is_not_always_stale() {
    require!(Agent, Bwrap, Git);
    let stage = scenario(&plain());
    fs::remove_dir_all(stage.path("project/.git")).unwrap();
    git(&stage.path("project"), &["init", "-q"]);
    git(&stage.path("project"), &["add", "-A"]);
    stage.write("project/skills/hello/forgotten.txt", "only here\n");
    recorded_with(&stage, &["--include-untracked"]);
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!((status, named(&row)), (Some(0), Vec::new()), "{row:#}");
    let verified = stage.finish(&mut with_agent(&stage, &["tape", "verify", "scenarios/hello.tape"]));
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    let (status, row) = replay(&stage, &["--include-untracked"]);
    assert_eq!((status, named(&row)), (Some(0), Vec::new()), "{row:#}");
    // An agent gets the untracked files only if the user says so, and the line says how.
    let (status, row) = replay(&stage, &[]);
    assert_eq!(status, Some(3), "{row:#}");
    let found = stage.finish(&mut with_agent(&stage, &["replay", "scenarios/hello.tape"]));
    let line = "the skill `hello` (recorded with `--include-untracked`) is not what was recorded";
    assert!(found.stderr.contains(line), "{}", found.stderr);
    stage.write("project/skills/hello/forgotten.txt", "changed\n");
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!(status, Some(3), "{row:#}");
}
