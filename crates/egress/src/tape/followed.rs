//! Reads the requests of a tape as what each adds to an earlier one.
//!
//! A request repeats the conversation up to it. Where the tape shows that two requests begin with the same bytes, the
//! messages there were read before, and only the rest is.

use super::TapeBodies;
use belljar_contract::BodyRef;
use std::collections::VecDeque;
use std::io;

/// How many requests are remembered: that many conversations can take turns.
const REMEMBERED: usize = 32;

/// A request that goes on from its first unread message.
const OPENS: &[u8] = b"{\"messages\":[";

/// Requests that were read, each with something that the reader keeps of it.
#[derive(Debug)]
pub struct Followed<T> {
    recent: VecDeque<Read<T>>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self { recent: VecDeque::new() }
    }
}

#[derive(Debug)]
struct Read<T> {
    body: BodyRef,
    /// Where each of its messages ends.
    ends: Vec<u64>,
    of: T,
}

/// A request without its first messages, which an earlier request has as well.
#[derive(Debug)]
pub struct RequestRest {
    /// It has the form of a request.
    pub document: Vec<u8>,
    /// The number of messages that are left out.
    pub left_out: usize,
    ends: Vec<u64>,
    follows: Option<usize>,
}

impl<T> Followed<T> {
    /// Reads what a request adds to an earlier one that `may_follow` accepts; all of it if there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(
        &self,
        bodies: &dyn TapeBodies,
        body: BodyRef,
        may_follow: &dyn Fn(&T) -> bool,
    ) -> io::Result<RequestRest> {
        let usable = self.recent.iter().enumerate().filter(|(_, read)| may_follow(&read.of));
        let count = |read: &Read<T>| {
            let shared = bodies.shared(read.body, body);
            read.ends.partition_point(|end| *end <= shared)
        };
        let best = usable.map(|(at, read)| (count(read), at)).max().filter(|(count, _)| *count > 0);
        let Some((left_out, at)) = best else {
            let document = bodies.body(body)?.into_owned();
            let ends = message_ends(&document);
            return Ok(RequestRest { document, left_out: 0, ends, follows: None });
        };
        let mut ends = self.recent[at].ends[..left_out].to_vec();
        let end = ends[left_out - 1];
        let rest = bodies.body_from(body, end)?;
        // The next message, or the end of the list.
        let rest = rest.strip_prefix(b",").map_or((&rest[..], end), |rest| (rest, end + 1));
        let document = [OPENS, rest.0].concat();
        let further = message_ends(&document).into_iter();
        ends.extend(further.map(|at| at - OPENS.len() as u64 + rest.1));
        Ok(RequestRest { document, left_out, ends, follows: Some(at) })
    }

    /// What was kept of the request that this one follows.
    #[must_use]
    pub fn of(&self, rest: &RequestRest) -> Option<&T> {
        Some(&self.recent.get(rest.follows?)?.of)
    }

    /// Remembers a request that was read, so that others can follow it.
    pub fn keep(&mut self, body: BodyRef, rest: RequestRest, of: T) {
        let RequestRest { document: _, left_out, ends, follows } = rest;
        // One that is continued from its end is not continued again, but for a repetition of its last messages.
        if let Some(at) = follows.filter(|at| left_out + 2 >= self.recent[*at].ends.len()) {
            self.recent.remove(at);
        }
        self.recent.push_back(Read { body, ends, of });
        if self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
    }
}

/// Where each element of the list `messages` of a JSON document ends. None where the document does not have the form
/// that tapes give it.
fn message_ends(document: &[u8]) -> Vec<u64> {
    let (mut depth, mut string, mut escaped) = (0_usize, None, false);
    // The depth at which messages lie, once their list has begun.
    let mut list: Option<usize> = None;
    let mut ends = Vec::new();
    for (at, byte) in document.iter().enumerate() {
        if let Some(start) = string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    string = None;
                    let is_list = document[at + 1..].starts_with(b":[");
                    if depth == 1 && list.is_none() && is_list && &document[start..at] == b"messages" {
                        list = Some(depth + 1);
                    }
                }
                _ => {}
            }
            continue;
        }
        let filled = || document[at - 1] != b'[';
        match byte {
            b'"' => string = Some(at + 1),
            b'{' | b'[' => depth += 1,
            b',' if list == Some(depth) => ends.push(at as u64),
            b']' if list == Some(depth) => {
                if filled() {
                    ends.push(at as u64);
                }
                return ends;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::{Digest, canonical_json};
    use serde_json::{Value, json};
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    /// Bodies that share what they begin with.
    struct Memory(BTreeMap<Digest, Vec<u8>>);

    impl TapeBodies for Memory {
        fn body(&self, body: BodyRef) -> io::Result<Cow<'_, [u8]>> {
            Ok(Cow::Borrowed(&self.0[&body.digest]))
        }

        fn shared(&self, one: BodyRef, other: BodyRef) -> u64 {
            let (one, other) = (&self.0[&one.digest], &self.0[&other.digest]);
            one.iter().zip(other).take_while(|(one, other)| one == other).count() as u64
        }
    }

    /// Texts that a reader of JSON could stumble over.
    const TEXTS: [&str; 6] = ["go", "a \"quoted\" text", "],\"messages\":[{", "\\", "", "{\"x\": [1, 2]}"];

    #[test]
    fn fuzz_what_is_left_out_was_read_before() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|steps| {
            let mut messages: Vec<Value> = Vec::new();
            let (mut memory, mut followed) = (Memory(BTreeMap::new()), Followed::<Vec<Value>>::default());
            for (number, step) in steps.iter().take(40).enumerate() {
                let text = format!("{}{number}", TEXTS[usize::from(*step) % TEXTS.len()]);
                let at = usize::from(step >> 4).min(messages.len().saturating_sub(1));
                match step % 7 {
                    0..=3 => messages.push(json!({"role": "user", "content": text})),
                    4 if !messages.is_empty() => messages[at] = json!([text, {"messages": [1]}]),
                    5 => messages.truncate(at),
                    _ => messages.push(json!(text)),
                }
                let (first, last) = (TEXTS[usize::from(*step) % 2], TEXTS[usize::from(*step) % 3]);
                let request = json!({"a": first, "messages": messages, "model": last});
                let bytes = canonical_json(&request).into_bytes();
                let body = BodyRef::of(&bytes);
                memory.0.insert(body.digest, bytes);
                let rest = followed.read(&memory, body, &|_| true).unwrap();
                let read: Value = serde_json::from_slice(&rest.document).unwrap();
                let known = followed.of(&rest).map_or(&[][..], |known| &known[..rest.left_out]);
                let fresh = read["messages"].as_array().unwrap();
                assert_eq!([known, fresh].concat(), messages);
                assert_eq!(rest.ends.len(), messages.len());
                followed.keep(body, rest, messages.clone());
            }
        });
    }

    #[test]
    fn fuzz_any_document_has_ends_within_it() {
        bolero::check!().for_each(|input: &[u8]| {
            for input in [input.to_vec(), [OPENS, input].concat()] {
                let ends = message_ends(&input);
                assert!(ends.is_sorted() && ends.last().is_none_or(|end| *end < input.len() as u64));
            }
        });
    }

    #[test]
    fn a_conversation_is_read_once() {
        let (mut memory, mut followed) = (Memory(BTreeMap::new()), Followed::default());
        let (mut messages, mut read) = (Vec::new(), 0);
        for number in 0..60 {
            messages.push(json!({"role": "user", "content": format!("line {number} ").repeat(400)}));
            let bytes = canonical_json(&json!({"messages": messages, "model": "m"})).into_bytes();
            let body = BodyRef::of(&bytes);
            memory.0.insert(body.digest, bytes);
            let rest = followed.read(&memory, body, &|()| true).unwrap();
            read += rest.document.len();
            followed.keep(body, rest, ());
        }
        assert!(read < 60 * 4500, "{read}");
    }
}
