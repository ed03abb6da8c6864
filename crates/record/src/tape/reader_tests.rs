use super::super::draft::TapeDraft;
use super::super::log::{ExchangeLog, TapeLimits};
use super::*;
use belljar_contract::{
    ConversationKey, ExchangeAnswer, ExchangeDelivery, ExchangeEnd, ExchangeRequest, TapeAgent, TapeScenario,
    TapeTrees, TapeUntracked,
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
            trees: TapeTrees::Directories,
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
    let answer = |seq| format!("answer {}", seq % 2).into_bytes();
    tape_saying(base, count, |seq| format!("request {seq}").into_bytes(), answer)
}

fn base_path(base: &Path) -> AbsPath {
    AbsPath::new(base.canonicalize().unwrap()).unwrap()
}

fn tape_saying(base: &Path, count: u64, request: fn(u64) -> Vec<u8>, answer: fn(u64) -> Vec<u8>) -> AbsPath {
    let base = base_path(base);
    let run = base.child("run");
    let mut log = ExchangeLog::create(run.clone(), TapeLimits::default()).unwrap();
    for seq in 0..count {
        let request = log.request(&request(seq)).unwrap();
        let answer = log.answer(&answer(seq)).unwrap();
        log.line(&exchange(seq, request, answer)).unwrap();
    }
    fs::write(run.child("events.jsonl"), "one\ntwo\n").unwrap();
    let target = base.child("s.tape");
    let before = Tape::open(&target).ok().map(|old| old.exchanges.len());
    let mut draft = TapeDraft::begin(&target).unwrap();
    draft.file("events.jsonl", &run.child("events.jsonl")).unwrap();
    draft.file("not there", &run.child("not there")).unwrap();
    draft.exchanges(&run).unwrap();
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
    assert_eq!(fs::read_dir(path.child(BODIES)).unwrap().count(), 2, "a body is kept once");
}

#[test]
fn a_long_body_is_read_again_and_checked_again() {
    let base = tempfile::tempdir().unwrap();
    let long = |seq: u64| vec![b'a' + u8::try_from(seq).unwrap(); 700 << 10];
    let path = tape_saying(base.path(), 2, |seq| vec![b'0', u8::try_from(seq).unwrap()], long);
    let tape = Tape::open(&path).unwrap();
    let [first, second] = [0, 1].map(|seq: usize| tape.exchanges[seq].answer.as_ref().unwrap().body);
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
    draft.exchanges(&path).unwrap();
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
        path.child(BODIES).child(&Digest::of(b"answer 1").hex())
    }
    let harms: [(&str, Harm); 27] = [
        ("missing", |path| fs::remove_file(path.child(HEAD)).unwrap()),
        ("missing", |path| fs::remove_file(path.child(EXCHANGES)).unwrap()),
        ("missing", |path| fs::remove_file(path.child("events.jsonl")).unwrap()),
        ("missing-body", |path| fs::remove_file(a_body(path)).unwrap()),
        ("truncated", |path| fs::write(a_body(path), "answ").unwrap()),
        ("edited", |path| fs::write(a_body(path), "answer 7").unwrap()),
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
        ("newer", |path| on_head(path, "\"format\": 2", "\"format\": 3")),
        ("edited", |path| on_head(path, "s.yaml", "t.yaml")),
        ("stray", |path| fs::write(path.child("note.txt"), "").unwrap()),
        ("stray", |path| fs::write(path.child("bodies/x"), "").unwrap()),
        ("missing", |path| fs::remove_file(path.child(REQUESTS)).unwrap()),
        ("missing", |path| fs::remove_file(path.child(TEXT)).unwrap()),
        ("edited", |path| {
            let text = fs::read_to_string(path.child(TEXT)).unwrap();
            fs::write(path.child(TEXT), text.replacen('q', "k", 1)).unwrap();
        }),
        ("edited", |path| {
            let list = fs::read_to_string(path.child(REQUESTS)).unwrap();
            fs::write(path.child(REQUESTS), list.replacen("[0,", "[1,", 1)).unwrap();
        }),
        ("truncated", |path| fs::write(path.child(TEXT), "").unwrap()),
        ("truncated", |path| fs::write(path.child(REQUESTS), "").unwrap()),
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
fn a_text_of_requests_that_is_read_again_is_checked_again() {
    let base = tempfile::tempdir().unwrap();
    let long = |seq: u64| format!("{seq} ").repeat(350 << 10).into_bytes();
    let path = tape_saying(base.path(), 3, long, |_| b"answer".to_vec());
    let tape = Tape::open(&path).unwrap();
    for seq in 0..3 {
        let body = tape.exchanges[usize::try_from(seq).unwrap()].request.body;
        assert_eq!(tape.body(body).unwrap(), long(seq));
        assert_eq!(tape.body_from(body, 70_001).unwrap(), long(seq)[70_001..].to_vec());
    }
    let text = path.child(TEXT);
    let mut bytes = fs::read(&text).unwrap();
    bytes[720 << 10] = b'x';
    fs::write(&text, &bytes).unwrap();
    tape.body(tape.exchanges[0].request.body).unwrap();
    tape.body(tape.exchanges[1].request.body).unwrap_err();
    assert_eq!(fault(&path), "edited");
    fs::write(&text, &bytes[..5000]).unwrap();
    assert_eq!(fault(&path), "truncated");
}

#[test]
fn a_tape_has_bounds() {
    let base = tempfile::tempdir().unwrap();
    let run = AbsPath::new(base.path().canonicalize().unwrap().join("run")).unwrap();
    let limits = TapeLimits { bytes: 4000, exchanges: 2, unfolded: 2000 };
    let mut log = ExchangeLog::create(run, limits).unwrap();
    let body = log.request(b"x").unwrap();
    for seq in 0..2 {
        log.line(&exchange(seq, body, body)).unwrap();
    }
    let why = log.line(&exchange(2, body, body)).unwrap_err().to_string();
    assert_eq!(why, "the recording does not fit on a tape: more than 2 exchanges");
    assert_eq!(log.request(b"x").unwrap(), body, "a request that is already stored takes no room");
    log.answer(&[b'a'; 1000]).unwrap();
    let why = log.answer(&[b'b'; 3000]).unwrap_err().to_string();
    assert_eq!(why, "the recording does not fit on a tape: more than 4000 bytes");
    let why = log.request(&[b'c'; 2000]).unwrap_err().to_string();
    assert_eq!(why, "the recording does not fit on a tape: more than 2000 bytes in all requests together");
    log.answer(&[b'd'; 1800]).unwrap();
    log.request(&[b'd'; 1900]).unwrap_err();
    let why = log.request(b"e").unwrap_err();
    assert!(
        why.to_string().contains("requests.text"),
        "nothing follows a request that was not written: {why}"
    );
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
