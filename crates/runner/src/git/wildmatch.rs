//! git's patterns for file names, matched in time proportional to the pattern and the text.
//!
//! git's own matcher backtracks, so that a malicious pattern can take years; this one keeps a set of states. A test
//! compares the two. `contract::glob_matches` has no sets of characters, no escapes and none of git's rules about `**` and
//! slashes, so this is a matcher of its own.

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Box<[Part]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Byte(u8),
    /// One byte other than a slash.
    Any,
    /// One byte of the set, and never a slash.
    Set(Box<Set>),
    /// Any number of bytes other than slashes.
    Star,
    /// Any number of bytes.
    Stars,
    /// Any number of bytes and a slash, or nothing.
    Directories,
    /// Matches nothing: an unterminated set, or an escape at the end.
    Never,
}

/// Bytes, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set([u64; 4]);

impl Set {
    fn holds(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
}

impl Pattern {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(byte) = text.get(at).copied() {
            at += 1;
            match byte {
                b'\\' => {
                    parts.push(text.get(at).map_or(Part::Never, |byte| Part::Byte(*byte)));
                    at += 1;
                }
                b'?' => parts.push(Part::Any),
                b'[' => match set(&text[at..]) {
                    Some((set, length)) => {
                        parts.push(Part::Set(set));
                        at += length;
                    }
                    None => {
                        parts.push(Part::Never);
                        break;
                    }
                },
                b'*' => {
                    let first = at - 1;
                    at += text[at..].iter().take_while(|byte| **byte == b'*').count();
                    let begins = first == 0 || text[first - 1] == b'/';
                    let ends = matches!(text.get(at..), Some([] | [b'/', ..] | [b'\\', b'/', ..]));
                    if at - first < 2 || !(begins && ends) {
                        parts.push(Part::Star);
                    } else if text.get(at) == Some(&b'/') {
                        parts.push(Part::Directories);
                        at += 1;
                    } else {
                        parts.push(Part::Stars);
                    }
                }
                other => parts.push(Part::Byte(other)),
            }
        }
        Self(parts.into())
    }

    /// The number of comparisons of parts with bytes.
    pub(crate) fn steps(&self, text: &[u8]) -> u64 {
        (self.0.len() as u64 + 1).saturating_mul(text.len() as u64 + 1)
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let parts = &self.0;
        // Whether the parts before this one match the text so far.
        let mut now = vec![false; parts.len() + 1];
        // For `Directories`: inside of it, past its beginning.
        let mut next = now.clone();
        now[0] = true;
        let mut within = vec![false; parts.len()];
        empty(parts, &mut now);
        for byte in text {
            next.fill(false);
            for (at, part) in parts.iter().enumerate() {
                let (stays, goes) = match part {
                    Part::Byte(wanted) => (false, wanted == byte),
                    Part::Any => (false, *byte != b'/'),
                    Part::Set(set) => (false, *byte != b'/' && set.holds(*byte)),
                    Part::Star => (*byte != b'/', false),
                    Part::Stars => (true, false),
                    Part::Directories => {
                        within[at] |= now[at];
                        next[at + 1] |= within[at] && *byte == b'/';
                        continue;
                    }
                    Part::Never => (false, false),
                };
                if now[at] {
                    next[at] |= stays;
                    next[at + 1] |= goes;
                }
            }
            empty(parts, &mut next);
            std::mem::swap(&mut now, &mut next);
        }
        now[parts.len()]
    }
}

/// Skips the parts that may match nothing.
fn empty(parts: &[Part], states: &mut [bool]) {
    for (at, part) in parts.iter().enumerate() {
        if states[at] && matches!(part, Part::Star | Part::Stars | Part::Directories) {
            states[at + 1] = true;
        }
    }
}

/// Parses a set after its `[`: its members and its length in bytes. `None` if it is not terminated.
fn set(text: &[u8]) -> Option<(Box<Set>, usize)> {
    let mut set = Set([0; 4]);
    let negated = matches!(text.first()?, b'!' | b'^');
    let mut at = usize::from(negated);
    let mut before = None;
    // A closing bracket at the beginning is a member.
    let mut first = true;
    loop {
        let byte = *text.get(at)?;
        if byte == b']' && !first {
            break;
        }
        first = false;
        let last = match (byte, text.get(at + 1)) {
            (b'\\', Some(escaped)) => {
                at += 2;
                set.insert(*escaped);
                Some(*escaped)
            }
            (b'\\', None) => return None,
            (b'-', Some(end)) if before.is_some() && *end != b']' => {
                let (end, length) = if *end == b'\\' { (*text.get(at + 2)?, 3) } else { (*end, 2) };
                for member in before.unwrap_or(end)..=end {
                    set.insert(member);
                }
                at += length;
                None
            }
            (b'[', Some(b':')) => match class(&text[at + 2..]) {
                Class::Named { holds, length } => {
                    (0..=u8::MAX).filter(holds).for_each(|byte| set.insert(byte));
                    at += 2 + length;
                    None
                }
                Class::Member => {
                    set.insert(b'[');
                    at += 1;
                    Some(b'[')
                }
                Class::Broken => return None,
            },
            (byte, _) => {
                set.insert(byte);
                at += 1;
                Some(byte)
            }
        };
        before = last;
    }
    if negated {
        set.0.iter_mut().for_each(|bits| *bits = !*bits);
    }
    Some((Box::new(set), at + 1))
}

enum Class {
    /// A class, and its length with the `:]` at its end.
    Named { holds: fn(&u8) -> bool, length: usize },
    /// Not a class: the bracket is an ordinary member.
    Member,
    /// A class that is not terminated, or that git does not know.
    Broken,
}

fn class(text: &[u8]) -> Class {
    let Some(end) = text.iter().position(|byte| *byte == b']') else { return Class::Broken };
    let Some(name) = text[..end].strip_suffix(b":") else { return Class::Member };
    let holds: fn(&u8) -> bool = match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return Class::Broken,
    };
    Class::Named { holds, length: end + 1 }
}
