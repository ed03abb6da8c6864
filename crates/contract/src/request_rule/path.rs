//! Normalised request paths, and the path patterns of rules.

use serde::{Serialize, Serializer};
use std::fmt;

/// The maximum length of a path.
const LONGEST: usize = 8192;

/// Why a path is refused where paths are compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathRefusal {
    /// It does not begin with a slash.
    #[error("path must begin with `/`")]
    NoPath,
    /// It is too long.
    #[error("path has more than {LONGEST} characters")]
    Long,
    #[error("{0:?} is not allowed in a path")]
    Character(char),
    /// `;` begins parameters, which some servers strip and some do not.
    #[error("servers disagree about `;` in a path")]
    Parameter,
    /// `.` or `..`, plain or encoded.
    #[error("`.` and `..` are not allowed in a path")]
    DotSegment,
    /// Two slashes in a row.
    #[error("servers disagree about `//` in a path")]
    EmptySegment,
    /// `%` without two hexadecimal digits.
    #[error("`%` must be followed by two hexadecimal digits")]
    Percent,
    /// An encoded character that servers interpret differently: a slash, a backslash, a semicolon, a control
    /// character.
    #[error("servers disagree about an encoded {0} in a path")]
    Encoded(&'static str),
    /// An encoded `%` that decodes to another encoded character.
    #[error("the path is encoded twice")]
    EncodedTwice,
    /// Encoded bytes that are not UTF-8, such as the overlong encodings of `.` and `/`.
    #[error("the encoded bytes are not UTF-8")]
    NotUtf8,
}

/// A path in normal form: only characters that need it are encoded, with capital hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestPath(String);

impl RequestPath {
    /// Parses the path of a request, without its query.
    ///
    /// # Errors
    /// For every path that two programs could interpret differently; see [`PathRefusal`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PathRefusal> {
        if bytes.first() != Some(&b'/') {
            return Err(PathRefusal::NoPath);
        }
        if bytes.len() > LONGEST {
            return Err(PathRefusal::Long);
        }
        let mut text = String::with_capacity(bytes.len());
        let mut meant = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if *byte == b'%' {
                let byte = decoded(bytes.get(at + 1..at + 3)).ok_or(PathRefusal::Percent)?;
                push_encoded(&mut text, byte)?;
                meant.push(byte);
                at += 3;
            } else {
                text.push(plain(*byte)?);
                meant.push(*byte);
                at += 1;
            }
        }
        if std::str::from_utf8(&meant).is_err() {
            return Err(PathRefusal::NotUtf8);
        }
        let twice = |part: &str| decoded(part.as_bytes().get(..2)).is_some();
        if text.split("%25").skip(1).any(twice) {
            return Err(PathRefusal::EncodedTwice);
        }
        let segments: Vec<&str> = text[1..].split('/').collect();
        if segments.iter().any(|segment| matches!(*segment, "." | "..")) {
            return Err(PathRefusal::DotSegment);
        }
        // Only the last segment may be empty: `/a/` is a valid path.
        if segments.iter().rev().skip(1).any(|segment| segment.is_empty()) {
            return Err(PathRefusal::EmptySegment);
        }
        Ok(Self(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn segments(&self) -> std::str::Split<'_, char> {
        self.0[1..].split('/')
    }
}

/// A byte that is not percent-encoded.
fn plain(byte: u8) -> Result<char, PathRefusal> {
    match byte {
        b';' => Err(PathRefusal::Parameter),
        byte if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte) => Ok(char::from(byte)),
        byte => Err(PathRefusal::Character(char::from(byte))),
    }
}

fn push_encoded(text: &mut String, byte: u8) -> Result<(), PathRefusal> {
    match byte {
        b'/' => return Err(PathRefusal::Encoded("slash")),
        b'\\' => return Err(PathRefusal::Encoded("backslash")),
        b';' => return Err(PathRefusal::Encoded("semicolon")),
        byte if byte.is_ascii_control() => return Err(PathRefusal::Encoded("control character")),
        byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => text.push(char::from(byte)),
        byte => text.push_str(&format!("%{byte:02X}")),
    }
    Ok(())
}

fn decoded(digits: Option<&[u8]>) -> Option<u8> {
    let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Exactly(String),
    One,
    /// One or more segments, up to the end.
    Rest,
}

/// A path pattern: `/repos/ok/**`, `/v1/*/items`.
///
/// `*` matches one whole segment; `**`, at the end only, matches one or more segments. `/repos/ok/**` does not match
/// `/repos/ok`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
}

/// Why a text is not a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// Without its wildcards it is not a path that could match.
    #[error("`{pattern}` matches no path: {why}")]
    Path { pattern: String, why: PathRefusal },
    /// A `*` next to other characters, or `**` before the end.
    #[error("`{0}`: write `*` for one whole segment, or `**` at the end for everything below")]
    Star(String),
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// See [`PathPatternError`].
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        let pattern = || text.escape_debug().to_string();
        let path = RequestPath::parse(text.as_bytes())
            .map_err(|why| PathPatternError::Path { pattern: pattern(), why })?;
        let mut segments = Vec::new();
        for segment in path.segments() {
            segments.push(match segment {
                "*" => Segment::One,
                "**" => Segment::Rest,
                segment if segment.contains('*') => return Err(PathPatternError::Star(pattern())),
                segment => Segment::Exactly(segment.to_owned()),
            });
        }
        if segments.iter().rev().skip(1).any(|segment| *segment == Segment::Rest) {
            return Err(PathPatternError::Star(pattern()));
        }
        Ok(Self { text: path.0, segments })
    }

    /// Whether the path is meant.
    #[must_use]
    pub fn matches(&self, path: &RequestPath) -> bool {
        let mut parts = path.segments();
        for segment in &self.segments {
            let Some(part) = parts.next() else { return false };
            match segment {
                Segment::Exactly(text) if text == part => {}
                Segment::One if !part.is_empty() => {}
                Segment::Rest => return true,
                Segment::Exactly(_) | Segment::One => return false,
            }
        }
        parts.next().is_none()
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for PathPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling() {
        for (text, read) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/", "/a/"),
            ("/%61/%7e", "/a/~"),
            ("/a%20b%3a", "/a%20b%3A"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/...", "/..."),
            ("/a%25", "/a%25"),
            ("/a:b@c=d,e+f", "/a:b@c=d,e+f"),
        ] {
            assert_eq!(RequestPath::parse(text.as_bytes()).map(|path| path.0).as_deref(), Ok(read), "{text}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        use PathRefusal::*;
        for (bytes, why) in [
            (&b"/repos/ok/../evil"[..], DotSegment),
            (b"/repos/ok/./evil", DotSegment),
            (b"/repos/ok/..", DotSegment),
            (b"/repos/ok/%2e%2e/evil", DotSegment),
            (b"/repos/ok/%2E%2e/evil", DotSegment),
            (b"/repos/ok/.%2e/evil", DotSegment),
            (b"/repos/ok/%2e", DotSegment),
            (b"//repos/ok", EmptySegment),
            (b"/repos/ok//evil", EmptySegment),
            (b"/repos/ok/a//", EmptySegment),
            (b"/repos/ok;x/evil", Parameter),
            (b"/repos/ok/..;/evil", Parameter),
            (b"/repos/ok%3bx", Encoded("semicolon")),
            (b"/repos/ok%2F..%2Fevil", Encoded("slash")),
            (b"/repos/ok%2fevil", Encoded("slash")),
            (b"/repos/ok%5C..%5Cevil", Encoded("backslash")),
            (b"/repos/ok%5cevil", Encoded("backslash")),
            (b"/repos/ok\\..\\evil", Character('\\')),
            (b"/repos/ok%00", Encoded("control character")),
            (b"/repos/ok%0d%0aHost:x", Encoded("control character")),
            (b"/repos/ok%7f", Encoded("control character")),
            (b"/repos/ok\0", Character('\0')),
            (b"/repos/ok\n", Character('\n')),
            (b"/repos/ok/caf\xc3\xa9", Character('\u{c3}')),
            (b"/repos/ok/%c0%ae%c0%ae/evil", NotUtf8),
            (b"/repos/ok/%252e%252e/evil", EncodedTwice),
            (b"/repos/ok/%25%32%65/evil", EncodedTwice),
            (b"/repos/ok/%25%32e/evil", EncodedTwice),
            (b"/repos/ok/%2", Percent),
            (b"/repos/ok/%+1", Percent),
            (b"/repos/ok/%zz", Percent),
            (b"/repos/ok#evil", Character('#')),
            (b"/repos/ok?x", Character('?')),
            (b"https://evil.test/repos/ok", NoPath),
            (b"repos/ok", NoPath),
            (b"*", NoPath),
            (b"", NoPath),
        ] {
            assert_eq!(RequestPath::parse(bytes), Err(why), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(RequestPath::parse(&[b'/'; LONGEST + 1]), Err(Long));
    }

    #[test]
    fn patterns() {
        for text in ["/a*", "/**/a", "/a/***", "a", "/a//b", "/a/../b", "/a%2fb"] {
            assert!(PathPattern::parse(text).is_err(), "{text}");
        }
        let matches = |pattern: &str, path: &str| {
            PathPattern::parse(pattern).unwrap().matches(&RequestPath::parse(path.as_bytes()).unwrap())
        };
        assert!(matches("/**", "/") && matches("/**", "/a/b") && matches("/a/**", "/a/"));
        assert!(matches("/", "/") && matches("/a/", "/a/") && matches("/%61", "/a"));
        assert!(
            !matches("/a/**", "/a") && !matches("/a", "/a/") && !matches("/*", "/") && !matches("/A", "/a")
        );
    }

    #[test]
    fn fuzz_request_path() {
        let everyday = std::time::Duration::from_millis(300);
        let everything = PathPattern::parse("/ok/**").unwrap();
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            for bytes in [bytes.to_vec(), [b"/ok/", bytes].concat()] {
                let Ok(read) = RequestPath::parse(&bytes) else { continue };
                // A normalised path parses to itself.
                assert_eq!(RequestPath::parse(read.as_str().as_bytes()).as_ref(), Ok(&read));
                // However often a server decodes the path, and whichever slash it knows, the path does not leave the
                // directory.
                if everything.matches(&read) {
                    let mut text = read.as_str().to_owned();
                    for _ in 0..3 {
                        text = decode(&text);
                        assert!(text.starts_with("/ok/"), "{text}");
                        assert!(!text.split(['/', '\\']).any(|part| part == ".." || part == "."), "{text}");
                    }
                }
            }
        });
    }

    fn decode(text: &str) -> String {
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((byte, tail)) = rest.split_first() {
            match (byte, decoded(tail.get(..2))) {
                (b'%', Some(byte)) => {
                    out.push(byte);
                    rest = &tail[2..];
                }
                _ => {
                    out.push(*byte);
                    rest = tail;
                }
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}
