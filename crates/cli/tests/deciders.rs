//! A model that answers in the user's place: on the run's own script, and by its own gateway.

mod directories;
mod programs;
mod rehearsal;

use crate::cmd::{agent_path, tried, tried_json};
use crate::faults::{command, turns, with_agent};
use crate::services::{plain, serve};
use crate::stage::Stage;
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

fn question(text: &str, multi: bool) -> Value {
    json!({"question": text, "header": "Choice", "multiSelect": multi, "options": [
        {"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]})
}

/// The agent asks; the request without tools is that of the deciding model.
fn played(questions: &[Value], replies: &[&str]) -> String {
    let reply = |content: Value| json!({"reply": {"content": [content]}});
    let ask = json!({"tool_use": {"name": "AskUserQuestion", "input": {"questions": questions}}});
    let mut turns = vec![json!({"when": {"tools": "present"}, "answer": reply(ask)})];
    turns.extend(
        replies
            .iter()
            .map(|text| json!({"when": {"tools": "absent"}, "answer": reply(json!({"text": text}))})),
    );
    turns.push(json!({"when": {"tools": "present"}, "answer": reply(json!({"text": "Thank you."}))}));
    json!({"version": 1, "turns": turns}).to_string()
}

fn scenario(stage: &Stage, yaml: &str, script: &str) {
    stage.write("project/a.yaml", yaml);
    stage.write("project/a.script.json", script);
}

fn requests(envelope: &Value) -> Vec<Value> {
    let directory = Path::new(envelope["data"]["results"][0]["directory"].as_str().unwrap());
    let text = fs::read_to_string(directory.join("artifacts/model-requests.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_scenario_may_leave_its_questions_to_a_model() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let yaml = "prompt: go\non_unanswered: llm\n\
                answers: [{when_question: known, choose: Red}]\n\
                assert:\n\
                \x20 - tool_result_contains: '\"Which colour?\"=\"Blue\"'\n\
                \x20 - tool_result_contains: '\"Which ones?\"=\"Red, Blue\"'\n";
    let script = played(&[question("Which colour?", false), question("Which ones?", true)], &["2", "1, 2"]);
    scenario(&stage, yaml, &script);
    let (status, envelope) = tried_json(&stage, &["test", "--scripted", "--json", "a.yaml"]);
    assert_eq!(status, 0, "{envelope:#}");
    let signals = envelope["data"]["results"][0]["signals"].to_string();
    assert!(signals.contains("non_deterministic"), "{signals}");
    let asked: Vec<Value> =
        requests(&envelope).into_iter().filter(|request| request["max_tokens"] == 500).collect();
    assert_eq!(asked.len(), 2, "one request for each question");
    for request in &asked {
        assert_eq!(
            (&request["model"], request.get("stream")),
            (&json!("claude-haiku-4-5"), None),
            "{request}"
        );
    }
}

#[test]
fn it_knows_what_the_user_is_after_and_has_a_second_try() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let yaml =
        "prompt: go\nassert: [{gate_answers_delivered: true}, {tool_result_contains: as green as grass}]\n";
    let one = [question("Which colour?", false)];
    scenario(&stage, yaml, &played(&one, &["Blue, I think", "OTHER: as green as grass"]));
    let args = ["test", "--scripted", "--json", "a.yaml", "--decider-llm", "--intent", "something natural"];
    let args = [&args[..], &["--decider-model", "claude-opus-4-8"]].concat();
    let (status, envelope) = tried_json(&stage, &args);
    assert_eq!(status, 0, "{envelope:#}");
    let asked: Vec<Value> =
        requests(&envelope).into_iter().filter(|request| request["max_tokens"] == 500).collect();
    let [first, second] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(first["model"], "claude-opus-4-8");
    assert!(first.to_string().contains("something natural"), "{first}");
    assert!(second.to_string().contains("That is not a valid answer"), "{second}");
    scenario(&stage, yaml, &played(&one, &["Blue", "3"]));
    let found = tried(&stage, &["test", "--scripted", "a.yaml", "--decider-llm"]);
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    assert!(found.stderr.contains("gave no answer in 2 tries"), "{}", found.stderr);
    assert!(found.stderr.contains("option 3 does not exist; the options are 1 to 2"), "{}", found.stderr);
}

/// The rule of the session decides about tools, whatever a model would say.
#[test]
fn no_model_is_asked_about_tools() {
    require!(Bwrap, Python);
    let stage = with_agent(
        "greet(); take(); ask()\nanswer = heard()['response']['response']\n\
         text(answer['behavior'] + ': All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    stage.write("project/session.yaml", "permission_parity: strict\n");
    let yaml = "prompt: go\nsession: session.yaml\non_unanswered: llm\nassert: [{transcript_contains: 'deny: All done.'}]\n";
    let reply = json!({"when": {"tools": "absent"}, "answer": {"reply": {"content": [{"text": "1"}]}}});
    let turns = [vec![reply], turns(&["deny: All done."])].concat();
    scenario(&stage, yaml, &json!({"version": 1, "turns": turns}).to_string());
    let found = stage.finish(&mut command(&stage, &["test", "--scripted", "--json", "a.yaml"]));
    assert_eq!(found.status.code(), Some(0), "{}{}", found.stdout, found.stderr);
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    // Those of the agent itself have tools.
    let asked = requests(&envelope).into_iter().filter(|request| request["tools"].is_null());
    assert_eq!(asked.count(), 0);
}

#[test]
fn what_it_uses_is_counted_with_the_run() {
    require!(Bwrap, Python);
    const KEY: &str = "sk-ant-a-key-of-this-test-0123456789";
    let stage = with_agent(
        "greet(); take(); call()\n\
         out({'type': 'control_request', 'request_id': 'q', 'request': {'subtype': 'can_use_tool',\n\
         'tool_name': 'AskUserQuestion', 'display_name': 'A', 'tool_use_id': 'toolu_1', 'input': {'questions': [\n\
         {'question': 'Which?', 'header': 'H', 'multiSelect': False, 'options': [\n\
         {'label': 'Red', 'description': 'r'}, {'label': 'Blue', 'description': 'b'}]}]}}})\n\
         answers = heard()['response']['response']['updatedInput']['answers']\n\
         text(answers['Which?'] + '. All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    stage.write(
        "project/a.yaml",
        "prompt: go\non_unanswered: llm\nassert: [{transcript_contains: Blue. All done.}]\n",
    );
    let heads = Arc::new(Mutex::new(Vec::new()));
    let port = {
        let heads = Arc::clone(&heads);
        serve(move |head, body| {
            let body = String::from_utf8_lossy(body);
            let message = |id: &str, content: Value, stop: &str, tokens: (u64, u64)| {
                let usage = json!({"input_tokens": tokens.0, "output_tokens": tokens.1});
                json!({"id": id, "type": "message", "role": "assistant", "model": "claude-haiku-4-5",
                    "content": [content], "stop_reason": stop, "usage": usage})
            };
            let answer = if body.contains("say Blue") {
                let block = json!({"type": "text", "text": "Blue. All done."});
                message("m2", block, "end_turn", (0, 0))
            } else if body.contains("\"tools\"") {
                let call =
                    json!({"type": "tool_use", "id": "toolu_1", "name": "AskUserQuestion", "input": {}});
                message("m1", call, "tool_use", (0, 0))
            } else {
                heads.lock().unwrap().push(head.to_owned());
                message("m", json!({"type": "text", "text": "2"}), "end_turn", (1000, 5))
            };
            plain(&answer.to_string(), "application/json")
        })
    };
    let mut run = command(&stage, &["test", "--json", "a.yaml"]);
    run.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    let found = stage.finish(&mut run);
    let envelope: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(0), "{envelope:#}{}", found.stderr);
    let heads = heads.lock().unwrap();
    assert!(heads.len() == 1 && heads[0].contains(&format!("x-api-key: {KEY}")), "{heads:?}");
    let result = &envelope["data"]["results"][0];
    assert_eq!(
        (&result["metrics"]["input_tokens"], &result["metrics"]["output_tokens"]),
        (&json!(1000), &json!(5))
    );
    assert!(result["metrics"]["cost_micros_usd"].as_u64().is_some_and(|cost| cost > 0), "{result:#}");
    let directory = Path::new(result["directory"].as_str().unwrap());
    let log = fs::read_to_string(directory.join("egress.jsonl")).unwrap();
    assert!(log.contains("\"way\":\"model\"") && !log.contains(KEY), "{log}");
}

#[test]
fn a_test_has_nobody_to_prompt() {
    let stage = Stage::new();
    stage.write("project/a.yaml", "prompt: go\non_unanswered: prompt\n");
    let found = stage.run(&["test", "a.yaml"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(
        found.stderr.contains("a.yaml:2") && found.stderr.contains("no terminal to ask at"),
        "{}",
        found.stderr
    );
    assert!(!stage.path("home/.local").exists(), "nothing was made");
    stage.write("project/b.yaml", "prompt: go\n");
    for args in [
        &["test", "b.yaml", "--intent", "x"][..],
        &["test", "b.yaml", "--decider-model", "x"],
        &["test", "b.yaml", "--decider-llm", "--first"],
        &["test", "b.yaml", "--decider-llm", "--decider-cmd", "cat"],
    ] {
        assert_eq!(stage.run(args).status.code(), Some(2), "{args:?}");
    }
}

/// The options that a run prints at its end answer the same questions in the next one, through a real shell.
#[test]
fn given_answers_are_lines_to_paste() {
    require!(Agent, Bwrap);
    let stage = Stage::new();
    let yaml = "prompt: go\nassert: [{tool_result_contains: '\"Is a=b, or it\\'s $HOME?\"=\"Red\"'}]\n";
    scenario(&stage, &yaml.replace("\\'", "''"), &played(&[question("Is a=b, or it's $HOME?", false)], &[]));
    let found = tried(&stage, &["test", "--scripted", "a.yaml", "--on-unanswered", "first"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
    let option = found.stderr.lines().map(str::trim).find(|line| line.starts_with("--answer ")).unwrap();
    assert!(found.stderr.contains("- when_question: "), "{}", found.stderr);
    let open = tried(&stage, &["test", "--scripted", "a.yaml"]);
    assert_eq!(open.status.code(), Some(1), "no one answers: {}", open.stderr);
    let line = format!("exec \"$0\" test --scripted --json a.yaml {option}");
    let template = command(&stage, &[]);
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", &line]).arg(template.get_program()).env_clear();
    shell.current_dir(template.get_current_dir().unwrap());
    shell.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("PATH", agent_path());
    let pasted = stage.finish(&mut shell);
    assert_eq!(pasted.status.code(), Some(0), "{}{}", pasted.stdout, pasted.stderr);
    assert!(!pasted.stdout.contains("non_deterministic"), "{}", pasted.stdout);
}

/// A time past every clock, a filter that leaves nothing and a conversation that was never begun.
#[test]
fn what_cannot_be_meant_is_refused_before_anything_starts() {
    let stage = Stage::new();
    stage.write("project/a.yaml", "prompt: go\n");
    stage.skill("project", "hello");
    for (args, part) in [
        (&["test", "a.yaml", "--timeout", "5000000000000000h"][..], "30 days"),
        (
            &["decide", "--question", "W", "--decider-cmd", "cat", "--decider-timeout", "5000000000000000h"],
            "30 days",
        ),
        (&["test", ".", "-k", "nothing"], "none of 1 scenarios has `nothing` in its path"),
        (&["skill", "hello", "go", "--resume", "talk"], "no conversation is called `talk`"),
    ] {
        let found = stage.run(args);
        assert_eq!(found.status.code(), Some(2), "{args:?}: {}", found.stderr);
        assert!(found.stderr.contains(part), "{args:?}: {}", found.stderr);
    }
}

#[test]
fn asking_needs_a_terminal_and_one_run() {
    let stage = Stage::new();
    stage.write("project/a.yaml", "prompt: go\n");
    let found = stage.run(&["test", "a.yaml", "--on-unanswered", "ask"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    assert!(found.stderr.contains("needs a terminal"), "{}", found.stderr);
    let found = stage.run(&["test", "a.yaml", "--repeat", "2", "--on-unanswered", "ask"]);
    assert!(found.stderr.contains("several runs at once"), "{}", found.stderr);
    assert!(!stage.path("home/.local").exists(), "nothing was made");
    for args in [&["--on-unanswered", "ask", "--first"][..], &["--allow-tool", ""], &["--on-unanswered", "x"]]
    {
        assert_eq!(stage.run(&[&["test", "a.yaml"], args].concat()).status.code(), Some(2), "{args:?}");
    }
}

/// A tool that no rule names fails the run; the line that is printed makes it pass, and a denial wins.
#[test]
fn the_command_line_decides_about_tools() {
    require!(Bwrap, Python);
    let stage = with_agent(
        "greet(); take(); ask()\nanswer = heard()['response']['response']\n\
         text(answer['behavior'] + ': All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    for (more, expected, status) in [
        (&[][..], "allow: All done.", 1),
        (&["--allow-tool", "Bash"], "allow: All done.", 0),
        (&["--allow-tool", "Bash", "--deny-tool", "Bash"], "deny: All done.", 0),
    ] {
        let yaml = format!("prompt: go\nassert: [{{transcript_contains: '{expected}'}}]\n");
        scenario(&stage, &yaml, &json!({"version": 1, "turns": turns(&[expected])}).to_string());
        let args = [&["test", "--scripted", "a.yaml"], more].concat();
        let found = stage.finish(&mut command(&stage, &args));
        assert_eq!(found.status.code(), Some(status), "{more:?} {}", found.stderr);
        assert_eq!(found.stderr.contains("--allow-tool Bash"), more.is_empty(), "{}", found.stderr);
    }
}

/// A skill with a script fails without a terminal; the line that it prints makes the next run pass.
#[test]
fn a_skill_without_a_terminal_prints_the_option_that_it_needs() {
    require!(Bwrap, Python);
    let stage = with_agent(
        "greet(); take(); ask()\nanswer = heard()['response']['response']\n\
         text(answer['behavior'] + ': All done.'); result(); idle()\nwhile heard() is not None: pass",
    );
    stage.write("project/s.json", json!({"version": 1, "turns": turns(&["allow: All done."])}).to_string());
    let args = ["skill", "skills/notes", "go", "--script", "s.json"];
    let found = stage.finish(&mut command(&stage, &args));
    assert_eq!(found.status.code(), Some(1), "{}", found.stderr);
    let option = found.stderr.lines().map(str::trim).find(|line| line.starts_with("--allow-tool"));
    assert_eq!(option, Some("--allow-tool Bash"), "{}", found.stderr);
    let pasted: Vec<&str> = args.into_iter().chain(option.unwrap().split(' ')).collect();
    let found = stage.finish(&mut command(&stage, &pasted));
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}

#[test]
fn a_label_that_was_not_offered_is_not_written() {
    let stage = Stage::new();
    let asked = json!({"type": "decision_request", "id": "r-1", "kind": "question",
        "questions": [question("Which colour?", false)]});
    stage.write("project/questions/req-1.json", asked.to_string());
    let found = stage.run(&["answer", "questions", "--gate", "1", "--choose", "Bleu"]);
    assert_eq!(found.status.code(), Some(2), "{}", found.stderr);
    for part in ["\"Red\"", "\"Blue\""] {
        assert!(found.stderr.contains(part), "{}", found.stderr);
    }
    assert!(!stage.path("project/questions/resp-1.json").exists());
    let found = stage.run(&["answer", "questions", "--gate", "1", "--choose", "blue"]);
    assert_eq!(found.status.code(), Some(0), "{}", found.stderr);
}
