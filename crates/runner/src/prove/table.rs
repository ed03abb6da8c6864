//! The probes, from `probes.toml`, each with its reason.

use belljar_contract::Attempt;
use serde::Deserialize;

/// A probe: an attempt, and the evidence to look for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub id: String,
    pub what: String,
    pub why: String,
    #[serde(default)]
    pub expected: Option<String>,
    #[serde(default)]
    pub kind: ProbeKind,
    #[serde(default)]
    pub stage: ProbeStage,
    /// A program of the system that the attempt needs.
    #[serde(default)]
    pub needs: Option<String>,
    #[serde(rename = "try")]
    pub attempt: Attempt,
    #[serde(default)]
    pub seen: Evidence,
}

/// The expected result of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ProbeKind {
    /// The attempt must be refused.
    #[default]
    Blocked,
    /// The attempt must work.
    Control,
    /// The attempt works on purpose.
    Given,
}

/// The run that a row is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ProbeStage {
    /// A run in which nothing is attempted.
    Idle,
    #[default]
    Plain,
    /// With a directory of the host as standard input.
    Directory,
    Terminal,
    Killed,
    /// With egress, in a made-up internet.
    Egress,
    /// With a search path without the program that builds sandboxes.
    Unbuilt,
    /// With a project whose manifest has an unknown key.
    Misspelt,
    /// With a project whose manifest asks for more than the user granted.
    Widened,
    /// With small in-memory file systems.
    Filled,
    /// With a low limit on processes.
    Crowded,
    /// belljar tests a foreign skill with a made-up agent.
    Stranger,
}

impl ProbeStage {
    /// All stages, in the order in which they run.
    pub const ALL: [ProbeStage; 12] = [
        ProbeStage::Idle,
        ProbeStage::Plain,
        ProbeStage::Directory,
        ProbeStage::Terminal,
        ProbeStage::Killed,
        ProbeStage::Egress,
        ProbeStage::Unbuilt,
        ProbeStage::Misspelt,
        ProbeStage::Widened,
        ProbeStage::Filled,
        ProbeStage::Crowded,
        ProbeStage::Stranger,
    ];

    /// The agent of the made-up user's manifest that the stage uses.
    pub const fn agent(self) -> &'static str {
        match self {
            ProbeStage::Egress => "egress",
            ProbeStage::Filled => "filled",
            ProbeStage::Crowded => "crowded",
            ProbeStage::Idle
            | ProbeStage::Plain
            | ProbeStage::Directory
            | ProbeStage::Terminal
            | ProbeStage::Killed
            | ProbeStage::Unbuilt
            | ProbeStage::Misspelt
            | ProbeStage::Widened
            | ProbeStage::Stranger => "prove",
        }
    }
}

/// The evidence for a row. Paths contain names in braces.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Evidence {
    /// The kernel's answer to the prober.
    #[default]
    Answer,
    /// A file of the host does not change.
    Unchanged(String),
    /// A file of the host changes.
    Changed(String),
    /// A file of the host does not change; if it does, the supervisor reports it at the end.
    Reported(String),
    /// A file of the host has no set-user-ID bit.
    NotSetuid(String),
    /// A listener of the host receives nothing.
    Quiet(Listener),
    /// No process of the host has the mark.
    NoProcess,
    /// git finds no new file in the project.
    CleanProject,
    /// No host of the made-up internet receives the text.
    Unheard(String),
    /// A host of the made-up internet receives the text.
    Heard(String),
    /// No record of a run contains the text.
    Unrecorded(String),
    /// The lines of the supervisor that name the text have no control characters.
    Escaped(String),
}

/// A listener on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Listener {
    Temporary,
    Home,
    Abstract,
    Tcp,
    Tcp6,
    Udp,
}

impl Row {
    /// The expected observation inside, for the report.
    pub fn expected(&self) -> String {
        match (&self.expected, self.kind) {
            (Some(text), _) => text.clone(),
            (None, ProbeKind::Control) => "works".to_owned(),
            (None, ProbeKind::Given) => "open".to_owned(),
            (None, ProbeKind::Blocked) => match &self.seen {
                Evidence::Answer => "refused or absent",
                Evidence::Unchanged(_) | Evidence::Changed(_) => "nothing changes on the host",
                Evidence::NotSetuid(_) => "no such file on the host",
                Evidence::Reported(_) => "held back, or reported at the end",
                Evidence::Quiet(_) => "the host hears nothing",
                Evidence::NoProcess => "nothing is left",
                Evidence::CleanProject => "nothing new",
                Evidence::Unheard(_) => "no host hears it",
                Evidence::Heard(_) => "a host hears it",
                Evidence::Unrecorded(_) => "no record holds it",
                Evidence::Escaped(_) => "shown without its escape sequences",
            }
            .to_owned(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    probe: Vec<Row>,
}

/// All probes, in order.
pub(super) fn rows() -> Result<Vec<Row>, toml::de::Error> {
    toml::from_str::<Table>(include_str!("probes.toml")).map(|table| table.probe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_whole_and_every_name_is_used_once() {
        let rows = rows().unwrap();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        for row in &rows {
            assert!(!row.why.is_empty() && !row.what.is_empty(), "{}", row.id);
        }
        assert!(rows.iter().filter(|row| row.kind == ProbeKind::Blocked).count() > 50);
    }
}
