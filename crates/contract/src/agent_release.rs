//! Exact versions of agents: their names as a user writes them, and the one that a run used.

use crate::visible;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;

/// Longer than any name, version or tag.
const LONGEST: usize = 64;

/// A published version, such as `2.1.197` or `2.2.0-beta.1`. It is a valid file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedVersion {
    text: String,
    numbers: [u64; 3],
}

impl PublishedVersion {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
        if text.len() > LONGEST || !text.bytes().all(allowed) {
            return None;
        }
        let plain = text.split(['-', '+']).next()?;
        let mut numbers = plain.split('.').map(|number| {
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| number.parse().ok()).flatten()
        });
        let parsed = [numbers.next()??, numbers.next()??, numbers.next()??];
        numbers.next().is_none().then(|| Self { text: text.to_owned(), numbers: parsed })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn suffix(&self) -> Option<&str> {
        self.text.split_once('-').map(|(_, suffix)| suffix)
    }

    /// The version to suggest in the place of this one: the next older one, otherwise the next newer one.
    pub fn nearest<'v>(&self, known: impl Iterator<Item = &'v Self>) -> Option<&'v Self> {
        let (older, newer): (Vec<_>, Vec<_>) = known.partition(|version| *version < self);
        older.into_iter().max().or_else(|| newer.into_iter().min())
    }
}

impl Ord for PublishedVersion {
    /// By the numbers; a version with a suffix comes before the one without.
    fn cmp(&self, other: &Self) -> Ordering {
        let suffixes = || match (self.suffix(), other.suffix()) {
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (None, None) | (Some(_), Some(_)) => Ordering::Equal,
        };
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(suffixes).then_with(|| self.text.cmp(&other.text))
    }
}

impl PartialOrd for PublishedVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for PublishedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for PublishedVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for PublishedVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("expected a version such as 2.1.197"))
    }
}

/// Why a text does not name a version of an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentReleaseError {
    #[error("expected NAME@VERSION, found no `@`")]
    NoVersion,
    #[error("expected the name of an agent before the `@`")]
    Name,
    #[error("`{}` is not a version such as 2.1.197", visible(.0))]
    Version(String),
}

/// A version of an agent, such as `an-agent@2.1.197`. Nothing says whether it exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentRelease {
    /// The name of the kind of agent.
    pub name: String,
    pub version: PublishedVersion,
}

impl AgentRelease {
    /// Parses `NAME@VERSION`.
    ///
    /// # Errors
    /// Says which part of it is wrong.
    pub fn parse(text: &str) -> Result<Self, AgentReleaseError> {
        let (name, version) = text.split_once('@').ok_or(AgentReleaseError::NoVersion)?;
        if !is_agent_name(name) {
            return Err(AgentReleaseError::Name);
        }
        let parsed = PublishedVersion::parse(version);
        let version = parsed.ok_or_else(|| AgentReleaseError::Version(version.to_owned()))?;
        Ok(Self { name: name.to_owned(), version })
    }
}

/// Whether a text can be the name of a kind of agent. It is a valid file name then.
#[must_use]
pub fn is_agent_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=LONGEST).contains(&text.len())
        && text.bytes().all(allowed)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
}

impl fmt::Display for AgentRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

/// What names the version of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedBy {
    /// The option `--agent`.
    Option,
    Manifest,
    Session,
    /// The tape that is replayed.
    Tape,
}

impl NamedBy {
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Option => "--agent",
            Self::Manifest => "the manifest",
            Self::Session => "the session",
            Self::Tape => "the tape",
        }
    }
}

/// A version that the command line asks for; it overrides what files name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentChoice {
    pub release: AgentRelease,
    pub named_by: NamedBy,
}

/// Where the program of an agent comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentSource {
    /// The user's search path.
    Path,
    /// A version that belljar keeps.
    Kept { named_by: NamedBy },
}

/// The program of an agent that a run used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentUsed {
    /// The name of the kind of agent.
    pub name: String,
    /// `None` for a program of the search path that was not asked, or that does not say it.
    pub version: Option<String>,
    pub source: AgentSource,
}

impl fmt::Display for AgentUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, source } = self;
        write!(f, "{}", visible(name))?;
        if let Some(version) = version {
            write!(f, " {}", visible(version))?;
        }
        match source {
            AgentSource::Path => f.write_str(", from PATH"),
            AgentSource::Kept { named_by } => {
                write!(f, ", kept by belljar, named by {}", named_by.describe())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> PublishedVersion {
        PublishedVersion::parse(text).unwrap()
    }

    #[test]
    fn a_version_is_a_safe_file_name() {
        for text in
            ["", ".", "..", "../1.2.3", "1.2.3/..", "1.2", "1.2.3.4", "a.b.c", "1.2.3\n", "+1.2.3", "1.2.3 "]
        {
            assert_eq!(PublishedVersion::parse(text), None, "{text:?}");
        }
        assert_eq!(version("2.2.0-beta.1+x").as_str(), "2.2.0-beta.1+x");
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        assert!(version("2.1.99") < version("2.1.100"));
        assert!(version("2.2.0-beta.1") < version("2.2.0"));
        let known = [version("2.1.90"), version("2.1.100"), version("2.2.0")];
        let near = |text: &str| version(text).nearest(known.iter()).map(PublishedVersion::as_str);
        assert_eq!(near("2.1.99"), Some("2.1.90"));
        assert_eq!(near("9.0.0"), Some("2.2.0"));
        assert_eq!(near("1.0.0"), Some("2.1.90"));
    }

    #[test]
    fn a_release_is_a_name_and_an_exact_version() {
        for text in ["an-agent@2.1.3", "an_agent@2.2.0-beta.1"] {
            assert_eq!(AgentRelease::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(AgentRelease::parse("an-agent"), Err(AgentReleaseError::NoVersion));
        for text in ["@1.2.3", "../x@1.2.3", "a/b@1.2.3", "-a@1.2.3", " a@1.2.3"] {
            assert_eq!(AgentRelease::parse(text), Err(AgentReleaseError::Name), "{text}");
        }
        for text in ["a@", "a@latest", "a@1.2", "a@1.2.3/..", "a@b@1.2.3", "a@1.2.3\n"] {
            assert!(matches!(AgentRelease::parse(text), Err(AgentReleaseError::Version(_))), "{text}");
        }
    }

    #[test]
    fn what_a_run_used_is_read_again() {
        let path = AgentUsed { name: "a".to_owned(), version: None, source: AgentSource::Path };
        let source = AgentSource::Kept { named_by: NamedBy::Option };
        let kept = AgentUsed { version: Some("2.1.3".to_owned()), source, ..path.clone() };
        assert_eq!(kept.to_string(), "a 2.1.3, kept by belljar, named by --agent");
        assert_eq!(path.to_string(), "a, from PATH");
        for used in [path, kept] {
            let text = serde_json::to_string(&used).unwrap();
            assert_eq!(serde_json::from_str::<AgentUsed>(&text).unwrap(), used, "{text}");
        }
    }
}
