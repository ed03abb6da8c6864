//! What a run left in the project that a person should look at, as it is kept.

use crate::{AbsPath, AgentName, GuestAct};
use serde::{Deserialize, Serialize};

/// Version of the kept list.
pub const FINDINGS_FORMAT: u32 = 1;

/// How dangerous a finding is, the most dangerous first: what runs without being asked before what must be followed or
/// called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Danger {
    /// This machine executes it, or what it names, and no build writes it: hooks, configuration of git and of agents.
    Guarded,
    /// A link that leads out of the project.
    EscapingLink,
    /// This machine executes it, and builds write such files too.
    Watched,
    /// A device, a pipe or a socket.
    Special,
    /// As watched, in a directory that builds fill and empty.
    BuildOutput,
}

impl Danger {
    /// As it is stored.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Danger::Guarded => "guarded",
            Danger::EscapingLink => "escaping-link",
            Danger::Watched => "watched",
            Danger::Special => "special",
            Danger::BuildOutput => "build-output",
        }
    }
}

/// Whether an entry was there before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoundAs {
    /// It was not, or it was harmless.
    New,
    /// It was, and has changed.
    Changed,
}

impl FoundAs {
    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            FoundAs::New => "new",
            FoundAs::Changed => "changed",
        }
    }
}

/// Something that a run left in the project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// How dangerous it is.
    pub danger: Danger,
    /// Where it is.
    pub path: AbsPath,
    /// Whether it is new.
    pub since: FoundAs,
    /// What it is, the same text for all of a kind.
    pub what: String,
    /// Where a link leads, escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The directory of build output that it lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<AbsPath>,
}

impl Finding {
    /// Whether it is new and what it is, in a line.
    #[must_use]
    pub fn why(&self) -> String {
        let to = self.target.as_ref().map(|target| format!(", to {target}")).unwrap_or_default();
        format!("{}; {}{to}", self.since.word(), self.what)
    }
}

/// An attempt to make or change a file that the host would execute later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldBack {
    /// The file, on the host.
    pub path: AbsPath,
    /// What was tried.
    pub act: GuestAct,
    /// What would run it.
    pub why: String,
}

/// Everything that one run left, as it is kept in belljar's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// [`FINDINGS_FORMAT`].
    pub format: u32,
    /// The agent whose plan it was.
    pub agent: AgentName,
    /// The project.
    pub project: AbsPath,
    /// When the run ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// The most dangerous first.
    pub items: Vec<Finding>,
    /// What the guard kept from being made or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldBack>,
    /// Those of the least danger that were too many to keep.
    pub dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let text = r#"{"format":1,"agent":"a","project":"/p","at_ms":7,"items":[{"danger":"escaping-link","path":"/p/out","since":"new","what":"a link","target":"/etc"},{"danger":"build-output","path":"/p/node_modules/.bin/x","since":"changed","what":"a shim","output":"/p/node_modules"}],"held":[{"path":"/p/.envrc","act":"make","why":"the shell runs it"}],"dropped":0}"#;
        let read: Findings = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!(read.items[0].why(), "new; a link, to /etc");
        assert!(Danger::Guarded < Danger::EscapingLink && Danger::Watched < Danger::BuildOutput);
        for danger in
            [Danger::Guarded, Danger::EscapingLink, Danger::Watched, Danger::Special, Danger::BuildOutput]
        {
            assert_eq!(serde_json::json!(danger), danger.name());
        }
    }
}
