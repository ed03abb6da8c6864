//! Answers that were given in any way when a tape was recorded are given again when it is replayed.

use super::super::record::{bash, data, main_turn, scenario, script, with_agent};
use super::{faithful, replay};
use crate::stage::Stage;
use belljar_testkit::{require, wait};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// No rule answers its question, and no rule allows its tool.
const OPEN: &str = "name: hello
session: session.yaml
prompt: Say hello
assert:
  - tool_result_contains: '=\"Blue\"'
  - tool_result_contains: hello from the script
  - allow_permissive_auto_allow: true
";

/// The agent asks which colour, runs the skill's script and ends.
fn asking() -> Stage {
    let options = json!([{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]);
    let question =
        json!({"question": "Which colour?", "header": "Colour", "multiSelect": false, "options": options});
    let ask = json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": [question]}}});
    let call = bash("sh /opt/belljar/agent/.claude/skills/hello/scripts/hello.sh");
    let decided = json!({"when": {"tools": "absent"}, "answer": {"reply": {"content": [{"text": "2"}]}}});
    let turns =
        [main_turn(&json!([ask])), main_turn(&json!([call])), main_turn(&json!([{"text": "all done"}]))];
    let tools = |mut turn: Value| {
        turn["when"]["tools"] = json!("present");
        turn
    };
    let mut turns: Vec<Value> = turns.into_iter().map(tools).collect();
    turns.push(decided);
    let stage = scenario(&script(&turns));
    stage.write("project/scenarios/hello.yaml", OPEN);
    stage.write("project/policy.yaml", "answers: [{when_question: which colour, choose: Blue}]\n");
    let program = "#!/usr/bin/python3
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if 'questions' in asked and asked['questions']:
        reply = {'answers': {asked['questions'][0]['question']: 'Blue'}}
    else:
        reply = {'behavior': 'allow'}
    print(json.dumps({**reply, **({'id': asked['id']} if 'id' in asked else {})}), flush=True)
";
    stage.write("project/decide.py", program);
    fs::set_permissions(stage.path("project/decide.py"), fs::Permissions::from_mode(0o755)).unwrap();
    stage
}

/// Replays without a decider or a key; each lane says that `by` answered when the tape was recorded.
#[track_caller]
fn comes_back(stage: &Stage, exchanges: u64, by: &str) {
    let replayed = replay(stage, &[]);
    faithful(&replayed, exchanges);
    let (status, row) = replay(stage, &["--protocol"]);
    assert_eq!((status, &row["mismatch"]), (Some(0), &Value::Null), "{row:#}");
    for row in [&replayed.1, &row] {
        assert!(row["answered_by"]["recorded"][by].as_u64() >= Some(1), "{row:#}");
        let decisions = row["decisions"].as_array().unwrap();
        let said = decisions.iter().find(|one| one["by"] == by).unwrap();
        assert!(said["reason"].as_str().unwrap().starts_with("recorded: "), "{row:#}");
        assert!(!said.to_string().contains("recorded: recorded: "), "{row:#}");
    }
    for lane in [&[][..], &["--protocol"]] {
        let shown = |more: &[&str]| {
            let args = [&["replay", "scenarios/hello.tape"], lane, more].concat();
            stage.finish(&mut with_agent(stage, &args)).stderr
        };
        assert!(shown(&[]).contains(&format!("answered by {by}, as recorded")), "{}", shown(&[]));
        let all = shown(&["--explain"]);
        assert!(all.contains(&format!("answered by {by} (recorded: ")), "{all}");
    }
}

#[track_caller]
fn recorded(stage: &Stage, more: &[&str]) -> Value {
    let args = [&["record", "--json", "--scripted", "scenarios/hello.yaml"], more].concat();
    let found = stage.finish(&mut with_agent(stage, &args));
    assert_eq!(found.status.code(), Some(0), "{more:?}: {}{}", found.stdout, found.stderr);
    data(&found)["results"][0].clone()
}

#[test]
fn answers_of_the_command_line_a_policy_and_a_program_are_given_again() {
    require!(Agent, Bwrap, Python);
    let stage = asking();
    let decider = stage.path("project/decide.py").display().to_string();
    for (how, by) in [
        (&["--answer", "which colour=Blue"][..], "command-line"),
        (&["--answer-policy", "policy.yaml"], "policy"),
        (&["--decider-cmd", &decider], "external"),
    ] {
        let row = recorded(&stage, how);
        assert!(row["answered_by"][by].as_u64() >= Some(1), "{how:?}: {row:#}");
        comes_back(&stage, 3, by);
    }
    stage.write("project/scenarios/hello.yaml", OPEN.replace("Blue", "Red"));
    let row = recorded(&stage, &["--first"]);
    assert_eq!(row["answered_by"]["first"], 1, "{row:#}");
    comes_back(&stage, 3, "first");
    let args = ["record", "--scripted", "scenarios/hello.yaml", "--first"];
    let found = stage.finish(&mut with_agent(&stage, &args));
    assert!(found.stderr.contains("answers: 1 by first, 1 by parity"), "{}", found.stderr);
}

#[test]
fn answers_of_a_model_are_given_again() {
    require!(Agent, Bwrap);
    let stage = asking();
    let row = recorded(&stage, &["--decider-llm"]);
    assert_eq!(row["answered_by"]["model"], 1, "{row:#}");
    comes_back(&stage, 3, "model");
    stage.write("project/scenarios/hello.yaml", format!("{OPEN}on_unanswered: llm\n"));
    recorded(&stage, &[]);
    comes_back(&stage, 3, "model");
}

#[test]
fn answers_in_a_directory_are_given_again() {
    require!(Agent, Bwrap);
    let stage = asking();
    let mut command = with_agent(
        &stage,
        &["record", "--json", "--scripted", "scenarios/hello.yaml", "--decider-dir", "gates"],
    );
    let run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for (gate, answer) in [("1", &["--choose", "Blue"][..]), ("2", &["--choose", "allow"])] {
        let asked = stage.path(&format!("project/gates/req-{gate}.json"));
        wait::for_files(&stage.path("project"), || asked.exists().then_some(())).unwrap();
        let found = stage.run(&[&["answer", "gates", "--gate", gate], answer].concat());
        assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    }
    let found = run.wait_with_output().unwrap();
    assert_eq!(found.status.code(), Some(0), "{}", String::from_utf8_lossy(&found.stdout));
    comes_back(&stage, 3, "external");
}
