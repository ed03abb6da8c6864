//! A value's base64 that is broken over lines, wherever the value stands in them: as MIME and as PEM do it, and quoted in
//! JSON. There is a form for each place of the first break, each width and each end of a line, far too many to list.

use zeroize::Zeroizing;

/// How long lines of base64 are: MIME's, and PEM's.
const WIDTHS: [usize; 2] = [76, 64];

/// How lines end. None of them begins with a character of base64, nor with another one.
const ENDS: [&[u8]; 4] = [b"\n", b"\r\n", b"\\n", b"\\r\\n"];

/// The base64 of a value without its breaks; they stand behind any of its characters but the last.
pub(super) struct Wrapped(pub Zeroizing<Vec<u8>>);

/// How bytes begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// With the text and its breaks, this many bytes in all.
    Whole(usize),
    /// They end before it does.
    Unfinished,
    /// With something else.
    Other,
}

impl Wrapped {
    /// Whether bytes begin with the text, broken at least once.
    pub fn begin(&self, bytes: &[u8]) -> Begin {
        let text = self.0.as_slice();
        // What is no base64 ends the line, so the first break can be nowhere else.
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

    /// More than any form has.
    pub fn longest(&self) -> usize {
        let lines = 2 + self.0.len() / WIDTHS.into_iter().min().unwrap_or(1);
        self.0.len() + lines * ENDS.map(<[u8]>::len).into_iter().max().unwrap_or(0)
    }

    /// Every three bytes that stand over a break, with whether a form can begin with them.
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

/// Whether bytes begin with what is left of a text, each line of it behind the end of the one before.
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

    /// Every form, listed.
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
