//! Names of agents, library entries, environment variables, instances and runs.

use crate::{AbsPath, Digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("name must not be empty")]
    Empty,
    /// A character that this kind of name does not allow.
    #[error("{character:?} cannot be part of {kind}; allowed are {allowed}")]
    Character {
        /// The first offending character.
        character: char,
        /// The kind of name, with its article.
        kind: &'static str,
        /// The allowed characters, for people.
        allowed: &'static str,
    },
    /// A character that is allowed, but not as the first one.
    #[error("{kind} cannot begin with {character:?}")]
    Start {
        character: char,
        /// The kind of name, with its article.
        kind: &'static str,
    },
    #[error("{kind} must have at most {limit} characters, not {found}")]
    Long {
        /// The kind of name, with its article.
        kind: &'static str,
        limit: usize,
        found: usize,
    },
}

struct Alphabet {
    kind: &'static str,
    allowed: &'static str,
    limit: usize,
    first: fn(char) -> bool,
    rest: fn(char) -> bool,
}

fn check(text: &str, alphabet: &Alphabet) -> Result<(), NameError> {
    let &Alphabet { kind, allowed, limit, first, rest } = alphabet;
    let start = text.chars().next().ok_or(NameError::Empty)?;
    if let Some(character) = text.chars().find(|c| !rest(*c)) {
        return Err(NameError::Character { character, kind, allowed });
    }
    if !first(start) {
        return Err(NameError::Start { character: start, kind });
    }
    let found = text.chars().count();
    if found > limit {
        return Err(NameError::Long { kind, limit, found });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $alphabet:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(String);

        impl $type {
            /// # Errors
            /// When the text is empty, too long, or contains a character that is not allowed.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check(&text, &$alphabet)?;
                Ok(Self(text))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $type::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

name!(
    /// The name of a declared agent; used in run names, directories and unit names.
    AgentName,
    Alphabet {
        kind: "an agent name",
        allowed: "letters, digits, `-`, `_` and `.`",
        limit: 64,
        first: |c| c.is_ascii_alphanumeric(),
        rest: word,
    }
);

name!(
    /// The name of a library entry; used as a directory name inside the sandbox.
    LibraryName,
    Alphabet {
        kind: "a library name",
        allowed: "letters, digits, `-`, `_` and `.`",
        limit: 64,
        first: |c| c.is_ascii_alphanumeric(),
        rest: word,
    }
);

name!(
    /// The name of an environment variable, as POSIX has it.
    EnvName,
    Alphabet {
        kind: "an environment variable's name",
        allowed: "letters, digits and `_`",
        limit: 256,
        first: |c| c.is_ascii_alphabetic() || c == '_',
        rest: |c| c.is_ascii_alphanumeric() || c == '_',
    }
);

name!(
    /// The name of a run while it runs: the agent's name, with a number if that is taken.
    RunName,
    Alphabet {
        kind: "a run's name",
        allowed: "letters, digits, `-`, `_` and `.`",
        limit: 72,
        first: |c| c.is_ascii_alphanumeric(),
        rest: word,
    }
);

impl RunName {
    /// The `number`th run name of an agent: `reviewer`, `reviewer-2` and so on. It always fits, because an agent's
    /// name leaves room for a number.
    #[must_use]
    pub fn numbered(agent: &AgentName, number: u16) -> Self {
        match number {
            0 | 1 => Self(agent.as_str().to_owned()),
            number => Self(format!("{agent}-{number}")),
        }
    }
}

impl EnvName {
    /// Whether the name suggests that the value is a secret, for the audit before a launch.
    #[must_use]
    pub fn looks_secret(&self) -> bool {
        const WORDS: [&str; 11] = [
            "TOKEN",
            "SECRET",
            "PASSWORD",
            "PASSWD",
            "PASSPHRASE",
            "CREDENTIAL",
            "CREDENTIALS",
            "APIKEY",
            "PAT",
            "AUTH",
            "DSN",
        ];
        let upper = self.0.to_ascii_uppercase();
        let mut parts = upper.split('_');
        upper.ends_with("_KEY") || upper == "KEY" || parts.any(|part| WORDS.contains(&part))
    }
}

/// Identifies the state of a project: the first 16 hexadecimal digits of the SHA-256 of its canonical root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey(String);

impl InstanceKey {
    /// The key of the project with this canonical root.
    #[must_use]
    pub fn of(root: &AbsPath) -> Self {
        let mut hex = Digest::of(root.as_bytes()).hex();
        hex.truncate(16);
        Self(hex)
    }

    /// Parses a key, such as the name of a directory.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_hex(text, 16).then(|| Self(text.to_owned()))
    }

    /// The 16 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for InstanceKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for InstanceKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("expected 16 hexadecimal digits"))
    }
}

/// Identifies a run: 8 hexadecimal digits. Random, so that runs that start at the same time differ; not a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(String);

impl RunId {
    /// The id with this number.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self(format!("{number:08x}"))
    }

    /// Reads an id back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_hex(text, 8).then(|| Self(text.to_owned()))
    }

    /// The 8 digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("expected 8 hexadecimal digits"))
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_names() {
        for good in ["a", "reviewer", "Code.Review_2-x", &"a".repeat(64)] {
            assert!(AgentName::new(good).is_ok(), "{good}");
        }
        for (bad, reason) in [
            ("", "name must not be empty"),
            ("a/b", "'/' cannot be part of an agent name; allowed are letters, digits, `-`, `_` and `.`"),
            (
                "a\u{7}",
                "'\\u{7}' cannot be part of an agent name; allowed are letters, digits, `-`, `_` and `.`",
            ),
            ("..", "an agent name cannot begin with '.'"),
            ("-rf", "an agent name cannot begin with '-'"),
            ("é", "'é' cannot be part of an agent name; allowed are letters, digits, `-`, `_` and `.`"),
            (&"a".repeat(65), "an agent name must have at most 64 characters, not 65"),
        ] {
            assert_eq!(AgentName::new(bad).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn run_names_and_ids() {
        let long = AgentName::new("a".repeat(64)).unwrap();
        for (number, tail) in [(0, ""), (1, ""), (2, "-2"), (u16::MAX, "-65535")] {
            let name = RunName::numbered(&long, number);
            assert_eq!(name.as_str(), format!("{long}{tail}"));
            assert_eq!(RunName::new(name.as_str()), Ok(name));
        }
        assert_eq!(RunId::new(0xab).as_str(), "000000ab");
        assert_eq!(RunId::parse("000000ab"), Some(RunId::new(0xab)));
        for bad in ["", "000000AB", "000000a", "000000abc", "../../ab"] {
            assert_eq!(RunId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn env_names() {
        assert!(EnvName::new("_A9").is_ok());
        for bad in ["9A", "A-B", "A=B", "A B", "", "A\0"] {
            assert!(EnvName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn secret_looking_names() {
        for yes in
            ["GITHUB_TOKEN", "MODEL_API_KEY", "DB_PASSWORD", "npm_token", "AWS_SECRET_ACCESS_KEY", "KEY"]
        {
            assert!(EnvName::new(yes).unwrap().looks_secret(), "{yes}");
        }
        for no in ["PATH", "LOG_LEVEL", "KEYBOARD", "PATIENCE", "AUTHOR", "MONKEY"] {
            assert!(!EnvName::new(no).unwrap().looks_secret(), "{no}");
        }
    }

    #[test]
    fn instance_key_is_the_digest_of_the_path() {
        let root = AbsPath::new("/srv/project").unwrap();
        // printf %s /srv/project | sha256sum | cut -c1-16
        assert_eq!(InstanceKey::of(&root).as_str(), &Digest::of(b"/srv/project").hex()[..16]);
    }
}
