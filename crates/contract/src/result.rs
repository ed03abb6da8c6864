//! The result of a scenario, as `--json` prints it and as a suite reads it from its workers.

use crate::{
    AbsPath, CheckResult, Conclusion, Digest, ExitCode, Metrics, Outcome, ReachedLimit, Signal, SignalWeight,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What one run of a scenario gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioResult {
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's file. A skill that is tried without a scenario has none.
    pub file: Option<AbsPath>,
    /// What follows from the checks; null where the scenario did not run.
    pub conclusion: Option<Conclusion>,
    /// The exit status that goes with it.
    pub exit_code: u8,
    /// The checks of the author, in their order.
    pub checks: Vec<CheckResult>,
    /// Whatever else was noticed.
    pub signals: Vec<Signal>,
    /// The last events before it went wrong, where it did.
    pub moment: Vec<String>,
    /// How long the run took.
    pub duration_ms: Option<u64>,
    /// What the run used.
    pub metrics: Option<Metrics>,
    /// The digest of the plan that it ran under.
    pub plan: Option<Digest>,
    /// The directory of the run.
    pub directory: Option<AbsPath>,
    /// Refused destinations, a sentence each.
    pub denied: Vec<String>,
    /// Problems with the model that only the user can solve, each with a hint.
    pub warnings: Vec<(String, String)>,
    /// Limits that were reached.
    pub limits_reached: Vec<ReachedLimit>,
    /// A note about the agent's version.
    pub notice: Option<String>,
    /// How long the whole attempt took, where a suite ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Why the scenario did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
    /// What is wrong with its files, as [`crate::Diagnostic::to_json`] writes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Value>,
}

/// An error for machines: what went wrong, why, and what to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorText {
    /// What went wrong.
    pub message: String,
    /// Why, the outermost cause first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// What to do.
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
            moment: Vec::new(),
            duration_ms: None,
            metrics: None,
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

    /// Checks that did not pass.
    pub fn unmet_checks(&self) -> impl Iterator<Item = &CheckResult> {
        self.checks.iter().filter(|check| check.outcome != Outcome::Pass)
    }

    /// Signals that keep the run from passing.
    pub fn weighty_signals(&self) -> impl Iterator<Item = &Signal> {
        self.signals.iter().filter(|signal| signal.weight != SignalWeight::Warn)
    }

    /// Whether everything passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.exit_code == ExitCode::Passed.code()
    }
}

/// The results of several scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteResults {
    /// One for each run of a scenario, in order.
    pub results: Vec<ScenarioResult>,
    /// How many passed.
    pub passed: usize,
    /// How many did not.
    pub failed: usize,
}

impl SuiteResults {
    /// Counts results.
    #[must_use]
    pub fn new(results: Vec<ScenarioResult>) -> Self {
        let passed = results.iter().filter(|result| result.passed()).count();
        Self { passed, failed: results.len() - passed, results }
    }

    /// One exit status for all.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        let exits = self.results.iter().map(|result| ExitCode::from_status(result.exit_code.into()));
        // A status that no verb has is a fault of the worker.
        ExitCode::worst(exits.map(|exit| exit.unwrap_or(ExitCode::Bug)))
    }
}
