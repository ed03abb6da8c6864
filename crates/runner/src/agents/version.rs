//! What a user may write for a version of an agent.

use belljar_contract::{AgentRelease, PublishedVersion, is_agent_name, visible};
use std::fmt;

/// Longer than any tag.
const LONGEST: usize = 64;

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
        let is_tag = |text: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            (1..=LONGEST).contains(&text.len())
                && text.bytes().all(allowed)
                && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        };
        if !is_agent_name(name) {
            return Err("expected NAME or NAME@VERSION".to_owned());
        }
        let version = match version {
            None => None,
            Some(text) => Some(match PublishedVersion::parse(text) {
                Some(version) => VersionWish::Exact(version),
                None if is_tag(text) => VersionWish::Tag(text.to_owned()),
                None => return Err(format!("`{}` is neither a version nor a tag", visible(text))),
            }),
        };
        Ok(Self { name: name.to_owned(), version })
    }
}

impl From<&AgentRelease> for AgentWish {
    fn from(AgentRelease { name, version }: &AgentRelease) -> Self {
        Self { name: name.clone(), version: Some(VersionWish::Exact(version.clone())) }
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

#[cfg(test)]
mod tests {
    use super::*;

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
