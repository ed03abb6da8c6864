//! The values a manifest holds, each parsed once into a type.

use belljar_contract::decode::{
    Decode, Fault, Faults, Node, Scalar, shown, whole_number, whole_number_schema,
};
use belljar_contract::{AbsPath, PathError};
use serde_json::Value;
use std::ops::RangeInclusive;

pub(super) fn nul(text: &str, what: &str) -> Result<(), Fault> {
    if text.contains('\0') {
        return Err(Fault::new(format!("{what} cannot hold a NUL character")).label("a `\\u0000` is in here"));
    }
    Ok(())
}

/// Text of any length and any number of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(pub String);

impl Scalar for Text {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        nul(text, "a text")?;
        Ok(Self(text.to_owned()))
    }
}

/// Text on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line(pub String);

impl Scalar for Line {
    const EXPECTED: &'static str = "a line of text";
    fn parse(text: &str) -> Result<Self, Fault> {
        if text.trim().is_empty() {
            return Err(Fault::new("expected a line of text, found an empty one"));
        }
        match text.chars().find(|c| c.is_control()) {
            Some(c) => {
                Err(Fault::new(format!("expected a line of text, found the control character {c:?} in it")))
            }
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// A word that goes to the agent's command line: not empty, no control character, not a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word(pub String);

impl Scalar for Word {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        let Line(text) = Line::parse(text)?;
        if text.starts_with('-') {
            return Err(Fault::new(format!(
                "`{}` begins with `-`; the agent would read it as a flag",
                shown(&text)
            )));
        }
        Ok(Self(text))
    }
}

/// An argument of a command: anything but NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument(pub String);

impl Scalar for Argument {
    const EXPECTED: &'static str = "a string";
    fn parse(text: &str) -> Result<Self, Fault> {
        nul(text, "an argument")?;
        // The agent expands `${NAME}` in the configuration of a server; what is written here must arrive as it is.
        if text.contains("${") {
            return Err(Fault::new("`${…}` would be expanded by the agent").help(
                "give the server a variable under `env`, where `\"${NAME}\"` reads the host's variable",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The program of a command: an argument that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program(pub String);

impl Scalar for Program {
    const EXPECTED: &'static str = "a program";
    fn parse(text: &str) -> Result<Self, Fault> {
        if text.trim().is_empty() {
            return Err(Fault::new("expected a program, found an empty string"));
        }
        Argument::parse(text).map(|Argument(text)| Self(text))
    }
    fn pattern() -> Option<&'static str> {
        Some("[^ ]")
    }
}

/// A path as it is written: absolute, below the home with `~`, or below the directory of the file it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathText {
    /// From the root, as in `/srv/data`.
    Absolute(AbsPath),
    /// What follows `~/`; empty for `~` alone.
    Home(String),
    /// Below the directory of the file it is written in.
    Beside(String),
}

impl PathText {
    /// The path, given the home and the directory of the file it is written in.
    ///
    /// # Errors
    /// Never for a value that was parsed; the types cannot say so.
    pub fn resolve(&self, home: &AbsPath, beside: &AbsPath) -> Result<AbsPath, PathError> {
        match self {
            PathText::Absolute(path) => Ok(path.clone()),
            PathText::Home(rest) => home.join(rest),
            PathText::Beside(rest) => beside.join(rest),
        }
    }
}

impl Scalar for PathText {
    const EXPECTED: &'static str = "a path";
    fn parse(text: &str) -> Result<Self, Fault> {
        nul(text, "a path")?;
        if text.is_empty() {
            return Err(Fault::new("expected a path, found an empty string")
                .help("write `.` for the directory of the file itself"));
        }
        if let Some(rest) = text.strip_prefix('~') {
            return match rest.strip_prefix('/') {
                Some(rest) => Ok(Self::Home(rest.to_owned())),
                None if rest.is_empty() => Ok(Self::Home(String::new())),
                None => Err(Fault::new("`~` means your own home; another user's cannot be named")
                    .help("write the absolute path")),
            };
        }
        Ok(AbsPath::new(text).map_or_else(|_relative| Self::Beside(text.to_owned()), Self::Absolute))
    }
}

/// An alias or a user of ssh: it is written to a configuration file, so its alphabet is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshWord(pub String);

impl Scalar for SshWord {
    const EXPECTED: &'static str = "a word of letters, digits, `.`, `_` and `-`";
    fn parse(text: &str) -> Result<Self, Fault> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if text.is_empty() || text.starts_with('-') || !text.chars().all(allowed) {
            return Err(Fault::new(format!("expected {}, found `{}`", Self::EXPECTED, shown(text))));
        }
        Ok(Self(text.to_owned()))
    }
    fn pattern() -> Option<&'static str> {
        Some("^[A-Za-z0-9._][A-Za-z0-9._-]*$")
    }
}

/// The name of an HTTP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderName(pub String);

impl Scalar for HeaderName {
    const EXPECTED: &'static str = "the name of a header";
    fn parse(text: &str) -> Result<Self, Fault> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if text.is_empty() || !text.bytes().all(token) {
            return Err(Fault::new(format!("`{}` is not the name of a header", shown(text))));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A whole number above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positive(pub u32);

impl Positive {
    /// The most processes that Linux can have.
    const RANGE: RangeInclusive<i64> = 1..=4_194_304;
}

impl Decode for Positive {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let number = whole_number(node, "a whole number", &Self::RANGE, faults)?;
        u32::try_from(number).ok().map(Self)
    }

    fn schema() -> Value {
        whole_number_schema(&Self::RANGE)
    }
}

impl std::fmt::Display for Positive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
