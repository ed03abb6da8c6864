//! The evidence of a run that checks look at. A live run and a run read from disk give the same evidence.
//!
//! Evidence that was not collected is absent, with the reason: a check that needs it cannot pass.

use crate::{
    AskedQuestion, ConversationEnd, Digest, EgressLogReading, FrameSeen, LimitKind, Metrics, ModelExchange,
    Observation, RequestId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All inputs of a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The observations of the conversation, in order.
    pub seen: Vec<Seen>,
    /// Whether the observations are complete.
    pub conversation: Whole,
    /// How the conversation ended; `None` if it was cut off.
    pub end: Option<ConversationEnd>,
    /// The decisions on egress; `None` if no proxy ran.
    pub egress: Option<EgressLogReading>,
    /// What the gateway served, for comparison with the frames.
    pub model: ModelEvidence,
    /// The files of the workspace; `None` if they were not examined.
    pub files: Option<FilesSeen>,
    pub metrics: Metrics,
    pub duration_ms: Option<u64>,
    /// The limit that ended the run, if one did.
    pub stopped_by: Option<LimitKind>,
    /// Whether the run had a sandbox. Checks that rest on one are unknown without it.
    pub isolation: RunIsolation,
    /// A model's judgements of claims that no rule can check.
    pub claims: Vec<ClaimAnswer>,
    /// Whether a result counts in the workspace or only when it is handed over.
    pub lane: Lane,
}

/// An observation and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its number in the run's event log.
    pub seq: u64,
    /// Milliseconds since the start of the run.
    pub offset_ms: u64,
    pub what: Observation,
}

/// Whether a run had a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunIsolation {
    Sealed,
    /// It ran as a process of the user, with the backend `host`.
    Missing {
        /// Directories of this machine that are the run's own, so that their paths say nothing.
        own: Vec<String>,
    },
}

/// Whether evidence is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whole {
    Yes,
    /// A signal to belljar ended the run: the agent might have gone on.
    Interrupted,
    /// A signal to belljar ended the judge of the claims; the agent had finished.
    JudgeInterrupted,
    /// It is incomplete, or that cannot be determined.
    No {
        /// The reason in one line.
        why: String,
    },
}

/// What the gateway served, and what the agent's frames claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvidence {
    /// The record is older than the model log, or is not a conversation of its own.
    NotKept,
    /// Both are complete.
    Kept {
        /// What the frames claim.
        frames: Vec<FrameSeen>,
        /// What the gateway served.
        exchanges: Vec<ModelExchange>,
    },
    /// One of them is missing, cut off or was changed.
    Broken {
        /// Which one and how, in one line.
        why: String,
    },
}

/// A statement about a run that only a model can judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub text: String,
    /// What the judge is shown.
    pub scope: ClaimScope,
    /// The model that judges; `None` leaves the choice to the caller.
    pub model: Option<String>,
    /// How many times it is judged; an odd number.
    pub votes: u8,
}

/// What the judge is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimScope {
    /// The agent's own texts, and the files that it wrote.
    Agent,
    /// The texts of its sub-agents as well.
    WithSubAgents,
}

/// The judgements of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimAnswer {
    /// The claim as it was sent.
    pub claim: Claim,
    /// The exact name of the model that judged.
    pub by: String,
    pub votes: Vec<ClaimVote>,
}

/// One judgement of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimVote {
    pub stand: ClaimStand,
    /// The reason, in a line or two.
    pub reason: String,
    /// The passage that shows it, word for word; `None` if the judge gave none.
    pub quote: Option<String>,
}

/// What the judge used, apart from the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeUsage {
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// In millionths of a US dollar; `None` if the price of a model is not known.
    pub cost_micros_usd: Option<u64>,
}

/// The result of judging a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStand {
    Holds,
    DoesNot,
    /// The judge was undecided, or its answer could not be parsed.
    Unclear,
}

/// Where a file counts as delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// On the user's own machine: a file in the outputs is delivered.
    #[default]
    Local,
    /// On a remote machine: only a file that is handed over is delivered.
    Remote,
}

/// The files of the workspace before and after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesSeen {
    /// Before the agent started, by path relative to the workspace, separated by `/`.
    pub before: BTreeMap<String, FileSeen>,
    pub after: BTreeMap<String, FileSeen>,
    /// Directories below the workspace whose files the user sees: the outputs and connected directories.
    pub visible: Vec<String>,
    /// Directories below the workspace that the agent must not change.
    pub read_only: Vec<String>,
    /// Directories below the workspace in which the agent must not delete the files that it was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lasting: Vec<String>,
    /// Paths that could not be examined. A check for "nothing else" cannot pass with any.
    pub unread: Vec<String>,
}

/// A file as it was found. Links are not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSeen {
    pub kind: FileKind,
    /// Its length in bytes.
    pub bytes: u64,
    /// The digest of its content, or of its target for a link; `None` if it was not read.
    pub digest: Option<Digest>,
    /// The digest of the kept content, if secrets were redacted from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Digest>,
    /// Its content, if that was kept. It is not serialised here.
    #[serde(skip)]
    pub body: Option<Vec<u8>>,
}

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Link {
        /// The target as written.
        target: String,
    },
    /// A pipe, a socket, a device.
    Special,
}

/// A question to the user, from the request to the delivery of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate<'a> {
    pub request: &'a RequestId,
    /// The number of the event that asked.
    pub asked_at: u64,
    /// The number of the event that returned the answer, or the failure, to the model.
    pub returned_at: Option<u64>,
    pub questions: &'a [AskedQuestion],
    /// The answers, one for each question; `None` without an answer.
    pub answers: Option<&'a [String]>,
    /// What decided: the decider's name.
    pub by: Option<&'a str>,
    pub delivery: Delivery,
}

/// Whether an answer reached the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Delivered,
    /// The tool call returned an error.
    Failed,
    /// The tool call did not return.
    Missing,
}

impl Evidence {
    /// The questions to the user, in order.
    #[must_use]
    pub fn gates(&self) -> Vec<Gate<'_>> {
        let mut gates = Vec::new();
        for seen in &self.seen {
            let Observation::Asked { request, call, questions, .. } = &seen.what else { continue };
            if questions.is_empty() {
                continue;
            }
            let answered = self.seen.iter().find_map(|seen| {
                let Observation::Answered { request: of, chosen, by, .. } = &seen.what else { return None };
                (of == request).then_some((chosen, by))
            });
            let returned = self.seen.iter().find_map(|seen| {
                let Observation::ToolReturned { call: of, is_error, .. } = &seen.what else { return None };
                (Some(of) == call.as_ref()).then_some((seen.seq, *is_error))
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
