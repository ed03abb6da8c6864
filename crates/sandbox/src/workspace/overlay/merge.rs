//! Three versions of a text made one: what either side changed since the version that both began with.
//!
//! Line by line, as git does it. Changes that touch are a conflict, because no line between them says that they belong apart.
//! Lines are bytes up to and with a line feed, so that no encoding is assumed and no byte is lost. Two of the versions may
//! come from a stranger: sizes and lines are bounded, and the comparison gives up on shortest answers before it takes long.

use std::collections::HashMap;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Bytes of a text that is merged, or kept to be merged.
pub(super) const LARGEST: u64 = 4 << 20;
/// Lines of a text that is merged.
const MOST_LINES: usize = 50_000;

/// The three versions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Versions<'text> {
    pub base: &'text [u8],
    /// The project's.
    pub ours: &'text [u8],
    /// The agent's.
    pub theirs: &'text [u8],
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Merge {
    /// One text; places where the sides contradict each other are in it twice, between markers.
    pub text: Vec<u8>,
    /// How many such places there are.
    pub conflicts: usize,
}

/// Why three versions cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotText {
    Binary,
    TooLarge,
}

/// Whether something is text to a merge.
pub(super) fn check_text(bytes: &[u8]) -> Result<(), NotText> {
    if bytes.len() as u64 > LARGEST {
        return Err(NotText::TooLarge);
    }
    if bytes.contains(&0) { Err(NotText::Binary) } else { Ok(()) }
}

/// Merges three versions.
pub(super) fn merge(versions: Versions<'_>) -> Result<Merge, NotText> {
    let Versions { base, ours, theirs } = versions;
    let mut known = HashMap::new();
    let base = Lines::of(base, &mut known)?;
    let ours = MergeSide::new(Lines::of(ours, &mut known)?, &base);
    let theirs = MergeSide::new(Lines::of(theirs, &mut known)?, &base);
    Ok(joined(&base, &ours, &theirs))
}

struct Lines<'text> {
    lines: Vec<&'text [u8]>,
    /// Equal lines have equal numbers.
    numbers: Vec<usize>,
}

impl<'text> Lines<'text> {
    fn of(text: &'text [u8], known: &mut HashMap<&'text [u8], usize>) -> Result<Self, NotText> {
        check_text(text)?;
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        if lines.len() > MOST_LINES {
            return Err(NotText::TooLarge);
        }
        let number = |line: &&'text [u8]| {
            let next = known.len();
            *known.entry(*line).or_insert(next)
        };
        let numbers = lines.iter().map(number).collect();
        Ok(Lines { lines, numbers })
    }

    fn text(&self, range: Range<usize>) -> Vec<u8> {
        self.lines[range].concat()
    }
}

/// Lines of the base that a side has in another way.
#[derive(Debug)]
struct Edit {
    base: Range<usize>,
    side: Range<usize>,
}

struct MergeSide<'text> {
    lines: Lines<'text>,
    edits: Vec<Edit>,
}

impl<'text> MergeSide<'text> {
    fn new(lines: Lines<'text>, base: &Lines<'_>) -> Self {
        let mut edits: Vec<Edit> = Vec::new();
        for op in capture_diff_slices(Algorithm::Myers, &base.numbers, &lines.numbers) {
            if matches!(op, DiffOp::Equal { .. }) {
                continue;
            }
            let edit = Edit { base: op.old_range(), side: op.new_range() };
            match edits.last_mut() {
                Some(last) if last.base.end == edit.base.start && last.side.end == edit.side.start => {
                    (last.base.end, last.side.end) = (edit.base.end, edit.side.end);
                }
                Some(_) | None => edits.push(edit),
            }
        }
        MergeSide { lines, edits }
    }

    /// What the side has where the base has `base`; its first and last edit there are given.
    fn range(&self, base: &Range<usize>, edits: &Range<usize>) -> Range<usize> {
        let (first, last) = (&self.edits[edits.start], &self.edits[edits.end - 1]);
        first.side.start - (first.base.start - base.start)..last.side.end + (base.end - last.base.end)
    }
}

/// Edits of both sides with no line of the base between them.
struct Cluster {
    base: Range<usize>,
    ours: Range<usize>,
    theirs: Range<usize>,
}

impl Cluster {
    /// The next one after those edits.
    fn next(
        ours: &MergeSide<'_>,
        theirs: &MergeSide<'_>,
        (mut our, mut their): (usize, usize),
    ) -> Option<Self> {
        let begins = |side: &MergeSide<'_>, at: usize| side.edits.get(at).map(|edit| edit.base.start);
        let start = match (begins(ours, our), begins(theirs, their)) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other)?,
        };
        let (mut end, first) = (start, (our, their));
        loop {
            let before = (our, their);
            for (side, at) in [(ours, &mut our), (theirs, &mut their)] {
                if let Some(edit) = side.edits.get(*at).filter(|edit| edit.base.start <= end) {
                    end = end.max(edit.base.end);
                    *at += 1;
                }
            }
            if (our, their) == before {
                return Some(Cluster { base: start..end, ours: first.0..our, theirs: first.1..their });
            }
        }
    }
}

fn joined(base: &Lines<'_>, ours: &MergeSide<'_>, theirs: &MergeSide<'_>) -> Merge {
    let mut out = Merge { text: Vec::new(), conflicts: 0 };
    let (mut at, mut done) = (0, (0, 0));
    while let Some(cluster) = Cluster::next(ours, theirs, done) {
        out.text.extend(base.text(at..cluster.base.start));
        (at, done) = (cluster.base.end, (cluster.ours.end, cluster.theirs.end));
        let text = |side: &MergeSide<'_>, edits: &Range<usize>| {
            (!edits.is_empty()).then(|| side.lines.text(side.range(&cluster.base, edits)))
        };
        match (text(ours, &cluster.ours), text(theirs, &cluster.theirs)) {
            (Some(ours), Some(theirs)) if ours == theirs => out.text.extend(ours),
            (Some(ours), Some(theirs)) => {
                out.conflicts += 1;
                mark(&mut out.text, &ours, &theirs);
            }
            (one, other) => out.text.extend(one.or(other).unwrap_or_default()),
        }
    }
    out.text.extend(base.text(at..base.lines.len()));
    out
}

/// Both texts between markers, each on a line of its own.
fn mark(out: &mut Vec<u8>, ours: &[u8], theirs: &[u8]) {
    let end: &[u8] = if ours.ends_with(b"\r\n") || theirs.ends_with(b"\r\n") { b"\r\n" } else { b"\n" };
    let parts = [(&b"<<<<<<< yours"[..], ours), (b"=======", theirs), (b">>>>>>> agent", b"")];
    for (marker, text) in parts {
        if out.last().is_some_and(|byte| *byte != b'\n') {
            out.extend(end);
        }
        out.extend(marker.iter().chain(end).chain(text));
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
