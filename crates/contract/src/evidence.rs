//! What a run left behind that a check may look at. A live run and one read back from disk give the same.
//!
//! Whatever was not watched is absent, and says why: a check that needs it cannot pass.

use crate::{
    AskedQuestion, ConversationEnd, Digest, EgressLogReading, FrameSeen, LimitKind, Metrics, ModelExchange,
    Observation, RequestId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything a verdict is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What the conversation showed, in its order.
    pub seen: Vec<Seen>,
    /// Whether that is all there was.
    pub conversation: Whole,
    /// How the conversation ended; none where it was cut off.
    pub end: Option<ConversationEnd>,
    /// What was decided about every way out; none where nothing was watching.
    pub egress: Option<EgressLogReading>,
    /// What the gateway served, to compare the frames with.
    pub model: ModelEvidence,
    /// The files of the workspace; none where they were not looked at.
    pub files: Option<FilesSeen>,
    /// What the run used.
    pub metrics: Metrics,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// The limit that ended the run, where one did.
    pub stopped_by: Option<LimitKind>,
    /// What a reader said about claims that no rule can judge.
    pub claims: Vec<ClaimAnswer>,
    /// Who judges what was done for the user: in the workspace, or only what was delivered.
    pub lane: Lane,
}

/// An observation and when it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its number in the run's log.
    pub seq: u64,
    /// Milliseconds since the start of the run.
    pub offset_ms: u64,
    /// What.
    pub what: Observation,
}

/// Whether something is all there was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whole {
    /// It is.
    Yes,
    /// It is not, or cannot be known to be.
    No {
        /// Why, in a line.
        why: String,
    },
}

/// What the gateway served, beside what the agent's frames claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvidence {
    /// The record is older than the log of the model, or is not a conversation of its own.
    NotKept,
    /// Both are whole.
    Kept {
        /// What the frames claim.
        frames: Vec<FrameSeen>,
        /// What was served.
        exchanges: Vec<ModelExchange>,
    },
    /// One of them is missing, cut off or not what was written.
    Broken {
        /// Which and how, in a line.
        why: String,
    },
}

/// A statement about a run that only a reader can judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The statement.
    pub text: String,
    /// What the reader is shown.
    pub scope: ClaimScope,
    /// The model that is to read; none leaves the choice to whoever asks.
    pub model: Option<String>,
}

/// What a reader is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimScope {
    /// What the agent itself said, and the files it wrote.
    Agent,
    /// What its sub-agents said too.
    WithSubAgents,
}

/// What a reader said about a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimAnswer {
    /// The claim, as it was put.
    pub claim: Claim,
    /// Whether it holds.
    pub stand: ClaimStand,
    /// Who read: a model, by its exact name.
    pub by: String,
    /// Why, in a line or two.
    pub reason: String,
}

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStand {
    /// It does.
    Holds,
    /// It does not.
    DoesNot,
    /// The reader could not tell, or gave no answer that can be read.
    Unclear,
}

/// Where results count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// On the user's own machine: a file in the outputs is delivered.
    #[default]
    Local,
    /// Elsewhere: only what is handed over is delivered.
    Remote,
}

/// The files of the workspace before and after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesSeen {
    /// Before the agent began, by their path below the workspace with `/` between the parts.
    pub before: BTreeMap<String, FileSeen>,
    /// After it ended.
    pub after: BTreeMap<String, FileSeen>,
    /// Folders below the workspace whose files the user sees: the outputs and connected folders.
    pub visible: Vec<String>,
    /// Folders below the workspace that the agent may not change.
    pub read_only: Vec<String>,
    /// What could not be looked at. A check that says "nothing else" cannot pass then.
    pub unread: Vec<String>,
}

/// A file as it was found. No link is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSeen {
    /// What it is.
    pub kind: FileKind,
    /// Its length.
    pub bytes: u64,
    /// The digest of its content; of its target for a link; none where it was not read.
    pub digest: Option<Digest>,
    /// The digest of what was kept of it, where secrets were taken out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Digest>,
    /// Its content, where that was kept; not stored with the rest.
    #[serde(skip)]
    pub body: Option<Vec<u8>>,
}

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file.
    File,
    /// A symbolic link.
    Link {
        /// Where it leads, as it is written.
        target: String,
    },
    /// A pipe, a socket, a device.
    Special,
}

/// A question that was put to the user, from ask to delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate<'a> {
    /// Its id.
    pub request: &'a RequestId,
    /// The number of the event that asked.
    pub asked_at: u64,
    /// The number of the event that brought the answer to the model, or the failure.
    pub returned_at: Option<u64>,
    /// What was asked.
    pub questions: &'a [AskedQuestion],
    /// What was answered, one for each question; none where nothing was.
    pub answers: Option<&'a [String]>,
    /// Who decided.
    pub by: Option<&'a str>,
    /// Whether the answer reached the model: the tool came back, and whether with an error.
    pub delivery: Delivery,
}

/// Whether an answer reached the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It did.
    Delivered,
    /// The tool failed.
    Failed,
    /// The tool never came back.
    Missing,
}

impl Evidence {
    /// The questions that were put to the user, in their order.
    #[must_use]
    pub fn gates(&self) -> Vec<Gate<'_>> {
        let mut gates = Vec::new();
        for seen in &self.seen {
            let Observation::Asked { request, call, questions, .. } = &seen.what else { continue };
            if questions.is_empty() {
                continue;
            }
            let answered = self.seen.iter().find_map(|seen| match &seen.what {
                Observation::Answered { request: of, chosen, by, .. } if of == request => Some((chosen, by)),
                _ => None,
            });
            let returned = self.seen.iter().find_map(|seen| match &seen.what {
                Observation::ToolReturned { call: of, is_error, .. } if Some(of) == call.as_ref() => {
                    Some((seen.seq, *is_error))
                }
                _ => None,
            });
            gates.push(Gate {
                request,
                asked_at: seen.seq,
                returned_at: returned.map(|(seq, _)| seq),
                questions,
                answers: answered.map(|(chosen, _)| chosen.as_slice()).filter(|chosen| !chosen.is_empty()),
                by: answered.map(|(_, by)| by.as_str()),
                delivery: match returned.map(|(_, is_error)| is_error) {
                    Some(false) => Delivery::Delivered,
                    Some(true) => Delivery::Failed,
                    None => Delivery::Missing,
                },
            });
        }
        gates
    }
}
