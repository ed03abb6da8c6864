//! `semantic_matches`: a judge is asked through the gateway, its exchange is recorded, and a replay needs no key.

use crate::cmd::record::{data, main_turn, with_agent};
use crate::services::{KEY, plain, serve, streamed};
use crate::stage::{DEADLINE, Stage};
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};

const SCENARIO: &str =
    "prompt: Greet me\nassert:\n  - semantic_matches:\n      rubric: [The agent greets the user.]\n";

/// A turn for the judge, whose requests have no tools.
fn judge(answer: &Value) -> Value {
    json!({"when": {"tools": "absent"}, "answer": answer})
}

fn says(text: &str) -> Value {
    judge(&json!({"reply": {"content": [{"text": text}]}}))
}

fn verdict(holds: bool, quote: &str) -> String {
    let claim = json!({"claim": 1, "holds": holds, "reason": "so it reads", "quote": quote});
    json!({"claims": [claim]}).to_string()
}

/// A scenario whose agent says hello, and what the judge is played with.
fn stage(scenario: &str, turns: &[Value]) -> Stage {
    let stage = Stage::new();
    stage.write("project/belljar.toml", "");
    stage.write("project/a.yaml", scenario);
    let hello = main_turn(&json!([{"text": "Hello to you."}]));
    let turns: Vec<&Value> = std::iter::once(&hello).chain(turns).collect();
    stage.write("project/a.script.json", json!({"version": 1, "turns": turns}).to_string());
    stage
}

fn run(stage: &Stage, arguments: &[&str]) -> (Option<i32>, Value) {
    let found = stage.finish(&mut with_agent(stage, arguments));
    let row = data(&found)["results"][0].clone();
    (found.status.code(), row)
}

fn tested(turns: &[Value]) -> (Option<i32>, Value) {
    run(&stage(SCENARIO, turns), &["test", "--json", "--scripted", "a.yaml"])
}

#[test]
fn a_judge_decides_with_a_reason_and_a_quote() {
    require!(Agent, Bwrap);
    let stage = stage(SCENARIO, &[says(&verdict(true, "Hello to you."))]);
    let (status, row) = run(&stage, &["test", "--json", "--scripted", "a.yaml"]);
    assert_eq!(status, Some(0), "{row:#}");
    let notes = row["checks"][0]["evidence"].to_string();
    assert!(notes.contains("claude-opus-4-8") && notes.contains("so it reads"), "{notes}");
    assert_eq!((&row["judge"]["requests"], &row["judge"]["input_tokens"]), (&json!(1), &json!(10)));
    assert!(row["judge"]["cost_micros_usd"].as_u64().is_some_and(|cost| cost > 0), "{row:#}");
    let directory = Path::new(row["directory"].as_str().unwrap());
    let events = fs::read_to_string(directory.join("events.jsonl")).unwrap();
    assert!(events.contains(r#""kind":"judged""#) && events.contains("so it reads"), "{events}");
    let shown = stage.finish(&mut with_agent(&stage, &["test", "--scripted", "a.yaml"]));
    assert!(shown.stderr.contains("judge $0.0"), "{}", shown.stderr);
    let (status, row) = tested(&[says(&verdict(false, ""))]);
    assert_eq!((status, &row["checks"][0]["outcome"]), (Some(1), &json!("fail")), "{row:#}");
}

/// What an unhelpful judge leaves is unknown, never a pass.
#[test]
fn a_judge_that_gives_no_judgement_leaves_it_unknown() {
    require!(Agent, Bwrap);
    let nonsense = says("I would say that it does.");
    let refusal = judge(&json!({"error": {"status": 403, "message": "not for you"}}));
    let declined = judge(&json!({"reply": {"content": [{"text": "I decline."}], "stop_reason": "refusal"}}));
    for (turns, reason) in [
        (vec![says(&verdict(true, "Good evening"))], "does not contain the quote"),
        (vec![says(&verdict(true, ""))], "quotes nothing"),
        (vec![nonsense.clone(), nonsense], "no judgement in 2 tries"),
        (vec![refusal], "returned 403"),
        (vec![declined.clone(), declined], "is not an answer: it stopped with"),
        (vec![judge(&json!("hang_up"))], "did not respond"),
        (vec![], "no judgement in 2 tries"),
    ] {
        let (status, row) = tested(&turns);
        assert_eq!((status, &row["checks"][0]["outcome"]), (Some(3), &json!("unknown")), "{reason}: {row:#}");
        assert!(row["checks"][0].to_string().contains(reason), "{reason}: {row:#}");
    }
}

#[test]
fn a_replay_judges_from_the_recorded_answer() {
    require!(Agent, Bwrap);
    let votes = SCENARIO.replace("rubric:", "votes: 3\n      rubric:");
    let turns =
        [verdict(true, "Hello to"), verdict(false, ""), verdict(true, "to you")].map(|text| says(&text));
    let stage = stage(&votes, &turns);
    let (status, row) = run(&stage, &["record", "--json", "--scripted", "a.yaml"]);
    assert_eq!(status, Some(0), "{row:#}");
    let head: Value =
        serde_json::from_slice(&fs::read(stage.path("project/a.tape/tape.json")).unwrap()).unwrap();
    assert_eq!(head["exchanges"], 4, "the judge's are on the tape");
    let (status, row) = run(&stage, &["replay", "--json", "a.tape"]);
    assert_eq!((status, &row["checks"][0]["outcome"]), (Some(0), &json!("pass")), "{row:#}");
    assert_eq!((&row["replay"]["drifts"], &row["replay"]["exact"]), (&json!([]), &json!(4)), "{row:#}");
    let (status, row) = run(&stage, &["replay", "--json", "--protocol", "a.tape"]);
    assert_eq!((status, &row["checks"][0]["outcome"]), (Some(0), &json!("pass")), "{row:#}");
    for lane in [&[][..], &["--protocol"]] {
        let (_, row) = run(&stage, &[&["replay", "--json", "a.tape"], lane].concat());
        assert_eq!(row["judged_by"], json!({"recorded": {"claude-opus-4-8": 1}}), "{row:#}");
        let shown = stage.finish(&mut with_agent(&stage, &[&["replay", "a.tape"], lane].concat()));
        assert!(shown.stderr.contains("judged by claude-opus-4-8, as recorded"), "{}", shown.stderr);
    }
}

#[test]
fn a_recording_without_a_judge_leaves_it_unknown_and_says_what_to_do() {
    require!(Agent, Bwrap);
    let stage = stage("prompt: Greet me\nassert: [{result: success}]\n", &[]);
    let (status, row) = run(&stage, &["record", "--json", "--scripted", "a.yaml"]);
    assert_eq!(status, Some(0), "{row:#}");
    stage.write("project/a.yaml", SCENARIO);
    for more in [&[][..], &["--protocol"]] {
        let (_, row) = run(&stage, &[&["replay", "--json", "a.tape"], more].concat());
        assert_eq!(row["checks"][0]["outcome"], "unknown", "{more:?} {row:#}");
        assert!(row["checks"][0].to_string().contains("with a credential"), "{more:?} {row:#}");
        assert_eq!(row["conclusion"], "unverified", "{more:?} {row:#}");
    }
}

#[test]
fn the_judge_is_paid_by_the_gateway_and_counted_apart() {
    require!(Agent, Bwrap);
    let stage = stage(SCENARIO, &[]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let port = serve(move |head, body| {
        let body = String::from_utf8_lossy(body).into_owned();
        if body.contains("You judge claims") {
            seen.lock().unwrap().push((head.to_owned(), body));
            let usage = json!({"input_tokens": 1000, "output_tokens": 100});
            let message = json!({"id": "j", "type": "message", "role": "assistant", "model": "claude-opus-4-8",
                "content": [{"type": "text", "text": verdict(true, "Hello to you.")}], "stop_reason": "end_turn",
                "usage": usage});
            return plain(&message.to_string(), "application/json");
        }
        let delta = r#"{"type":"text_delta","text":"Hello to you."}"#;
        streamed(r#"{"type":"text","text":""}"#, delta, "end_turn")
    });
    let mut command = with_agent(&stage, &["test", "--json", "a.yaml"]);
    command.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    let found = stage.finish(&mut command);
    let row = data(&found)["results"][0].clone();
    assert_eq!(found.status.code(), Some(0), "{row:#}{}", found.stderr);
    let asked = asked.lock().unwrap();
    assert!(asked.len() == 1 && asked[0].0.contains(&format!("x-api-key: {KEY}")), "{asked:?}");
    assert!(asked[0].1.contains("Hello to you."), "the judge sees what was said");
    assert_eq!((&row["judge"]["input_tokens"], &row["judge"]["output_tokens"]), (&json!(1000), &json!(100)));
    assert!(row["metrics"]["input_tokens"].as_u64().is_some_and(|read| read < 1000), "{row:#}");
    let directory = Path::new(row["directory"].as_str().unwrap());
    let log = fs::read_to_string(directory.join("egress.jsonl")).unwrap();
    assert!(log.matches(r#""way":"model""#).count() >= 2 && !log.contains(KEY), "{log}");
}

/// The agent's requests fit below the cost limit, and the judge's does not.
#[test]
fn a_judge_that_reaches_the_cost_limit_is_named_and_the_agent_is_not() {
    require!(Agent, Bwrap);
    // Each claim makes the reply that the judge may give, and so its price, larger.
    let claim = "  - semantic_matches:\n      rubric: [The agent greets the user";
    let claims: String = (0..40).map(|number| format!("{claim}, time {number}.]\n")).collect();
    let stage = stage(&format!("prompt: Greet me\nsession: session.yaml\nassert:\n{claims}"), &[]);
    stage.write("project/session.yaml", "model: claude-haiku-4-5\n");
    let port = serve(|_, _| {
        let delta = r#"{"type":"text_delta","text":"Hello to you."}"#;
        streamed(r#"{"type":"text","text":""}"#, delta, "end_turn")
    });
    let mut command = with_agent(&stage, &["test", "--json", "--max-cost-usd", "0.38", "a.yaml"]);
    command.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    let found = stage.finish(&mut command);
    let row = data(&found)["results"][0].clone();
    assert_eq!((found.status.code(), &row["conclusion"]), (Some(3), &json!("unverified")), "{row:#}");
    assert_eq!(row["limits_reached"], json!([]), "{row:#}");
    for check in row["checks"].as_array().unwrap() {
        assert_eq!(check["outcome"], "unknown", "{check:#}");
        assert!(check.to_string().contains("the judge gave no answer: the budget of"), "{check:#}");
    }
    let warning = row["warnings"].to_string();
    assert!(warning.contains("the judge was not asked: the budget of"), "{row:#}");
    assert!(warning.contains("--max-cost-usd"), "{row:#}");
}

/// Starts belljar and interrupts it while the judge is asked.
fn interrupted(stage: &Stage, arguments: &[&str]) -> Output {
    let (asked, is_asked) = channel();
    let (held, release) = channel::<()>();
    let answered = Arc::new(AtomicBool::new(false));
    let judged = Arc::clone(&answered);
    let port = serve(move |_, body| {
        if String::from_utf8_lossy(body).contains("You judge claims") {
            asked.send(()).unwrap();
            // Answers when the test is over, or to one that waits for it.
            let late = release.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout);
            judged.fetch_or(late, Ordering::SeqCst);
        }
        let delta = r#"{"type":"text_delta","text":"Hello to you."}"#;
        streamed(r#"{"type":"text","text":""}"#, delta, "end_turn")
    });
    let mut command = with_agent(stage, arguments);
    command.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    is_asked.recv_timeout(DEADLINE).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let found = child.wait_with_output().unwrap();
    assert!(!answered.load(Ordering::SeqCst), "it waited for the judge");
    drop(held);
    found
}

/// An interrupt does not wait for the judge, nothing passes for it, and nothing more is started or recorded.
#[test]
fn an_interrupt_ends_the_wait_for_a_judge() {
    require!(Agent, Bwrap);
    let stage = stage(SCENARIO, &[]);
    stage.write("project/b.yaml", SCENARIO);
    let found = interrupted(&stage, &["test", "--json", "a.yaml"]);
    assert_eq!(found.status.code(), Some(130), "{found:?}");
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(text.contains("the judge gave no answer: the model's gateway has ended"), "{text}");
    let found = interrupted(&stage, &["record", "-j", "1", "--json", "--allow-failing", "a.yaml", "b.yaml"]);
    assert_eq!(found.status.code(), Some(130), "{found:?}");
    let envelope: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(envelope["data"]["not_started"], json!(1), "{envelope:#}");
    for tape in ["a.tape", "b.tape"] {
        assert!(!stage.path("project").join(tape).exists(), "{tape} was recorded");
    }
}
