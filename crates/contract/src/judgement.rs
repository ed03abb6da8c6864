//! The judgement of a run: each check with its outcome and evidence, and the conclusion.

use crate::ExitCode;
use serde::{Deserialize, Serialize};

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Pass,
    Fail,
    /// The evidence is not sufficient. The run does not pass.
    Unknown,
    /// The evidence cannot be sufficient without a sandbox, and the scenario accepts that. It does not count.
    Waived,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckResult {
    /// Its position in the scenario, such as `assert[2]`.
    pub place: String,
    /// The check as written, in one line.
    pub check: String,
    pub outcome: Outcome,
    /// The reason, in one line.
    pub message: String,
    /// The evidence that it used.
    pub evidence: Vec<EvidenceNote>,
}

/// A piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvidenceNote {
    /// The number of the event that shows it, if there is one.
    pub seq: Option<u64>,
    /// A description in a line or two.
    pub text: String,
}

/// Something that was noticed without a check for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signal {
    /// A stable code for machines, such as `permissive_auto_allow`.
    pub code: String,
    /// Its effect on the verdict.
    pub weight: SignalWeight,
    /// A description in one line.
    pub message: String,
}

/// The effect of a signal on the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalWeight {
    /// The run fails.
    Fail,
    /// The run cannot be judged.
    Unknown,
    /// Only reported.
    Warn,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    pub conclusion: Conclusion,
    /// The checks of the scenario, in order.
    pub checks: Vec<CheckResult>,
    pub signals: Vec<Signal>,
}

/// The conclusion from the checks and the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    Passed,
    /// A check or a signal fails.
    Failed,
    /// Nothing fails, but something is unknown.
    Unverified,
    /// The agent or its harness failed.
    AgentFailed,
    /// A budget was reached.
    BudgetReached,
    /// A replay drifted from its tape.
    Drifted,
    /// A signal to belljar ended the run before the agent had finished.
    Interrupted,
}

impl Conclusion {
    /// The exit code of a command that ends with this conclusion.
    #[must_use]
    pub const fn exit(self) -> ExitCode {
        match self {
            Self::Passed => ExitCode::Passed,
            Self::Failed => ExitCode::Failed,
            Self::Unverified => ExitCode::Unverified,
            Self::AgentFailed => ExitCode::AgentFailed,
            Self::BudgetReached => ExitCode::Budget,
            Self::Drifted => ExitCode::Drifted,
            Self::Interrupted => ExitCode::Interrupted,
        }
    }
}
