//! Where a part of a YAML string is written, given the bytes of its value.

use std::ops::Range;

/// The place in `text` of the bytes `wanted` of a string's `value`, which is written at `span`.
///
/// Both are walked together. A style that does more than escape, fold and indent makes the walk lose its way, and then
/// there is no answer: a wrong place would be worse.
pub(super) fn place(
    text: &str,
    span: &Range<usize>,
    value: &str,
    wanted: &Range<usize>,
) -> Option<Range<usize>> {
    if wanted.start > wanted.end || wanted.end > value.len() {
        return None;
    }
    let mut walk = Walk { source: text.get(..span.end)?, at: span.start, style: Style::Plain };
    walk.begin();
    let mut start = None;
    let mut end = None;
    for (offset, c) in value.char_indices().take_while(|(offset, _)| *offset < wanted.end) {
        let (from, to) = walk.step(c)?;
        if (offset..offset + c.len_utf8()).contains(&wanted.start) {
            start = Some(from);
        }
        end = Some(to);
    }
    let start = start.unwrap_or(walk.at);
    let end = end.filter(|_| !wanted.is_empty()).unwrap_or(start);
    Some(start..end.max(start))
}

/// How far a block is indented, when one begins at `at`: the line before ends in `|` or `>`.
fn block(text: &str, at: usize) -> Option<usize> {
    let before = text.get(..at)?;
    let indent = before.len() - before.trim_end_matches(' ').len();
    let header = before[..before.len() - indent].trim_end_matches(['\n', '\r', ' ']);
    let line = header.rsplit('\n').next().unwrap_or_default();
    let line = line.split_once(" #").map_or(line, |(line, _comment)| line);
    let mark = line.trim_end().trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-'));
    (header.len() + indent < before.len() && mark.ends_with(['|', '>'])).then_some(indent)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    /// `|` or `>`; what is indented further than this belongs to the value.
    Block {
        indent: usize,
    },
}

struct Walk<'a> {
    source: &'a str,
    at: usize,
    style: Style,
}

impl Walk<'_> {
    fn begin(&mut self) {
        let (style, skipped) = match (block(self.source, self.at), self.rest().as_bytes().first()) {
            (Some(indent), _) => (Style::Block { indent }, 0),
            (None, Some(b'\'')) => (Style::Single, 1),
            (None, Some(b'"')) => (Style::Double, 1),
            (None, _) => (Style::Plain, 0),
        };
        self.style = style;
        self.at += skipped;
    }

    fn rest(&self) -> &str {
        self.source.get(self.at..).unwrap_or_default()
    }

    /// White space at this place.
    fn blank(&self) -> &str {
        let rest = self.rest();
        &rest[..rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len()]
    }

    fn indentation(&mut self, most: usize) {
        self.at += self.rest().bytes().take(most).take_while(|b| *b == b' ').count();
    }

    /// The place of the next character of the value.
    fn step(&mut self, c: char) -> Option<(usize, usize)> {
        if self.style == Style::Double && self.rest().starts_with('\\') {
            return self.escaped(c);
        }
        if self.style == Style::Single && c == '\'' && self.rest().starts_with("''") {
            return Some(self.taken(2));
        }
        if c != '\n' && self.rest().starts_with(c) {
            return Some(self.taken(c.len_utf8()));
        }
        let from = self.at;
        let newline = self.blank().find('\n')? + 1;
        match self.style {
            Style::Block { indent } => {
                self.at += newline;
                self.indentation(indent);
            }
            Style::Plain | Style::Single | Style::Double => {
                // One break is a space; of several, each but the first is one of the value's.
                let more = self.blank()[newline..].matches('\n').count();
                self.at += if c == '\n' && more > 1 { newline } else { self.blank().len() };
            }
        }
        match c {
            ' ' | '\n' => Some((from, from + newline)),
            // A space in front of the break was taken for the break.
            _ => self.rest().starts_with(c).then(|| self.taken(c.len_utf8())),
        }
    }

    fn taken(&mut self, length: usize) -> (usize, usize) {
        let from = self.at;
        self.at += length;
        (from, self.at)
    }

    /// An escape of one letter, or of a code in hexadecimal digits.
    fn escaped(&mut self, c: char) -> Option<(usize, usize)> {
        let letter = self.rest()[1..].chars().next()?;
        let digits = match letter {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            // The end of a line that goes on, which writes nothing.
            '\n' | '\r' => {
                let rest = &self.rest()[1..];
                self.at += 1 + rest.len() - rest.trim_start().len();
                return self.step(c);
            }
            _ => return Some(self.taken(1 + letter.len_utf8())),
        };
        (self.rest().len() >= 2 + digits).then(|| self.taken(2 + digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_the_value_has_no_place() {
        assert_eq!(place("abc", &(0..3), "abc", &(1..9)), None);
        assert_eq!(place("*alias", &(0..6), "abc", &(0..1)), None);
        assert_eq!(place("abc", &(0..3), "abc", &(3..3)), Some(3..3));
        assert_eq!(place("abc", &(0..3), "abc", &(1..1)), Some(1..1));
        assert_eq!(place("abc", &(0..9), "abc", &(0..1)), None);
    }
}
