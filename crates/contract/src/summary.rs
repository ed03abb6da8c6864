//! What a run was and what came of it, as `summary.json` in its directory says.

use crate::{AgentName, CheckResult, Conclusion, Digest, OpenNeed, RunId, RunStatus, Signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Version of [`RunSummary`]. Readers refuse a larger one.
pub const SUMMARY_FORMAT: u32 = 2;

/// The verb that started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerb {
    Run,
    Exec,
    Shell,
    Skill,
    Chat,
    Test,
    Record,
    Replay,
}

impl RunVerb {
    pub const ALL: [Self; 8] =
        [Self::Run, Self::Exec, Self::Shell, Self::Skill, Self::Chat, Self::Test, Self::Record, Self::Replay];

    /// The verb as it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Exec => "exec",
            Self::Shell => "shell",
            Self::Skill => "skill",
            Self::Chat => "chat",
            Self::Test => "test",
            Self::Record => "record",
            Self::Replay => "replay",
        }
    }

    /// Parses what [`RunVerb::name`] returns.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == text)
    }

    /// Whether the run is a conversation that belljar holds, in a workspace of its own.
    #[must_use]
    pub const fn is_trial(self) -> bool {
        match self {
            Self::Skill | Self::Chat | Self::Test | Self::Record | Self::Replay => true,
            Self::Run | Self::Exec | Self::Shell => false,
        }
    }
}

impl fmt::Display for RunVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a run was and what came of it. Texts are redacted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSummary {
    /// What [`RunSummary::format_of`] returns; at most [`SUMMARY_FORMAT`].
    pub format: u32,
    pub run: RunId,
    pub verb: RunVerb,
    /// The scenario's name, or the agent's for a run without a scenario.
    pub subject: String,
    pub agent: AgentName,
    /// Milliseconds since 1970.
    pub started_at_ms: u64,
    pub duration_ms: u64,
    pub status: RunStatus,
    /// The scenario's file, as it was named; `None` for a run without one. Its text is in `scenario.yaml`.
    pub scenario: Option<String>,
    pub digests: RunDigests,
    /// `None` for a run that is not judged, or was not started.
    pub verdict: Option<RunVerdict>,
    /// What nothing enforced, for a run without a sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_isolated: Vec<OpenNeed>,
    /// What the members below are taken from.
    pub conversation: ConversationSource,
    pub decisions: Vec<DecisionMade>,
    /// The agent's last message, at most its first [`RunSummary::MESSAGE_MAX`] bytes.
    pub final_message: Option<String>,
    /// Calls by the name of the tool.
    pub tools: BTreeMap<String, ToolCount>,
}

impl RunSummary {
    /// The most bytes of the agent's last message that are kept here.
    pub const MESSAGE_MAX: usize = 64 << 10;

    /// The first version that can say what was not isolated, or that a check was waived for it.
    #[must_use]
    pub const fn format_of(not_isolated: &[OpenNeed]) -> u32 {
        if not_isolated.is_empty() { 1 } else { SUMMARY_FORMAT }
    }

    /// The number of all tool calls.
    #[must_use]
    pub fn tool_calls(&self) -> u64 {
        self.tools.values().map(|count| count.calls).sum()
    }
}

/// Digests of what a run was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunDigests {
    pub plan: Digest,
    /// Of the scenario's file; `None` without one, and where the kept text is redacted, because a digest would help to
    /// guess what was replaced.
    pub scenario: Option<Digest>,
    /// Of the directories of the skills, by name.
    pub skills: BTreeMap<String, Digest>,
    /// Of the directories of the plugins, by name.
    pub plugins: BTreeMap<String, Digest>,
}

/// The judgement of a run when it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunVerdict {
    pub conclusion: Conclusion,
    /// The status that the verb ended with. That of a replay that drifted is not the conclusion's.
    pub exit_code: u8,
    pub checks: Vec<CheckResult>,
    pub signals: Vec<Signal>,
}

/// Where the conversation of a run is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationSource {
    /// belljar held it and recorded every frame.
    Frames,
    /// The agent's own transcript. belljar did not see the conversation and cannot verify it.
    Transcript,
    /// There was none, or no record of it.
    None,
}

/// A question of the agent, and who answered it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionMade {
    /// What was asked for: the subtype of the agent's request.
    pub about: String,
    /// The tool that the agent wanted to run.
    pub tool: Option<String>,
    /// The questions to the user, if it was a choice.
    pub questions: Vec<String>,
    /// The kind of answer; `None` without an answer.
    pub answer: Option<String>,
    /// The answers, one for each question.
    pub chosen: Vec<String>,
    /// The decider's name.
    pub by: Option<String>,
    /// Why it was answered so, or why it was not answered.
    pub reason: String,
}

/// How often a tool was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCount {
    pub calls: u64,
    /// How many of the calls returned an error.
    pub errors: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_is_stored_as_it_is_typed() {
        for verb in RunVerb::ALL {
            assert_eq!(RunVerb::parse(verb.name()), Some(verb));
            assert_eq!(serde_json::json!(verb), verb.name());
        }
        assert_eq!(RunVerb::parse("prove"), None);
    }
}
