//! Decides what becomes of a run that was to be recorded.

use super::make::{MakeError, make, suite_normalisers};
use crate::suite::{Trial, Tried};
use belljar_contract::{AbsPath, Conclusion, ExitCode, ScenarioResult, TapeNormaliser};
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
    /// The tape; `None` if the run did not pass.
    pub tape: Option<AbsPath>,
    /// How many answers each decider gave.
    pub answered_by: BTreeMap<String, u64>,
    pub taped: Taped,
    /// The normalisers of the suite, with what they changed.
    pub normalise: Vec<TapeNormaliser>,
}

impl Recorded {
    /// Makes the tape of a run, unless the run did not pass.
    ///
    /// # Errors
    /// If the tape cannot be made.
    pub fn of(
        trial: &Trial,
        tried: Tried,
        normalisers: &[Normaliser],
        (target, failing): (&AbsPath, Failing),
    ) -> Result<Self, MakeError> {
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
        let tape = wanted.then(|| make(trial, &tried, normalisers, target)).transpose()?;
        let answered_by = tried.answered_by();
        let taped = tried.report.taped.and_then(Result::ok).unwrap_or_default();
        let normalise = suite_normalisers(&trial.session.normalise, &taped.suite);
        Ok(Self { result, conclusion, tape, answered_by, taped, normalise })
    }

    /// A failing run that was recorded because the user wanted it is a success.
    #[must_use]
    pub const fn exit(&self) -> ExitCode {
        match self.tape {
            Some(_) => ExitCode::Passed,
            None => self.conclusion.exit(),
        }
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let mut row = json!(self.result);
        row["tape"] = json!(self.tape);
        if self.tape.is_some() {
            row["answered_by"] = json!(self.answered_by);
            row["exchanges"] = json!(self.taped.exchanges);
            row["leaks"] = json!(self.taped.leaks);
            row["normalisers"] = json!(self.normalise);
        }
        row
    }
}
