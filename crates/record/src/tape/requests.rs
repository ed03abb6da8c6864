//! The requests of a tape, read and verified.

use super::error::TapeFault;
use super::packed::{PackedRequest, RANGES_MAX, cut, shared};
use super::{REQUESTS, TEXT};
use belljar_contract::{Digest, DigestSoFar, TAPE_EXCHANGES, TAPE_REQUEST, TAPE_UNFOLDED};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// The maximum size of `requests.jsonl` in bytes: its ranges stay in memory.
pub(super) const REQUESTS_MAX: u64 = 16 << 20;

/// The maximum number of bytes that are hashed to verify the requests. Requests that continue each other are hashed from
/// where they differ, which is a hundredth of this for a thousand turns.
const HASHED_MAX: u64 = 4_000_000_000;

/// How many states of the hash are kept.
const POINTS: usize = 64;

/// The size of the blocks in which a text on disk is verified when it is read again.
const BLOCK: usize = 16 << 10;

/// The requests of a tape that are ranges of a text.
#[derive(Debug, Default)]
pub(super) struct Requests {
    text: SharedText,
    ranges: BTreeMap<Digest, Packed>,
}

#[derive(Debug)]
struct Packed {
    line: u64,
    bytes: u64,
    ranges: Vec<(u64, u64)>,
}

/// The text of the requests.
#[derive(Debug)]
pub(super) enum SharedText {
    Memory(Vec<u8>),
    /// Every block is verified when it is read.
    Disk {
        file: File,
        length: u64,
        blocks: Vec<Digest>,
    },
}

impl Default for SharedText {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

impl SharedText {
    /// Reads a text, and gives the digest of all of it.
    pub fn disk(mut file: File, length: u64) -> io::Result<(Self, Digest)> {
        let (mut whole, mut blocks) = (DigestSoFar::default(), Vec::new());
        let mut buffer = vec![0; BLOCK];
        for start in (0..length).step_by(BLOCK) {
            let block = &mut buffer[..block_length(start, length)];
            file.read_exact(block)?;
            whole.add(block);
            blocks.push(Digest::of(block));
        }
        Ok((Self::Disk { file, length, blocks }, whole.digest()))
    }

    fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk { length, .. } => *length,
        }
    }

    /// Gives a range, which must lie in the text, piece by piece.
    fn read(&self, (start, length): (u64, u64), take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let end = start + length;
        match self {
            Self::Memory(bytes) => {
                let range = index(start)?..index(end)?;
                take(bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
            }
            Self::Disk { file, length, blocks } => {
                let mut buffer = vec![0; BLOCK];
                for number in start / BLOCK as u64..end.div_ceil(BLOCK as u64) {
                    let first = number * BLOCK as u64;
                    let block = &mut buffer[..block_length(first, *length)];
                    file.read_exact_at(block, first)?;
                    if blocks.get(index(number)?) != Some(&Digest::of(block)) {
                        return Err(io::Error::other("a file of the tape was changed after it was checked"));
                    }
                    let from = index(start.saturating_sub(first))?;
                    let to = index(end - first)?.min(block.len());
                    take(&block[from..to]);
                }
            }
        }
        Ok(())
    }
}

fn block_length(start: u64, length: u64) -> usize {
    usize::try_from(length - start).unwrap_or(BLOCK).min(BLOCK)
}

fn index(at: u64) -> io::Result<usize> {
    usize::try_from(at).map_err(io::Error::other)
}

impl Requests {
    /// Reads the list of requests and verifies each against its digest.
    pub fn read(list: &[u8], text: SharedText) -> Result<Self, TapeFault> {
        let lines = lines(list, text.length())?;
        covers(&lines, text.length())?;
        verify(&lines, &text)?;
        let packed =
            |(line, PackedRequest { digest, bytes, ranges })| (digest, Packed { line, bytes, ranges });
        Ok(Self { text, ranges: (1..).zip(lines).map(packed).collect() })
    }

    /// The length of a request; `None` if it is not among them.
    pub fn bytes(&self, digest: Digest) -> Option<u64> {
        Some(self.ranges.get(&digest)?.bytes)
    }

    /// The line of the list that has a request.
    pub fn line(&self, digest: Digest) -> Option<u64> {
        Some(self.ranges.get(&digest)?.line)
    }

    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        self.ranges.keys().copied()
    }

    /// The length of the beginning that two requests share; 0 where it is not known.
    pub fn shared(&self, one: Digest, other: Digest) -> u64 {
        match (self.ranges.get(&one), self.ranges.get(&other)) {
            (Some(one), Some(other)) => shared(&one.ranges, &other.ranges),
            (Some(_) | None, _) => 0,
        }
    }

    /// A request from this byte on; `None` if it is not among them.
    pub fn from(&self, digest: Digest, from: u64) -> Option<io::Result<Vec<u8>>> {
        let Packed { line: _, bytes, ranges } = self.ranges.get(&digest)?;
        Some(self.bytes_of(ranges, from, bytes.saturating_sub(from)))
    }

    fn bytes_of(&self, ranges: &[(u64, u64)], from: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut wanted = Vec::new();
        cut(ranges, (from, length), &mut wanted);
        let mut out = Vec::with_capacity(index(length)?);
        for range in wanted {
            self.text.read(range, &mut |bytes| out.extend_from_slice(bytes))?;
        }
        Ok(out)
    }
}

/// Parses the list of requests.
fn lines(list: &[u8], length: u64) -> Result<Vec<PackedRequest>, TapeFault> {
    let mut out: Vec<PackedRequest> = Vec::new();
    let mut left = TAPE_UNFOLDED;
    for line in list.split_inclusive(|byte| *byte == b'\n') {
        let number = out.len() as u64 + 1;
        let wrong = |why: &str| TapeFault::Request { line: number, why: why.to_owned() };
        if number > TAPE_EXCHANGES {
            return Err(TapeFault::TooLarge { limit: format!("{TAPE_EXCHANGES} requests") });
        }
        let request: PackedRequest =
            serde_json::from_slice(line).map_err(|error| wrong(&error.to_string()))?;
        if request.bytes > TAPE_REQUEST {
            return Err(TapeFault::TooLarge { limit: format!("{TAPE_REQUEST} bytes in a request") });
        }
        left = left.checked_sub(request.bytes).ok_or_else(|| TapeFault::TooLarge {
            limit: format!("{TAPE_UNFOLDED} bytes in all requests together"),
        })?;
        if request.ranges.len() > RANGES_MAX {
            return Err(wrong("it has too many ranges"));
        }
        let inside = |(start, size): &(u64, u64)| {
            *size > 0 && start.checked_add(*size).is_some_and(|end| end <= length)
        };
        if !request.ranges.iter().all(inside) {
            return Err(wrong("a range is empty or lies outside of the text"));
        }
        if request.ranges.iter().map(|(_, size)| size).sum::<u64>() != request.bytes {
            return Err(wrong("the lengths of its ranges do not add up to its own"));
        }
        out.push(request);
    }
    let distinct: std::collections::BTreeSet<Digest> = out.iter().map(|request| request.digest).collect();
    if distinct.len() < out.len() {
        let line = out.len() as u64;
        return Err(TapeFault::Request { line, why: "a request is listed twice".to_owned() });
    }
    Ok(out)
}

/// A byte that belongs to no request could say anything.
fn covers(lines: &[PackedRequest], length: u64) -> Result<(), TapeFault> {
    let mut ranges: Vec<(u64, u64)> = lines.iter().flat_map(|line| &line.ranges).copied().collect();
    ranges.sort_unstable();
    let mut covered = 0;
    for (start, size) in ranges {
        if start > covered {
            break;
        }
        covered = covered.max(start + size);
    }
    if covered == length { Ok(()) } else { Err(TapeFault::Stray { part: format!("{TEXT}, byte {covered}") }) }
}

/// The state of a hash in the middle of a request.
struct Point<'a> {
    ranges: &'a [(u64, u64)],
    at: u64,
    so_far: DigestSoFar,
}

/// Verifies that the ranges of each request make what its digest says. A request is hashed from the last known point of
/// the beginning that it shares with an earlier one.
fn verify(lines: &[PackedRequest], text: &SharedText) -> Result<(), TapeFault> {
    let mut points: VecDeque<Point<'_>> = VecDeque::new();
    let mut left = HASHED_MAX;
    let mut before: &[(u64, u64)] = &[];
    for (number, PackedRequest { digest, bytes, ranges }) in (1..).zip(lines) {
        let usable = points.iter().filter(|point| shared(point.ranges, ranges) >= point.at);
        let best = usable.max_by_key(|point| point.at);
        let (mut at, mut so_far) =
            best.map_or((0, DigestSoFar::default()), |point| (point.at, point.so_far.clone()));
        left = left.checked_sub(bytes - at).ok_or_else(|| TapeFault::TooLarge {
            limit: format!("{HASHED_MAX} bytes to verify in requests that do not continue each other"),
        })?;
        let feed = |from: u64, to: u64, so_far: &mut DigestSoFar| {
            let mut wanted = Vec::new();
            cut(ranges, (from, to - from), &mut wanted);
            let fed =
                wanted.into_iter().try_for_each(|range| text.read(range, &mut |bytes| so_far.add(bytes)));
            fed.map_err(|cause| TapeFault::Read { part: TEXT.to_owned(), cause })
        };
        // A later request most likely differs behind where this one does, or before its parameters, the last range.
        let mut next = [shared(before, ranges), bytes - ranges.last().map_or(0, |(_, size)| *size)];
        next.sort_unstable();
        for next in next.into_iter().filter(|next| next < bytes) {
            if next > at {
                feed(at, next, &mut so_far)?;
                at = next;
                points.push_back(Point { ranges, at, so_far: so_far.clone() });
            }
        }
        feed(at, *bytes, &mut so_far)?;
        if so_far.digest() != *digest {
            return Err(TapeFault::Edited { part: format!("{REQUESTS}, line {number}") });
        }
        points.drain(..points.len().saturating_sub(POINTS));
        before = ranges;
    }
    Ok(())
}
