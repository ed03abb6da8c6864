//! Regular expressions from users' files: JavaScript syntax, matched in linear time.
//!
//! Syntax that means something else to the regex engine is translated first. Features that the engine cannot match in
//! linear time, such as look-around, are rejected and never approximated.

use regex::{Regex, RegexBuilder};
use std::ops::Range;

/// The maximum size of a compiled pattern in bytes.
const COMPILED_LIMIT: usize = 1024 * 1024;

/// The maximum length of a pattern in bytes.
const LONGEST: usize = 4096;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    source: String,
    regex: Regex,
}

/// How letters are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// Case-sensitive.
    AsWritten,
    /// Case-insensitive.
    AnyCase,
}

/// Options of a pattern.
#[derive(Debug, Clone, Copy, Default)]
pub struct PatternFlags {
    /// Whether matching is case-insensitive.
    pub any_case: bool,
    /// Whether `^` and `$` match at every line.
    pub many_lines: bool,
    /// Whether `.` matches a newline.
    pub dot_matches_line_end: bool,
}

impl From<Letters> for PatternFlags {
    fn from(letters: Letters) -> Self {
        Self { any_case: letters == Letters::AnyCase, ..Self::default() }
    }
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("pattern must have at most {LONGEST} bytes, not {bytes}")]
    Long { bytes: usize },
    /// The syntax is invalid, or it cannot be matched in linear time.
    #[error("this pattern cannot be used: {why}")]
    Unusable { why: String },
}

impl PatternError {
    /// What to write instead, if that is known.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Long { .. } => None,
            Self::Unusable { why } if why.starts_with("look-around") => Some(
                "matching would take unbounded time; write two rules instead, one that must match and one that must not",
            ),
            Self::Unusable { why } if why.starts_with("backreferences") => Some(
                "matching would take unbounded time; write the repeated text out, or as alternatives `(aa|bb)`",
            ),
            Self::Unusable { .. } => None,
        }
    }
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// When it is too long, too large or not understood.
    pub fn new(text: &str, flags: impl Into<PatternFlags>) -> Result<Self, PatternError> {
        if text.len() > LONGEST {
            return Err(PatternError::Long { bytes: text.len() });
        }
        let PatternFlags { any_case, many_lines, dot_matches_line_end } = flags.into();
        let regex = RegexBuilder::new(&translated(text))
            .case_insensitive(any_case)
            .multi_line(many_lines)
            .dot_matches_new_line(dot_matches_line_end)
            .size_limit(COMPILED_LIMIT)
            .build()
            .map_err(|error| PatternError::Unusable { why: reason(&error) })?;
        Ok(Self { source: text.to_owned(), regex })
    }

    /// A pattern that matches exactly this text.
    #[must_use]
    pub fn quoted(text: &str) -> String {
        regex::escape(text)
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the pattern occurs in a text.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The byte range of the first match.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Range<usize>> {
        self.regex.find(text).map(|found| found.range())
    }

    /// The number of its groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// The byte ranges of all matches; of the first group, if the pattern has one. Empty ones are left out.
    pub fn places<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        let which = self.groups().min(1);
        let found = self.regex.captures_iter(text).filter_map(move |found| found.get(which));
        found.map(|found| found.range()).filter(|range| !range.is_empty())
    }
}

fn reason(error: &regex::Error) -> String {
    if let regex::Error::CompiledTooBig(_) = error {
        return "it is too large once its repetitions are expanded".to_owned();
    }
    let text = error.to_string();
    // The regex crate prints the pattern above the line with the error.
    text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or(&text).to_owned()
}

/// Translates a pattern to the syntax of the engine. Unknown syntax stays as it is, for the engine to judge.
fn translated(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_class = false;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        rest = match (char, in_class) {
            ('\\', _) => escape(after, in_class, &mut out),
            ('[', false) => {
                in_class = true;
                begin_class(after, &mut in_class, &mut out)
            }
            (']', true) => {
                in_class = false;
                out.push(']');
                after
            }
            // Nested sets and their operators exist only in the engine's syntax.
            ('[' | '&' | '~', true) => {
                out.push('\\');
                out.push(char);
                after
            }
            ('{', false) if !is_count(after) => {
                out.push_str("\\{");
                after
            }
            _ => {
                out.push(char);
                after
            }
        };
    }
    out
}

/// Translates the beginning of a character class. Returns the rest of the pattern.
fn begin_class<'a>(after: &'a str, in_class: &mut bool, out: &mut String) -> &'a str {
    let (negated, body) = match after.strip_prefix('^') {
        Some(body) => ("^", body),
        None => ("", after),
    };
    // An empty class matches nothing, its negation everything.
    if let Some(left) = body.strip_prefix(']') {
        *in_class = false;
        out.push_str(if negated.is_empty() { "[^\\s\\S]" } else { "[\\s\\S]" });
        return left;
    }
    out.push('[');
    out.push_str(negated);
    body
}

/// Translates an escape; `after` follows the backslash. Returns the rest of the pattern.
fn escape<'a>(after: &'a str, in_class: bool, out: &mut String) -> &'a str {
    let Some(char) = after.chars().next() else {
        out.push('\\');
        return after;
    };
    let left = &after[char.len_utf8()..];
    match char {
        // ASCII only, as JavaScript has them.
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'b' if in_class => out.push_str("\\x08"),
        'b' => out.push_str("(?-u:\\b)"),
        '0' if !left.starts_with(|next: char| next.is_ascii_digit()) => out.push_str("\\x00"),
        // Word boundaries in the engine's syntax, plain characters in JavaScript.
        '<' | '>' | '/' => out.push(char),
        'u' | 'x' | 'p' | 'P' if left.starts_with('{') => {
            let end = left.find('}').map_or(left.len(), |at| at + 1);
            out.push('\\');
            out.push(char);
            out.push_str(&left[..end]);
            return &left[end..];
        }
        other => {
            out.push('\\');
            out.push(other);
        }
    }
    left
}

/// Whether the text after a brace makes it a repetition: `{2}`, `{2,}`, `{2,3}`.
fn is_count(after: &str) -> bool {
    let Some((inside, _)) = after.split_once('}') else { return false };
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_the_same_as_in_javascript() {
        for (pattern, fits, not) in [
            (r"^\d+$", "42", "٤٢"),
            (r"^\w+$", "a_1", "é"),
            (r"^[\w-]+$", "a-b", "a b"),
            (r"^[^\W_]+$", "ab", "a_b"),
            (r"\bcat\b", "a cat.", "concat"),
            (r"a\/b", "a/b", "ab"),
            (r"^\<x\>$", "<x>", "x"),
            (r"(?<year>\d{4})", "2024", "year"),
            (r"^{name}$", "{name}", "name"),
            (r"^a{,2}$", "a{,2}", "aa"),
            (r"^a{2,3}$", "aa", "a"),
            (r"^[a&&b[]+$", "&[ab", "c"),
            (r"^[^]$", "\n", ""),
            (r"^\u0041\x42$", "ab", "u0041"),
            (r"^\u{e9}$", "É", "e"),
            (r"^[\d-x]+$", "1-x", "y"),
            (r"^\$\{x\}$", "${x}", "x"),
        ] {
            let pattern = Pattern::new(pattern, Letters::AnyCase).unwrap();
            assert!(pattern.is_match(fits), "{pattern:?} on {fits}");
            assert!(!pattern.is_match(not), "{pattern:?} on {not}");
        }
        assert!(!Pattern::new("[]", Letters::AsWritten).unwrap().is_match("[]"));
    }

    #[test]
    fn unbounded_patterns_are_refused_with_a_hint() {
        for (pattern, why, help) in [
            ("(?=x)", "look-around", "two rules"),
            ("(?<!x)y", "look-around", "two rules"),
            (r"(a)\1", "backreferences", "alternatives"),
            ("(a{1000}){1000}", "too large", ""),
            ("(", "unclosed group", ""),
        ] {
            let error = Pattern::new(pattern, Letters::AnyCase).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert!(error.help().unwrap_or_default().contains(help), "{error:?}");
            assert_eq!(error.help().is_some(), !help.is_empty());
        }
        assert_eq!(
            Pattern::new(&"a".repeat(5000), Letters::AnyCase).unwrap_err(),
            PatternError::Long { bytes: 5000 }
        );
    }

    #[test]
    fn fuzz_translation() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(pattern) = Pattern::new(text, Letters::AnyCase) {
                assert_eq!(pattern.is_match(text), pattern.find(text).is_some());
            }
        });
    }
}
