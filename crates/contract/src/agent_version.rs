//! Versions of an agent, and what they can do.

use std::fmt;

/// A version of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentVersion([u32; 3]);

impl AgentVersion {
    /// Reads the first word of a text, which is three numbers; what follows a `-` in it says nothing here.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_whitespace().next()?;
        let plain = word.split('-').next()?;
        let mut numbers = plain.split('.').map(|number| number.parse().ok());
        let version = Self([numbers.next()??, numbers.next()??, numbers.next()??]);
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for AgentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Something that an agent can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// In words.
    pub name: String,
    /// The first version that was seen to have it.
    pub since: AgentVersion,
    /// Whether belljar can do without.
    pub needed: bool,
    /// The arguments that make use of it.
    pub arguments: Vec<String>,
    /// What belljar has it for.
    pub why: String,
}

/// What is known of the versions of a kind of agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentVersions {
    /// Those that belljar's own tests run, in order.
    pub tested: Vec<AgentVersion>,
    /// What they can do.
    pub abilities: Vec<Ability>,
}

/// What is to be thought of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionStanding {
    /// belljar's own tests run it.
    Tested,
    /// It lies between versions that are tested, or has everything that is needed.
    Untested,
    /// It is newer than any that is tested.
    Newer,
    /// It lacks something that is needed.
    TooOld {
        /// What, in words, and since when it is there.
        lacks: Vec<String>,
    },
}

impl AgentVersions {
    /// What is to be thought of a version.
    #[must_use]
    pub fn standing(&self, version: AgentVersion) -> VersionStanding {
        let lacks: Vec<String> = self
            .lacking(version)
            .filter(|ability| ability.needed)
            .map(|ability| format!("{} (since {}): {}", ability.name, ability.since, ability.why))
            .collect();
        match self.tested.last() {
            _ if !lacks.is_empty() => VersionStanding::TooOld { lacks },
            _ if self.tested.contains(&version) => VersionStanding::Tested,
            Some(newest) if version > *newest => VersionStanding::Newer,
            _ => VersionStanding::Untested,
        }
    }

    /// What a version cannot do.
    pub fn lacking(&self, version: AgentVersion) -> impl Iterator<Item = &Ability> {
        self.abilities.iter().filter(move |ability| version < ability.since)
    }

    /// The tested ones, for people.
    #[must_use]
    pub fn tested_text(&self) -> String {
        self.tested.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers() {
        for (text, wanted) in [
            ("2.1.197 (Claude Code)", Some("2.1.197")),
            ("2.1.325", Some("2.1.325")),
            ("3.0.0-beta.2", Some("3.0.0")),
            ("2.1", None),
            ("2.1.1.1", None),
            ("claude 2.1.197", None),
            ("", None),
        ] {
            assert_eq!(
                AgentVersion::parse(text).map(|version| version.to_string()).as_deref(),
                wanted,
                "{text}"
            );
        }
        assert!(AgentVersion::parse("2.1.99") < AgentVersion::parse("2.1.100"));
    }
}
