//! Patterns that run in linear time, whatever they are matched against.

use regex::{Regex, RegexBuilder};

/// Bytes that a compiled pattern may take.
const COMPILED_LIMIT: usize = 1024 * 1024;

/// Longer than any pattern one would write.
const LONGEST: usize = 4096;

/// How letters are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Letters {
    AsWritten,
    AnyCase,
}

/// How a pattern is read beyond its letters.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    pub any_case: bool,
    pub many_lines: bool,
    pub dot_matches_line_end: bool,
}

impl From<Letters> for Flags {
    fn from(letters: Letters) -> Self {
        Self { any_case: letters == Letters::AnyCase, ..Self::default() }
    }
}

/// Compiles a pattern; the error says what cannot be used.
pub(super) fn compile(text: &str, flags: impl Into<Flags>) -> Result<Regex, String> {
    if text.len() > LONGEST {
        return Err(format!("a pattern has at most {LONGEST} bytes, this one has {}", text.len()));
    }
    let Flags { any_case, many_lines, dot_matches_line_end } = flags.into();
    RegexBuilder::new(text)
        .case_insensitive(any_case)
        .multi_line(many_lines)
        .dot_matches_new_line(dot_matches_line_end)
        .size_limit(COMPILED_LIMIT)
        .build()
        .map_err(|error| reason(&error))
}

fn reason(error: &regex::Error) -> String {
    let text = match error {
        regex::Error::CompiledTooBig(_) => "it is too large once its repetitions are counted out".to_owned(),
        other => {
            let text = other.to_string();
            // The crate draws the pattern above the line that says what is wrong.
            text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or(&text).to_owned()
        }
    };
    format!("this pattern cannot be used: {text}")
}
