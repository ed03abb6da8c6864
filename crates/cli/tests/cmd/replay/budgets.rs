//! Budgets are judged from recorded usage, in both lanes; usage that is not there is unknown.

use super::super::record::{bash, main_turn, recorded, scenario, script};
use super::replay;
use crate::altered_tapes::with_body;
use crate::forged_tapes::{lines, write_part};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn keys(tokens: u64, cost: &str, turns: u64) -> String {
    format!(
        "name: hello\nsession: session.yaml\nprompt: Say hello\nanswers: [{{when_tool: Bash, decide: allow}}]\n\
         assert: [{{max_tokens: {tokens}}}, {{max_cost_usd: {cost}}}, {{max_turns: {turns}}}]\n"
    )
}

fn outcomes(row: &Value) -> Vec<&str> {
    row["checks"].as_array().unwrap().iter().map(|check| check["outcome"].as_str().unwrap()).collect()
}

fn stage() -> Stage {
    let with_usage = |mut turn: Value| {
        turn["answer"]["reply"]["usage"] = json!({"input_tokens": 1000, "output_tokens": 100});
        turn
    };
    let turns = [main_turn(&json!([bash("echo one")])), main_turn(&json!([{"text": "all done"}]))];
    let stage = scenario(&script(&turns.map(with_usage)));
    stage.write(
        "project/scenarios/session.yaml",
        "model: claude-opus-4-8\nskills:\n  local: [../skills/hello]\n",
    );
    stage.write("project/scenarios/hello.yaml", keys(20_000, "1", 2));
    recorded(&stage);
    stage
}

#[test]
fn budgets_are_judged_from_recorded_usage() {
    require!(Agent, Bwrap);
    let stage = stage();
    for lane in [&[][..], &["--protocol"]] {
        let (status, row) = replay(&stage, lane);
        assert_eq!((status, outcomes(&row)), (Some(0), vec!["pass"; 3]), "{lane:?}: {row:#}");
    }
    stage.write("project/scenarios/hello.yaml", keys(2_100, "0.0001", 1));
    for lane in [&["--allow-stale"][..], &["--allow-stale", "--protocol"]] {
        let (status, row) = replay(&stage, lane);
        assert_eq!((status, outcomes(&row)), (Some(1), vec!["fail"; 3]), "{lane:?}: {row:#}");
    }
}

/// Every count of tokens and of money in a document, and what the agent says that it used.
fn without_usage(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !["usage", "modelUsage", "total_cost_usd"].contains(&name.as_str()));
            members.values_mut().for_each(without_usage);
        }
        Value::Array(items) => items.iter_mut().for_each(without_usage),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The tape without the usage in the model's answers.
fn strip_answers(tape: &Path) {
    let mut exchanges = lines(&tape.join("exchanges.jsonl"));
    for at in 0..exchanges.len() {
        let digest = exchanges[at]["answer"]["body"]["digest"].as_str().unwrap().to_owned();
        let body = fs::read_to_string(tape.join("bodies").join(&digest["sha256:".len()..])).unwrap();
        let event = |line: &str| match line.strip_prefix("data:") {
            Some(data) => {
                let mut data: Value = serde_json::from_str(data).unwrap();
                without_usage(&mut data);
                format!("data: {data}\n")
            }
            None => format!("{line}\n"),
        };
        let body: String = body.lines().map(event).collect();
        with_body(tape, &mut exchanges, at, "answer", body.as_bytes());
    }
}

/// Usage that was removed is not zero.
#[test]
fn usage_that_was_removed_is_unknown() {
    require!(Agent, Bwrap);
    let stage = stage();
    let tape = stage.path("project/scenarios/hello.tape");
    strip_answers(&tape);
    // The agent tells the model how many tokens are left, reckoned from what was used: that is a drift.
    let (status, row) = replay(&stage, &["--on-drift", "continue"]);
    assert_eq!((status, &outcomes(&row)[..2]), (Some(7), &["unknown"; 2][..]), "{row:#}");
    assert!(row["replay"]["drifts"].to_string().contains("tokens left"), "{row:#}");
    // The record of the run has its metrics; without them the other lane does not know either.
    let mut result: Value = serde_json::from_slice(&fs::read(tape.join("result.json")).unwrap()).unwrap();
    result["metrics"] = json!({});
    write_part(&tape, "result.json", format!("{result:#}\n").as_bytes());
    let (status, row) = replay(&stage, &["--protocol"]);
    assert_eq!((status, &outcomes(&row)[..2]), (Some(3), &["unknown"; 2][..]), "{row:#}");
}
