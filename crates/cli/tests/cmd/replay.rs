mod answers;
mod budgets;
mod cassette;
mod normalisers;
mod stale;
pub mod statuses;
mod strict;

use super::record::{
    SCENARIO, bash, data, main_turn, plain, recorded, recorded_with, scenario, script, with_agent,
};
use crate::services::{KEY, serve, streamed};
use crate::stage::Stage;
use belljar_testkit::{agent, require};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn replay(stage: &Stage, more: &[&str]) -> (Option<i32>, Value) {
    let args = [&["replay", "--json", "scenarios/hello.tape"][..], more].concat();
    let found = stage.finish(&mut with_agent(stage, &args));
    (found.status.code(), data(&found)["results"][0].clone())
}

#[track_caller]
fn faithful(result: &(Option<i32>, Value), exchanges: u64) {
    let (status, row) = result;
    let replay = &row["replay"];
    assert_eq!(*status, Some(0), "{row:#}");
    assert_eq!((&replay["drifts"], &replay["unconsumed"]), (&json!([]), &json!([])), "{replay:#}");
    assert_eq!(
        (&replay["exchanges"], &replay["exact"]),
        (&json!(exchanges), &json!(exchanges)),
        "{replay:#}"
    );
}

/// How often a tape is replayed; `BELLJAR_TEST_REPLAYS=20` for those who want to know.
fn times() -> u32 {
    std::env::var("BELLJAR_TEST_REPLAYS").map_or(2, |text| text.parse().unwrap())
}

/// Records and replays without drift.
#[track_caller]
fn comes_back(script: &Value, exchanges: u64) {
    stage_comes_back(&scenario(script), exchanges);
}

#[track_caller]
fn stage_comes_back(stage: &Stage, exchanges: u64) {
    recorded(stage);
    (0..times()).for_each(|_| faithful(&replay(stage, &[]), exchanges));
    let (status, row) = replay(stage, &["--protocol"]);
    assert_eq!((status, &row["mismatch"]), (Some(0), &Value::Null), "{row:#}");
}

/// The agent is not told the time of the command line, so that no request depends on it.
#[test]
fn another_time_limit_is_no_drift() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    for recorded_within in [&["--timeout", "5m"][..], &[]] {
        recorded_with(&stage, recorded_within);
        for more in [&[][..], &["--timeout", "4m"], &["--strict"], &["--strict", "--timeout", "4m"]] {
            faithful(&replay(&stage, more), 2);
        }
    }
    // What the scenario says is told, and a replay tells what was told when it was recorded.
    stage.write("project/scenarios/hello.yaml", format!("timeout_ms: 300000\n{SCENARIO}"));
    recorded(&stage);
    faithful(&replay(&stage, &["--timeout", "4m"]), 2);
    stage.write("project/scenarios/hello.yaml", format!("timeout_ms: 240000\n{SCENARIO}"));
    let (status, row) = replay(&stage, &["--allow-stale"]);
    assert_eq!((status, &row["replay"]["drifts"]), (Some(0), &json!([])), "{row:#}");
    assert_eq!(row["changed"][0]["what"], "`timeout_ms` of the scenario", "{row:#}");
}

#[test]
fn a_plain_run_comes_back() {
    require!(Agent, Bwrap);
    comes_back(&plain(), 2);
}

#[test]
fn a_run_behind_bubblewrap_comes_back_in_a_container() {
    require!(Agent, Bwrap, Podman);
    let stage = scenario(&plain());
    recorded(&stage);
    let args = ["replay", "--json", "scenarios/hello.tape", "--backend", "container"];
    let mut command = with_agent(&stage, &args);
    let found = stage.finish(command.env("BELLJAR_ENGINE", crate::container::engine()));
    faithful(&(found.status.code(), data(&found)["results"][0].clone()), 2);
}

#[test]
fn three_calls_at_once_come_back() {
    require!(Agent, Bwrap);
    let calls = json!([bash("sleep 0.3; echo one"), bash("mktemp"), bash("seq 1 40000")]);
    comes_back(&script(&[main_turn(&calls), main_turn(&json!([{"text": "all done"}]))]), 2);
}

#[test]
fn sub_agents_come_back() {
    require!(Agent, Bwrap);
    let agent = |prompt: &str| {
        json!({"tool_use": {"name": "Agent",
            "input": {"description": "part", "prompt": prompt, "subagent_type": "general-purpose",
                "run_in_background": false}}})
    };
    let sub = |contains: &str, content: Value| {
        json!({"when": {"sender": "sub_agent", "last_message_contains": contains},
            "answer": {"reply": {"content": content}}})
    };
    let turns = [
        main_turn(&json!([agent("do the first"), agent("do the second")])),
        sub("do the first", json!([bash("echo of the first")])),
        sub("do the second", json!([bash("echo of the second")])),
        sub("of the first", json!([{"text": "the first is done"}])),
        sub("of the second", json!([{"text": "the second is done"}])),
        main_turn(&json!([{"text": "all done"}])),
    ];
    comes_back(&script(&turns), 6);
}

#[test]
fn failures_of_the_model_come_back() {
    require!(Agent, Bwrap);
    let slow = json!({"status": 429, "message": "slow down", "headers": {"retry-after": "1"}});
    let cut = json!({"content": [{"text": "this breaks off"}], "cut": {"after_events": 2}});
    let turns = [
        json!({"answer": {"error": slow}}),
        main_turn(&json!([bash("echo one")])),
        json!({"answer": {"reply": cut}}),
        main_turn(&json!([{"text": "all done"}])),
    ];
    comes_back(&script(&turns), 4);
}

#[test]
fn a_conversation_that_was_made_shorter_comes_back() {
    require!(Agent, Bwrap);
    let long = |content: Value| {
        json!({"when": {"sender": "main"},
            "answer": {"reply": {"content": content, "usage": {"input_tokens": 90_000}}}})
    };
    let summary = json!({"when": {"last_message_contains": "followed by a <summary> block"},
        "answer": {"reply": {"content": [{"text": "<analysis>a</analysis><summary>one was said</summary>"}]}}});
    let turns = [
        long(json!([bash("echo one")])),
        long(json!([bash("echo two")])),
        summary,
        main_turn(&json!([bash("echo three")])),
        main_turn(&json!([{"text": "all done"}])),
    ];
    let stage = scenario(&script(&turns));
    let session = "skills:\n  local: [../skills/hello]\nagent_env:\n  auto_compact_window: 100000\n";
    stage.write("project/scenarios/session.yaml", session);
    stage.write("project/scenarios/hello.yaml", format!("{SCENARIO}  - compaction_occurred: true\n"));
    stage_comes_back(&stage, 5);
}

#[test]
fn a_task_that_goes_on_behind_keeps_its_name() {
    require!(Agent, Bwrap);
    // The recorded answer names the task of the recorded run; the agent must hear the name of its own.
    let begin = json!({"tool_use": {"name": "Bash", "id": "toolu_begin",
        "input": {"command": "echo from behind", "description": "try", "run_in_background": true}}});
    let turns = [main_turn(&json!([begin])), main_turn(&json!([{"text": "all done"}]))];
    let mut script = script(&turns);
    script["when_exhausted"] = json!({"reply": "all done"});
    let stage = scenario(&script);
    recorded(&stage);
    let (status, row) = replay(&stage, &[]);
    assert_eq!((status, &row["replay"]["drifts"]), (Some(0), &json!([])), "{row:#}");
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!((status, &row["mismatch"]), (Some(0), &Value::Null), "{row:#}");
}

#[test]
fn a_changed_script_is_shown_and_a_restored_one_passes() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    stage.write("project/skills/hello/scripts/hello.sh", "echo hellp from the script\n");
    let (status, row) = replay(&stage, &[]);
    assert_eq!(status, Some(7), "{row:#}");
    let drift = &row["replay"]["drifts"][0];
    assert_eq!(drift["kind"], "tool-result", "{drift:#}");
    let difference = &drift["differences"][0];
    assert!(difference["pointer"].as_str().unwrap().starts_with("/messages/"), "{difference:#}");
    assert_eq!(difference["recorded"], "hello from the script");
    assert_eq!(difference["present"], "hellp from the script");
    assert_eq!(difference["call"]["name"], "Bash");
    assert!(difference["call"]["input"].as_str().unwrap().contains("hello.sh"), "{difference:#}");
    assert!(row["changed"].to_string().contains("the skill `hello`"), "{row:#}");

    let found = stage.finish(&mut with_agent(&stage, &["replay", "scenarios", "--on-drift", "continue"]));
    assert_eq!(found.status.code(), Some(7), "going on is never green: {}", found.stderr);
    for part in
        ["tool-result drift", "/messages/", "recorded: hello from", "present:  hellp from", "all done"]
    {
        assert!(found.stderr.contains(part), "{part}: {}", found.stderr);
    }
    stage.write("project/skills/hello/scripts/hello.sh", "echo hello from the script\n");
    faithful(&replay(&stage, &[]), 2);
}

#[test]
fn what_a_script_does_otherwise_now_is_judged_again() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let script = |host: &str, file: &str| {
        let text = format!("curl -s https://{host}\necho x > outputs/{file}\necho hello from the script\n");
        stage.write("project/skills/hello/scripts/hello.sh", text);
    };
    let checks = "  - egress_denied: one.test\n  - file_exists: outputs/made.txt\n";
    stage.write("project/scenarios/hello.yaml", format!("{SCENARIO}{checks}"));
    script("one.test", "made.txt");
    recorded(&stage);
    faithful(&replay(&stage, &[]), 2);
    let failed = |row: &Value| -> Vec<String> {
        let checks = row["checks"].as_array().unwrap().iter();
        checks.filter(|check| check["outcome"] == "fail").map(|check| check["check"].to_string()).collect()
    };
    // The agent hears the same as ever; what was done is another thing.
    for (host, file, check) in
        [("two.test", "made.txt", "egress_denied"), ("one.test", "other.txt", "file_exists")]
    {
        script(host, file);
        let (status, row) = replay(&stage, &[]);
        assert_eq!((status, &row["replay"]["exact"]), (Some(1), &json!(2)), "{row:#}");
        let failed = failed(&row);
        assert!(failed.len() == 1 && failed[0].contains(check), "{failed:?}");
    }
}

#[test]
fn what_changes_by_itself_is_cosmetic_and_can_be_made_alike() {
    require!(Agent, Bwrap);
    let turns = [main_turn(&json!([bash("date +%T.%N")])), main_turn(&json!([{"text": "all done"}]))];
    let stage = scenario(&script(&turns));
    recorded(&stage);
    let (status, row) = replay(&stage, &[]);
    let drift = &row["replay"]["drifts"][0];
    assert_eq!((status, &drift["kind"]), (Some(7), &json!("cosmetic")), "{row:#}");
    assert_eq!(drift["covered_by"], json!(["timestamp/1"]));
    let args = ["record", "--scripted", "scenarios/hello.yaml", "--normalise", "timestamp"];
    let found = stage.finish(&mut with_agent(&stage, &args));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    faithful(&replay(&stage, &[]), 2);
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!((status, &row["mismatch"]), (Some(0), &Value::Null), "{row:#}");
}

#[test]
fn another_prompt_is_a_prompt_drift() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    stage.write("project/scenarios/hello.yaml", SCENARIO.replace("Say hello", "Say goodbye"));
    let (status, row) = replay(&stage, &[]);
    let drift = &row["replay"]["drifts"][0];
    assert_eq!((status, &drift["kind"]), (Some(7), &json!("prompt")), "{row:#}");
    let first = &drift["differences"][0];
    assert_eq!((&first["recorded"], &first["present"]), (&json!("Say hello"), &json!("Say goodbye")));
    assert!(row["changed"].to_string().contains("the scenario"), "{row:#}");
}

#[test]
fn another_version_of_the_agent_is_named() {
    require!(Agent, AgentOlder, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    let directory = agent::older().unwrap().parent().unwrap().display().to_string();
    for (strict, status) in [(&[][..], 0), (&["--strict"], 7)] {
        let mut command = stage.command(&[&["replay", "--json", "scenarios/hello.tape"], strict].concat());
        let found = stage.finish(command.env("PATH", format!("{directory}:/usr/bin:/bin")));
        let row = data(&found)["results"][0].clone();
        assert_eq!(found.status.code(), Some(status), "{row:#}");
        let version = json!({"cause": "agent", "what": "the agent's version", "recorded": agent::VERSION, "present": agent::OLDER_VERSION});
        assert!(row["changed"].as_array().unwrap().contains(&version), "{row:#}");
    }
}

#[test]
fn a_recorded_model_is_not_asked_again_unless_a_drift_may_ask() {
    require!(Agent, Bwrap);
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let port = serve(move |_, body| {
        count.fetch_add(1, Ordering::SeqCst);
        if String::from_utf8_lossy(body).contains("tool_result") {
            let text = r#"{"type":"text","text":""}"#;
            return streamed(text, r#"{"type":"text_delta","text":"all done"}"#, "end_turn");
        }
        let input = bash("sh /opt/belljar/agent/.claude/skills/hello/scripts/hello.sh")["tool_use"]["input"]
            .to_string();
        let delta = json!({"type": "input_json_delta", "partial_json": input}).to_string();
        streamed(r#"{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}"#, &delta, "tool_use")
    });
    let stage = scenario(&plain());
    let live = |args: &[&str]| {
        let mut command = with_agent(&stage, args);
        command.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
        stage.finish(&mut command)
    };
    let found = live(&["record", "--json", "scenarios/hello.yaml"]);
    assert_eq!((found.status.code(), asked.load(Ordering::SeqCst)), (Some(0), 2), "{}", found.stdout);
    let tape = stage.path("project/scenarios/hello.tape");
    let search = Command::new("grep").args(["-rFl", "-e", KEY]).arg(&tape).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&search.stdout), "", "the key is on the tape");
    // No key and no address: only the tape can answer.
    faithful(&replay(&stage, &[]), 2);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    stage.write("project/skills/hello/scripts/hello.sh", "echo hellp from the script\n");
    let found = live(&["replay", "--json", "scenarios/hello.tape", "--on-drift", "live"]);
    let row = data(&found)["results"][0].clone();
    assert_eq!((found.status.code(), asked.load(Ordering::SeqCst)), (Some(7), 3), "{row:#}");
    assert_eq!(row["conclusion"], "drifted", "{row:#}");
    assert_eq!(row["checks"][0]["outcome"], "pass", "the model itself went on: {row:#}");
}

#[test]
fn a_recorded_conversation_is_judged_again_without_running() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let tape = recorded(&stage);
    // No agent and no sandbox on this path.
    let protocol = |paths: &[&str]| {
        let mut command = stage.command(&[&["replay", "--json", "--protocol"][..], paths].concat());
        stage.finish(command.env("PATH", "/nonexistent"))
    };
    assert_eq!(protocol(&["scenarios/hello.tape"]).status.code(), Some(0));
    stage.write("project/scenarios/hello.yaml", SCENARIO.replace("all done", "not said"));
    assert_eq!(protocol(&["scenarios/hello.tape"]).status.code(), Some(1), "a new check on an old tape");
    stage.write("project/scenarios/hello.yaml", SCENARIO);

    // Many at once, in one process.
    let many = stage.path("project/many");
    fs::create_dir(&many).unwrap();
    fs::copy(stage.path("project/scenarios/hello.yaml"), many.join("hello.yaml")).unwrap();
    fs::copy(stage.path("project/scenarios/session.yaml"), many.join("session.yaml")).unwrap();
    for number in 0..1000 {
        link(&tape, &many.join(format!("{number}.tape")));
    }
    let found = protocol(&["many"]);
    assert_eq!((found.status.code(), &data(&found)["passed"]), (Some(0), &json!(1000)));

    // What was edited or lost is not believed.
    let frames = fs::read_to_string(tape.join("frames.jsonl")).unwrap();
    fs::remove_file(tape.join("frames.jsonl")).unwrap();
    let found = protocol(&["scenarios/hello.tape"]);
    assert_eq!(found.status.code(), Some(3), "{}", found.stdout);
    fs::write(tape.join("frames.jsonl"), frames.replace("all done", "all gone")).unwrap();
    let found = protocol(&["scenarios/hello.tape"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stdout);
    assert!(found.stdout.contains("`frames.jsonl` was edited"), "{}", found.stdout);
}

/// The same files under another name.
fn link(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { link(&path, &target) } else { fs::hard_link(&path, &target).unwrap() }
    }
}

#[test]
fn the_evidence_behind_each_pass_is_shown_in_both_lanes() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    let asserts = format!("{SCENARIO}  - tool_called: Bash\n  - tool_result_contains: hello from\n");
    stage.write("project/scenarios/hello.yaml", asserts);
    recorded(&stage);
    for lane in [&["--protocol"][..], &[]] {
        let args = [&["replay", "scenarios/hello.tape", "--explain"][..], lane].concat();
        let found = stage.finish(&mut with_agent(&stage, &args));
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
        for part in ["assert[0]: ", "assert[1]: ", "assert[2]: ", "event ", "hello from the script"] {
            assert!(found.stderr.contains(part), "{lane:?} {part}: {}", found.stderr);
        }
        let (_, row) = replay(&stage, &[&["--explain"][..], lane].concat());
        let checks = row["checks"].as_array().unwrap();
        assert!(checks.iter().all(|check| check["evidence"] != json!([])), "{row:#}");
        // Without being asked it says nothing of what passed.
        let args = [&["replay", "scenarios/hello.tape"][..], lane].concat();
        let found = stage.finish(&mut with_agent(&stage, &args));
        assert!(!found.stderr.contains("assert[0]: "), "{}", found.stderr);
    }
}

#[test]
fn results_of_a_script_that_nobody_looks_at_are_listed() {
    require!(Agent, Bwrap);
    let stage = scenario(&plain());
    recorded(&stage);
    let (status, row) = replay(&stage, &["--protocol", "--mutate"]);
    assert_eq!((status, &row["conclusion"]), (Some(1), &json!("failed")), "{row:#}");
    let unnoticed = row["mutations"]["unnoticed"].to_string();
    assert!(unnoticed.contains("the result of a script") && unnoticed.contains("hello from"), "{row:#}");
    stage.write(
        "project/scenarios/hello.yaml",
        format!("{SCENARIO}  - tool_result_contains: hello from the script\n"),
    );
    let (_, row) = replay(&stage, &["--protocol", "--mutate", "--allow-stale"]);
    let unnoticed = row["mutations"]["unnoticed"].to_string();
    assert!(row["mutations"]["tried"].as_u64() > Some(0), "{row:#}");
    assert!(!unnoticed.contains("the result of a script"), "{row:#}");
}

#[test]
fn what_is_no_tape_is_named() {
    let stage = scenario(&plain());
    let found = stage.run(&["replay", "scenarios"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("there is no tape"), "{}", found.stderr);
    stage.write("project/scenarios/hello.tape/tape.json", "{\"log\": {\"version\": \"1.2\"}}");
    let found = stage.run(&["replay", "scenarios/hello.tape"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("was not written by belljar"), "{}", found.stderr);
}
