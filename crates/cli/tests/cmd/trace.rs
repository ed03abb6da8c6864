use super::record;
use super::runs::{stage, tested};
use super::{script, tried, tried_json};
use crate::stage::Stage;
use belljar_contract::{EgressChain, EgressLogState, EgressRow, read_egress_log};
use belljar_testkit::require;
use serde_json::json;
use std::fs;
use std::path::Path;

#[test]
fn a_run_is_traced_and_a_run_that_was_cut_short_says_so() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    stage.skill("project/skills", "notes");
    let played = script(&[
        json!({"tool_use": {"name": "Bash", "input": {"command": "echo 1 > outputs/x; exit 3", "description": "x"}}}),
        json!({"text": "Done."}),
    ]);
    stage.write("project/script.json", played);
    stage.write("project/policy.yaml", "- {when_tool: Bash, decide: allow}\n");
    let args = [
        "skill",
        "skills/notes",
        "go",
        "--script",
        "script.json",
        "--answer-policy",
        "policy.yaml",
        "--json",
    ];
    let (_, envelope) = tried_json(&stage, &args);
    let directory = envelope["data"]["directory"].as_str().unwrap();
    let (status, traced) = tried_json(&stage, &["trace", "last", "--json"]);
    assert_eq!(status, 0, "{traced:#}");
    assert_eq!(traced["data"]["verdict"], json!({"conclusion": "passed", "exit_code": 0}));
    let trace = &traced["data"]["trace"];
    assert_eq!((&trace["tools"][0]["tool"], &trace["tools"][0]["status"]), (&json!("Bash"), &json!("error")));
    assert_eq!(trace["files"]["created"], json!([["outputs/x", 2]]));
    let page = tried(&stage, &["trace", directory]);
    for part in ["Bash", "error", "outputs/x", "Egress: none", "Questions to the user: none"] {
        assert!(page.stdout.contains(part), "{part}: {}", page.stdout);
    }
    a_log_that_was_written_anew_is_noticed(&stage, Path::new(directory));
    let log = Path::new(directory).join("events.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, &text[..text.len() / 2]).unwrap();
    fs::remove_file(Path::new(directory).join("result.json")).unwrap();
    let (status, traced) = tried_json(&stage, &["trace", directory, "--json"]);
    assert_eq!(status, 3, "{traced:#}");
    assert!(traced["data"]["trace"]["incomplete"].is_string(), "{traced:#}");
    assert_eq!(stage.run(&["trace", "nothing"]).status.code(), Some(2));
}

/// A chain without a key can be made again by anybody: it is the run's own log that tells.
fn a_log_that_was_written_anew_is_noticed(stage: &Stage, directory: &Path) {
    let file = directory.join("egress.jsonl");
    let written = fs::read_to_string(&file).unwrap();
    let mut reading = read_egress_log(&written, None);
    assert_eq!(reading.state, EgressLogState::Complete);
    let Some(EgressRow::Opened { listeners, .. }) = reading.rows.first_mut() else { panic!("{written}") };
    listeners.push("another".to_owned());
    let (mut chain, mut text) = (EgressChain::START, String::new());
    for row in &reading.rows {
        let (line, next) = chain.line(&serde_json::to_string(row).unwrap());
        text.push_str(&line);
        chain = next;
    }
    assert_eq!(read_egress_log(&text, None).state, EgressLogState::Complete, "it looks whole");
    for (changed, how) in [(Some(text), "written anew"), (None, "taken away")] {
        match changed {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let (status, traced) = tried_json(stage, &["trace", &directory.display().to_string(), "--json"]);
        let why = traced["data"]["trace"]["incomplete"].as_str().unwrap_or_default().to_owned();
        assert!(status == 3 && why.contains("egress log"), "{how}: {traced:#}");
    }
    fs::write(&file, written).unwrap();
    let (status, _) = tried_json(stage, &["trace", &directory.display().to_string(), "--json"]);
    assert_eq!(status, 0, "as it was");
}

#[test]
fn the_whole_conversation_and_each_part_can_be_shown() {
    require!(Agent, Bwrap);
    let stage = stage();
    tested(&stage, "good");
    let shown = |arguments: &[&str]| {
        let found = stage.run(&[&["trace", "last"], arguments].concat());
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        found.stdout
    };
    let full = shown(&["--full"]);
    let parts =
        ["test A good one  ", "user ", "    Go", "call Bash ", "outputs/x; cat", "result Bash ", "agent "];
    for part in parts {
        assert!(full.contains(part), "{part}: {full}");
    }
    assert!(full.contains("    one\\u{1b}[2Jtwo") && !full.contains('\u{1b}'), "escaped: {full}");
    let kinds = ["Tools", "Questions to the user", "Files", "Egress"];
    for only in kinds {
        let part = only.split(' ').next().unwrap().to_lowercase();
        let page = shown(&["--only", &part]);
        let here: Vec<&str> = kinds
            .into_iter()
            .filter(|kind| page.contains(&format!("\n{kind}\n")) || page.contains(&format!("\n{kind}:")))
            .collect();
        assert_eq!(here, [only], "{page}");
    }
    let tools = shown(&["--only", "tools", "--full"]);
    assert!(tools.contains("call Bash") && !tools.contains("All done"), "{tools}");
    assert!(shown(&["--only", "questions", "--full"]).contains("question Bash"));
    let (_, traced) = tried_json(&stage, &["trace", "last", "--full", "--json"]);
    let steps: Vec<&str> = traced["data"]["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["kind"].as_str().unwrap())
        .collect();
    assert_eq!(steps, ["user", "call", "question", "answer", "result", "agent"], "{traced:#}");
    assert_eq!(stage.run(&["trace", "last", "--only", "moods"]).status.code(), Some(2));
}

#[test]
fn the_conversation_of_a_session_is_the_agents_own_transcript() {
    require!(Agent, Bwrap);
    let stage = stage();
    let found = tried(&stage, &["run", "--yes", "--script", "script.json", "--", "-p", "go there"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let (status, traced) = tried_json(&stage, &["trace", "last", "--full", "--json"]);
    assert_eq!(status, 0, "{traced:#}");
    let data = &traced["data"];
    assert_eq!((&data["conversation"], &data["trace"]["incomplete"]), (&json!("transcript"), &json!(null)));
    assert_eq!(data["trace"]["tools"][0]["tool"], "Bash");
    let texts: Vec<&str> =
        data["steps"].as_array().unwrap().iter().filter_map(|step| step["text"].as_str()).collect();
    assert!(texts.contains(&"go there") && texts.contains(&"All done."), "{traced:#}");
    // The earlier part of a conversation that goes on belongs to the earlier run.
    let found =
        tried(&stage, &["run", "--yes", "--script", "script.json", "--", "--continue", "-p", "again"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let page = stage.run(&["trace", "last", "--full"]).stdout;
    assert!(page.contains("    again\n") && !page.contains("go there"), "{page}");
}

/// A replay with `--protocol` keeps no run of its own: the tape is the record.
#[test]
fn a_tape_is_traced_and_judged_like_the_run_that_it_was_recorded_from() {
    require!(Agent, Bwrap);
    let stage = record::scenario(&record::plain());
    let tape = record::recorded(&stage);
    let path = tape.to_str().unwrap();
    let envelope = stage.json(&["trace", path, "--json"]);
    assert_eq!(envelope["exit_code"], 0, "{envelope:#}");
    let live = stage.json(&["trace", "last", "--json"]);
    for part in ["tools", "skills", "files"] {
        assert_eq!(envelope["data"]["trace"][part], live["data"]["trace"][part], "{envelope:#}");
    }
    let judged = stage.run(&["judge", path, "scenarios/hello.yaml"]);
    assert_eq!(judged.status.code(), Some(0), "{judged:?}");
    let other = record::SCENARIO.replace("all done", "never said");
    stage.write("project/other.yaml", other);
    assert_eq!(stage.run(&["judge", path, "other.yaml"]).status.code(), Some(1));
    let judged = stage.run(&["judge", path]);
    assert_eq!(judged.status.code(), Some(2), "{judged:?}");
    assert!(judged.stderr.contains("belljar replay --protocol"), "{judged:?}");
    // A frame that says something else than the rest of the tape is noticed, though its digest was computed anew.
    let mut frames = crate::forged_tapes::lines(&tape.join("frames.jsonl"));
    frames.retain(|line| line["frame"]["type"] != "result");
    let text: String = frames.iter().map(|line| format!("{line}\n")).collect();
    crate::forged_tapes::write_part(&tape, "frames.jsonl", text.as_bytes());
    for arguments in [&["trace", path][..], &["judge", path, "scenarios/hello.yaml"]] {
        let found = stage.run(arguments);
        assert_eq!(found.status.code(), Some(3), "{found:?}");
    }
    fs::write(tape.join("frames.jsonl"), "").unwrap();
    let found = stage.run(&["trace", path]);
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(found.stderr.contains("cannot be used"), "{found:?}");
}
