use super::super::requests::{Requests, SharedText};
use super::*;
use belljar_contract::canonical_json;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A log of packed requests in memory.
#[derive(Default)]
struct Log {
    packer: Packer,
    list: String,
    text: Vec<u8>,
    known: BTreeSet<Digest>,
}

impl Log {
    fn add(&mut self, body: &[u8]) {
        let digest = Digest::of(body);
        if self.known.insert(digest) {
            let (ranges, fresh) = self.packer.pack(body);
            self.text.extend(fresh);
            let line = PackedRequest { digest, bytes: body.len() as u64, ranges };
            self.list += &(serde_json::to_string(&line).unwrap() + "\n");
        }
    }

    fn of(bodies: &[Vec<u8>]) -> Self {
        let mut log = Self::default();
        bodies.iter().for_each(|body| log.add(body));
        log
    }

    fn read(&self) -> Requests {
        Requests::read(self.list.as_bytes(), SharedText::Memory(self.text.clone())).unwrap()
    }
}

fn message(number: usize, length: usize) -> Value {
    let content: String = format!("line {number} ").chars().cycle().take(length).collect();
    json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": format!("toolu_{number}"), "content": content}]})
}

fn request(messages: &[Value], tail: &str) -> Vec<u8> {
    canonical_json(&json!({"messages": messages, "model": "m", "system": [{"type": "text", "text": tail}],
        "tools": [{"name": "Bash", "definition": "x".repeat(300)}]}))
    .into_bytes()
}

/// Requests of several conversations, each of which a byte changes in one way.
fn conversations(steps: &[u8]) -> Vec<Vec<u8>> {
    let mut all = [(Vec::new(), "main".to_owned()), (Vec::new(), "other".to_owned())];
    let mut out = Vec::new();
    for (number, step) in steps.iter().take(60).enumerate() {
        let (messages, tail) = &mut all[usize::from(step & 1)];
        let at = usize::from(step >> 4).min(messages.len().saturating_sub(1));
        match (step >> 1) % 8 {
            0..=3 => messages.push(message(number, usize::from(*step) * 4)),
            4 if !messages.is_empty() => messages[at] = message(number, 300),
            5 if !messages.is_empty() => drop(messages.remove(at)),
            6 => messages.truncate(at),
            _ => tail.push_str(" and more"),
        }
        out.push(match step {
            255 => steps.to_vec(),
            _ => request(messages, tail),
        });
    }
    out
}

#[test]
fn fuzz_requests_come_back_as_they_were() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|steps| {
        let bodies = conversations(steps);
        let read = Log::of(&bodies).read();
        for (at, body) in bodies.iter().enumerate() {
            let digest = Digest::of(body);
            assert_eq!(read.from(digest, 0).unwrap().unwrap(), *body);
            let before = &bodies[at.saturating_sub(1)];
            let both = usize::try_from(read.shared(Digest::of(before), digest)).unwrap();
            assert_eq!(before[..both], body[..both], "the shared beginning is the same");
            assert_eq!(read.from(digest, both as u64).unwrap().unwrap(), body[both..]);
        }
    });
}

#[test]
fn fuzz_a_changed_list_or_text_never_gives_another_request() {
    bolero::check!().with_type::<(Vec<u8>, bool, usize, u8)>().for_each(|(steps, in_text, at, to)| {
        let Log { mut list, mut text, .. } = Log::of(&conversations(steps));
        let mut bytes = std::mem::take(&mut list).into_bytes();
        let changed = if *in_text { &mut text } else { &mut bytes };
        let length = changed.len().max(1);
        if let Some(byte) = changed.get_mut(at % length) {
            *byte = *to;
        }
        if let Ok(read) = Requests::read(&bytes, SharedText::Memory(text)) {
            for digest in read.digests() {
                assert_eq!(Digest::of(&read.from(digest, 0).unwrap().unwrap()), digest);
            }
        }
    });
}

#[test]
fn fuzz_any_list_is_read_or_refused() {
    bolero::check!().for_each(|input: &[u8]| {
        Requests::read(input, SharedText::Memory(input.to_vec())).ok();
    });
}

/// Bytes that `turns` turns of so many conversations take, which take turns themselves.
fn stored(turns: usize, conversations: usize) -> usize {
    let mut log = Log::default();
    let mut all = vec![Vec::new(); conversations];
    for turn in 0..turns {
        for (number, messages) in all.iter_mut().enumerate() {
            messages.push(json!({"role": "assistant", "content": format!("{number} calls {turn}")}));
            messages.push(message(turn * conversations + number, 4000));
            log.add(&request(messages, &format!("conversation {number}")));
        }
    }
    let read = log.read();
    assert_eq!(read.digests().count(), turns * conversations);
    log.list.len() + log.text.len()
}

#[test]
fn a_turn_takes_what_it_adds() {
    for (turns, conversations) in [(60, 1), (12, 10)] {
        let (half, whole) = (stored(turns, conversations), stored(2 * turns, conversations));
        let each = (whole - half) / (turns * conversations);
        assert!(each < 4000 + 1000, "{conversations} conversations: {each} bytes a turn");
        assert!(whole < half * 21 / 10, "{conversations} conversations: {half}, then {whole}");
    }
}

#[test]
fn a_part_that_moved_or_changed_in_the_middle_is_stored_alone() {
    let mut messages: Vec<Value> = (0..50).map(|number| message(number, 4000)).collect();
    let mut log = Log::of(&[request(&messages, "t")]);
    let before = log.text.len();
    messages[3] = json!({"role": "user", "content": "cleared"});
    messages.remove(20);
    messages.push(message(51, 4000));
    log.add(&request(&messages, "t"));
    assert!(log.text.len() - before < 10_000, "{}", log.text.len() - before);
    log.read();
}

#[track_caller]
fn refused(list: &[PackedRequest], text: &[u8]) -> String {
    let lines: String = list.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    let fault = Requests::read(lines.as_bytes(), SharedText::Memory(text.to_vec())).unwrap_err();
    fault.to_string()
}

#[test]
fn a_list_that_makes_more_than_a_tape_may_is_refused() {
    let text = vec![b'x'; 1 << 20];
    let line = |number: u64, ranges: Vec<(u64, u64)>| PackedRequest {
        digest: Digest::of(&number.to_le_bytes()),
        bytes: ranges.iter().map(|(_, size)| size).sum(),
        ranges,
    };
    let whole = (0, 1 << 20);
    let large: Vec<_> = (0..600).map(|number| line(number, vec![whole; 60])).collect();
    for (list, why) in [
        (vec![line(0, vec![whole; 65])], "it is too large: more than 67108864 bytes in a request"),
        (large, "it is too large: more than 32000000000 bytes in all requests together"),
        (
            vec![line(0, vec![(0, 1); 1001])],
            "line 1 of `requests.jsonl` is not a request: it has too many ranges",
        ),
        (
            vec![line(0, vec![(u64::MAX, 2)])],
            "line 1 of `requests.jsonl` is not a request: a range is empty or lies outside of the text",
        ),
        (vec![line(0, vec![(0, 7)])], "`requests.text, byte 7` does not belong to it"),
        (vec![line(0, vec![whole])], "`requests.jsonl, line 1` was edited: its digest does not match"),
    ] {
        assert_eq!(refused(&list, &text), why);
    }
    let right = PackedRequest { digest: Digest::of(b"xx"), bytes: 2, ranges: vec![(0, 2)] };
    let twice = [right.clone(), right];
    assert_eq!(
        refused(&twice, b"xx"),
        "line 2 of `requests.jsonl` is not a request: a request is listed twice"
    );
}
