//! Decides what becomes of a run that was to be recorded.

use super::facts::{Changed, ChangedCause};
use super::make::{MakeError, make, suite_normalisers};
use super::staleness::{PresentFiles, TreeRule};
use crate::environment::HostEnvironment;
use crate::plan::agent_version::program_digest;
use crate::suite::{Consent, Trial, Tried};
use belljar_contract::{
    AbsPath, Conclusion, ExitCode, ScenarioResult, TapeHead, TapeNormaliser, Wishes, with_causes,
};
use belljar_egress::tape::{Normaliser, Taped};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Whether a run that did not pass is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    Recorded,
    NotRecorded,
}

/// A run that was to be recorded.
#[derive(Debug)]
pub struct Recorded {
    pub result: ScenarioResult,
    pub conclusion: Conclusion,
    pub kept: RecordingKept,
    /// How many answers each decider gave.
    pub answered_by: BTreeMap<String, u64>,
    pub taped: Taped,
    /// The normalisers of the suite, with what they changed.
    pub normalise: Vec<TapeNormaliser>,
    /// What changed while it was recorded, a sentence each: the tape is of what was there before.
    pub changed_meanwhile: Vec<String>,
}

/// What became of a run that was to be recorded. The run itself is kept in any case.
#[derive(Debug)]
pub enum RecordingKept {
    OnTape(AbsPath),
    /// It did not pass, or was interrupted.
    NotWanted,
    /// No tape could be made of it.
    NotPossible {
        why: MakeError,
        /// The directory of the run.
        run: AbsPath,
    },
}

/// What is no longer as it was staged, a sentence each. Files are read as far as the user agreed to the run.
fn changed_since_staged(
    trial: &Trial,
    tried: &Tried,
    head: &TapeHead,
    (environment, consent): (&HostEnvironment, &Consent),
) -> Vec<String> {
    let Some(file) = &trial.file else { return Vec::new() };
    let permit = |wishes: &Wishes| consent.covers(wishes);
    let present = PresentFiles::read((file, TreeRule::of(head)), environment, &permit);
    let mut changed = present.changed_since(head);
    let program = tried.facts.program.as_ref().map(|path| program_digest(&environment.state, path).ok());
    if program.is_some_and(|digest| digest != head.agent.program) {
        let says = "is not what was recorded".to_owned();
        changed.push(Changed::saying(ChangedCause::Agent, "the agent's program", says));
    }
    changed.iter().map(Changed::sentence).collect()
}

impl Recorded {
    /// Makes the tape of a run, unless the run did not pass.
    #[must_use]
    pub fn of(
        trial: &Trial,
        tried: Tried,
        normalisers: &[Normaliser],
        (target, failing): (&AbsPath, Failing),
        (environment, consent): (&HostEnvironment, &Consent),
    ) -> Self {
        let (result, conclusion) = (tried.result(trial), tried.judgement.conclusion);
        let wanted = match conclusion {
            Conclusion::Passed => true,
            // What it left is not complete, whatever the user wants.
            Conclusion::Interrupted => false,
            Conclusion::Failed
            | Conclusion::Unverified
            | Conclusion::AgentFailed
            | Conclusion::BudgetReached
            | Conclusion::Drifted => failing == Failing::Recorded,
        };
        let mut changed_meanwhile = Vec::new();
        let kept = match wanted.then(|| make(trial, &tried, normalisers, target)) {
            None => RecordingKept::NotWanted,
            Some(Ok((tape, head))) => {
                changed_meanwhile = changed_since_staged(trial, &tried, &head, (environment, consent));
                RecordingKept::OnTape(tape)
            }
            Some(Err(why)) => RecordingKept::NotPossible { why, run: tried.directory.clone() },
        };
        let answered_by = tried.answered_by();
        let taped = tried.report.taped.and_then(Result::ok).unwrap_or_default();
        let normalise = suite_normalisers(&trial.session.normalise, &taped.suite);
        Self { result, conclusion, kept, answered_by, taped, normalise, changed_meanwhile }
    }

    /// The tape, if there is one.
    #[must_use]
    pub const fn tape(&self) -> Option<&AbsPath> {
        match &self.kept {
            RecordingKept::OnTape(tape) => Some(tape),
            RecordingKept::NotWanted | RecordingKept::NotPossible { .. } => None,
        }
    }

    /// A failing run that was recorded because the user wanted it is a success. One that passed and could not be recorded
    /// is not.
    #[must_use]
    pub const fn exit(&self) -> ExitCode {
        match (&self.kept, self.conclusion) {
            (RecordingKept::OnTape(_), _) => ExitCode::Passed,
            (RecordingKept::NotPossible { .. }, Conclusion::Passed) => ExitCode::Unverified,
            (RecordingKept::NotPossible { .. } | RecordingKept::NotWanted, conclusion) => conclusion.exit(),
        }
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let mut row = json!(self.result);
        row["tape"] = json!(self.tape());
        match &self.kept {
            RecordingKept::OnTape(_) => {
                row["answered_by"] = json!(self.answered_by);
                row["exchanges"] = json!(self.taped.exchanges);
                row["leaks"] = json!(self.taped.leaks);
                row["normalisers"] = json!(self.normalise);
                row["changed_meanwhile"] = json!(self.changed_meanwhile);
            }
            RecordingKept::NotWanted => {}
            RecordingKept::NotPossible { why, run } => {
                row["exit_code"] = json!(self.exit().code());
                row["not_recorded"] = json!({"why": with_causes(why), "run": run});
            }
        }
        row
    }
}
