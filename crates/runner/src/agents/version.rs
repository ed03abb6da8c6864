//! Versions as the registry publishes them, and what a user may write for one.

use belljar_contract::visible;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;

/// Longer than any version or tag.
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

/// What a user asks for: a version, or a tag of the registry such as `latest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionWish {
    Exact(PublishedVersion),
    Tag(String),
}

impl fmt::Display for VersionWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(version) => version.fmt(f),
            Self::Tag(tag) => f.write_str(tag),
        }
    }
}

/// `NAME`, `NAME@VERSION` or `NAME@TAG`, as a user writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentWish {
    pub name: String,
    pub version: Option<VersionWish>,
}

impl AgentWish {
    /// # Errors
    /// A sentence for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let plain = |text: &str, more: &[u8]| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
            (1..=LONGEST).contains(&text.len())
                && text.bytes().all(allowed)
                && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        };
        if !plain(name, b"-_") {
            return Err("expected NAME or NAME@VERSION".to_owned());
        }
        let version = match version {
            None => None,
            Some(text) => Some(match PublishedVersion::parse(text) {
                Some(version) => VersionWish::Exact(version),
                None if plain(text, b"-_.") => VersionWish::Tag(text.to_owned()),
                None => return Err(format!("`{}` is neither a version nor a tag", visible(text))),
            }),
        };
        Ok(Self { name: name.to_owned(), version })
    }
}

impl fmt::Display for AgentWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The version to suggest for one that does not exist: the next older one, otherwise the next newer one.
pub(super) fn nearest_version<'v>(
    wanted: &PublishedVersion,
    known: impl Iterator<Item = &'v PublishedVersion>,
) -> Option<&'v PublishedVersion> {
    let (older, newer): (Vec<_>, Vec<_>) = known.partition(|version| *version < wanted);
    older.into_iter().max().or_else(|| newer.into_iter().min())
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
        let near = |text: &str| nearest_version(&version(text), known.iter()).map(PublishedVersion::as_str);
        assert_eq!(near("2.1.99"), Some("2.1.90"));
        assert_eq!(near("9.0.0"), Some("2.2.0"));
        assert_eq!(near("1.0.0"), Some("2.1.90"));
    }

    #[test]
    fn a_wish_is_a_name_with_a_version_or_a_tag() {
        for text in ["an-agent", "an-agent@2.1.3", "an-agent@latest", "an-agent@next-1"] {
            assert_eq!(AgentWish::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "@1.2.3", "../x@1.2.3", "a/b", "a@", "a@../b", "a@.x", "a@1.2.3/x", "a@b@c", "-a@1.2.3"]
        {
            assert!(AgentWish::parse(text).is_err(), "{text}");
        }
    }
}
