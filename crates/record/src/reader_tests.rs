use super::*;
use belljar_contract::{Logged, RunStatus};
use serde_json::json;

fn seed() -> Digest {
    Digest::of(b"run.json")
}

fn write(events: &[Value]) -> (String, Digest) {
    let mut text = String::new();
    let mut chain = seed();
    for (seq, event) in events.iter().enumerate() {
        let (line, next) = line::encode(&chain, seq as u64, seq as u64 * 10, event);
        text.push_str(&line);
        chain = next;
    }
    (text, chain)
}

fn notice(text: &str) -> Value {
    json!(Event::Notice { text: text.to_owned() })
}

fn end() -> Value {
    json!(Event::RunEnded { status: RunStatus::Exited { code: 0 }, duration_ms: 5 })
}

fn read(bytes: &[u8]) -> Log {
    read_log(&mut io::BufReader::with_capacity(7, bytes), seed()).unwrap()
}

fn result(events: u64, chain: Digest) -> RunResult {
    let status = RunStatus::Exited { code: 0 };
    RunResult { format: 1, status, duration_ms: 5, metrics: Default::default(), events, chain }
}

#[test]
fn every_cut_and_every_lost_line_is_noticed() {
    let (text, chain) = write(&[notice("a"), notice("b"), end()]);
    let whole = read(text.as_bytes());
    assert_eq!((whole.events.len(), whole.end, whole.chain), (3, LogEnd::Whole, chain));
    let done = result(3, chain);
    assert_eq!(judge(&whole, Some(&done)), Completeness::Complete);
    assert_eq!(judge(&whole, None), Completeness::Incomplete { why: Missing::Result });
    let other = RunResult { status: RunStatus::Exited { code: 1 }, ..done.clone() };
    assert_eq!(judge(&whole, Some(&other)), Completeness::Tampered { line: 4 }, "a result of another log");
    for cut in 0..text.len() {
        let log = read(&text.as_bytes()[..cut]);
        let lines = text[..cut].matches('\n').count();
        assert_eq!(log.events.len(), lines, "cut at {cut}");
        let at_end = cut == 0 || text.as_bytes()[cut - 1] == b'\n';
        let why = if at_end { Missing::EndOfRun } else { Missing::EndOfLine };
        assert_eq!(judge(&log, None), Completeness::Incomplete { why }, "cut at {cut}");
        let gone = Completeness::Tampered { line: lines as u64 + 1 };
        assert_eq!(judge(&log, Some(&done)), gone, "cut at {cut}");
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for (order, line) in [(vec![1, 2], 1), (vec![0, 2], 2), (vec![0, 1, 1], 3), (vec![1, 0, 2], 1)] {
        let text: String = order.iter().map(|index| lines[*index]).collect();
        assert_eq!(judge(&read(text.as_bytes()), Some(&done)), Completeness::Tampered { line }, "{order:?}");
    }
}

#[test]
fn every_changed_byte_is_noticed() {
    let (text, chain) = write(&[notice("a"), end()]);
    let done = result(2, chain);
    for position in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[position] ^= 2;
        let log = read(&bytes);
        assert!(matches!(judge(&log, Some(&done)), Completeness::Tampered { .. }), "byte {position}");
    }
}

#[test]
fn an_unknown_kind_is_kept_and_chained() {
    let odd = json!({"kind": "moon_phase_seen", "phase": 3});
    let (text, chain) = write(&[odd.clone(), end()]);
    let log = read(text.as_bytes());
    assert_eq!(log.events[0].event, Logged::Unread(odd));
    assert_eq!(judge(&log, Some(&result(2, chain))), Completeness::Complete);
    assert_eq!(judge(&read(text.replace('3', "4").as_bytes()), None), Completeness::Tampered { line: 1 });
}

#[test]
fn a_line_without_end_is_not_read_for_ever() {
    let log = read_log(&mut BufReader::new(io::repeat(b'a')), seed()).unwrap();
    assert_eq!((log.events.len(), log.end), (0, LogEnd::Wrong));
}

/// Reading arbitrary bytes ends, and accepts only lines that a writer would have written.
#[test]
fn fuzz_run_reader() {
    bolero::check!().with_type::<(Vec<u8>, Vec<u8>, u16)>().for_each(|(bytes, text, at)| {
        let log = read_log(&mut bytes.as_slice(), seed()).unwrap();
        assert!(log.events.is_empty(), "a chain cannot be guessed");
        assert_ne!(judge(&log, None), Completeness::Complete);
        // The same bytes in the middle of a valid log.
        let text = String::from_utf8_lossy(text);
        let (good, chain) = write(&[notice(&text), end()]);
        let at = usize::from(*at) % (good.len() + 1);
        let spoiled = [&good.as_bytes()[..at], bytes, &good.as_bytes()[at..]].concat();
        let log = read_log(&mut spoiled.as_slice(), seed()).unwrap();
        let complete = judge(&log, Some(&result(2, chain))) == Completeness::Complete;
        assert_eq!(complete, spoiled == good.as_bytes());
    });
}
