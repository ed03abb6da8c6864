//! Findings: what a run left in the project that a person should look at, as stored.

use crate::{AbsPath, AgentName, GuestAct};
use serde::{Deserialize, Serialize};

/// Version of the stored list.
pub const FINDINGS_FORMAT: u32 = 1;

/// How dangerous a finding is, most dangerous first. A file that runs by itself is worse than one that must be
/// followed or called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Danger {
    /// This machine executes it, or a program that it names, and builds do not write such files: hooks, configuration
    /// of git and of agents.
    Guarded,
    /// A link that leads out of the project.
    EscapingLink,
    /// This machine executes it, but builds write such files too.
    Watched,
    /// A device, a pipe or a socket.
    Special,
    /// As [`Self::Watched`], in a directory that builds fill and empty.
    BuildOutput,
}

impl Danger {
    /// The name in the stored form.
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

/// Whether an entry existed before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoundAs {
    /// It did not exist, or was harmless.
    New,
    /// It existed and has changed.
    Changed,
}

impl FoundAs {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            FoundAs::New => "new",
            FoundAs::Changed => "changed",
        }
    }
}

/// A file that a run left in the project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// How dangerous it is.
    pub danger: Danger,
    pub path: AbsPath,
    /// Whether it is new.
    pub since: FoundAs,
    /// What it is; the same text for all findings of a kind.
    pub what: String,
    /// The target of a link, escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The directory of build output that contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<AbsPath>,
}

impl Finding {
    /// Whether it is new and what it is, in one line.
    #[must_use]
    pub fn why(&self) -> String {
        let to = self.target.as_ref().map(|target| format!(", to {target}")).unwrap_or_default();
        format!("{}; {}{to}", self.since.word(), self.what)
    }
}

/// An attempt to create or change a file that the host would execute later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldBack {
    /// The file, on the host.
    pub path: AbsPath,
    pub act: GuestAct,
    /// What would execute it.
    pub why: String,
}

/// All findings of one run, as stored in belljar's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// [`FINDINGS_FORMAT`].
    pub format: u32,
    /// The agent that the plan is for.
    pub agent: AgentName,
    pub project: AbsPath,
    /// When the run ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// Most dangerous first.
    pub items: Vec<Finding>,
    /// The attempts that the guard refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldBack>,
    /// The number of findings that were left out because there were too many; the least dangerous ones are left out.
    pub dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_round_trip() {
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
