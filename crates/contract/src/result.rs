//! The result of a scenario, as `--json` prints it and as a suite reads it from its workers.

use crate::{
    AbsPath, AgentUsed, CheckResult, Conclusion, DecisionMade, Digest, ExitCode, JudgeUsage, Metrics,
    OpenNeed, Outcome, ReachedLimit, Signal, SignalWeight, ToolCount,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The result of one run of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioResult {
    pub scenario: String,
    /// The scenario's file; `None` for a skill that is tried without a scenario.
    pub file: Option<AbsPath>,
    /// The conclusion from the checks; null if the scenario did not run.
    pub conclusion: Option<Conclusion>,
    pub exit_code: u8,
    /// The checks of the scenario, in order.
    pub checks: Vec<CheckResult>,
    pub signals: Vec<Signal>,
    /// Which repetition it is, from 1, if the scenario was run several times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repetition: Option<u32>,
    /// The agent's last message, redacted, at most its first [`crate::RunSummary::MESSAGE_MAX`] bytes.
    #[serde(default)]
    pub final_message: Option<String>,
    /// Calls by the name of the tool.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolCount>,
    /// The agent's questions, and who answered what and why.
    #[serde(default)]
    pub decisions: Vec<DecisionMade>,
    /// Rules for `answers` that would have answered the question for which the run ended, if further rules can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_answer: Vec<String>,
    /// The last events before the failure; empty without one.
    pub moment: Vec<String>,
    pub duration_ms: Option<u64>,
    pub metrics: Option<Metrics>,
    /// What the judge used, which is not part of the metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeUsage>,
    /// The program of the agent, and where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentUsed>,
    /// The backend, and the tier of the scenario if that has another name, as in `bwrap for container`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// What nothing enforced, for a run without a sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_isolated: Vec<OpenNeed>,
    pub plan: Option<Digest>,
    /// The directory of the run.
    pub directory: Option<AbsPath>,
    /// Refused destinations, one sentence each.
    pub denied: Vec<String>,
    /// Problems with the model that only the user can solve, each with a hint.
    pub warnings: Vec<(String, String)>,
    /// Limits that were reached.
    pub limits_reached: Vec<ReachedLimit>,
    /// A note about the agent's version.
    pub notice: Option<String>,
    /// The time of the whole attempt, if a suite ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
    /// Problems in its files, as [`crate::Diagnostic::to_json`] writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Value>,
}

/// An error for machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorText {
    pub message: String,
    /// The causes, outermost first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// How to fix it.
    #[serde(default)]
    pub hints: Vec<String>,
}

impl ScenarioResult {
    /// The result of a scenario that did not run.
    #[must_use]
    pub fn not_run(scenario: &str, exit: ExitCode, error: ErrorText) -> Self {
        Self {
            scenario: scenario.to_owned(),
            file: None,
            conclusion: None,
            exit_code: exit.code(),
            checks: Vec::new(),
            signals: Vec::new(),
            repetition: None,
            final_message: None,
            tools: BTreeMap::new(),
            decisions: Vec::new(),
            would_answer: Vec::new(),
            moment: Vec::new(),
            duration_ms: None,
            metrics: None,
            judge: None,
            agent: None,
            tier: None,
            not_isolated: Vec::new(),
            plan: None,
            directory: None,
            denied: Vec::new(),
            warnings: Vec::new(),
            limits_reached: Vec::new(),
            notice: None,
            took_ms: None,
            error: Some(error),
            diagnostics: Vec::new(),
        }
    }

    pub fn unmet_checks(&self) -> impl Iterator<Item = &CheckResult> {
        self.checks.iter().filter(|check| match check.outcome {
            Outcome::Fail | Outcome::Unknown => true,
            Outcome::Pass | Outcome::Waived => false,
        })
    }

    /// Signals that prevent the run from passing.
    pub fn weighty_signals(&self) -> impl Iterator<Item = &Signal> {
        self.signals.iter().filter(|signal| signal.weight != SignalWeight::Warn)
    }

    #[must_use]
    pub fn passed(&self) -> bool {
        self.exit_code == ExitCode::Passed.code()
    }
}

/// How the jobs of a suite ended, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuiteCount {
    pub passed: usize,
    /// How many did not, without those that a signal ended.
    pub failed: usize,
    /// How many a signal ended.
    pub ended_early: usize,
    pub not_started: usize,
    /// Whether a signal ended the suite.
    pub interrupted: bool,
}

impl SuiteCount {
    /// The numbers of jobs that ended with these codes. A job that a signal ended means that the suite was interrupted.
    #[must_use]
    pub fn of(exits: impl IntoIterator<Item = ExitCode>, not_started: usize, interrupted: bool) -> Self {
        let mut count = Self { passed: 0, failed: 0, ended_early: 0, not_started, interrupted };
        for exit in exits {
            let number = match exit {
                ExitCode::Passed => &mut count.passed,
                ExitCode::Interrupted => &mut count.ended_early,
                ExitCode::Failed
                | ExitCode::Invalid
                | ExitCode::Unverified
                | ExitCode::Unsupported
                | ExitCode::AgentFailed
                | ExitCode::Budget
                | ExitCode::Drifted
                | ExitCode::Bug
                | ExitCode::LaunchFailed
                | ExitCode::NotExecutable
                | ExitCode::NotFound => &mut count.failed,
            };
            *number += 1;
        }
        count.interrupted |= count.ended_early > 0;
        count
    }
}
