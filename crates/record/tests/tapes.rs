//! Tapes that earlier versions wrote stay readable, and killing a process that makes a tape leaves it complete or
//! absent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use belljar_contract::{
    AbsPath, ConversationKey, Digest, Exchange, ExchangeAnswer, ExchangeDelivery, ExchangeEnd,
    ExchangeRequest, TAPE_FORMAT, TAPE_KIND, TapeAgent, TapeForm, TapeHead, TapeId, TapeScenario,
    TapeSkillPlace, TapeTrees, TapeUntracked, TapeValue, TapeValues,
};
use belljar_record::tape::{ExchangeLog, Tape, TapeDraft, TapeFault, TapeLimits, TapeWriteError};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::abs;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn museum() -> PathBuf {
    fixtures().join("tape-v1/hello.tape")
}

fn head(exchanges: u64) -> TapeHead {
    let digests = |name: &str| BTreeMap::from([(name.to_owned(), Digest::of(name.as_bytes()))]);
    TapeHead {
        kind: TAPE_KIND.to_owned(),
        format: TAPE_FORMAT,
        belljar: "0.1.0".to_owned(),
        recorded_at_ms: 1_800_000_000_000,
        scenario: TapeScenario {
            name: "hello".to_owned(),
            file: "hello.yaml".to_owned(),
            digest: Digest::of(b"scenario"),
            keys: BTreeMap::new(),
            session: Some(Digest::of(b"session")),
            servers: None,
            normalise: Vec::new(),
            skills: digests("hello"),
            plugins: digests("extra"),
            untracked: TapeUntracked::LeftOut,
            trees: TapeTrees::Files,
            inputs: None,
            places: vec![TapeSkillPlace {
                name: "hello".to_owned(),
                directories: vec!["/skills/hello".to_owned()],
            }],
        },
        agent: TapeAgent {
            harness: "claude-code".to_owned(),
            version: Some("2.1.197".to_owned()),
            program: Some(Digest::of(b"program")),
        },
        plan: Digest::of(b"plan"),
        environment: BTreeMap::from([("kernel".to_owned(), "6.1.0".to_owned())]),
        normalisers: vec!["metadata/1".to_owned(), "session-id/1".to_owned()],
        exchanges,
        parts: BTreeMap::new(),
        leaks: None,
        values: None,
        integrity: Digest::of(b""),
    }
}

/// One exchange of every kind.
fn exchanges(log: &mut ExchangeLog) {
    let first = Digest::of(b"first message");
    let sub_agent = ConversationKey::SubAgent { number: 1, first };
    let rows = [
        (ConversationKey::Main, ExchangeDelivery::Stream, Some((429, ExchangeEnd::Complete, "slow down"))),
        (ConversationKey::Main, ExchangeDelivery::Stream, Some((200, ExchangeEnd::Broken, "data: half"))),
        (sub_agent, ExchangeDelivery::Whole, Some((200, ExchangeEnd::Left, "{}"))),
        (ConversationKey::Main, ExchangeDelivery::Whole, None),
    ];
    for (seq, (conversation, delivery, answer)) in (0..).zip(rows) {
        let body = log.request(format!("{{\"request\":{seq}}}").as_bytes()).unwrap();
        let answer = answer.map(|(status, end, text)| ExchangeAnswer {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            chunks: vec![(5, 1), (9, text.len() as u64 - 1)],
            end,
            ended_ms: 12,
            body: log.answer(text.as_bytes()).unwrap(),
        });
        let request = ExchangeRequest {
            method: "POST".to_owned(),
            path: "/v1/messages?beta=true".to_owned(),
            headers: vec![("x-app".to_owned(), "cli".to_owned())],
            delivery,
            ids: vec![TapeId { normaliser: "agent-id/1".to_owned(), number: seq, id: format!("a{seq:016}") }],
            body,
        };
        log.line(&Exchange { seq, at_ms: seq * 100, conversation, request, answer }).unwrap();
    }
}

/// Writes the tape that the fixtures contain. The output becomes a fixture only when it is copied there by hand.
fn write_now(base: &AbsPath) -> AbsPath {
    write_with(base, head(4))
}

fn write_with(base: &AbsPath, head: TapeHead) -> AbsPath {
    let kept = base.child("kept");
    exchanges(&mut ExchangeLog::create(kept.clone(), TapeLimits::default()).unwrap());
    let target = base.child("hello.tape");
    let mut draft = TapeDraft::begin(&target).unwrap();
    let run = abs(&fixtures().join("v1/complete"));
    for name in ["run.json", "events.jsonl", "result.json"] {
        draft.file(name, &run.child(name)).unwrap();
    }
    draft.exchanges(&kept).unwrap();
    fs::remove_dir_all(&kept).unwrap();
    draft.finish(head).unwrap()
}

#[test]
fn what_came_to_a_tape_while_its_successor_was_made_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let base = abs(directory.path());
    let (target, notes) = (write_now(&base), base.child("hello.tape/NOTES.md"));
    let draft = TapeDraft::begin(&target).unwrap();
    fs::write(&notes, "mine").unwrap();
    let refused = draft_of_nothing(draft).unwrap_err().to_string();
    assert!(refused.contains("hello.tape` has the file `NOTES.md`"), "{refused}");
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
    fs::remove_file(notes).unwrap();
    Tape::open(&target).unwrap();
    let other = base.child("other.tape");
    let draft = TapeDraft::begin(&other).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(other.child("work"), "mine").unwrap();
    let refused = draft_of_nothing(draft).unwrap_err().to_string();
    assert!(refused.ends_with("other.tape` exists and is not a tape"), "{refused}");
    assert_eq!(fs::read_to_string(other.child("work")).unwrap(), "mine");
    let names = fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with('.')).collect::<Vec<_>>(), [""; 0], "no draft is left");
}

/// Finishes a tape without exchanges.
fn draft_of_nothing(mut draft: TapeDraft) -> Result<AbsPath, TapeWriteError> {
    let run = abs(&fixtures().join("v1/complete"));
    for name in ["run.json", "events.jsonl", "result.json"] {
        draft.file(name, &run.child(name))?;
    }
    draft.part("exchanges.jsonl", b"")?;
    draft.finish(head(0))
}

fn all(directory: &Path, below: &str) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(directory.join(below)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        match directory.join(&name).is_dir() {
            true => out.extend(all(directory, &name)),
            false => drop(out.insert(name.clone(), fs::read(directory.join(&name)).unwrap())),
        }
    }
    out
}

#[test]
fn v1_is_read() {
    let tape = Tape::open(&abs(&museum())).unwrap();
    assert_eq!(tape.exchanges.len(), 4);
    assert_eq!(tape.head.scenario, head(4).scenario);
    assert_eq!(tape.body(tape.exchanges[1].answer.as_ref().unwrap().body).unwrap()[..], *b"data: half");
    let run = belljar_record::RunReader::new(tape.directory().clone()).read().unwrap();
    assert_eq!(run.completeness, belljar_contract::Completeness::Complete);
}

#[test]
fn v2_is_read() {
    let tape = Tape::open(&abs(&fixtures().join("tape-v2/hello.tape"))).unwrap();
    let old = Tape::open(&abs(&museum())).unwrap();
    assert_eq!(tape.exchanges, old.exchanges);
    for body in tape.exchanges.iter().flat_map(Exchange::bodies) {
        assert_eq!(tape.body(body).unwrap(), old.body(body).unwrap());
    }
}

#[test]
fn v2_is_still_written_byte_for_byte() {
    let base = tempfile::tempdir().unwrap();
    let now = write_now(&abs(base.path()));
    let (now, then) = (all(now.as_path(), ""), all(&fixtures().join("tape-v2/hello.tape"), ""));
    assert_eq!(now.keys().collect::<Vec<_>>(), then.keys().collect::<Vec<_>>());
    for (name, bytes) in &then {
        assert!(now[name] == *bytes, "{name}: raise the format");
    }
}

/// The manifest of a recording that redacted values of the host.
fn head_with_values() -> TapeHead {
    let form = |bytes, tag| TapeForm { bytes, tag, digest: "0123456789abcdef0123456789abcdef".to_owned() };
    let values = TapeValues {
        key: "0011223344556677".to_owned(),
        salt: "00112233445566778899aabbccddeeff".to_owned(),
        values: vec![TapeValue { name: "GH".to_owned(), forms: vec![form(40, 0xbe11), form(80, 7)] }],
        not_redacted: vec!["FLAG".to_owned()],
    };
    TapeHead { values: Some(values), ..head(4) }
}

#[test]
fn v1_with_digests_of_values_is_read() {
    let text = fs::read_to_string(fixtures().join("tape-v1/values.json")).unwrap();
    let head: TapeHead = serde_json::from_str(&text).unwrap();
    assert_eq!((head.reckoned(), head.values), (head.integrity, head_with_values().values));
}

#[test]
fn v2_with_digests_of_values_is_read_and_written_byte_for_byte() {
    let base = tempfile::tempdir().unwrap();
    let tape = write_with(&abs(base.path()), head_with_values());
    let written = fs::read_to_string(tape.child("tape.json")).unwrap();
    let then = fs::read_to_string(fixtures().join("tape-v2/values.json")).unwrap();
    assert_eq!(written, then, "raise the format");
    assert_eq!(Tape::open(&tape).unwrap().head.values, head_with_values().values);
}

/// The child of the test below: makes tapes of the same name in a loop until it is killed.
#[test]
fn child_makes_tapes_until_it_is_killed() {
    let Some(base) = std::env::var_os("BELLJAR_TEST_TAPES") else { return };
    let base = abs(Path::new(&base));
    loop {
        println!("begun");
        write_now(&base);
    }
}

#[test]
fn a_killed_maker_leaves_a_whole_tape_or_none() {
    let base = tempfile::tempdir().unwrap();
    let target = abs(base.path()).child("hello.tape");
    let (mut whole, mut drafts) = (0, 0);
    for round in 0..400_u64 {
        // Making a tape takes longer on a busy disk, so the rounds continue until both outcomes were seen.
        if round >= 30 && whole > 0 && drafts > 0 {
            break;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_makes_tapes_until_it_is_killed", "--nocapture"])
            .env("BELLJAR_TEST_TAPES", base.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Killed at different stages of the work, from its first output on.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with("begun")));
        let kill = Instant::now() + Duration::from_micros(round * 1700);
        while Instant::now() < kill {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        match Tape::open(&target) {
            Ok(_) => whole += 1,
            Err(failure) => assert!(
                matches!(failure.fault, TapeFault::Missing { .. }) && !target.as_path().exists(),
                "{failure:?}"
            ),
        }
        let names = fs::read_dir(base.path()).unwrap().map(|entry| entry.unwrap().file_name());
        drafts += names.filter(|name| name.to_string_lossy().starts_with(".hello.tape.recording-")).count();
        fs::remove_dir_all(base.path().join("kept")).ok();
    }
    assert!(whole > 0 && drafts > 0, "the test kills too early or too late: {whole} whole, {drafts} drafts");
    write_now(&abs(base.path()));
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1, "the next recording removes what was left");
}

/// The child of the test below: reads a tape and prints how much memory that took.
#[test]
fn child_reads_a_large_tape() {
    let Some(path) = std::env::var_os("BELLJAR_TEST_LARGE_TAPE") else { return };
    let tape = Tape::open(&abs(Path::new(&path))).unwrap();
    assert_eq!(tape.exchanges.len(), 5000);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak {}", peak.trim().trim_end_matches(" kB"));
}

#[test]
fn a_large_tape_is_read_in_little_memory() {
    let base = tempfile::tempdir().unwrap();
    let base = abs(base.path());
    let mut log = ExchangeLog::create(base.child("kept"), TapeLimits::default()).unwrap();
    for seq in 0..5000_u64 {
        let body = log.request(format!("{seq} ").repeat(3600).as_bytes()).unwrap();
        let answer = log.answer(format!("{seq} {}", "x".repeat(18_000)).as_bytes()).unwrap();
        let request = ExchangeRequest {
            method: "POST".to_owned(),
            path: "/v1/messages".to_owned(),
            headers: Vec::new(),
            delivery: ExchangeDelivery::Stream,
            ids: Vec::new(),
            body,
        };
        let conversation = ConversationKey::Main;
        let answer = Some(ExchangeAnswer {
            status: 200,
            headers: Vec::new(),
            chunks: vec![(0, answer.bytes)],
            end: ExchangeEnd::Complete,
            ended_ms: 0,
            body: answer,
        });
        log.line(&Exchange { seq, at_ms: seq, conversation, request, answer }).unwrap();
    }
    let target = base.child("large.tape");
    let mut draft = TapeDraft::begin(&target).unwrap();
    draft.exchanges(&base.child("kept")).unwrap();
    draft.finish(head(5000)).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_reads_a_large_tape", "--nocapture"])
        .env("BELLJAR_TEST_LARGE_TAPE", target.as_path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let peak = said.lines().find_map(|line| line.split_once("peak ")?.1.parse::<u64>().ok());
    let peak = peak.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&child.stderr)));
    println!("{peak} kB for {} bytes", belljar_record::measure(target.as_path()).bytes);
    assert!(peak < 48 << 10, "{peak} kB");
}
