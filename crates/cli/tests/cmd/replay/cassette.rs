//! Cassettes of another tool. None lies here: they are made as that tool writes them.

use super::super::record::data;
use crate::stage::Stage;
use belljar_contract::Digest;
use serde_json::{Value, json};
use std::fs;

/// The file that the cassette was recorded from.
const SCENARIO: &str = "\
# As it was recorded.
name: report
prompt: Report
answers:
  - when_question: which format
    choose: JSON
  - when_tool: Write
    decide: allow
assert:
  - transcript_contains: all done
  - gate_answers_delivered: true
  - gate_answer_count_min: 1
  - artifact_json: {artifact: outputs/report.json, path: rows, equals: 3}
";

const REPORT: &str = "{\"rows\": 3, \"title\": \"Costs\"}\n";

fn lines(frames: &[Value]) -> Value {
    frames.iter().map(|frame| json!(frame.to_string())).collect()
}

/// The agent asks which format, writes a report and says so.
fn cassette() -> Value {
    let questions = json!([{"question": "Which format?", "header": "Format", "multiSelect": false,
        "options": [{"label": "JSON", "description": "d"}, {"label": "PDF", "description": "d"}]}]);
    let call = |id: &str, name: &str, input: Value| {
        json!({"type": "assistant", "session_id": "s", "parent_tool_use_id": null, "message": {"role": "assistant",
            "content": [{"type": "tool_use", "id": id, "name": name, "input": input}]}})
    };
    let back = |id: &str, text: &str| {
        json!({"type": "user", "session_id": "s", "parent_tool_use_id": null, "message": {"role": "user",
            "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}})
    };
    let ask = |request: &str, name: &str, id: &str, input: Value| {
        json!({"type": "control_request", "request_id": request, "request":
            {"subtype": "can_use_tool", "tool_name": name, "tool_use_id": id, "input": input}})
    };
    let reply = |request: &str, body: Value| {
        json!({"type": "control_response",
            "response": {"subtype": "success", "request_id": request, "response": body}})
    };
    let asked = json!({"questions": questions});
    let write = json!({"file_path": "outputs/report.json", "content": REPORT});
    let events = [
        reply("init-1", json!({"commands": [], "models": []})),
        json!({"type": "system", "subtype": "init", "session_id": "s", "cwd": "/w", "tools": ["Write"],
            "mcp_servers": [], "model": "m", "permissionMode": "default"}),
        call("t1", "AskUserQuestion", asked.clone()),
        ask("r1", "AskUserQuestion", "t1", asked.clone()),
        back("t1", "User has answered: JSON"),
        call("t2", "Write", write.clone()),
        ask("r2", "Write", "t2", write.clone()),
        back("t2", "written"),
        json!({"type": "assistant", "session_id": "s", "parent_tool_use_id": null,
            "message": {"role": "assistant", "content": [{"type": "text", "text": "all done"}]}}),
        json!({"type": "result", "subtype": "success", "is_error": false, "result": "all done", "session_id": "s",
            "num_turns": 3}),
    ];
    let sent = [
        json!({"type": "control_request", "request_id": "init-1", "request": {"subtype": "initialize"}}),
        json!({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "Report"}]}}),
        reply(
            "r1",
            json!({"behavior": "allow",
            "updatedInput": {"questions": questions, "answers": {"Which format?": "JSON"}}}),
        ),
        reply("r2", json!({"behavior": "allow", "updatedInput": write})),
    ];
    json!({
        "$schema": "x", "generator": "x", "cassetteVersion": 12, "scenarioSource": "scenarios/report.yaml", "effectiveFidelity": "container",
        "scenario": {
            "name": "report", "prompt": "Report",
            "answers": [{"when_question": "which format", "choose": "JSON"}, {"when_tool": "Write", "decide": "allow"}],
            "assert": [
                {"transcript_contains": "all done"},
                {"gate_answers_delivered": true},
                {"gate_answer_count_min": 1},
                {"artifact_json": {"artifact": "outputs/report.json", "path": "rows", "equals": 3}},
            ],
        },
        "events": lines(&events), "controlOut": lines(&sent),
        "artifacts": [{"path": "outputs/report.json", "bytes": REPORT.len(), "body": REPORT, "encoding": "utf8",
            "sha256": Digest::of(REPORT.as_bytes()).hex()}],
        "userVisibleRoots": ["outputs"], "preRunPaths": [], "preRunHashes": {},
    })
}

fn replay(cassette: &Value, more: &[&str]) -> (Option<i32>, Value) {
    let stage = Stage::new();
    stage.write("project/SKILL.md", "");
    stage.write("project/scenarios/report.yaml", SCENARIO);
    replay_on(&stage, cassette, more)
}

fn replay_on(stage: &Stage, cassette: &Value, more: &[&str]) -> (Option<i32>, Value) {
    stage.write("project/recorded/report.json", cassette.to_string());
    let args = [&["replay", "--json", "--protocol", "recorded/report.json"], more].concat();
    let found = stage.finish(stage.command(&args).env("PATH", "/nonexistent"));
    let whole: Value = serde_json::from_str(&found.stdout).unwrap();
    let row = &whole["data"]["results"][0];
    (found.status.code(), if row.is_null() { whole["error"].clone() } else { row.clone() })
}

#[track_caller]
fn outcomes(row: &Value) -> Vec<&str> {
    row["checks"].as_array().unwrap().iter().map(|check| check["outcome"].as_str().unwrap()).collect()
}

#[test]
fn a_whole_one_passes_on_its_evidence() {
    let (status, row) = replay(&cassette(), &[]);
    assert_eq!((status, &row["signals"]), (Some(0), &json!([])), "{row:#}");
    assert_eq!(outcomes(&row), ["pass"; 4], "{row:#}");
    assert!(row["checks"].as_array().unwrap().iter().all(|check| check["evidence"] != json!([])), "{row:#}");
}

#[test]
fn what_was_taken_out_of_one_does_not_show_an_absence() {
    let check = |one: &mut Value, check: Value| {
        one["scenario"]["assert"] = json!([check]);
    };
    // The last message is gone, and the end of the turn has it.
    let mut unsaid = cassette();
    check(&mut unsaid, json!({"transcript_not_contains": "all done"}));
    let (status, row) = replay(&unsaid, &["--allow-stale"]);
    assert_eq!((status, outcomes(&row)), (Some(1), vec!["fail"]), "{row:#}");
    unsaid["events"].as_array_mut().unwrap().remove(8);
    let (status, row) = replay(&unsaid, &["--allow-stale"]);
    assert_eq!(status, Some(3), "{row:#}");
    assert!(row["signals"].to_string().contains("a text that no message has"), "{row:#}");
    // A file that is not listed may be one that was taken out.
    for absence in [json!({"file_absent": "outputs/x"}), json!({"no_unexpected_files": ["outputs/**"]})] {
        let mut unlisted = cassette();
        check(&mut unlisted, absence);
        let (status, row) = replay(&unlisted, &["--allow-stale"]);
        assert_eq!((status, outcomes(&row)), (Some(3), vec!["unknown"]), "{row:#}");
    }
}

#[test]
fn a_file_that_stayed_as_it_was_is_told_from_a_changed_one() {
    for (before, expected) in [(REPORT, (Some(0), "pass")), ("{}\n", (Some(1), "fail"))] {
        let mut one = cassette();
        one["preRunPaths"] = json!(["outputs/report.json"]);
        one["preRunHashes"] = json!({"outputs/report.json": Digest::of(before.as_bytes()).hex()});
        one["scenario"]["assert"] = json!([{"input_unmodified": "outputs/report.json"}]);
        let (status, row) = replay(&one, &["--allow-stale"]);
        assert_eq!((status, outcomes(&row)), (expected.0, vec![expected.1]), "{before}: {row:#}");
    }
}

#[test]
fn one_whose_frozen_scenario_lost_a_check_or_has_another_is_never_green() {
    let mut changed = Vec::new();
    for (key, other) in [
        ("assert", json!({"transcript_contains": "all"})),
        ("answers", json!({"when_question": "which format", "choose": "J.*"})),
    ] {
        for at in 0..cassette()["scenario"][key].as_array().unwrap().len() {
            let mut one = cassette();
            let gone = one["scenario"][key].as_array_mut().unwrap().remove(at);
            changed.push((one.clone(), format!("without {gone}")));
            one["scenario"][key].as_array_mut().unwrap().insert(at, other.clone());
            changed.push((one, format!("{other} for {gone}")));
        }
    }
    let mut one = cassette();
    one["scenario"]["assert"] = json!([]);
    changed.push((one, "without checks".to_owned()));
    let mut one = cassette();
    one["scenario"]["assert"].as_array_mut().unwrap().swap(0, 1);
    changed.push((one, "in another order".to_owned()));
    let mut one = cassette();
    one["scenario"]["prompt"] = json!("Report all");
    changed.push((one, "another prompt".to_owned()));
    for (one, what) in &changed {
        let (status, row) = replay(one, &[]);
        // Without a rule for a tool, its permission fails as well.
        let failed = row["signals"].to_string().contains("permissive_auto_allow");
        assert_eq!(status, Some(if failed { 1 } else { 3 }), "{what}: {row:#}");
        assert_eq!(row["changed"][0]["cause"], "scenario", "{what}: {row:#}");
    }
    let (_, row) = replay(&changed[0].0, &[]);
    let what = "`assert` has {\"transcript_contains\":\"all done\"} only in the scenario's file";
    assert_eq!(row["changed"][0]["what"], what, "{row:#}");
    assert_eq!(replay(&changed[0].0, &["--allow-stale"]).0, Some(0), "as it is");
}

#[test]
fn one_without_a_scenario_file_to_compare_with_is_not_verified() {
    let unnamed = || {
        let mut one = cassette();
        one.as_object_mut().unwrap().remove("scenarioSource");
        one
    };
    let named = |path: &str| {
        let mut one = cassette();
        one["scenarioSource"] = json!(path);
        one
    };
    let stage = Stage::new();
    stage.write("project/SKILL.md", "");
    stage.write("project/scenarios/report.yaml", SCENARIO);
    stage.write("report.yaml", SCENARIO);
    stage.link("project/scenarios/away.yaml", "../../report.yaml");
    let beyond = stage.path("report.yaml").display().to_string();
    for (one, why) in [
        (unnamed(), "does not name the file"),
        (named("scenarios/other.yaml"), "is not found in the suite"),
        (named("../../report.yaml"), "is not found in the suite"),
        (named("scenarios/away.yaml"), "is not found in the suite"),
        (named(&beyond), "is not found in the suite"),
        (named("SKILL.md"), "is not valid"),
    ] {
        let (status, row) = replay_on(&stage, &one, &[]);
        assert_eq!(status, Some(3), "{why}: {row:#}");
        assert!(row["changed"].to_string().contains(why), "{why}: {row:#}");
        assert_eq!(replay_on(&stage, &one, &["--allow-stale"]).0, Some(0), "{why}");
    }
    let shown = stage.run(&["replay", "--protocol", "recorded/report.json"]);
    assert!(shown.stderr.contains("--allow-stale judges the cassette"), "{}", shown.stderr);
}

#[test]
fn what_was_taken_out_is_unknown_and_never_green() {
    let mut one = cassette();
    one.as_object_mut().unwrap().remove("controlOut");
    let (status, row) = replay(&one, &[]);
    assert_eq!(status, Some(3), "{row:#}");
    assert_eq!(outcomes(&row), ["pass", "unknown", "unknown", "pass"], "{row:#}");

    let mut one = cassette();
    one["artifacts"] = json!([]);
    let (status, row) = replay(&one, &[]);
    assert_eq!((status, outcomes(&row)[3]), (Some(3), "unknown"), "{row:#}");

    let mut one = cassette();
    one["scenario"]["assert"].as_array_mut().unwrap().push(json!({"egress_denied": "example.org"}));
    let (status, row) = replay(&one, &[]);
    assert_eq!((status, outcomes(&row)[4]), (Some(3), "unknown"), "{row:#}");

    // A recording that breaks off is no success, whatever was said before.
    let mut one = cassette();
    one["events"].as_array_mut().unwrap().pop();
    let (status, row) = replay(&one, &[]);
    assert_eq!((status, &row["conclusion"]), (Some(5), &json!("agent_failed")), "{row:#}");
}

#[test]
fn what_is_wrong_is_named() {
    let broken = |change: &dyn Fn(&mut Value), status: i32, part: &str| {
        let mut one = cassette();
        change(&mut one);
        let (found, row) = replay(&one, &[]);
        assert_eq!(found, Some(status), "{part}: {row:#}");
        assert!(row.to_string().contains(part), "{part}: {row:#}");
    };
    broken(&|one| one["cassetteVersion"] = json!(8), 2, "format 8");
    broken(&|one| one["cassetteVersion"] = json!(13), 2, "a newer belljar");
    broken(&|one| one["events"][2] = json!("{\"type"), 2, "line 3 of `events` is malformed");
    broken(&|one| one["artifacts"][0]["sha256"] = json!(Digest::of(b"x").hex()), 2, "was edited");
    broken(&|one| drop(one["controlOut"].as_array_mut().unwrap().pop()), 3, "`r2` in line 7");
    let other = |one: &mut Value| {
        let text = one["controlOut"][2].as_str().unwrap().replace("\"JSON\"}}", "\"\"}}");
        one["controlOut"][2] = json!(text);
    };
    broken(&other, 2, "the recorded answer to `r1` does not match the question");
}

#[test]
fn an_unknown_key_of_the_frozen_scenario_is_refused() {
    let mut one = cassette();
    one["scenario"]["assert"][0] = json!({"transcript_contain": "all done"});
    let stage = Stage::new();
    stage.write("project/report.json", one.to_string());
    let found = stage.run(&["replay", "--protocol", "report.json"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("transcript_contain"), "{}", found.stderr);
}

#[test]
fn nothing_is_run_from_one() {
    let stage = Stage::new();
    stage.write("project/report.json", cassette().to_string());
    let found = stage.run(&["replay", "report.json"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("--protocol"), "{}", found.stderr);
}

#[test]
fn changes_that_nobody_would_notice_are_listed() {
    let (status, row) = replay(&cassette(), &["--mutate"]);
    let found = &row["mutations"];
    assert_eq!((status, &found["tried"]), (Some(1), &json!(4)), "{row:#}");
    let places: Vec<&str> =
        found["unnoticed"].as_array().unwrap().iter().map(|one| one["place"].as_str().unwrap()).collect();
    assert_eq!(places, ["question 1", "", "/title"], "{found:#}");
}

#[test]
fn its_scenario_is_imported() {
    let stage = Stage::new();
    stage.write("project/recorded/old.json", cassette().to_string());
    let found = stage.run(&["import", "recorded/old.json"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    assert!(found.stderr.contains("no tape was made"), "{}", found.stderr);
    assert_eq!(found.stdout, "report.yaml was written from recorded/old.json\n");
    let text = fs::read_to_string(stage.path("project/report.yaml")).unwrap();
    assert!(text.contains("prompt: \"Report\"\n") && text.contains("when_tool: \"Write\""), "{text}");
    stage.write("project/report.script.json", crate::cmd::HELLO);
    let again = stage.run(&["import", "recorded/old.json"]);
    assert_eq!(again.status.code(), Some(2), "never overwrites");
    let shown = stage.run(&["import", "recorded/old.json", "--stdout"]);
    assert_eq!(shown.stdout, text);
    let json = data(&stage.run(&["import", "--json", "recorded/nothing.json"]));
    assert_eq!(json, Value::Null);
}

/// Every place in a frame that is an answer, a result or a text.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| places(value, &format!("{at}/{name}"), out));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(number, item)| places(item, &format!("{at}/{number}"), out));
        }
        Value::String(_) | Value::Bool(_) => out.push(at.to_owned()),
        Value::Null | Value::Number(_) => {}
    }
}

/// The cassette with another line in the place of one, or without it.
fn with_line(of: &str, at: usize, line: Option<&Value>) -> Value {
    let mut one = cassette();
    let lines = one[of].as_array_mut().unwrap();
    match line {
        Some(line) => lines[at] = json!(line.to_string()),
        None => drop(lines.remove(at)),
    }
    one
}

#[test]
fn one_with_a_part_of_an_answer_taken_out_or_replaced_is_never_green() {
    let whole = cassette();
    let mut changed = Vec::new();
    for (at, line) in whole["controlOut"].as_array().unwrap().iter().enumerate().skip(2) {
        let frame: Value = serde_json::from_str(line.as_str().unwrap()).unwrap();
        changed.push((format!("without answer {at}"), with_line("controlOut", at, None)));
        let mut found = Vec::new();
        places(&frame["response"], "/response", &mut found);
        for pointer in &found {
            let mut other = frame.clone();
            let place = other.pointer_mut(pointer).unwrap();
            *place = match place {
                Value::Bool(value) => json!(!*value),
                _ => json!("other"),
            };
            changed.push((format!("answer {at} at {pointer}"), with_line("controlOut", at, Some(&other))));
            // Each member above it, taken out.
            let mut above = pointer.as_str();
            while let Some((parent, name)) = above.rsplit_once('/') {
                let mut other = frame.clone();
                if let Some(members) = other.pointer_mut(parent).and_then(Value::as_object_mut) {
                    members.remove(name);
                    changed.push((
                        format!("answer {at} without {above}"),
                        with_line("controlOut", at, Some(&other)),
                    ));
                }
                above = parent;
            }
        }
    }
    let mut one = whole.clone();
    one["artifacts"] = json!([]);
    changed.push(("without its artifact".to_owned(), one));
    let other = "{\"rows\": 4, \"title\": \"Costs\"}\n";
    let mut one = whole;
    one["artifacts"][0] = json!({"path": "outputs/report.json", "bytes": other.len(), "body": other, "encoding": "utf8",
        "sha256": Digest::of(other.as_bytes()).hex()});
    changed.push(("with another artifact".to_owned(), one));
    let green = changed.iter().filter(|(_, one)| replay(one, &[]).0 == Some(0)).map(|(what, _)| what);
    assert_eq!(green.collect::<Vec<_>>(), Vec::<&String>::new(), "of {}", changed.len());
}

/// What the agent did and how it ended is in its frames; a cassette has nothing else that says it.
/// A call of a sub-agent has a result, too.
#[test]
fn one_without_the_result_of_a_sub_agents_call_is_never_green() {
    let with = |more: &[Value]| {
        let mut cassette = cassette();
        let events = cassette["events"].as_array_mut().unwrap();
        let at = events.len() - 2;
        events.splice(at..at, more.iter().map(|frame| json!(frame.to_string())));
        replay(&cassette, &[])
    };
    let of = |parent: Value, kind: &str, block: Value| {
        json!({"type": kind, "session_id": "s", "parent_tool_use_id": parent,
            "message": {"role": kind, "content": [block]}})
    };
    let called = |parent: Value, id: &str, name: &str, input: Value| {
        of(parent, "assistant", json!({"type": "tool_use", "id": id, "name": name, "input": input}))
    };
    let back = |parent: Value, id: &str| {
        of(parent, "user", json!({"type": "tool_result", "tool_use_id": id, "content": "x"}))
    };
    let input = json!({"description": "part", "prompt": "x", "subagent_type": "general-purpose"});
    let sent = called(Value::Null, "t8", "Task", input);
    let reads = called(json!("t8"), "t9", "Read", json!({"file_path": "/w/a"}));
    let whole = [sent.clone(), reads.clone(), back(json!("t8"), "t9"), back(Value::Null, "t8")];
    let (status, row) = with(&whole);
    assert_eq!(status, Some(0), "{row:#}");
    let (status, row) = with(&[sent, reads, back(Value::Null, "t8")]);
    assert_eq!(status, Some(3), "{row:#}");
    assert!(row["signals"].to_string().contains("the call t9 has no result"), "{row:#}");
}

#[test]
fn one_without_one_of_its_events_is_never_green() {
    let whole = cassette();
    let events: Vec<Value> = whole["events"].as_array().unwrap().clone();
    // The handshake and the beginning say nothing that the agent did.
    let without = (2..events.len()).map(|at| (at, with_line("events", at, None)));
    let green = without.filter(|(_, one)| replay(one, &[]).0 == Some(0)).map(|(at, _)| &events[at]);
    assert_eq!(green.collect::<Vec<_>>(), Vec::<&Value>::new());
}

/// A signal that makes a cassette fail: how its last turn ended, and a question without an answer.
#[test]
fn one_of_a_run_without_isolation_proves_nothing_that_rests_on_it() {
    let checks = json!([{"transcript_no_host_path": true}, {"transcript_contains": "all done"}]);
    let text = SCENARIO.split_once("assert:").unwrap().0;
    let text =
        format!("{text}assert:\n  - transcript_no_host_path: true\n  - transcript_contains: all done\n");
    for (asked, had, sealed) in [
        (None, json!("container"), true),
        (Some("microvm"), json!("microvm"), true),
        (None, Value::Null, true),
        (Some("protocol"), json!("protocol"), false),
        (Some("hostloop"), json!("hostloop"), false),
        (Some("protocol"), Value::Null, false),
        (Some("container"), json!("hostloop"), false),
        (Some("cowork"), json!("container"), true),
        (Some("cowork"), Value::Null, false),
        (None, json!("another"), false),
        (None, json!(7), false),
    ] {
        let mut cassette = cassette();
        cassette["scenario"]["assert"] = checks.clone();
        cassette["effectiveFidelity"] = had.clone();
        let stage = Stage::new();
        stage.write("project/SKILL.md", "");
        let mut source = text.clone();
        if let Some(tier) = asked {
            cassette["scenario"]["fidelity"] = json!(tier);
            source = format!("{source}fidelity: {tier}\n");
        }
        stage.write("project/scenarios/report.yaml", source);
        let (status, row) = replay_on(&stage, &cassette, &[]);
        let expected =
            if sealed { (Some(0), vec!["pass", "pass"]) } else { (Some(3), vec!["unknown", "pass"]) };
        assert_eq!((status, outcomes(&row)), expected, "{asked:?} {had}: {row:#}");
    }
}

#[test]
fn one_with_a_signal_is_never_green_though_every_check_passes() {
    let last = cassette()["events"].as_array().unwrap().len() - 1;
    let error = |subtype: &str, is_error: bool| {
        json!({"type": "result", "subtype": subtype, "is_error": is_error, "result": "all done", "session_id": "s",
            "num_turns": 3})
    };
    for result in
        [error("error_during_execution", true), error("error_max_turns", true), error("success", true)]
    {
        let (status, row) = replay(&with_line("events", last, Some(&result)), &[]);
        assert!(matches!(status, Some(5 | 6)), "{result}: {row:#}");
        assert_ne!(row["signals"], json!([]), "{row:#}");
    }
}
