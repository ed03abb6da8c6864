//! Removes known secrets from texts: the one search for data that comes from outside and for data that is written to
//! disk.
//!
//! A value is searched for as it is and in common encodings: base64 at any alignment, percent-encoding, JSON escapes,
//! hexadecimal. Whole texts are also searched for hex dumps and without their JSON escapes; streams are not, because a
//! stream cannot wait for the end of a dump or of a text. A value that was transformed in another way is not found. Redaction is a second line of defence: a
//! secret is kept out of the sandbox by never sending it there.

mod dumps;
mod escaped;
mod forms;
mod wrapped;

use crate::Secret;
use dumps::Dumps;
pub use escaped::{Reading, Unescaped};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use wrapped::{Begin, Wrapped};
use zeroize::Zeroizing;

/// Shorter values occur in too many unrelated texts.
pub const SCRUBBED_MIN: usize = 5;

/// Longer values would make the search too large.
pub const SCRUBBED_MAX: usize = 64 << 10;

/// How every mark begins that stands in the place of a value: `[redacted:NAME]`.
const MARK: &str = "[redacted:";

/// Stands for a name of which nothing can be kept.
pub const REDACTED_NAME: &str = "[redacted name]";

/// Whether a text holds a mark in the place of a value. What a program prints may look like one.
#[must_use]
pub fn holds_redaction(text: &[u8]) -> bool {
    let holds = |mark: &str| text.windows(mark.len()).any(|at| at == mark.as_bytes());
    holds(MARK) || holds(REDACTED_NAME)
}

/// Why a secret is not searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unsearchable {
    /// It has fewer than [`SCRUBBED_MIN`] bytes.
    Short,
    /// It has more than [`SCRUBBED_MAX`] bytes.
    Long,
    /// It is a word or a number that unrelated texts contain.
    Common,
    /// The file that contains it is too large to be searched, or cannot be parsed.
    Unread,
}

impl Unsearchable {
    /// Why a value of this length is not searched for.
    #[must_use]
    pub const fn by_length(length: usize) -> Option<Self> {
        match length {
            ..SCRUBBED_MIN => Some(Unsearchable::Short),
            SCRUBBED_MIN..=SCRUBBED_MAX => None,
            _ => Some(Unsearchable::Long),
        }
    }

    /// The reason, for messages.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Unsearchable::Short => format!("it has fewer than {SCRUBBED_MIN} characters"),
            Unsearchable::Long => format!("it has more than {SCRUBBED_MAX} bytes"),
            Unsearchable::Common => "it is a short word or number that many texts contain".to_owned(),
            Unsearchable::Unread => "belljar did not search it for values".to_owned(),
        }
    }
}

/// A secret that is not searched for, for a warning to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsearched {
    pub name: String,
    pub why: Unsearchable,
}

impl fmt::Display for Unsearched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not redacted: {}", self.name, self.why.describe())
    }
}

/// Replaces secrets by `[redacted:NAME]`.
pub struct Scrubber {
    /// The searched forms, sorted.
    patterns: Vec<Zeroizing<Vec<u8>>>,
    /// For each pattern the longest other pattern that is a prefix of it.
    within: Vec<Option<usize>>,
    /// The replacement for each pattern, in the same order.
    marks: Vec<Arc<str>>,
    /// Forms that may be broken over lines, with their replacements.
    wrapped: Vec<(Wrapped, Arc<str>)>,
    dumps: Dumps,
    longest: usize,
    /// A bit for each three-byte prefix of a pattern. Few places of a text have one, and only those are examined
    /// further.
    beginnings: Zeroizing<Vec<u64>>,
    /// A bit for each three bytes that occur anywhere in the first `shortest` bytes of a pattern.
    inner: Zeroizing<Vec<u64>>,
    /// The length of the shortest pattern.
    shortest: usize,
}

/// How bytes compare with the beginning of a value whose end may be ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeginsWith {
    /// They begin with the value, which ends here.
    Whole(usize),
    /// They begin with the value, which ends here, and more bytes may extend it.
    Growing(usize),
    /// They end before the value does.
    Unfinished,
    /// They begin with something else.
    Other,
}

/// A pattern that was found.
struct Found<'s> {
    mark: &'s str,
    start: usize,
    end: usize,
}

/// For each of the sorted patterns the longest other pattern that is a prefix of it. That pattern sorts before it,
/// and is the previous pattern or one of that pattern's prefixes.
fn within(patterns: &[Zeroizing<Vec<u8>>]) -> Vec<Option<usize>> {
    let mut out: Vec<Option<usize>> = Vec::with_capacity(patterns.len());
    for (at, pattern) in patterns.iter().enumerate() {
        let mut candidate = at.checked_sub(1);
        while let Some(shorter) = candidate.filter(|shorter| !pattern.starts_with(&patterns[*shorter])) {
            candidate = out[shorter];
        }
        out.push(candidate);
    }
    out
}

/// No form of a value is shorter than this.
const BEGINNING: usize = 3;
const BEGINNINGS: usize = 1 << 10;

/// The bit for three bytes. Other bytes may share it.
fn beginning(bytes: [u8; BEGINNING]) -> (usize, u64) {
    let [first, second, third] = bytes.map(u32::from);
    let mixed = (first << 16 | second << 8 | third).wrapping_mul(0x9e37_79b1) >> 16;
    (mixed as usize / 64 % BEGINNINGS, 1 << (mixed % 64))
}

fn has(bits: &[u64], bytes: [u8; BEGINNING]) -> bool {
    let (place, bit) = beginning(bytes);
    bits.get(place).is_some_and(|bits| bits & bit != 0)
}

impl Scrubber {
    /// A scrubber without secrets; it changes nothing.
    #[must_use]
    pub fn nothing() -> Self {
        let bits = || Zeroizing::new(Vec::new());
        Self {
            patterns: Vec::new(),
            within: Vec::new(),
            marks: Vec::new(),
            wrapped: Vec::new(),
            dumps: Dumps::nothing(),
            longest: 0,
            beginnings: bits(),
            inner: bits(),
            shortest: BEGINNING,
        }
    }

    /// A scrubber for these secrets, and the ones that it does not search for. Empty values are ignored.
    #[must_use]
    pub fn new<'s>(secrets: impl IntoIterator<Item = (&'s str, &'s Secret)>) -> (Self, Vec<Unsearched>) {
        let mut found: Vec<(Zeroizing<Vec<u8>>, Arc<str>)> = Vec::new();
        let mut wrapped: Vec<(Wrapped, Arc<str>)> = Vec::new();
        let mut dumped: Vec<(&[u8], Arc<str>)> = Vec::new();
        let mut unsearched = Vec::new();
        for (name, secret) in secrets {
            if secret.is_empty() {
                continue;
            }
            if let Some(why) = Unsearchable::by_length(secret.expose().len()) {
                unsearched.push(Unsearched { name: name.to_owned(), why });
                continue;
            }
            let mark: Arc<str> = format!("{MARK}{name}]").into();
            found.extend(forms::forms(secret.expose()).into_iter().map(|form| (form, Arc::clone(&mark))));
            dumped.push((secret.expose(), Arc::clone(&mark)));
            wrapped.extend(forms::wrapped(secret.expose()).into_iter().map(|text| (text, Arc::clone(&mark))));
        }
        found.sort_by(|left, right| (&*left.0, &left.1).cmp(&(&*right.0, &right.1)));
        // A value with two names is replaced by the first name.
        found.dedup_by(|later, first| later.0 == first.0);
        let (patterns, marks): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let lengths = patterns.iter().map(|pattern| pattern.len());
        let longest = lengths.chain(wrapped.iter().map(|(text, _)| text.longest())).max().unwrap_or(0);
        // A wrapped text is also a pattern without the line breaks.
        let shortest = patterns.iter().map(|pattern| pattern.len()).min().unwrap_or(0).max(BEGINNING);
        let mut beginnings = Zeroizing::new(vec![0; BEGINNINGS]);
        let mut inner = Zeroizing::new(vec![0; BEGINNINGS]);
        let mut note = |three: &[u8; BEGINNING], begins: bool| {
            let (place, bit) = beginning(*three);
            inner[place] |= bit;
            if begins {
                beginnings[place] |= bit;
            }
        };
        for pattern in &patterns {
            for (at, three) in pattern.windows(BEGINNING).take(shortest - BEGINNING + 1).enumerate() {
                three.first_chunk().into_iter().for_each(|three| note(three, at == 0));
            }
        }
        wrapped.iter().for_each(|(text, _)| text.over_breaks(&mut note));
        let within = within(&patterns);
        let dumps = Dumps::new(dumped);
        (Self { patterns, within, marks, wrapped, dumps, longest, beginnings, inner, shortest }, unsearched)
    }

    /// The forms of a value that every search covers, except those broken over lines. A form that begins with another
    /// form is left out, because any text that contains it contains the other.
    #[must_use]
    pub fn forms(secret: &Secret) -> Vec<Zeroizing<Vec<u8>>> {
        // The forms are sorted, so a prefix comes before the forms that it begins.
        let mut kept: Vec<Zeroizing<Vec<u8>>> = Vec::new();
        for form in forms::forms(secret.expose()) {
            if kept.last().is_none_or(|last| !form.starts_with(last)) {
                kept.push(form);
            }
        }
        kept
    }

    /// The text with all secrets replaced.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        match self.scrub_bytes(text.as_bytes()) {
            Some(scrubbed) => String::from_utf8_lossy(&scrubbed).into_owned(),
            None => text.to_owned(),
        }
    }

    /// The bytes with all secrets replaced; `None` if there are none.
    #[must_use]
    pub fn scrub_bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let dumps = self.dumps.find(bytes);
        if dumps.is_empty() {
            return self.scrub_plain(bytes);
        }
        let plain = |piece: &[u8]| self.scrub_plain(piece).unwrap_or_else(|| piece.to_vec());
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for (range, mark) in dumps {
            out.append(&mut plain(&bytes[at..range.start]));
            out.extend_from_slice(mark.as_bytes());
            at = range.end;
        }
        out.append(&mut plain(&bytes[at..]));
        Some(out)
    }

    /// The same without a search for hex dumps.
    fn scrub_plain(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut found: Vec<Found<'_>> = self.all(bytes).collect();
        let as_written: BTreeSet<(usize, &str)> = found.iter().map(|found| (found.end, found.mark)).collect();
        for reading in Unescaped::of(bytes).readings() {
            let read = self.all(reading.text()).map(|Found { mark, start, end }| {
                let Range { start, end } = reading.origin(start..end);
                Found { mark, start, end }
            });
            // A backslash before a value that stands there as it is belongs to something else.
            found.extend(read.filter(|found| !as_written.contains(&(found.end, found.mark))));
        }
        if found.is_empty() {
            return None;
        }
        found.sort_by_key(|found| (found.start, Reverse(found.end)));
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for Found { mark, start, end } in found {
            // A value that begins in another one is replaced with it.
            if start >= at {
                out.extend_from_slice(&bytes[at..start]);
                out.extend_from_slice(mark.as_bytes());
            }
            at = at.max(end);
        }
        out.extend_from_slice(&bytes[at..]);
        Some(out)
    }

    /// Every pattern in a text; of those that overlap, the first.
    fn all<'s, 'b>(&'s self, bytes: &'b [u8]) -> impl Iterator<Item = Found<'s>> + use<'s, 'b> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let found = self.next(bytes, at, bytes.len())?;
            at = found.end;
            Some(found)
        })
    }

    /// A stream that redacts data that arrives in pieces.
    #[must_use]
    pub fn stream(self: &Arc<Self>) -> ScrubStream {
        ScrubStream { scrubber: Arc::clone(self), held: Zeroizing::new(Vec::new()) }
    }

    /// The same for data that need not be passed on immediately.
    #[must_use]
    pub fn patient_stream(self: &Arc<Self>) -> PatientScrubStream {
        PatientScrubStream { plain: self.stream(), held: Zeroizing::new(Vec::new()) }
    }

    /// The first pattern that begins in `from..until`; the longest one if several begin there.
    fn next(&self, bytes: &[u8], from: usize, until: usize) -> Option<Found<'_>> {
        if self.patterns.is_empty() {
            return None;
        }
        let stride = self.shortest - BEGINNING + 1;
        // A pattern that begins later does not fit.
        let until = until.min((bytes.len() + 1).saturating_sub(self.shortest));
        let mut from = from;
        while from < until {
            // Every pattern that begins between here and `ahead` has these three bytes in its first `shortest` bytes.
            // If no pattern has them there, all of these positions are skipped at once.
            let ahead = from + stride - 1;
            let three = bytes.get(ahead..).and_then(|rest| rest.first_chunk());
            let to = ahead + 1;
            if three.is_none_or(|three| has(&self.inner, *three)) {
                let found = (from..to.min(until)).find_map(|at| self.longest_at(bytes, at));
                if found.is_some() {
                    return found;
                }
            }
            from = to;
        }
        None
    }

    /// The longest pattern at this position.
    fn longest_at(&self, bytes: &[u8], start: usize) -> Option<Found<'_>> {
        let text = &bytes[start..];
        if !self.may_begin(text) {
            return None;
        }
        let found = |mark, length| Found { mark, start, end: start + length };
        let wrapped = self.wrapped.iter().filter_map(|(wrapped, mark)| match wrapped.begin(text) {
            Begin::Whole(length) => Some(found(mark, length)),
            Begin::Unfinished | Begin::Other => None,
        });
        // If any pattern is a prefix of the text, it is also a prefix of the last pattern that is not larger than the
        // text.
        let mut last = self.patterns.partition_point(|pattern| pattern.as_slice() <= text).checked_sub(1);
        while let Some(pattern) = last.filter(|pattern| !text.starts_with(&self.patterns[*pattern])) {
            last = self.within[pattern];
        }
        let plain = last.map(|pattern| found(&self.marks[pattern], self.patterns[pattern].len()));
        // A value with two names is replaced by the first name.
        plain.into_iter().chain(wrapped).max_by_key(|found| (found.end, Reverse(found.mark)))
    }

    fn may_begin(&self, bytes: &[u8]) -> bool {
        let Some(first) = bytes.first_chunk() else { return true };
        has(&self.beginnings, *first)
    }

    /// The position, from `from` on, where the text may be the beginning of a pattern that later bytes complete.
    fn unfinished(&self, bytes: &[u8], from: usize) -> usize {
        let earliest = bytes.len().saturating_sub(self.longest.saturating_sub(1)).max(from);
        (earliest..bytes.len()).find(|at| self.begins_a_pattern(&bytes[*at..])).unwrap_or(bytes.len())
    }

    fn begins_a_pattern(&self, bytes: &[u8]) -> bool {
        if !self.may_begin(bytes) {
            return false;
        }
        // The first larger pattern; every pattern that continues these bytes is larger and adjacent to it.
        let next = self.patterns.partition_point(|pattern| pattern.as_slice() <= bytes);
        self.patterns.get(next).is_some_and(|pattern| pattern.starts_with(bytes))
            || self.wrapped.iter().any(|(wrapped, _)| wrapped.begin(bytes) == Begin::Unfinished)
    }
}

impl fmt::Debug for Scrubber {
    /// Does not even reveal the number of secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Scrubber(…)")
    }
}

/// Redacts a stream without latency requirements, including hex dumps. It may hold back a few lines.
#[derive(Debug)]
pub struct PatientScrubStream {
    plain: ScrubStream,
    held: Zeroizing<Vec<u8>>,
}

impl PatientScrubStream {
    /// Adds a piece and returns the bytes that can be passed on.
    #[must_use]
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let plain = self.plain.push(piece);
        self.held.extend_from_slice(&plain);
        let scrubber = &self.plain.scrubber;
        let leave = scrubber.dumps.unfinished(&self.held);
        let left = Zeroizing::new(self.held.split_off(leave));
        let gone = std::mem::replace(&mut self.held, left);
        scrubber.scrub_bytes(&gone).unwrap_or_else(|| gone.to_vec())
    }

    /// The remaining bytes at the end of the stream.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        let last = self.plain.finish();
        self.held.extend_from_slice(&last);
        let held = std::mem::take(&mut self.held);
        self.plain.scrubber.scrub_bytes(&held).unwrap_or_else(|| held.to_vec())
    }
}

/// Redacts a stream. It holds back only bytes that may be the beginning of a secret.
#[derive(Debug)]
pub struct ScrubStream {
    scrubber: Arc<Scrubber>,
    held: Zeroizing<Vec<u8>>,
}

impl ScrubStream {
    /// Whether a piece can be passed on unchanged: nothing is held back, and the piece contains no secret or
    /// beginning of one. Such a piece need not be given to [`ScrubStream::push`].
    #[must_use]
    pub fn lets_pass(&self, piece: &[u8]) -> bool {
        self.held.is_empty()
            && self.scrubber.next(piece, 0, piece.len()).is_none()
            && self.scrubber.unfinished(piece, 0) == piece.len()
    }

    /// Adds a piece and returns the bytes that can be passed on.
    #[must_use]
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        if self.scrubber.patterns.is_empty() {
            return piece.to_vec();
        }
        let mut bytes = std::mem::take(&mut *self.held);
        bytes.extend_from_slice(piece);
        let bytes = Zeroizing::new(bytes);
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        let mut hold = self.scrubber.unfinished(&bytes, 0);
        // A pattern that begins at `hold` may be completed by later bytes and be longer.
        while let Some(found) = self.scrubber.next(&bytes, at, hold) {
            out.extend_from_slice(&bytes[at..found.start]);
            out.extend_from_slice(found.mark.as_bytes());
            at = found.end;
            if at > hold {
                hold = self.scrubber.unfinished(&bytes, at);
            }
        }
        out.extend_from_slice(&bytes[at..hold]);
        self.held.extend_from_slice(&bytes[hold..]);
        out
    }

    /// The remaining bytes at the end of the stream.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        let held = Zeroizing::new(std::mem::take(&mut *self.held));
        self.scrubber.scrub_plain(&held).unwrap_or_else(|| held.to_vec())
    }

    /// Whether bytes are held back.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
