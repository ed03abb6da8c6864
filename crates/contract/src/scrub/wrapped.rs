//! Base64 of a value with line breaks, at any position in the lines: as in MIME and PEM, and escaped in JSON. There
//! is a form for each position of the first break, each width and each kind of line end, far too many to list.

use zeroize::Zeroizing;

/// Line lengths of base64: MIME's and PEM's.
const WIDTHS: [usize; 2] = [76, 64];

/// Line ends. None of them begins with a base64 character or with another line end.
const ENDS: [&[u8]; 4] = [b"\n", b"\r\n", b"\\n", b"\\r\\n"];

/// The base64 of a value without its breaks. A break may follow any of its characters except the last.
pub(super) struct Wrapped(pub Zeroizing<Vec<u8>>);

/// How bytes compare with the beginning of a wrapped text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// They begin with the text and its breaks, this many bytes in total.
    Whole(usize),
    /// They end before the text does.
    Unfinished,
    /// They begin with something else.
    Other,
}

impl Wrapped {
    /// Compares bytes with the text, broken at least once.
    pub fn begin(&self, bytes: &[u8]) -> Begin {
        let text = self.0.as_slice();
        // Only a line end is not base64, so the first break is at the first difference.
        let first = text.iter().zip(bytes).take_while(|(one, other)| one == other).count();
        let behind = &bytes[first..];
        if first == 0 || first == text.len() || behind.is_empty() {
            return Begin::Other;
        }
        let Some(end) = ENDS.into_iter().find(|end| behind.starts_with(end)) else {
            let cut = ENDS.iter().any(|end| end.starts_with(behind));
            return if cut { Begin::Unfinished } else { Begin::Other };
        };
        let ways = WIDTHS.into_iter().filter(|width| first <= *width);
        let mut begin = Begin::Other;
        for way in ways.map(|width| rest(&text[first..], width, end, behind)) {
            match way {
                Begin::Whole(length) => return Begin::Whole(first + length),
                Begin::Unfinished => begin = Begin::Unfinished,
                Begin::Other => {}
            }
        }
        begin
    }

    /// More than the length of any form.
    pub fn longest(&self) -> usize {
        let lines = 2 + self.0.len() / WIDTHS.into_iter().min().unwrap_or(1);
        self.0.len() + lines * ENDS.map(<[u8]>::len).into_iter().max().unwrap_or(0)
    }

    /// Calls `take` for every three bytes that span a break, and whether a form can begin with them.
    pub fn over_breaks(&self, mut take: impl FnMut(&[u8; 3], bool)) {
        let text = self.0.as_slice();
        let mut around = Zeroizing::new(Vec::new());
        for first in 1..text.len() {
            let from = first.saturating_sub(2);
            for end in ENDS {
                around.clear();
                around.extend_from_slice(&text[from..first]);
                around.extend_from_slice(end);
                around.extend_from_slice(&text[first..text.len().min(first + 2)]);
                for (at, three) in around.windows(3).enumerate() {
                    if let Some(three) = three.first_chunk() {
                        take(three, from == 0 && at == 0);
                    }
                }
            }
        }
    }
}

/// Compares bytes with the rest of a text, of which each line follows a line end.
fn rest(text: &[u8], width: usize, end: &[u8], bytes: &[u8]) -> Begin {
    let mut at = 0;
    for part in text.chunks(width).flat_map(|line| [end, line]) {
        let there = &bytes[at..];
        if !there.starts_with(part) {
            return if part.starts_with(there) { Begin::Unfinished } else { Begin::Other };
        }
        at += part.len();
    }
    Begin::Whole(at)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// All forms as a list, for tests.
    pub fn listed(text: &str) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for width in WIDTHS {
            for first in 1..=width.min(text.len().saturating_sub(1)) {
                let (line, rest) = text.split_at(first);
                for end in ENDS {
                    let lines = rest.as_bytes().chunks(width).flat_map(|line| [end, line]);
                    found.push([line.as_bytes()].into_iter().chain(lines).collect::<Vec<_>>().concat());
                }
            }
        }
        found
    }

    #[test]
    fn as_if_every_form_were_listed() {
        for length in [1, 2, 3, 65, 77, 141] {
            let text: String = ('a'..='z').chain('0'..='9').cycle().take(length).collect();
            let wrapped = Wrapped(Zeroizing::new(text.clone().into_bytes()));
            let mut known = std::collections::BTreeMap::new();
            wrapped.over_breaks(|three, begins| *known.entry(*three).or_insert(false) |= begins);
            for form in listed(&text) {
                assert!(form.len() <= wrapped.longest());
                let followed = [&form[..], b"n\nan"].concat();
                assert_eq!(wrapped.begin(&form), Begin::Whole(form.len()));
                assert_eq!(wrapped.begin(&followed), Begin::Whole(form.len()));
                let first = form.iter().position(|byte| b"\n\r\\".contains(byte)).unwrap();
                for cut in 0..form.len() {
                    let expected = if cut > first { Begin::Unfinished } else { Begin::Other };
                    assert_eq!(wrapped.begin(&form[..cut]), expected, "{cut} of {form:?}");
                    let mut changed = form.clone();
                    changed[cut] = b'*';
                    assert_eq!(wrapped.begin(&changed), Begin::Other);
                }
                for (at, three) in form.windows(3).enumerate() {
                    let over = three.iter().any(|byte| b"\n\r\\".contains(byte));
                    let begins = known.get(three);
                    assert!(!over || begins.is_some_and(|begins| *begins || at > 0), "{three:?} of {form:?}");
                }
            }
        }
    }
}
