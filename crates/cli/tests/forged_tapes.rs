//! A tape whose digests were all computed anew is believed only as far as its frames agree with its exchanges.

use crate::cmd::record::{data, with_agent};
use crate::stage::Stage;
use belljar_contract::{Digest, TapeHead, TapePart};
use belljar_testkit::require;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TAPE: &str = "examples/report/report.tape";

/// A stage with the shipped examples.
fn examples() -> (Stage, PathBuf) {
    let stage = Stage::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    assert!(Command::new("cp").arg("-r").arg(from).arg(stage.path("project")).status().unwrap().success());
    let tape = stage.path("project").join(TAPE);
    (stage, tape)
}

/// Writes a part of a tape, and digests that fit.
pub fn write_part(tape: &Path, name: &str, bytes: &[u8]) {
    fs::write(tape.join(name), bytes).unwrap();
    let path = tape.join("tape.json");
    let mut head: TapeHead = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let part = TapePart { bytes: bytes.len() as u64, digest: Digest::of(bytes) };
    head.parts.insert(name.to_owned(), part);
    write_head(tape, &mut head);
}

/// Writes the manifest of a tape, with a digest that fits.
pub fn write_head(tape: &Path, head: &mut TapeHead) {
    head.integrity = head.reckoned();
    fs::write(tape.join("tape.json"), serde_json::to_string_pretty(head).unwrap() + "\n").unwrap();
}

/// Writes the record of a tape with a chain that fits.
pub fn write_events(tape: &Path, events: &[(u64, Value)]) {
    let mut chain = Digest::of(&fs::read(tape.join("run.json")).unwrap());
    let mut text = String::new();
    for (seq, (ms, event)) in events.iter().enumerate() {
        let line = format!(r#"{{"seq":{seq},"ms":{ms},"event":{event}"#);
        chain = Digest::of_parts(&[chain.hex().as_bytes(), line.as_bytes()]);
        text.push_str(&format!("{line},\"chain\":\"{}\"}}\n", chain.hex()));
    }
    write_part(tape, "events.jsonl", text.as_bytes());
    let mut result: Value = serde_json::from_slice(&fs::read(tape.join("result.json")).unwrap()).unwrap();
    (result["events"], result["chain"]) = (json!(events.len()), json!(chain));
    write_part(tape, "result.json", format!("{result:#}\n").as_bytes());
}

pub fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn protocol(stage: &Stage) -> (Option<i32>, Value) {
    let found = stage.run(&["replay", "--protocol", "--json", TAPE]);
    (found.status.code(), data(&found)["results"][0].clone())
}

/// Makes the record say what the forged frames show, as a careful forger would.
fn agree(stage: &Stage, tape: &Path) {
    for _ in 0..200 {
        let (_, row) = protocol(stage);
        let Some(at) = row["mismatch"]["at"].as_u64() else { return };
        let present =
            row["mismatch"]["present"].as_str().map(|text| serde_json::from_str::<Value>(text).unwrap());
        let mut events: Vec<(u64, Value)> = lines(&tape.join("events.jsonl"))
            .into_iter()
            .map(|line| (line["ms"].as_u64().unwrap(), line["event"].clone()))
            .collect();
        let of = |kind: &str| -> Vec<usize> {
            (0..events.len()).filter(|at| events[*at].1["kind"] == kind).collect()
        };
        let (seen, end) = (of("seen"), of("conversation_ended"));
        match (seen.get(usize::try_from(at).unwrap()), present) {
            (Some(place), Some(what)) => events[*place].1["what"] = what,
            (Some(place), None) => drop(events.remove(*place)),
            (None, Some(what)) if what.get("kind").is_some() => {
                let last = *seen.last().unwrap();
                events.insert(last + 1, (events[last].0, json!({"kind": "seen", "what": what})));
            }
            (None, Some(what)) => events[end[0]].1["end"] = what,
            (None, None) => panic!("{row:#}"),
        }
        write_events(tape, &events);
    }
    panic!("the record does not settle");
}

type Forge = fn(&mut Vec<Value>);

/// The place of the first frame that has a text.
fn place(frames: &[Value], kind: &str, text: &str) -> usize {
    let fits = |line: &Value| line["frame"]["type"] == kind && line.to_string().contains(text);
    frames.iter().position(fits).unwrap()
}

fn reworded(frames: &mut Vec<Value>) {
    let text = json!(frames).to_string().replace("The report is in outputs/report.html.", "It is perfect.");
    *frames = serde_json::from_str(&text).unwrap();
}

/// A call that the model never made, with its result.
fn added(frames: &mut Vec<Value>, call: &str) {
    let (said, loaded) = (place(frames, "assistant", "\"Skill\""), place(frames, "user", "Launching skill"));
    let forged = [said, loaded].map(|at| {
        let text = frames[at].to_string();
        let text = text.replace("toolu_scripted_0000_0", call).replace("msg_scripted_0000", "msg_forged");
        serde_json::from_str::<Value>(&text).unwrap()
    });
    for (further, frame) in forged.into_iter().enumerate() {
        frames.insert(loaded + 1 + further, frame);
    }
}

fn duplicated(frames: &mut Vec<Value>) {
    let at = place(frames, "assistant", "The report is in");
    frames.insert(at, frames[at].clone());
}

fn reordered(frames: &mut [Value]) {
    let (first, second) =
        (place(frames, "assistant", "AskUserQuestion"), place(frames, "assistant", "\"Skill\""));
    let frame = frames[first]["frame"].take();
    let other = std::mem::replace(&mut frames[second]["frame"], frame);
    frames[first]["frame"] = other;
}

fn another_result(frames: &mut [Value]) {
    let at = place(frames, "user", "toolu_scripted_0002_0");
    frames[at]["frame"]["message"]["content"][0]["content"] = json!("outputs/report.html and more");
}

fn hidden(frames: &mut Vec<Value>) {
    let (said, loaded) =
        (place(frames, "assistant", "toolu_scripted_0002_0"), place(frames, "user", "toolu_scripted_0002_0"));
    frames.drain(said..=loaded);
}

const FORGED: [(&str, Forge); 7] = [
    ("other words", reworded),
    ("a call that was not made", |frames| added(frames, "toolu_forged")),
    // A digest takes the place of the reminder, and the id is longer than any may be.
    ("a call whose id is normalised", |frames| {
        added(frames, &format!("{}<system-reminder>", "x".repeat(230)));
    }),
    ("a frame twice", duplicated),
    ("frames in another order", |frames| reordered(frames)),
    ("another result", |frames| another_result(frames)),
    ("a call that is not shown", hidden),
];

#[test]
fn a_tape_whose_frames_were_forged_is_not_verified() {
    require!(Agent);
    for (what, forge) in FORGED {
        let (stage, tape) = examples();
        assert_eq!(protocol(&stage).0, Some(0), "as it was shipped");
        let mut frames = lines(&tape.join("frames.jsonl"));
        forge(&mut frames);
        let text: String = frames.iter().map(|line| format!("{line}\n")).collect();
        write_part(&tape, "frames.jsonl", text.as_bytes());
        agree(&stage, &tape);
        let (status, row) = protocol(&stage);
        assert_eq!((status, &row["mismatch"]), (Some(3), &Value::Null), "{what}: {row:#}");
        let signals = row["signals"].as_array().unwrap();
        assert!(signals.iter().any(|signal| signal["code"] == "frames_differ"), "{what}: {row:#}");
        let checks = row["checks"].as_array().unwrap();
        assert!(checks.iter().all(|check| check["outcome"] != "pass"), "{what}: {row:#}");
        let found = stage.finish(&mut with_agent(&stage, &["tape", "verify", TAPE]));
        assert_eq!(found.status.code(), Some(3), "{what}: {}", found.stdout);
        assert!(found.stdout.contains("not verified: frames.jsonl"), "{what}: {}", found.stdout);
        assert!(!found.stdout.contains("fine"), "{what}: {}", found.stdout);
    }
}

#[test]
fn a_tape_whose_record_contradicts_its_frames_is_not_fine() {
    require!(Agent);
    let (stage, tape) = examples();
    let events: Vec<(u64, Value)> = lines(&tape.join("events.jsonl"))
        .into_iter()
        .map(|line| {
            let text = line["event"].to_string().replace("The report is in", "The report is not in");
            (line["ms"].as_u64().unwrap(), serde_json::from_str(&text).unwrap())
        })
        .collect();
    write_events(&tape, &events);
    let found = stage.finish(&mut with_agent(&stage, &["tape", "verify", TAPE]));
    assert_eq!(found.status.code(), Some(3), "{}", found.stdout);
    assert!(found.stdout.contains("is not what the frames show"), "{}", found.stdout);
}

#[test]
fn a_tape_without_exchanges_is_not_verified() {
    let (stage, tape) = examples();
    ["exchanges.jsonl", "requests.jsonl", "requests.text"]
        .iter()
        .for_each(|name| write_part(&tape, name, b""));
    let path = tape.join("tape.json");
    let mut head: TapeHead = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    head.exchanges = 0;
    head.integrity = head.reckoned();
    fs::write(&path, serde_json::to_string_pretty(&head).unwrap()).unwrap();
    fs::remove_dir_all(tape.join("bodies")).unwrap();
    let (status, row) = protocol(&stage);
    assert_eq!(status, Some(3), "{row:#}");
    assert!(row["signals"].to_string().contains("no exchanges with the model"), "{row:#}");
}

/// A recording with a judge, whose claim does not hold and whose tokens are over the limit.
fn judged() -> (Stage, PathBuf) {
    let stage = Stage::new();
    stage.write(
        "project/a.yaml",
        "prompt: go\nassert:\n  - max_tokens: 5\n  - semantic_matches: {rubric: [It is green.]}\n",
    );
    let reply = r#"{"claims": [{"claim": 1, "holds": false, "reason": "r", "quote": "All done"}]}"#;
    let script = json!({"version": 1, "turns": [
        {"when": {"tools": "present"}, "answer": {"reply": {"content": [{"text": "All done."}]}}},
        {"when": {"tools": "absent"}, "answer": {"reply": {"content": [{"text": reply}]}}}]});
    stage.write("project/a.script.json", script.to_string());
    let mut command = with_agent(&stage, &["record", "--scripted", "--allow-failing", "a.yaml"]);
    let found = stage.finish(&mut command);
    let tape = stage.path("project/a.tape");
    assert!(tape.is_dir(), "{found:?}");
    (stage, tape)
}

fn outcome(stage: &Stage) -> (Option<i32>, Value) {
    let found = stage.run(&["replay", "--protocol", "--json", "a.tape"]);
    (found.status.code(), data(&found)["results"][0].clone())
}

#[test]
fn a_verdict_of_the_judge_that_was_turned_round_is_not_verified() {
    require!(Agent, Bwrap);
    let (stage, tape) = judged();
    let (status, row) = outcome(&stage);
    assert_eq!((status, &row["checks"][1]["outcome"]), (Some(1), &json!("fail")), "{row:#}");
    assert!(!row["signals"].to_string().contains("recording_contradicts"), "{row:#}");
    let events: Vec<(u64, Value)> = lines(&tape.join("events.jsonl"))
        .into_iter()
        .map(|line| {
            let text = line["event"].to_string().replace("\"does_not\"", "\"holds\"");
            (line["ms"].as_u64().unwrap(), serde_json::from_str(&text).unwrap())
        })
        .collect();
    write_events(&tape, &events);
    let (_, row) = outcome(&stage);
    assert_eq!(row["checks"][1]["outcome"], "pass", "the record says so: {row:#}");
    assert!(row["signals"].to_string().contains("is not what the judge answered"), "{row:#}");
}

#[test]
fn a_usage_that_the_answers_do_not_have_is_not_verified() {
    require!(Agent, Bwrap);
    let (stage, tape) = judged();
    let (_, row) = outcome(&stage);
    assert_eq!(row["signals"], json!([]), "as it was recorded: {row:#}");
    let result: Value = serde_json::from_slice(&fs::read(tape.join("result.json")).unwrap()).unwrap();
    let mut cheap = result.clone();
    cheap["metrics"]["usage"]["input_tokens"] = json!(1);
    cheap["metrics"]["usage"]["output_tokens"] = json!(1);
    let mut free = result.clone();
    free["metrics"]["usage"]["cost_micros_usd"] = json!(1);
    let mut paid = result.clone();
    paid["metrics"]["usage"].take();
    paid["metrics"]["input_tokens"] = json!(1);
    paid["metrics"]["output_tokens"] = json!(1);
    for (what, result) in [("tokens", cheap), ("cost", free), ("none", paid)] {
        write_part(&tape, "result.json", format!("{result:#}\n").as_bytes());
        let (_, row) = outcome(&stage);
        assert!(
            row["signals"].to_string().contains("is not that of the recorded answers"),
            "{what}: {row:#}"
        );
    }
}

#[test]
fn a_record_that_shows_something_else_is_a_contradiction_and_no_drift() {
    require!(Agent);
    let (stage, tape) = examples();
    let events: Vec<(u64, Value)> = lines(&tape.join("events.jsonl"))
        .into_iter()
        .map(|line| {
            let text = line["event"].to_string().replace("The report is in", "The report is not in");
            (line["ms"].as_u64().unwrap(), serde_json::from_str(&text).unwrap())
        })
        .collect();
    write_events(&tape, &events);
    let (status, row) = protocol(&stage);
    assert_eq!((status, &row["conclusion"]), (Some(3), &json!("unverified")), "{row:#}");
    assert!(row["mismatch"].is_object(), "{row:#}");
}
