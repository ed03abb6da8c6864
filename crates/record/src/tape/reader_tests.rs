use super::super::draft::{Listed, TapeDraft};
use super::super::log::ExchangeLog;
use super::*;
use belljar_contract::{
    ConversationKey, ExchangeAnswer, ExchangeDelivery, ExchangeEnd, ExchangeRequest, TapeAgent, TapeScenario,
    TapeUntracked,
};
use std::collections::BTreeMap;
use std::path::Path;

fn head(exchanges: u64) -> TapeHead {
    TapeHead {
        kind: TAPE_KIND.to_owned(),
        format: TAPE_FORMAT,
        belljar: "0".to_owned(),
        recorded_at_ms: 1,
        scenario: TapeScenario {
            name: "s".to_owned(),
            file: "s.yaml".to_owned(),
            digest: Digest::of(b"s"),
            keys: BTreeMap::new(),
            session: None,
            servers: None,
            normalise: Vec::new(),
            skills: BTreeMap::new(),
            plugins: BTreeMap::new(),
            untracked: TapeUntracked::LeftOut,
            inputs: None,
            places: Vec::new(),
        },
        agent: TapeAgent { harness: "h".to_owned(), version: None, program: None },
        plan: Digest::of(b"p"),
        environment: BTreeMap::new(),
        normalisers: vec!["metadata/1".to_owned()],
        exchanges,
        parts: BTreeMap::new(),
        leaks: None,
        values: None,
        integrity: Digest::of(b""),
    }
}

fn exchange(seq: u64, request: BodyRef, answer: BodyRef) -> Exchange {
    Exchange {
        seq,
        at_ms: seq,
        conversation: ConversationKey::Main,
        request: ExchangeRequest {
            method: "POST".to_owned(),
            path: "/v1/messages".to_owned(),
            headers: Vec::new(),
            delivery: ExchangeDelivery::Stream,
            ids: Vec::new(),
            body: request,
        },
        answer: Some(ExchangeAnswer {
            status: 200,
            headers: Vec::new(),
            chunks: vec![(0, answer.bytes)],
            end: ExchangeEnd::Complete,
            ended_ms: 0,
            body: answer,
        }),
    }
}

/// A tape with this many exchanges.
fn tape(base: &Path, count: u64) -> AbsPath {
    tape_asking(base, count, |seq| format!("request {seq}").into_bytes())
}

fn base_path(base: &Path) -> AbsPath {
    AbsPath::new(base.canonicalize().unwrap()).unwrap()
}

fn tape_asking(base: &Path, count: u64, body: fn(u64) -> Vec<u8>) -> AbsPath {
    let base = base_path(base);
    let run = base.child("run");
    let mut log = ExchangeLog::create(run.clone()).unwrap();
    for seq in 0..count {
        let request = log.body(&body(seq)).unwrap();
        let answer = log.body(format!("answer {}", seq % 2).as_bytes()).unwrap();
        log.line(&exchange(seq, request, answer)).unwrap();
    }
    fs::write(run.child("events.jsonl"), "one\ntwo\n").unwrap();
    let target = base.child("s.tape");
    let before = Tape::open(&target).ok().map(|old| old.exchanges.len());
    let mut draft = TapeDraft::begin(&target).unwrap();
    draft.file("events.jsonl", &run.child("events.jsonl")).unwrap();
    draft.file("not there", &run.child("not there")).unwrap();
    draft.file(EXCHANGES, &run.child(EXCHANGES)).unwrap();
    draft.directory(BODIES, &run.child(BODIES), Listed::ByExchanges).unwrap();
    assert_eq!(draft.exchanges().unwrap(), count);
    let now = Tape::open(&target).ok().map(|old| old.exchanges.len());
    assert_eq!(now, before, "the target changed before the tape was complete");
    draft.finish(head(count)).unwrap();
    fs::remove_dir_all(&run).unwrap();
    target
}

#[track_caller]
fn fault(tape: &AbsPath) -> &'static str {
    Tape::open(tape).expect_err("the tape must be rejected").fault.code()
}

#[test]
fn a_tape_comes_back() {
    let base = tempfile::tempdir().unwrap();
    let path = tape(base.path(), 3);
    let tape = Tape::open(&path).unwrap();
    assert_eq!(tape.exchanges.len(), 3);
    assert_eq!(tape.body(tape.exchanges[2].request.body).unwrap()[..], *b"request 2");
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1, "nothing else is left");
    assert_eq!(fs::read_dir(path.child(BODIES)).unwrap().count(), 5, "a body is kept once");
}

#[test]
fn a_long_body_is_read_again_and_checked_again() {
    let base = tempfile::tempdir().unwrap();
    let long = |seq: u64| vec![b'a' + u8::try_from(seq).unwrap(); 700 << 10];
    let path = tape_asking(base.path(), 2, long);
    let tape = Tape::open(&path).unwrap();
    let [first, second] = [0, 1].map(|seq: usize| tape.exchanges[seq].request.body);
    assert_eq!(tape.body(second).unwrap(), long(1));
    for body in [first, second] {
        fs::write(path.child(BODIES).child(&body.digest.hex()), vec![b'x'; 700 << 10]).unwrap();
    }
    assert_eq!(tape.body(first).unwrap(), long(0), "it stayed in memory");
    tape.body(second).unwrap_err();
}

#[test]
fn a_part_that_is_read_again_is_checked_again() {
    let base = tempfile::tempdir().unwrap();
    let path = tape(base.path(), 1);
    let mut draft = TapeDraft::begin(&base_path(base.path()).child("t.tape")).unwrap();
    draft.part("a", &[b'a'; 700 << 10]).unwrap();
    draft.part("b", &[b'b'; 700 << 10]).unwrap();
    draft.file(EXCHANGES, &path.child(EXCHANGES)).unwrap();
    draft.directory(BODIES, &path.child(BODIES), Listed::ByExchanges).unwrap();
    let path = draft.finish(head(1)).unwrap();
    let tape = Tape::open(&path).unwrap();
    assert_eq!(tape.read("b").unwrap()[..], [b'b'; 700 << 10]);
    for name in ["a", "b"] {
        fs::write(path.child(name), [b'x'; 700 << 10]).unwrap();
    }
    assert_eq!(tape.read("a").unwrap()[..], [b'a'; 700 << 10], "it stayed in memory");
    tape.read("b").unwrap_err();
    assert_eq!(tape.read("c").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn every_wrong_is_named() {
    type Harm = fn(&AbsPath);
    fn on_lines(path: &AbsPath, change: fn(Vec<String>) -> Vec<String>) {
        let file = path.child(EXCHANGES);
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.split_inclusive('\n').map(str::to_owned).collect();
        fs::write(&file, change(lines).concat()).unwrap();
    }
    fn on_head(path: &AbsPath, from: &str, to: &str) {
        let file = path.child(HEAD);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&file, text.replace(from, to)).unwrap();
    }
    fn a_body(path: &AbsPath) -> AbsPath {
        path.child(BODIES).child(&Digest::of(b"request 1").hex())
    }
    let harms: [(&str, Harm); 21] = [
        ("missing", |path| fs::remove_file(path.child(HEAD)).unwrap()),
        ("missing", |path| fs::remove_file(path.child(EXCHANGES)).unwrap()),
        ("missing", |path| fs::remove_file(path.child("events.jsonl")).unwrap()),
        ("missing-body", |path| fs::remove_file(a_body(path)).unwrap()),
        ("truncated", |path| fs::write(a_body(path), "requ").unwrap()),
        ("edited", |path| fs::write(a_body(path), "request 7").unwrap()),
        ("truncated", |path| fs::write(path.child("events.jsonl"), "one\n").unwrap()),
        ("edited", |path| fs::write(path.child("events.jsonl"), "one\ntwp\n").unwrap()),
        ("edited", |path| fs::write(path.child("events.jsonl"), "one\ntwo\nthree\n").unwrap()),
        ("truncated", |path| {
            on_lines(path, |mut lines| {
                lines.pop();
                lines
            })
        }),
        ("reordered", |path| {
            on_lines(path, |mut lines| {
                lines.swap(0, 1);
                lines
            })
        }),
        ("duplicated", |path| {
            on_lines(path, |mut lines| {
                lines.insert(1, lines[0].clone());
                lines
            })
        }),
        ("line", |path| {
            on_lines(path, |mut lines| {
                lines[1].insert(0, 'x');
                lines
            })
        }),
        ("edited", |path| {
            on_lines(path, |mut lines| {
                lines[1] = lines[1].replace("200", "201");
                lines
            })
        }),
        ("truncated", |path| {
            let text = fs::read(path.child(HEAD)).unwrap();
            fs::write(path.child(HEAD), &text[..text.len() / 2]).unwrap();
        }),
        ("foreign", |path| fs::write(path.child(HEAD), "{\"log\": {}}").unwrap()),
        ("foreign", |path| on_head(path, "\"kind\"", "\"extra\": 1, \"kind\"")),
        ("newer", |path| on_head(path, "\"format\": 1", "\"format\": 2")),
        ("edited", |path| on_head(path, "s.yaml", "t.yaml")),
        ("stray", |path| fs::write(path.child("note.txt"), "").unwrap()),
        ("stray", |path| fs::write(path.child("bodies/x"), "").unwrap()),
    ];
    for (number, (wanted, harm)) in harms.into_iter().enumerate() {
        let base = tempfile::tempdir().unwrap();
        let path = tape(base.path(), 3);
        harm(&path);
        assert_eq!(fault(&path), wanted, "harm {number}");
    }
}

#[test]
fn a_link_is_rejected() {
    let base = tempfile::tempdir().unwrap();
    let path = tape(base.path(), 1);
    let events = path.child("events.jsonl");
    fs::rename(&events, base.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(base.path().join("elsewhere"), &events).unwrap();
    assert_eq!(fault(&path), "unreadable");
}

#[test]
fn an_old_tape_stays_until_a_new_one_is_whole() {
    let base = tempfile::tempdir().unwrap();
    let path = tape(base.path(), 1);
    let draft = TapeDraft::begin(&path).unwrap();
    let busy = TapeDraft::begin(&path).unwrap_err();
    assert!(matches!(busy, super::super::TapeWriteError::Busy { .. }), "{busy}");
    drop(draft);
    assert_eq!(Tape::open(&path).unwrap().exchanges.len(), 1);
    // A killed process leaves a draft without a lock.
    let dead = base.path().join(".s.tape.recording-1");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join(HEAD), "half").unwrap();
    tape(base.path(), 2);
    assert_eq!(Tape::open(&path).unwrap().exchanges.len(), 2);
    assert!(!dead.exists());
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1);
}

#[test]
fn only_a_tape_is_replaced() {
    let base = tempfile::tempdir().unwrap();
    let target = AbsPath::new(base.path().canonicalize().unwrap().join("s.tape")).unwrap();
    fs::create_dir(&target).unwrap();
    fs::write(target.child("precious"), "").unwrap();
    assert!(TapeDraft::begin(&target).is_err());
    assert!(target.child("precious").as_path().exists());
}

#[test]
fn a_tape_has_bounds() {
    let base = tempfile::tempdir().unwrap();
    let run = AbsPath::new(base.path().canonicalize().unwrap().join("run")).unwrap();
    let mut log = ExchangeLog::create(run).unwrap();
    let body = log.body(b"x").unwrap();
    for seq in 0..TAPE_EXCHANGES {
        log.line(&exchange(seq, body, body)).unwrap();
    }
    assert!(log.line(&exchange(TAPE_EXCHANGES, body, body)).is_err());
    assert_eq!(log.body(b"x").unwrap(), body, "a body that is already stored takes no room");
    let large = vec![7; usize::try_from(TAPE_BYTES).unwrap() / 2];
    log.body(&large).unwrap();
    assert!(log.body(&[large.as_slice(), b"more"].concat()).is_err());
}

#[test]
fn fuzz_any_line_is_read_or_refused() {
    bolero::check!().for_each(|input: &[u8]| {
        // Arbitrary input must not panic, and an accepted exchange serialises to the same bytes.
        if let Ok(read) = read_exchange(input) {
            let text = serde_json::to_string(&read).unwrap();
            assert_eq!(read_exchange(text.as_bytes()), Ok(read));
        }
    });
}

#[test]
fn fuzz_any_manifest_is_read_or_refused() {
    bolero::check!().for_each(|input: &[u8]| {
        if let Ok(head) = parse_head(input) {
            assert_eq!(head.reckoned(), head.integrity);
        }
    });
}
