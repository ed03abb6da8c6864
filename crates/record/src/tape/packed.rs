//! Requests as ranges of a text that they share.
//!
//! A request repeats the conversation up to it, so that whole requests would take space with the square of their number.
//! Here every part that no recent request has is appended to one text, and a request is a list of ranges of it: usually
//! the conversation so far, and the parameters behind it. Ranges refer to the text and never to other requests, so any
//! request can be read alone.

use belljar_contract::Digest;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// A request: a line of `requests.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PackedRequest {
    pub digest: Digest,
    pub bytes: u64,
    /// Starts and lengths in the text, in the order in which they make the request.
    pub ranges: Vec<(u64, u64)>,
}

/// The maximum number of ranges of a request. One with more is stored whole again.
pub(super) const RANGES_MAX: usize = 1000;

/// How many requests are remembered, so that later ones are stored as what they add: that many conversations can take
/// turns.
const REMEMBERED: usize = 32;
/// Their size together in bytes.
const REMEMBERED_BYTES: usize = 64 << 20;

/// Parts of a request that may have moved are divided at this, the end of most elements of its lists.
const DIVIDES: &[u8] = b"},";
/// A shorter part is not looked for.
const SHORTEST: usize = 64;

/// Turns requests into ranges.
#[derive(Debug, Default)]
pub(super) struct Packer {
    /// The length of the text.
    length: u64,
    recent: VecDeque<Recent>,
    held: usize,
}

#[derive(Debug)]
struct Recent {
    body: Vec<u8>,
    ranges: Vec<(u64, u64)>,
}

/// A part of a request.
enum Part<'a> {
    /// A range of the request that it is compared with.
    Known(usize, usize),
    New(&'a [u8]),
}

impl Packer {
    /// The ranges of a request, and what has to be appended to the text for it.
    pub fn pack(&mut self, body: &[u8]) -> (Vec<(u64, u64)>, Vec<u8>) {
        let ends = |known: &Recent| {
            let front = alike(&known.body, body);
            (front, alike_at_end(&known.body[front..], &body[front..]))
        };
        let all = self.recent.iter().enumerate().map(|(at, known)| (at, ends(known)));
        let best = all.max_by_key(|(_, (front, back))| front + back);
        let (mut ranges, mut fresh, mut kept) = (Vec::new(), Vec::new(), 0);
        if let Some((at, (front, back))) = best {
            let known = &self.recent[at];
            for part in parts(&known.body, body, (front, back)) {
                match part {
                    Part::Known(start, length) => {
                        kept += length;
                        cut(&known.ranges, (start as u64, length as u64), &mut ranges);
                    }
                    Part::New(bytes) => {
                        push(&mut ranges, (self.length + fresh.len() as u64, bytes.len() as u64));
                        fresh.extend_from_slice(bytes);
                    }
                }
            }
        }
        // A request that has little in common with others begins a conversation.
        if ranges.len() > RANGES_MAX || fresh.len() > body.len() / 8 * 7 || best.is_none() {
            (ranges, fresh) = (Vec::new(), body.to_vec());
            push(&mut ranges, (self.length, body.len() as u64));
        }
        self.length += fresh.len() as u64;
        let superseded = best.filter(|(at, _)| kept >= self.recent[*at].body.len() / 8 * 7);
        self.remember(body, &ranges, superseded.map(|(at, _)| at));
        (ranges, fresh)
    }

    /// Remembers a request, in place of one that it continues.
    fn remember(&mut self, body: &[u8], ranges: &[(u64, u64)], superseded: Option<usize>) {
        let old = superseded.and_then(|at| self.recent.remove(at));
        self.held -= old.map_or(0, |old| old.body.len());
        self.held += body.len();
        self.recent.push_back(Recent { body: body.to_vec(), ranges: ranges.to_vec() });
        while self.recent.len() > REMEMBERED || (self.held > REMEMBERED_BYTES && self.recent.len() > 1) {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.held -= oldest.body.len();
        }
    }
}

/// The parts of a body that is compared with a known one, with which it shares this much at the front and at the back.
fn parts<'a>(known: &[u8], body: &'a [u8], (front, back): (usize, usize)) -> Vec<Part<'a>> {
    let (mut start, middle) = (front, &body[front..body.len() - back]);
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for piece in divided(&known[front..known.len() - back]) {
        if piece.len() >= SHORTEST {
            places.entry(piece).or_insert(start);
        }
        start += piece.len();
    }
    let found = divided(middle).map(|piece| match places.get(piece) {
        Some(at) => Part::Known(*at, piece.len()),
        None => Part::New(piece),
    });
    let end = Part::Known(known.len() - back, back);
    [Part::Known(0, front)].into_iter().chain(found).chain([end]).collect()
}

/// A text in pieces that end with [`DIVIDES`].
fn divided(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let end = text.windows(DIVIDES.len()).position(|found| found == DIVIDES);
        let (piece, rest) = text.split_at(end.map_or(text.len(), |at| at + DIVIDES.len()));
        text = rest;
        Some(piece)
    })
}

/// Bytes that are compared at once.
const BLOCK: usize = 4096;

/// The length of the beginning that two texts share.
fn alike(left: &[u8], right: &[u8]) -> usize {
    let blocks = left.chunks(BLOCK).zip(right.chunks(BLOCK)).take_while(|(left, right)| left == right);
    let sure = blocks.map(|(block, _)| block.len()).sum();
    let rest = left[sure..].iter().zip(&right[sure..]).take_while(|(left, right)| left == right);
    sure + rest.count()
}

/// The length of the end that two texts share.
fn alike_at_end(left: &[u8], right: &[u8]) -> usize {
    let blocks = left.rchunks(BLOCK).zip(right.rchunks(BLOCK)).take_while(|(left, right)| left == right);
    let sure: usize = blocks.map(|(block, _)| block.len()).sum();
    let ends = (&left[..left.len() - sure], &right[..right.len() - sure]);
    sure + ends.0.iter().rev().zip(ends.1.iter().rev()).take_while(|(left, right)| left == right).count()
}

/// Adds a range, as a part of the one before if it continues that.
fn push(ranges: &mut Vec<(u64, u64)>, (start, length): (u64, u64)) {
    match ranges.last_mut() {
        _ if length == 0 => {}
        Some((before, so_far)) if *before + *so_far == start => *so_far += length,
        Some(_) | None => ranges.push((start, length)),
    }
}

/// Adds the ranges of the text that make a range of a request.
pub(super) fn cut(of: &[(u64, u64)], (start, length): (u64, u64), out: &mut Vec<(u64, u64)>) {
    let (mut at, end) = (0, start.saturating_add(length));
    for (from, has) in of {
        let (first, last) = (start.max(at), end.min(at + has));
        if first < last {
            push(out, (from + (first - at), last - first));
        }
        at += has;
    }
}

/// The length of the beginning that two requests share, as far as their ranges show it.
pub(super) fn shared(left: &[(u64, u64)], right: &[(u64, u64)]) -> u64 {
    let (mut left, mut right) = (left.iter().copied(), right.iter().copied());
    let (mut one, mut two) = (left.next(), right.next());
    let mut total = 0;
    while let (Some((from, has)), Some((start, length))) = (one, two) {
        if from != start {
            break;
        }
        let both = has.min(length);
        total += both;
        one = if has > both { Some((from + both, has - both)) } else { left.next() };
        two = if length > both { Some((start + both, length - both)) } else { right.next() };
    }
    total
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
