//! A value in hexadecimal digits with separators: spaces, colons, line breaks, and the offsets and columns of hex
//! dumps, as `xxd`, `hexdump`, `od -x` and `openssl` print them. There are far too many such forms to list, so the
//! search follows the digits from the first byte of the value on.

use super::{BeginsWith, SCRUBBED_MIN};
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Longer values are not searched for in dumps.
const DUMPED_UP_TO: usize = 2048;

/// The maximum number of characters between two bytes on one line.
const BETWEEN: usize = 4;

/// The maximum length of a line after its bytes: the column of characters.
const COLUMN: usize = 160;

/// The bytes of a value in the order in which a dump prints them.
struct Dumped {
    bytes: Zeroizing<Vec<u8>>,
    mark: Arc<str>,
}

/// The values that are searched for in dumps.
pub(super) struct Dumps {
    values: Vec<Dumped>,
    /// For each first byte, the indices of the values that begin with it; empty if there are no values.
    by_first: Vec<Vec<usize>>,
    /// More than the length of any value in a dump.
    longest: usize,
}

/// Where the search continues after a byte.
enum Next {
    At { place: usize, way: Way },
    Cut,
    Nowhere,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Adjacent,
    Spaced,
    NextLine,
}

impl Dumps {
    pub fn nothing() -> Self {
        Self { values: Vec::new(), by_first: Vec::new(), longest: 0 }
    }

    pub fn new<'s>(secrets: impl IntoIterator<Item = (&'s [u8], Arc<str>)>) -> Self {
        let mut values = Vec::new();
        for (secret, mark) in secrets.into_iter().filter(|(secret, _)| secret.len() <= DUMPED_UP_TO) {
            let orders = [secret.to_vec(), swapped(secret), swapped(secret.get(1..).unwrap_or_default())];
            let orders = orders.into_iter().filter(|bytes| bytes.len() >= SCRUBBED_MIN);
            values
                .extend(orders.map(|bytes| Dumped { bytes: Zeroizing::new(bytes), mark: Arc::clone(&mark) }));
        }
        let mut by_first = if values.is_empty() { Vec::new() } else { vec![Vec::new(); 256] };
        for (at, value) in values.iter().enumerate() {
            if let Some(list) = value.bytes.first().and_then(|first| by_first.get_mut(usize::from(*first))) {
                list.push(at);
            }
        }
        let lines = |length: usize| length * (2 + BETWEEN) + (2 + length / 8) * COLUMN;
        let longest = values.iter().map(|value| lines(value.bytes.len())).max().unwrap_or(0);
        Self { values, by_first, longest }
    }

    /// Ranges that show a value, in order and without overlap.
    pub fn find(&self, bytes: &[u8]) -> Vec<(Range<usize>, &str)> {
        let mut out = Vec::new();
        let mut from = 0;
        while let Some((range, mark)) = self.next(bytes, from) {
            from = range.end;
            out.push((range, mark));
        }
        out
    }

    fn next(&self, bytes: &[u8], from: usize) -> Option<(Range<usize>, &str)> {
        (from..bytes.len()).find_map(|at| {
            let whole = |value: &&Dumped| match follow(&value.bytes, bytes, at) {
                BeginsWith::Whole(end) | BeginsWith::Growing(end) => Some(end),
                BeginsWith::Unfinished | BeginsWith::Other => None,
            };
            let found = self.beginning(bytes, at).filter_map(|value| Some((whole(&value)?, &value.mark)));
            found.max_by_key(|(end, _)| *end).map(|(end, mark)| (at..end, &**mark))
        })
    }

    /// The position near the end where a value begins that more bytes may complete.
    pub fn unfinished(&self, bytes: &[u8]) -> usize {
        let earliest = bytes.len().saturating_sub(self.longest);
        let cut = |at: &usize| {
            self.beginning(bytes, *at).any(|value| match follow(&value.bytes, bytes, *at) {
                BeginsWith::Unfinished | BeginsWith::Growing(_) => true,
                BeginsWith::Whole(_) | BeginsWith::Other => false,
            })
        };
        (earliest..bytes.len()).find(cut).unwrap_or(bytes.len())
    }

    fn beginning(&self, bytes: &[u8], at: usize) -> impl Iterator<Item = &Dumped> {
        let pair = if self.by_first.is_empty() { None } else { pair(bytes, at) };
        let list = pair.and_then(|first| self.by_first.get(usize::from(first)));
        list.into_iter().flatten().filter_map(|value| self.values.get(*value))
    }
}

/// Swaps each pair of bytes, as dumps of 16-bit words print them; an odd last byte is left out.
fn swapped(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks_exact(2).flat_map(|two| [two[1], two[0]]).collect()
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The byte for two hexadecimal digits.
fn pair(bytes: &[u8], at: usize) -> Option<u8> {
    let high = digit(*bytes.get(at)?)?;
    Some(high << 4 | digit(*bytes.get(at + 1)?)?)
}

/// Follows a value from this position. Digits without separators do not count: the plain search finds them.
fn follow(value: &[u8], bytes: &[u8], start: usize) -> BeginsWith {
    let (mut at, mut spaced, mut lines) = (start + 2, false, false);
    for wanted in value.iter().skip(1) {
        match next(bytes, at, *wanted) {
            Next::At { place, way } => {
                at = place + 2;
                spaced |= way == Way::Spaced;
                lines |= way == Way::NextLine;
            }
            Next::Cut => return BeginsWith::Unfinished,
            Next::Nowhere => return BeginsWith::Other,
        }
    }
    if !spaced && !lines {
        return BeginsWith::Other;
    }
    // The column of characters shows the value once more, or the last part of it.
    let rest = bytes.get(at..).unwrap_or_default();
    if !lines && !rest.starts_with(b"  ") && !rest.starts_with(b" |") {
        let may_grow = b"  ".starts_with(rest) || b" |".starts_with(rest);
        return if may_grow { BeginsWith::Growing(at) } else { BeginsWith::Whole(at) };
    }
    match line_end(bytes, at) {
        Some((end, _)) => BeginsWith::Whole(end),
        None if bytes.len() - at < COLUMN => BeginsWith::Growing(bytes.len()),
        None => BeginsWith::Whole(at),
    }
}

/// Where the line ends and the next one begins; also for line breaks escaped in JSON.
fn line_end(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    const ENDS: [&[u8]; 4] = [b"\r\n", b"\\r\\n", b"\n", b"\\n"];
    let until = bytes.len().min(from + COLUMN);
    (from..until).find_map(|at| {
        let end = ENDS.into_iter().find(|end| bytes[at..].starts_with(end))?;
        Some((at, at + end.len()))
    })
}

fn next(bytes: &[u8], at: usize, wanted: u8) -> Next {
    if pair(bytes, at) == Some(wanted) {
        return Next::At { place: at, way: Way::Adjacent };
    }
    let mut place = skip(bytes, at, BETWEEN, |byte| b" \t:,;-_.".contains(&byte));
    for prefix in [&b"0x"[..], b"\\\\x", b"\\x"] {
        if bytes[place..].starts_with(prefix) {
            place += prefix.len();
            break;
        }
    }
    if pair(bytes, place) == Some(wanted) {
        return Next::At { place, way: Way::Spaced };
    }
    let Some((_, begin)) = line_end(bytes, at) else {
        return if bytes.len() < at + COLUMN { Next::Cut } else { Next::Nowhere };
    };
    let blank = |byte: u8| b" \t".contains(&byte);
    let begin = skip(bytes, begin, COLUMN, blank);
    // The position after the offset, if the line has one.
    let offset = skip(bytes, begin, 18, |byte| digit(byte).is_some() || byte == b'x');
    let colon = skip(bytes, offset, 1, |byte| byte == b':');
    let behind = skip(bytes, colon, BETWEEN, blank);
    let places = [begin, behind];
    match places.into_iter().find(|place| pair(bytes, *place) == Some(wanted)) {
        Some(place) => Next::At { place, way: Way::NextLine },
        None if behind + 2 > bytes.len() => Next::Cut,
        None => Next::Nowhere,
    }
}

fn skip(bytes: &[u8], from: usize, most: usize, passes: impl Fn(u8) -> bool) -> usize {
    let from = from.min(bytes.len());
    from + bytes[from..].iter().take(most).take_while(|byte| passes(**byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &[u8] = b"ghp_0Zq4mT9wK2vLxR7c";

    fn dumps() -> Dumps {
        Dumps::new([(VALUE, Arc::from("[redacted:GH]"))])
    }

    /// As `xxd` prints it: groups of two bytes, sixteen per line.
    fn xxd(text: &[u8]) -> String {
        lines(text, |at, line| {
            let groups: Vec<String> = line.chunks(2).map(hex).collect();
            format!("{at:08x}: {:<39}  {}", groups.join(" "), column(line))
        })
    }

    /// As `hexdump -C` prints it.
    fn canonical(text: &[u8]) -> String {
        lines(text, |at, line| {
            let halves: Vec<String> = line.chunks(8).map(|half| spaced(half, " ")).collect();
            format!("{at:08x}  {:<48}  |{}|", halves.join("  "), column(line))
        })
    }

    /// As `hexdump` and `od -x` print it: 16-bit words in native byte order.
    fn words(text: &[u8]) -> String {
        lines(text, |at, line| {
            let word = |two: &[u8]| two.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
            let words: Vec<String> = line.chunks(2).map(word).collect();
            format!("{at:07x} {}", words.join(" "))
        })
    }

    fn lines(text: &[u8], line: impl Fn(usize, &[u8]) -> String) -> String {
        text.chunks(16).enumerate().map(|(at, bytes)| line(at * 16, bytes) + "\n").collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn spaced(bytes: &[u8], between: &str) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
    }

    fn column(bytes: &[u8]) -> String {
        let shown = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        bytes.iter().map(shown).collect()
    }

    /// The text after redaction, and the number of replaced places.
    fn left(text: &str) -> (String, usize) {
        let dumps = dumps();
        let found = dumps.find(text.as_bytes());
        let (mut out, mut at) = (String::new(), 0);
        for (range, mark) in &found {
            out.push_str(&text[at..range.start]);
            out.push_str(mark);
            at = range.end;
        }
        (out + &text[at..], found.len())
    }

    /// Asserts that no four consecutive bytes of the value are left, as digits or as characters.
    fn assert_gone(text: &str) {
        let (left, found) = left(text);
        assert_eq!(found, 1, "{text}");
        let digits: String = left.chars().filter(char::is_ascii_hexdigit).collect();
        for four in VALUE.windows(4) {
            assert!(
                !digits.contains(&hex(four)) && !left.contains(std::str::from_utf8(four).unwrap()),
                "{left}"
            );
        }
    }

    #[test]
    fn dumps_at_every_place() {
        for ahead in 0..40 {
            let text = [&vec![b'#'; ahead][..], VALUE, b"\n and what follows it"].concat();
            for dump in [xxd(&text), canonical(&text), words(&text)] {
                assert_gone(&dump);
                assert_gone(&dump.to_uppercase().replace(&column(VALUE).to_uppercase(), ""));
                assert_gone(&dump.replace('\n', "\\n"));
            }
        }
    }

    #[test]
    fn digits_with_something_between() {
        for between in [" ", ":", ", ", "-", ",0x", " 0x", "\\x", "\n", "\r\n", "\\n", ":\n    "] {
            assert_gone(&format!("before {} after", spaced(VALUE, between)));
        }
        let folded = lines(VALUE, |_, line| hex(line));
        assert_gone(&folded);
        assert_gone(&lines(VALUE, |_, line| format!("    {}:", spaced(line, ":"))));
    }

    #[test]
    fn other_texts_stay() {
        for text in
            [spaced(b"ghp_0Zq4mT9wK2vLxR7", " "), hex(VALUE), xxd(b"ghp_0Zq4 and another"), String::new()]
        {
            assert_eq!(left(&text), (text.clone(), 0));
        }
        assert!(Dumps::nothing().find(b"67 68 70").is_empty());
    }

    #[test]
    fn unfinished_values_are_reported() {
        let whole = xxd(&[&b"########"[..], VALUE].concat());
        let begin = whole.find("6768").unwrap();
        for cut in 0..whole.len() {
            let held = dumps().unfinished(&whole.as_bytes()[..cut]);
            assert!(cut < begin + 2 || held <= begin, "{cut}: {held}");
        }
        assert_eq!(dumps().unfinished(whole.as_bytes()), whole.len());
        let other = "nothing of the kind";
        assert_eq!(dumps().unfinished(other.as_bytes()), other.len());
    }
}
