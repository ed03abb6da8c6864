//! Versions of an agent and the abilities that each version has.

use std::fmt;

/// A version of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentVersion([u32; 3]);

impl AgentVersion {
    /// Reads three numbers from the first word of a text, such as `2.1.197`. A suffix after `-` is ignored.
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

/// Something that an agent can do from a certain version on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// What it can do, for messages.
    pub name: String,
    /// The first version that was seen to have it.
    pub since: AgentVersion,
    /// Whether belljar refuses an agent without it.
    pub needed: bool,
    /// The arguments that belljar passes to use it.
    pub arguments: Vec<String>,
    /// What belljar uses it for.
    pub why: String,
}

/// The tested versions of a kind of agent, and the versions in which its abilities appeared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentVersions {
    /// The versions that belljar's own tests run, in ascending order.
    pub tested: Vec<AgentVersion>,
    pub abilities: Vec<Ability>,
}

/// How a version compares with the tested ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionStanding {
    /// belljar's own tests run it.
    Tested,
    /// It is not tested, but it has every ability that belljar needs and is not newer than the newest tested version.
    Untested,
    /// It is newer than every tested version.
    Newer,
    /// It lacks an ability that belljar needs.
    TooOld {
        /// The missing abilities, each with the version that introduced it.
        lacks: Vec<String>,
    },
}

impl AgentVersions {
    /// Compares a version with the tested ones.
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

    /// The abilities that a version does not have.
    pub fn lacking(&self, version: AgentVersion) -> impl Iterator<Item = &Ability> {
        self.abilities.iter().filter(move |ability| version < ability.since)
    }

    /// The tested versions as a list for messages.
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
            ("2.1.197 (An Agent)", Some("2.1.197")),
            ("2.1.325", Some("2.1.325")),
            ("3.0.0-beta.2", Some("3.0.0")),
            ("2.1", None),
            ("2.1.1.1", None),
            ("agent 2.1.197", None),
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
