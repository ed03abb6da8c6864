//! A recording from which one answer, artifact, check or event was taken out or replaced is never green, though every digest
//! that covers it was computed anew.
//!
//! The stored tapes are those in `museum/`, which an earlier version of belljar or of the agent recorded, and one of the
//! examples. Each change makes a tape of its own, and all of one kind and one stored tape are judged in one call.

use crate::cmd::record::{data, files};
use crate::forged_tapes::{lines, write_events, write_part};
use crate::stage::Stage;
use belljar_contract::{BodyRef, Digest, TapeHead};
use belljar_testkit::process::run_within;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Hundreds of tapes are judged in one call.
const DEADLINE: Duration = Duration::from_secs(240);

/// Directories with a tape each; the last is one of the examples as the present version stores it.
const STORED: [&str; 8] = [
    "museum/changelog",
    "museum/forecast",
    "museum/report",
    "museum/2.1.197/changelog",
    "museum/2.1.197/forecast",
    "museum/2.1.197/report",
    "examples/report",
    "packed/report",
];

/// Where they lie.
const PLACES: [&str; 3] = ["examples", "museum", "packed"];

/// Copies of stored tapes, each with one change.
struct Altered {
    stage: Stage,
    /// What was changed, by the name of the tape.
    what: BTreeMap<String, String>,
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

impl Altered {
    fn new() -> Self {
        let stage = Stage::new();
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        copy(&own.join("../../examples"), &stage.path("project"));
        copy(&own.join("tests/museum"), &stage.path("project"));
        fs::create_dir(stage.path("project/packed")).unwrap();
        copy(&own.join("../../examples/report"), &stage.path("project/packed"));
        let tape = stage.path("project/packed/report/report.tape");
        let mut exchanges = lines(&tape.join("exchanges.jsonl"));
        let requests: Vec<Vec<u8>> =
            (0..exchanges.len()).map(|at| body_of(&tape, &exchanges[at], "request")).collect();
        packed(&tape, &mut exchanges, &requests);
        Self { stage, what: BTreeMap::new() }
    }

    fn original(&self, stored: &str) -> PathBuf {
        let name = stored.rsplit('/').next().unwrap();
        self.stage.path(&format!("project/{stored}/{name}.tape"))
    }

    /// Adds a tape with one change.
    fn add(&mut self, example: &str, what: String, change: impl FnOnce(&Path)) {
        let name = format!("{example}/{}.tape", self.what.len());
        let tape = self.stage.path("project").join(&name);
        copy(&self.original(example), &tape);
        change(&tape);
        self.what.insert(name, format!("{example}: {what}"));
    }

    /// Judges all of them in both ways; those that are green.
    fn green(&self, paths: &[&str]) -> Vec<String> {
        assert!(!self.what.is_empty(), "nothing was changed");
        let mut out = Vec::new();
        for verb in [&["replay", "--protocol", "--json"][..], &["tape", "verify", "--json"]] {
            let found = run_within(&mut self.stage.command(&[verb, paths].concat()), DEADLINE).unwrap();
            let rows = data(&found)["results"].as_array().unwrap().clone();
            let by_path: BTreeMap<&str, &Value> =
                rows.iter().map(|row| (row["tape"].as_str().unwrap(), row)).collect();
            for (name, what) in &self.what {
                let path = self.stage.path("project").join(name).display().to_string();
                if is_green(by_path[path.as_str()]) {
                    out.push(format!("{} is green: {what}", verb[0]));
                }
            }
        }
        out
    }
}

/// Whether nothing was noticed. What an old tape was run with, its plan and its agent, may be another by now.
fn is_green(row: &Value) -> bool {
    let empty = Vec::new();
    let mut changed = row["changed"].as_array().unwrap_or(&empty).iter();
    let known = changed.all(|one| one["cause"] == "plan" || one["cause"] == "agent");
    let (exit, contradicts) = (row["exit_code"].as_u64().unwrap(), &row["contradiction"]);
    let verified = row.get("contradiction").is_some() && contradicts.is_null() && known && exit <= 1;
    exit == 0 || verified
}

pub fn frames_of(tape: &Path, frames: &[Value]) {
    let text: String = frames.iter().map(|line| format!("{line}\n")).collect();
    write_part(tape, "frames.jsonl", text.as_bytes());
}

pub fn events_of(tape: &Path) -> Vec<(u64, Value)> {
    let lines = lines(&tape.join("events.jsonl")).into_iter();
    lines.map(|line| (line["ms"].as_u64().unwrap(), line["event"].clone())).collect()
}

/// The places of a value that say something: texts, and yes or no.
pub fn leaves(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| {
                leaves(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), out)
            });
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(number, item)| leaves(item, &format!("{at}/{number}"), out));
        }
        Value::String(_) | Value::Bool(_) => out.push(at.to_owned()),
        Value::Null | Value::Number(_) => {}
    }
}

pub fn replaced(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!(!value),
        other => json!(format!("{} and more", other.as_str().unwrap())),
    }
}

/// Texts that are neither an answer nor a result: what the agent suggests or repeats in another form, and the plugins that
/// it has of its own.
const UNRELATED: [&str; 4] =
    ["/permission_suggestions/", "/tool_use_result/", "/tool_result_meta/", "/frame/plugins/"];

/// What the agent reads of a skill.
const TEXT_OF_A_SKILL: &str = "/frame/message/content/0/text";

/// What frames say to the user, the model and the agent. Ids, times and counts are not among it.
const SAID: [&str; 14] = [
    "text",
    "content",
    "result",
    "behavior",
    "command",
    "skill",
    "question",
    "label",
    "tool_name",
    "name",
    "is_error",
    "decision",
    "prompt",
    "subtype",
];

fn says(pointer: &str) -> bool {
    let name = pointer.rsplit('/').find(|part| part.parse::<usize>().is_err()).unwrap();
    SAID.contains(&name) || pointer.contains("/answers/") || pointer.contains("/input/")
}

#[test]
fn the_stored_tapes_are_green_as_they_are() {
    let mut all = Altered::new();
    STORED.iter().for_each(|stored| all.add(stored, "nothing".to_owned(), |_| {}));
    assert_eq!(all.green(&PLACES).len(), 2 * STORED.len());
    // Without a list of redacted values no key is needed to look for them.
    let found = all.stage.run(&["tape", "verify", "--json", "museum/report/report.tape"]);
    let values = &data(&found)["results"][0]["values"];
    assert_eq!((&values["listed"], &values["unchecked"]), (&json!(false), &json!(0)), "{}", found.stdout);
}

/// A frame that this version knows can be unknown on a tape; one that nobody knows is on no tape that does not have it.
#[test]
fn a_frame_that_became_known_contradicts_nothing() {
    for (kind, green) in [("command_lifecycle", 2), ("comet", 0)] {
        let mut all = Altered::new();
        all.add("examples/report", kind.to_owned(), |tape| {
            let mut events = events_of(tape);
            let first = events.iter().position(|(_, event)| event["kind"] == "seen").unwrap();
            let unknown = json!({"kind": "seen", "what": {"kind": "unknown_frame", "frame": kind}});
            events.insert(first, (events[first].0, unknown));
            write_events(tape, &events);
        });
        assert_eq!(all.green(&["examples/report"]).len(), green, "{kind}");
    }
}

/// The tests of one stored tape: each takes its time.
macro_rules! never_green {
    ($($tape:ident: $stored:expr),*) => {$(
        mod $tape {
            #[test]
            fn without_one_of_its_frames_or_with_another() {
                super::altered_frames($stored);
            }

            #[test]
            fn without_one_of_its_events_or_with_another() {
                super::altered_events($stored);
            }

            #[test]
            fn without_one_of_its_exchanges_or_with_another() {
                super::altered_exchanges($stored);
            }

            #[test]
            fn without_an_artifact_or_another_part_or_with_another_one() {
                super::altered_parts($stored);
            }

            #[test]
            fn whose_scenario_lost_a_check_or_an_answer() {
                super::altered_scenario($stored);
            }
        }
    )*};
}

never_green!(
    old_changelog: super::STORED[0],
    old_forecast: super::STORED[1],
    old_report: super::STORED[2],
    older_report: super::STORED[5],
    report: super::STORED[6],
    packed_report: super::STORED[7]
);

#[track_caller]
fn altered_frames(example: &str) {
    let mut all = Altered::new();
    let frames = lines(&all.original(example).join("frames.jsonl"));
    let given: Vec<&Value> = frames
        .iter()
        .filter(|line| line["way"] == "out")
        .map(|line| &line["frame"]["response"]["request_id"])
        .collect();
    // Neither belljar's own request, nor the agent's repetition of an answer, nor its report that it took up a message is one:
    // it repeats the message itself as well.
    let counts = |line: &Value| match line["way"] == "out" {
        true => line["frame"]["type"] != "control_request",
        false => {
            let id = &line["frame"]["response"]["request_id"];
            let is_first = id.is_null() || !given.contains(&id);
            is_first && line["frame"]["type"] != "command_lifecycle"
        }
    };
    for at in 0..frames.len() {
        let mut fewer = frames.clone();
        let gone = fewer.remove(at);
        let what = format!("without frame {at}: {}", gone["frame"]["type"]);
        if counts(&gone) {
            all.add(example, what, |tape| frames_of(tape, &fewer));
        }
        let mut pointers = Vec::new();
        leaves(&frames[at]["frame"], "/frame", &mut pointers);
        let is_text_of_a_skill = frames[at]["frame"]["type"] == "user";
        let unrelated = |pointer: &str| {
            UNRELATED.iter().any(|part| pointer.contains(part))
                || pointer == TEXT_OF_A_SKILL && is_text_of_a_skill
        };
        let own = frames[at]["way"] == "out" && frames[at]["frame"]["type"] == "control_request";
        for pointer in pointers.iter().filter(|pointer| says(pointer) && !unrelated(pointer) && !own) {
            let mut other = frames.clone();
            let place = other[at].pointer_mut(pointer).unwrap();
            *place = replaced(place);
            all.add(example, format!("frame {at} at {pointer}: {}", frames[at]["frame"]), |tape| {
                frames_of(tape, &other)
            });
        }
    }
    for at in (0..frames.len()).filter(|at| frames[*at]["way"] == "out") {
        for lost in [
            "/response/response/updatedInput",
            "/response/response/updatedInput/questions",
            "/response/response/updatedInput/answers",
        ] {
            let mut other = frames.clone();
            let (parent, name) = lost.rsplit_once('/').unwrap();
            let parent = other[at]["frame"].pointer_mut(parent).and_then(Value::as_object_mut);
            if parent.is_some_and(|parent| parent.remove(name).is_some()) {
                all.add(example, format!("frame {at} without {lost}"), |tape| frames_of(tape, &other));
            }
        }
    }
    assert_eq!(all.green(&[example]), [""; 0]);
}

#[track_caller]
fn altered_events(example: &str) {
    let mut all = Altered::new();
    let events = events_of(&all.original(example));
    for at in 0..events.len() {
        let mut fewer = events.clone();
        let gone = fewer.remove(at).1;
        // A notice tells the user what the egress log has, and limits are those of the plan.
        if gone["kind"] != "notice" && gone["kind"] != "limit_set" {
            all.add(example, format!("without event {at}: {gone}"), |tape| write_events(tape, &fewer));
        }
        if gone["kind"] != "seen" {
            continue;
        }
        let mut pointers = Vec::new();
        leaves(&gone["what"], "/what", &mut pointers);
        // Why an answer was given is a note for people.
        pointers.retain(|pointer| pointer != "/what/reason");
        for pointer in pointers {
            let mut other = events.clone();
            let place = other[at].1.pointer_mut(&pointer).unwrap();
            *place = replaced(place);
            all.add(example, format!("event {at} at {pointer}: {gone}"), |tape| write_events(tape, &other));
        }
        if gone["what"]["kind"] == "answered" {
            for by in ["policy", "person", "parity", "first", "external", "model"] {
                let mut other = events.clone();
                other[at].1["what"]["by"] = json!(by);
                all.add(example, format!("event {at} by {by}"), |tape| write_events(tape, &other));
            }
        }
    }
    assert_eq!(all.green(&[example]), [""; 0]);
}

/// An answer that was replaced wherever the tape has it.
#[test]
fn another_answer_in_frames_and_record_is_never_green() {
    let mut all = Altered::new();
    for example in STORED {
        let frames = lines(&all.original(example).join("frames.jsonl"));
        let given =
            |frame: &&Value| frame["frame"].pointer("/response/response/behavior") == Some(&json!("allow"));
        for id in frames
            .iter()
            .filter(|line| line["way"] == "out")
            .filter(given)
            .map(|line| line["frame"]["response"]["request_id"].clone())
        {
            let mut other = frames.clone();
            for line in
                other.iter_mut().filter(|line| line["frame"].pointer("/response/request_id") == Some(&id))
            {
                line["frame"]["response"]["response"] = json!({"behavior": "deny", "message": "no"});
            }
            let mut events = events_of(&all.original(example));
            for (_, event) in events
                .iter_mut()
                .filter(|(_, event)| event["what"]["kind"] == "answered" && event["what"]["request"] == id)
            {
                event["what"]["answer"] = json!("deny");
                event["what"]["chosen"] = json!([]);
            }
            all.add(example, format!("denied: {id}"), |tape| {
                frames_of(tape, &other);
                write_events(tape, &events);
            });
        }
    }
    assert!(all.what.len() >= 4, "{:?}", all.what);
    assert_eq!(all.green(&PLACES), [""; 0]);
}

/// Writes the exchanges, and a manifest that fits.
fn exchanges_of(tape: &Path, exchanges: &[Value]) {
    let text: String = exchanges.iter().map(|line| format!("{line}\n")).collect();
    let path = tape.join("tape.json");
    let mut head: TapeHead = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    head.exchanges = exchanges.len() as u64;
    fs::write(&path, serde_json::to_vec(&head).unwrap()).unwrap();
    write_part(tape, "exchanges.jsonl", text.as_bytes());
    let used = serde_json::to_string(exchanges).unwrap();
    for body in files(&tape.join("bodies")) {
        if !used.contains(body.file_name().unwrap().to_str().unwrap()) {
            fs::remove_file(body).unwrap();
        }
    }
}

/// A body of an exchange.
fn body_of(tape: &Path, exchange: &Value, side: &str) -> Vec<u8> {
    let body = &exchange[side]["body"];
    let list = if is_packed(tape) { lines(&tape.join("requests.jsonl")) } else { Vec::new() };
    let Some(line) = list.into_iter().find(|line| line["digest"] == body["digest"]) else {
        let digest = Digest::parse(body["digest"].as_str().unwrap()).unwrap();
        return fs::read(tape.join("bodies").join(digest.hex())).unwrap();
    };
    let text = fs::read(tape.join("requests.text")).unwrap();
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let ranges = line["ranges"].as_array().unwrap().iter();
    ranges.flat_map(|range| &text[number(&range[0])..][..number(&range[1])]).copied().collect()
}

fn is_packed(tape: &Path) -> bool {
    tape.join("requests.jsonl").exists()
}

/// Writes the requests of a tape as ranges of a text, each but the first as what it adds to the one before.
fn packed(tape: &Path, exchanges: &mut [Value], requests: &[Vec<u8>]) {
    let (mut text, mut list, mut known) = (Vec::new(), String::new(), Vec::new());
    for (at, request) in requests.iter().enumerate() {
        let body = BodyRef::of(request);
        exchanges[at]["request"]["body"] = json!(body);
        if known.contains(&body.digest) {
            continue;
        }
        known.push(body.digest);
        let first = &requests[0];
        let both = request.iter().zip(first).take_while(|(one, other)| one == other).count();
        let both = if at == 0 { 0 } else { both };
        let all = [(0, both), (text.len(), request.len() - both)];
        let ranges: Vec<_> = all.into_iter().filter(|(_, length)| *length > 0).collect();
        text.extend(&request[both..]);
        list += &format!("{}\n", json!({"digest": body.digest, "bytes": body.bytes, "ranges": ranges}));
    }
    write_part(tape, "requests.text", &text);
    write_part(tape, "requests.jsonl", list.as_bytes());
    let path = tape.join("tape.json");
    let mut head: TapeHead = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    head.format = 2;
    fs::write(&path, serde_json::to_vec(&head).unwrap()).unwrap();
    exchanges_of(tape, exchanges);
    for digest in known {
        fs::remove_file(tape.join("bodies").join(digest.hex())).ok();
    }
}

/// Replaces a body of an exchange.
pub fn with_body(tape: &Path, exchanges: &mut [Value], at: usize, side: &str, bytes: &[u8]) {
    if side == "request" && is_packed(tape) {
        let mut requests: Vec<Vec<u8>> =
            exchanges.iter().map(|exchange| body_of(tape, exchange, "request")).collect();
        requests[at] = bytes.to_vec();
        return packed(tape, exchanges, &requests);
    }
    let body = BodyRef::of(bytes);
    fs::write(tape.join("bodies").join(body.digest.hex()), bytes).unwrap();
    exchanges[at][side]["body"] = json!(body);
    if side == "answer" {
        exchanges[at]["answer"]["chunks"] = json!([[0, bytes.len()]]);
    }
    exchanges_of(tape, exchanges);
}

#[track_caller]
fn altered_exchanges(example: &str) {
    let mut all = Altered::new();
    let original = all.original(example);
    let exchanges = lines(&original.join("exchanges.jsonl"));
    let body = |at: usize, side: &str| String::from_utf8(body_of(&original, &exchanges[at], side)).unwrap();
    for at in 0..exchanges.len() {
        let mut fewer = exchanges.clone();
        fewer.remove(at);
        fewer.iter_mut().enumerate().for_each(|(seq, exchange)| exchange["seq"] = json!(seq));
        all.add(example, format!("without exchange {at}"), |tape| exchanges_of(tape, &fewer));
        let mut silent = exchanges.clone();
        silent[at]["answer"] = Value::Null;
        all.add(example, format!("exchange {at} without an answer"), |tape| exchanges_of(tape, &silent));
        let answer = body(at, "answer");
        for (from, to) in [
            ("text_delta\",\"text\":\"", "text_delta\",\"text\":\"Not so: "),
            ("\\\"command\\\":\\\"sh ", "\\\"command\\\":\\\"bash "),
            ("\\\"skill\\\":\\\"", "\\\"skill\\\":\\\"other-"),
            ("\"stop_reason\":\"end_turn", "\"stop_reason\":\"max_tokens"),
            ("\"name\":\"", "\"name\":\"X"),
            ("HTML", "XML"),
        ] {
            if answer.contains(from) {
                let mut other = exchanges.clone();
                let changed = answer.replacen(from, to, 1);
                all.add(example, format!("exchange {at} answers {to}"), |tape| {
                    with_body(tape, &mut other, at, "answer", changed.as_bytes())
                });
            }
        }
        let request: Value = serde_json::from_str(&body(at, "request")).unwrap();
        let mut pointers = Vec::new();
        leaves(&request["messages"], "/messages", &mut pointers);
        // The agent's own words are neither an answer nor a result.
        let own = |pointer: &&String| {
            let text = request.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            text.starts_with("<agent's words")
        };
        let said = |pointer: &&String| pointer.contains("/input/") || pointer.ends_with("/content");
        for pointer in pointers.iter().filter(said).filter(|pointer| !own(pointer)) {
            let mut changed = request.clone();
            let place = changed.pointer_mut(pointer).unwrap();
            *place = replaced(place);
            let mut other = exchanges.clone();
            let text = belljar_contract::canonical_json(&changed);
            all.add(
                example,
                format!("exchange {at} asks otherwise at {pointer}: {}", request.pointer(pointer).unwrap()),
                |tape| with_body(tape, &mut other, at, "request", text.as_bytes()),
            );
        }
    }
    assert_eq!(all.green(&[example]), [""; 0]);
}

/// The list of requests and their text, each changed alone and with digests that fit.
#[test]
fn a_tape_whose_requests_are_made_of_other_ranges_is_never_green() {
    let mut all = Altered::new();
    let example = STORED[4];
    let original = all.original(example);
    let list = lines(&original.join("requests.jsonl"));
    let write = |tape: &Path, list: &[Value]| {
        let text: String = list.iter().map(|line| format!("{line}\n")).collect();
        write_part(tape, "requests.jsonl", text.as_bytes());
    };
    for at in 0..list.len() {
        let mut fewer = list.clone();
        fewer.remove(at);
        all.add(example, format!("without request {at}"), |tape| write(tape, &fewer));
        let other = (at + 1) % list.len();
        for member in ["digest", "ranges", "bytes"] {
            let mut swapped = list.clone();
            (swapped[at][member], swapped[other][member]) =
                (list[other][member].clone(), list[at][member].clone());
            all.add(example, format!("requests {at} and {other} with each other's {member}"), |tape| {
                write(tape, &swapped);
            });
        }
        let mut twice = list.clone();
        twice.push(list[at].clone());
        all.add(example, format!("request {at} twice"), |tape| write(tape, &twice));
        let mut shorter = list.clone();
        shorter[at]["ranges"].as_array_mut().unwrap().pop();
        all.add(example, format!("request {at} without its last range"), |tape| write(tape, &shorter));
    }
    let mut swapped = list.clone();
    (swapped[0]["digest"], swapped[1]["digest"]) = (list[1]["digest"].clone(), list[0]["digest"].clone());
    (swapped[0]["bytes"], swapped[1]["bytes"]) = (list[1]["bytes"].clone(), list[0]["bytes"].clone());
    all.add(example, "the names of two requests exchanged".to_owned(), |tape| write(tape, &swapped));
    let mut exchanges = lines(&original.join("exchanges.jsonl"));
    (exchanges[1]["request"]["body"], exchanges[2]["request"]["body"]) =
        (exchanges[2]["request"]["body"].clone(), exchanges[1]["request"]["body"].clone());
    all.add(example, "two exchanges with each other's request".to_owned(), |tape| {
        exchanges_of(tape, &exchanges);
    });
    let text = fs::read(original.join("requests.text")).unwrap();
    all.add(example, "a text with more".to_owned(), |tape| {
        write_part(tape, "requests.text", &[&text[..], b"more"].concat());
    });
    all.add(example, "a text with less".to_owned(), |tape| {
        write_part(tape, "requests.text", &text[..text.len() - 1]);
    });
    assert_eq!(all.green(&PLACES), [""; 0]);
}

/// Takes a part off a tape.
fn without_part(tape: &Path, name: &str) {
    fs::remove_file(tape.join(name)).unwrap();
    let path = tape.join("tape.json");
    let mut head: TapeHead = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    head.parts.remove(name);
    head.integrity = head.reckoned();
    fs::write(&path, serde_json::to_vec(&head).unwrap()).unwrap();
}

#[track_caller]
fn altered_parts(example: &str) {
    let mut all = Altered::new();
    let original = all.original(example);
    let head: TapeHead = serde_json::from_slice(&fs::read(original.join("tape.json")).unwrap()).unwrap();
    for name in head.parts.keys().filter(|name| *name != "exchanges.jsonl") {
        all.add(example, format!("without {name}"), |tape| without_part(tape, name));
    }
    for name in head.parts.keys().filter(|name| name.starts_with("artifacts/")) {
        all.add(example, format!("another {name}"), |tape| write_part(tape, name, b"another\n"));
        let mut more = fs::read(original.join(name)).unwrap();
        more.extend(b"more\n");
        all.add(example, format!("more in {name}"), |tape| write_part(tape, name, &more));
        all.add(example, format!("one beside {name}"), |tape| {
            write_part(tape, &format!("{name}.more"), b"another\n")
        });
    }
    let listing: Value = serde_json::from_slice(&fs::read(original.join("files.json")).unwrap()).unwrap();
    for side in ["before", "after"] {
        for path in listing[side].as_object().unwrap().keys() {
            let mut fewer = listing.clone();
            fewer[side].as_object_mut().unwrap().remove(path);
            let text = format!("{fewer:#}\n");
            all.add(example, format!("{path} not listed {side}"), |tape| {
                write_part(tape, "files.json", text.as_bytes())
            });
        }
    }
    let rows = lines(&original.join("egress.jsonl"));
    for at in 0..rows.len() {
        let mut fewer = rows.clone();
        fewer.remove(at);
        let text: String = fewer.iter().map(|line| format!("{line}\n")).collect();
        all.add(example, format!("without egress row {at}"), |tape| {
            write_part(tape, "egress.jsonl", text.as_bytes())
        });
    }
    assert_eq!(all.green(&[example]), [""; 0]);
}

#[track_caller]
fn altered_scenario(example: &str) {
    let mut all = Altered::new();
    let place = all.stage.path(&format!("project/{example}"));
    let example = example.rsplit('/').next().unwrap();
    let text = fs::read_to_string(place.join(format!("{example}.yaml"))).unwrap();
    // Each item of a list at its first level, with the lines below it.
    let lines: Vec<&str> = text.lines().collect();
    for at in (0..lines.len()).filter(|at| lines[*at].starts_with("  - ")) {
        let end = (at + 1..lines.len()).find(|end| !lines[*end].starts_with("    ")).unwrap_or(lines.len());
        for with in [None, Some("  - allow_stall: true"), Some("  - when_tool: Nothing\n    decide: deny")] {
            let number = all.what.len();
            let directory = all.stage.path(&format!("project/scenarios/{number}"));
            fs::create_dir_all(directory.parent().unwrap()).unwrap();
            copy(&place, &directory);
            let kept: Vec<&str> =
                lines[..at].iter().copied().chain(with).chain(lines[end..].iter().copied()).collect();
            fs::write(directory.join(format!("{example}.yaml")), kept.join("\n") + "\n").unwrap();
            let name = format!("scenarios/{number}/{example}.tape");
            all.what.insert(name, format!("{with:?} in the place of {}", lines[at]));
        }
    }
    assert_eq!(all.green(&["scenarios"]), [""; 0]);
}
