//! Makes the result of a scenario that ran.

use super::load::Trial;
use super::{StageError, TrialError, Tried};
use crate::launch::RunError;
use crate::store::kept_run::agent_used;
use crate::store::summary::{decisions, final_message, not_isolated, observed, tools};
use belljar_contract::{Conclusion, Event, ExitCode, JudgeUsage, Observation, OpenNeed, ScenarioResult};
use belljar_report::decisive_moment;

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
            would_answer: would_answer(&seen),
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

/// Rules that would have answered what was left open.
fn would_answer(seen: &[&Observation]) -> Vec<String> {
    let rules = seen.iter().filter_map(|what| {
        let Observation::Unanswered { paste, request: _, notes: _ } = what else { return None };
        paste.clone()
    });
    rules.collect()
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
