//! What was made of a run: each check with its outcome and its evidence, and what follows from all of them.

use crate::ExitCode;
use serde::{Deserialize, Serialize};

/// What a check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It holds.
    Pass,
    /// It does not.
    Fail,
    /// The evidence does not say. Not green.
    Unknown,
}

/// A check and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckResult {
    /// Where it is written, as in `assert[2]`.
    pub place: String,
    /// As it is written, in one line.
    pub check: String,
    /// What it says.
    pub outcome: Outcome,
    /// Why, in one line.
    pub message: String,
    /// What it looked at.
    pub evidence: Vec<EvidenceNote>,
}

/// A piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceNote {
    /// The number of the event that shows it, where one does.
    pub seq: Option<u64>,
    /// What it is, in a line or two.
    pub text: String,
}

/// Something that no check of the author asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// A stable word for machines, such as `permissive_auto_allow`.
    pub code: String,
    /// What it does to the verdict.
    pub weight: SignalWeight,
    /// What it is, in one line.
    pub message: String,
}

/// What a signal does to the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalWeight {
    /// The run has failed.
    Fail,
    /// The run cannot be judged.
    Unknown,
    /// Worth knowing.
    Warn,
}

/// What was made of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// What follows.
    pub conclusion: Conclusion,
    /// The checks of the author, in their order.
    pub checks: Vec<CheckResult>,
    /// Whatever else was noticed.
    pub signals: Vec<Signal>,
}

/// What follows from the checks and the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Everything holds.
    Passed,
    /// A check or a signal fails.
    Failed,
    /// Nothing fails, and not everything is known.
    Unverified,
    /// The agent or its harness failed.
    AgentFailed,
    /// A budget was reached.
    BudgetReached,
}

impl Conclusion {
    /// The status of a verb that ends with it.
    #[must_use]
    pub const fn exit(self) -> ExitCode {
        match self {
            Self::Passed => ExitCode::Passed,
            Self::Failed => ExitCode::Failed,
            Self::Unverified => ExitCode::Unverified,
            Self::AgentFailed => ExitCode::AgentFailed,
            Self::BudgetReached => ExitCode::Budget,
        }
    }
}
