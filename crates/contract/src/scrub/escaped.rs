//! Texts without their JSON escapes. A writer may escape any character of a value in several ways, and a text may quote
//! another one, so that the forms of a value are too many to be listed: the text is read back instead, level by level.

use std::ops::Range;
use zeroize::Zeroizing;

/// JSON within JSON is not nested deeper than this.
const DEEPEST: usize = 6;

/// An escape: where what it stands for begins in the text without escapes, and its place in the text before.
#[derive(Debug, Clone, Copy)]
struct Escape {
    at: usize,
    length: usize,
    from: usize,
    until: usize,
}

/// A text without its escapes, and the places of its bytes in the text that it was made of.
#[derive(Debug)]
struct Level {
    text: Zeroizing<Vec<u8>>,
    escapes: Vec<Escape>,
}

/// The readings of a text that has JSON escapes: with one level of them removed, with two, and so on.
#[derive(Debug, Default)]
pub struct Unescaped(Vec<Level>);

impl Unescaped {
    /// Reads a text. One in which no character is escaped without need, and which quotes no escapes, has no readings: its
    /// values are searched for as JSON usually writes them.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let mut levels: Vec<Level> = Vec::new();
        while levels.len() < DEEPEST {
            let before = levels.last().map_or(text, |level| &level.text);
            let unusual = before.windows(2).any(|two| matches!(two, b"\\\\" | b"\\/" | b"\\u"));
            // Below the first level, what is usual was searched for in no text.
            if !(unusual || !levels.is_empty() && before.contains(&b'\\')) {
                break;
            }
            let level = without_escapes(before);
            if level.escapes.is_empty() {
                break;
            }
            levels.push(level);
        }
        Self(levels)
    }

    /// The readings, each with the places of its bytes in the text.
    pub fn readings(&self) -> impl Iterator<Item = Reading<'_>> {
        (1..=self.0.len()).filter_map(|depth| self.0.get(..depth)).map(Reading)
    }
}

/// One reading of a text.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a>(&'a [Level]);

impl<'a> Reading<'a> {
    #[must_use]
    pub fn text(self) -> &'a [u8] {
        self.0.last().map_or(&[], |level| &level.text)
    }

    /// The range of the text that these bytes of the reading come from, with whole escapes.
    #[must_use]
    pub fn origin(self, range: Range<usize>) -> Range<usize> {
        self.0.iter().rev().fold(range, |range, level| {
            let last = range.end.saturating_sub(1).max(range.start);
            level.place(range.start).start..level.place(last).end
        })
    }
}

impl Level {
    /// The bytes that a byte of this level comes from.
    fn place(&self, at: usize) -> Range<usize> {
        let after = self.escapes.partition_point(|escape| escape.at <= at);
        let Some(Escape { at: begin, length, from, until }) =
            after.checked_sub(1).and_then(|before| self.escapes.get(before)).copied()
        else {
            return at..at + 1;
        };
        if at < begin + length {
            return from..until;
        }
        let place = until + (at - begin - length);
        place..place + 1
    }
}

fn without_escapes(text: &[u8]) -> Level {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len()));
    let (mut escapes, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let rest = &text[at..];
        let plain = rest.iter().position(|byte| *byte == b'\\').unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        at += plain;
        let Some((character, length)) = escape(&text[at..]) else {
            // A backslash that escapes nothing, if any is left.
            out.extend_from_slice(text.get(at..=at).unwrap_or_default());
            at += 1;
            continue;
        };
        let begin = out.len();
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        escapes.push(Escape { at: begin, length: out.len() - begin, from: at, until: at + length });
        at += length;
    }
    Level { text: out, escapes }
}

/// The character that the escape at the beginning stands for, and the length of the escape.
fn escape(text: &[u8]) -> Option<(char, usize)> {
    let character = match text.get(1).filter(|_| text.first() == Some(&b'\\'))? {
        byte @ (b'"' | b'\\' | b'/') => char::from(*byte),
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => return by_number(text),
        _ => return None,
    };
    Some((character, 2))
}

fn by_number(text: &[u8]) -> Option<(char, usize)> {
    let first = unit(text)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    // Half of a character is one of its own only where the other half is missing.
    let low = unit(text.get(6..)?).filter(|low| (0xdc00..0xe000).contains(low))?;
    let high = first.checked_sub(0xd800).filter(|high| *high < 0x400)?;
    Some((char::from_u32(0x1_0000 + (high << 10) + (low - 0xdc00))?, 12))
}

fn unit(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(text: &str) -> Vec<String> {
        let read = Unescaped::of(text.as_bytes());
        read.readings().map(|one| String::from_utf8_lossy(one.text()).into_owned()).collect()
    }

    #[test]
    fn a_text_is_read_level_by_level() {
        for (text, wanted) in [
            ("plain", &[][..]),
            (r#"a \"b\" \n"#, &[]),
            (r"a\/b", &["a/b"]),
            (r"\u0061\u00e4\ud83d\ude00\ud83d", &["a\u{e4}\u{1f600}\\ud83d"]),
            (r"a\\\/b", &[r"a\/b", "a/b"]),
            (r"a\\/b\", &[r"a\/b\", r"a/b\"]),
            (r"\\u0041 \q \u12", &[r"\u0041 \q \u12", r"A \q \u12"]),
        ] {
            assert_eq!(readings(text), wanted, "{text}");
        }
    }

    #[test]
    fn every_byte_comes_from_whole_escapes() {
        let text = r"x\\u00e4y\\\/z";
        let read = Unescaped::of(text.as_bytes());
        let last = read.readings().last().unwrap();
        assert_eq!(last.text(), "x\u{e4}y/z".as_bytes());
        let origin = |range: Range<usize>| &text[last.origin(range)];
        assert_eq!((origin(0..1), origin(1..3), origin(2..4)), ("x", r"\\u00e4", r"\\u00e4y"));
        assert_eq!((origin(4..5), origin(5..6), origin(0..6)), (r"\\\/", "z", text));
    }

    #[test]
    fn fuzz_unescaped() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|text| {
            let backslashes =
                |byte: &u8| if byte.is_multiple_of(3) { b'\\' } else { b"u/\\n0d8"[usize::from(byte % 7)] };
            for text in [text.clone(), text.iter().map(backslashes).collect()] {
                let read = Unescaped::of(&text);
                for one in read.readings() {
                    let length = one.text().len();
                    assert!(length < text.len());
                    assert_eq!(one.origin(0..length), 0..text.len());
                    for at in 0..length {
                        assert!(one.origin(at..at + 1).end <= text.len());
                    }
                }
            }
        });
    }
}
