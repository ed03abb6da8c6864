//! Makes the result of a scenario that ran, or of a worker that ended.

use super::load::Trial;
use super::schedule::WorkerOutcome;
use super::{StageError, TrialError, Tried};
use crate::launch::RunError;
use crate::store::kept_run::agent_used;
use crate::store::summary::{decisions, final_message, not_isolated, observed, tools};
use belljar_contract::{
    Conclusion, ErrorText, Event, ExitCode, JudgeUsage, OpenNeed, ScenarioResult, SuiteResults,
};
use belljar_report::decisive_moment;
use serde::Deserialize;
use serde_json::Value;

impl Tried {
    /// What the judge used, if one was asked.
    #[must_use]
    pub fn judge_usage(&self) -> Option<JudgeUsage> {
        self.run.events.iter().find_map(|record| {
            let Event::Judged { usage, answers: _ } = record.event.known()? else { return None };
            Some(*usage)
        })
    }

    /// What nothing enforced, if the run had no sandbox.
    #[must_use]
    pub fn not_isolated(&self) -> Vec<OpenNeed> {
        not_isolated(&self.run)
    }

    #[must_use]
    pub fn result(&self, trial: &Trial) -> ScenarioResult {
        let result = self.run.result.as_ref();
        let conclusion = self.judgement.conclusion;
        let events = self.run.events.iter().filter_map(|record| record.event.known());
        // The record is redacted, so this is too.
        let seen = observed(&self.run);
        ScenarioResult {
            scenario: trial.scenario.name.clone(),
            file: trial.file.clone(),
            conclusion: Some(conclusion),
            exit_code: conclusion.exit().code(),
            checks: self.judgement.checks.clone(),
            signals: self.judgement.signals.clone(),
            repetition: None,
            final_message: final_message(&seen),
            tools: tools(&seen),
            decisions: decisions(&seen),
            moment: if conclusion == Conclusion::Passed { Vec::new() } else { decisive_moment(events) },
            duration_ms: result.map(|result| result.duration_ms),
            metrics: result.map(|result| result.metrics.clone()),
            judge: self.judge_usage(),
            agent: agent_used(&self.run.head),
            tier: Some(trial.tier(self.plan.backend)),
            not_isolated: self.not_isolated(),
            plan: Some(self.run.head.plan_digest),
            directory: Some(self.directory.clone()),
            denied: self.report.denied.iter().map(|denied| denied.sentence.clone()).collect(),
            warnings: self.report.warnings.clone(),
            limits_reached: self.report.reached.clone(),
            notice: self.notice.clone(),
            took_ms: None,
            error: None,
            diagnostics: Vec::new(),
        }
    }
}

impl TrialError {
    /// The exit status for a scenario that did not run.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Unsupported(_) => ExitCode::Unsupported,
            Self::Run(error) => run_exit(error),
            Self::Stage(error) => stage_exit(error),
            Self::Staged(_)
            | Self::Argument(_)
            | Self::Planning(_)
            | Self::Agent(_)
            | Self::NotAgreed { .. } => ExitCode::Invalid,
            Self::NotExecuted { .. } => ExitCode::AgentFailed,
            Self::Record(_) | Self::NoRecord | Self::Unrecorded { .. } | Self::Lost { .. } => {
                ExitCode::LaunchFailed
            }
        }
    }
}

/// What the files name may be missing; copying it is belljar's own work.
fn stage_exit(error: &StageError) -> ExitCode {
    match error {
        StageError::Place(_)
        | StageError::Copy { .. }
        | StageError::Read { .. }
        | StageError::Make { .. } => ExitCode::LaunchFailed,
        StageError::Source { .. }
        | StageError::Shared { .. }
        | StageError::Begun { .. }
        | StageError::NotBegun { .. }
        | StageError::Taken { .. }
        | StageError::Replaced { .. }
        | StageError::Name { .. } => ExitCode::Invalid,
    }
}

/// The agent has not run, so none of these is its failure.
fn run_exit(error: &RunError) -> ExitCode {
    match error {
        RunError::Unmet(_) => ExitCode::Unsupported,
        RunError::Value { .. }
        | RunError::Terminal(_)
        | RunError::Guest(_)
        | RunError::Launch(_)
        | RunError::Workspace(_)
        | RunError::Allowed(_)
        | RunError::Instance(_)
        | RunError::Session(_)
        | RunError::Journal(_)
        | RunError::UnrecordedConversation
        | RunError::EgressServices(_)
        | RunError::TapeKey(_)
        | RunError::Supervise(_) => ExitCode::LaunchFailed,
    }
}

/// The part of a worker's output that a suite reads.
#[derive(Deserialize)]
struct WorkerEnvelope {
    /// Results, or what belongs to an error.
    #[serde(default)]
    data: Value,
    error: Option<ErrorText>,
    #[serde(default)]
    diagnostics: Vec<Value>,
}

impl WorkerOutcome {
    /// The result that a worker printed, or why there is none.
    #[must_use]
    pub fn result(self, name: &str) -> ScenarioResult {
        let Self { status, output, complaints, duration, interrupted } = self;
        // A worker without a status of belljar's own was killed, or could not be started properly.
        let lost = if interrupted { ExitCode::Interrupted } else { ExitCode::LaunchFailed };
        let exit = status.and_then(ExitCode::from_status).unwrap_or(lost);
        // A worker that printed an error, no result, or one that contradicts its status has not passed.
        let not_run = if exit == ExitCode::Passed { ExitCode::Bug } else { exit };
        let envelope = serde_json::from_slice::<WorkerEnvelope>(&output).ok();
        let mut result = envelope
            .and_then(|WorkerEnvelope { data, error, diagnostics }| match error {
                Some(error) => {
                    Some(ScenarioResult { diagnostics, ..ScenarioResult::not_run(name, not_run, error) })
                }
                None => {
                    let SuiteResults { results, .. } = serde_json::from_value(data).ok()?;
                    let [result] = <[ScenarioResult; 1]>::try_from(results).ok()?;
                    (result.exit_code == exit.code()).then_some(result)
                }
            })
            .unwrap_or_else(|| {
                let error = ErrorText { message: complaints, ..ErrorText::default() };
                ScenarioResult::not_run(name, not_run, error)
            });
        result.took_ms = Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn outcome(status: Option<i32>, output: &str) -> ScenarioResult {
        let (output, complaints) = (output.as_bytes().to_vec(), "it broke".to_owned());
        let duration = Duration::from_millis(7);
        WorkerOutcome { status, output, complaints, duration, interrupted: false }.result("a.yaml")
    }

    #[test]
    fn a_worker_that_the_suite_ended_was_interrupted() {
        for (status, interrupted, expected) in [
            (None, true, ExitCode::Interrupted),
            (Some(130), true, ExitCode::Interrupted),
            (None, false, ExitCode::LaunchFailed),
            // One that had ended by itself before.
            (Some(2), true, ExitCode::Invalid),
        ] {
            let (output, complaints, duration) = (Vec::new(), String::new(), Duration::ZERO);
            let outcome = WorkerOutcome { status, output, complaints, duration, interrupted };
            assert_eq!(outcome.result("a.yaml").exit_code, expected.code(), "{status:?} {interrupted}");
        }
    }

    #[test]
    fn a_worker_that_printed_no_result_has_not_passed() {
        for (status, output, expected) in [
            (Some(0), "", ExitCode::Bug),
            (Some(0), "{}", ExitCode::Bug),
            (Some(0), r#"{"data": {"results": [], "passed": 0, "failed": 0}}"#, ExitCode::Bug),
            (Some(1), "not JSON", ExitCode::Failed),
            (None, "", ExitCode::LaunchFailed),
            (Some(2), r#"{"data": null, "error": {"message": "bad file"}}"#, ExitCode::Invalid),
            (Some(2), r#"{"data": {"wishes": []}, "error": {"message": "not agreed"}}"#, ExitCode::Invalid),
            (Some(0), r#"{"data": null, "error": {"message": "bad file"}}"#, ExitCode::Bug),
        ] {
            let result = outcome(status, output);
            assert_eq!(result.exit_code, expected.code(), "{status:?} {output}");
            assert_eq!((result.conclusion, result.took_ms), (None, Some(7)));
        }
    }

    #[test]
    fn a_result_that_contradicts_the_status_is_not_believed() {
        let mut passed = ScenarioResult::not_run("a", ExitCode::Passed, ErrorText::default());
        (passed.error, passed.conclusion) = (None, Some(Conclusion::Passed));
        let text = serde_json::json!({"data": SuiteResults::new(vec![passed])}).to_string();
        assert!(outcome(Some(0), &text).passed());
        assert_eq!(outcome(Some(1), &text).exit_code, 1);
        assert_eq!(outcome(None, &text).exit_code, ExitCode::LaunchFailed.code());
    }
}
