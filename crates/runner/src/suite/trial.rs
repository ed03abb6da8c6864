//! How a trial is requested, and what it gives.

use super::{Consent, ModelWish, StageError, evidence};
use crate::agents::ChooseError;
use crate::environment::HostEnvironment;
use crate::launch::{CommandOutcome, Model, Report, RunError, RunSubject};
use crate::plan::planned::PlanningError;
use crate::session::conversation::{ExternalDecider, Then};
use crate::session::supervise::Ending;
use crate::store::kept_run::not_judged;
use crate::store::summary::Concluding;
use crate::tape::{TapeFacts, Taping};
use belljar_contract::{
    AbsPath, AgentChoice, Event, Evidence, ExitCode, Judgement, Lane, Observation, OsTextError, Plan, Run,
    RunName, RunVerb, RunVerdict, SandboxChoice, with_causes,
};
use belljar_plan::StagedError;
use belljar_record::ReadError;
use belljar_session::decider::{GivenAnswers, Rule, given_answers};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a trial did not run, or cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The list of staged files cannot be written.
    #[error(transparent)]
    Staged(#[from] StagedError),
    #[error(transparent)]
    Planning(#[from] Box<PlanningError>),
    /// The version of the agent that is named cannot be used.
    #[error(transparent)]
    Agent(#[from] Arc<ChooseError>),
    #[error(transparent)]
    Run(#[from] Box<RunError>),
    /// The command could not be executed.
    #[error("the agent's program `{what}` cannot be executed")]
    NotExecuted { what: String },
    #[error("cannot read the record of the run")]
    Record(#[from] ReadError),
    #[error("the run left no record")]
    NoRecord,
    /// belljar could not write the record to its end.
    #[error("the record in `{directory}` is not complete: {why}")]
    Unrecorded { directory: AbsPath, why: String },
    /// The sandbox or its services failed during the run.
    #[error("{what}; the run until then is recorded in `{directory}`")]
    Lost { what: &'static str, directory: AbsPath },
    #[error("an argument contains a NUL byte")]
    Argument(#[from] OsTextError),
    /// The scenario needs something that this belljar does not support.
    #[error("{0}")]
    Unsupported(String),
    /// The user did not agree to what the suite asks for now. Nothing was staged.
    #[error("`{suite}` asks for more than was agreed to: {wishes}")]
    NotAgreed { suite: AbsPath, wishes: String },
}

/// How a trial is run.
pub struct TrialRequest<'a> {
    pub verb: RunVerb,
    /// The user's directories and variables.
    pub environment: &'a HostEnvironment,
    /// The model, live or replayed.
    pub model: Model,
    /// The isolation that the command line asks for; it overrides the scenario.
    pub sandbox: SandboxChoice,
    /// The version of the agent that is asked for; it overrides the session.
    pub agent: Option<AgentChoice>,
    pub consent: &'a Consent,
    /// The exact name of the run.
    pub name: Option<RunName>,
    pub answering: Answering,
    /// What follows the prompt.
    pub then: Then,
    /// The conversation that is begun or continued.
    pub conversation: Conversation,
    /// Whether the whole workspace is kept, or only the files that the agent made.
    pub keep: Keep,
    /// Whether the exchanges with the model are recorded for a tape.
    pub taping: Taping,
    /// Receives every event as it happens.
    pub watch: &'a mut dyn FnMut(&Event),
}

/// What a trial is planned from.
#[derive(Clone, Copy)]
pub struct Planning<'a> {
    /// The user's directories and variables.
    pub environment: &'a HostEnvironment,
    /// The isolation that the command line asks for; it overrides the scenario.
    pub sandbox: &'a SandboxChoice,
    /// The version of the agent that is asked for; it overrides the session.
    pub agent: Option<&'a AgentChoice>,
    pub conversation: &'a Conversation,
    pub consent: &'a Consent,
}

/// Whether the workspace is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The files that the agent created or changed.
    Changes,
    Workspace,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Conversation {
    /// It cannot be continued.
    #[default]
    Fresh,
    /// It can be continued under this name.
    Named(ConversationName),
    /// Continues the conversation of this name.
    Resumed(ConversationName),
}

/// The name of a conversation, which determines the id that the agent uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationName(String);

impl ConversationName {
    /// A name of letters, digits and `-`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        ((1..=64).contains(&text.len()) && text.chars().all(fits)).then(|| Self(text.to_owned()))
    }

    /// The agent accepts only UUIDs.
    pub(super) fn uuid(&self) -> String {
        let parts: Vec<usize> = self.0.split('-').map(str::len).collect();
        if parts == [8, 4, 4, 4, 12] && self.0.chars().all(|c| c == '-' || c.is_ascii_hexdigit()) {
            return self.0.to_lowercase();
        }
        let hex = belljar_contract::Digest::of(self.0.as_bytes()).hex();
        format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
    }
}

impl std::fmt::Display for ConversationName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The deciders beside the scenario's own rules.
#[derive(Default)]
pub struct Answering {
    /// Rules of the command line, which come first.
    pub flags: Vec<Rule>,
    /// Rules of an answer policy, which come last.
    pub policy: Vec<Rule>,
    /// A decider that may take time.
    pub outside: Option<Box<dyn ExternalDecider>>,
    /// A model that answers the remaining questions.
    pub model: Option<ModelWish>,
    /// What is done with a question that is still open, unless the scenario says it.
    pub last: LastResort,
}

/// What is done with a question that neither a rule nor a named decider answers.
#[derive(Default)]
pub enum LastResort {
    /// It fails the run.
    #[default]
    Fail,
    /// It gets its first option.
    First,
    /// A person is asked, about tools as well.
    Person(Box<dyn ExternalDecider>),
}

/// A trial that ran.
#[derive(Debug)]
pub struct Tried {
    pub judgement: Judgement,
    pub run: Run,
    /// The directory of its record.
    pub directory: AbsPath,
    /// The plan that it ran under.
    pub plan: Plan,
    /// The report on the run.
    pub report: Report,
    /// Facts about the trial for a tape.
    pub facts: TapeFacts,
    /// A warning about the agent's version.
    pub notice: Option<String>,
    /// What the run was for.
    pub(crate) subject: RunSubject,
}

impl Tried {
    /// Whether a signal to belljar ended the run before the agent was done.
    #[must_use]
    pub const fn was_interrupted(&self) -> bool {
        matches!(self.report.outcome, CommandOutcome::Ended(Ending::Stopped(_)))
    }

    /// The answers that no rule gave, as options and rules for the next run.
    #[must_use]
    pub fn given_answers(&self) -> GivenAnswers {
        let events = self.run.events.iter().filter_map(|record| record.event.known());
        given_answers(events.filter_map(|event| {
            let Event::Seen { what } = event else { return None };
            Some(&**what)
        }))
    }

    /// How many answers each decider gave.
    #[must_use]
    pub fn answered_by(&self) -> BTreeMap<String, u64> {
        let mut out = BTreeMap::new();
        for event in self.run.events.iter().filter_map(|record| record.event.known()) {
            if let Event::Seen { what } = event
                && let Observation::Answered { by, .. } = &**what
            {
                *out.entry(by.clone()).or_default() += 1;
            }
        }
        out
    }

    /// Why belljar itself failed, so that it is not known what the agent did.
    #[must_use]
    pub fn own_failure(&self) -> Option<String> {
        let Report { outcome, record_errors, reached, .. } = &self.report;
        match outcome {
            CommandOutcome::Ended(Ending::Unguarded) => {
                return Some("the egress services ended before the agent did".to_owned());
            }
            CommandOutcome::Ended(Ending::Lost) if reached.is_empty() => {
                return Some("the sandbox ended without a report".to_owned());
            }
            CommandOutcome::Ended(
                Ending::Lost | Ending::Own(_) | Ending::TimeLimit(_) | Ending::Dismissed | Ending::Stopped(_),
            )
            | CommandOutcome::NotExecuted { .. } => {}
        }
        record_errors.first().cloned()
    }
}

/// What failed of belljar itself during the run. How the agent ended says nothing about it then.
fn own_failure(report: &Report, directory: &AbsPath) -> Result<(), TrialError> {
    let lost = |what| Err(TrialError::Lost { what, directory: directory.clone() });
    if let Some(why) = &report.unrecorded {
        return Err(TrialError::Unrecorded { directory: directory.clone(), why: why.clone() });
    }
    match &report.outcome {
        CommandOutcome::Ended(Ending::Unguarded) => {
            lost("the egress services failed, and the sandbox was ended")
        }
        // A memory limit may end the whole sandbox.
        CommandOutcome::Ended(Ending::Lost) if report.reached.is_empty() => {
            lost("the sandbox ended without a report from inside")
        }
        CommandOutcome::Ended(
            Ending::Own(_) | Ending::TimeLimit(_) | Ending::Dismissed | Ending::Stopped(_) | Ending::Lost,
        )
        | CommandOutcome::NotExecuted { .. } => Ok(()),
    }
}

/// A run that has ended and is not judged yet.
pub(super) struct EndedRun<'a> {
    pub report: &'a Report,
    pub directory: &'a AbsPath,
    pub subject: &'a RunSubject,
    pub environment: &'a HostEnvironment,
}

impl EndedRun<'_> {
    /// Reads what it is judged from. If that fails, the summary says that it was not judged, and why.
    pub fn read(
        &self,
        lane: Lane,
        keep: impl FnOnce() -> Result<(), StageError>,
    ) -> Result<(Run, Evidence), TrialError> {
        let read = || {
            own_failure(self.report, self.directory)?;
            keep()?;
            Ok(evidence(self.directory, lane)?)
        };
        read().inspect_err(|error: &TrialError| self.conclude_unjudged(error.exit(), &with_causes(error)))
    }

    fn conclude_unjudged(&self, exit: ExitCode, why: &str) {
        let Self { report, directory, subject, environment } = *self;
        let concluding = Concluding {
            directory,
            subject,
            verdict: (subject.verb != RunVerb::Chat).then(|| not_judged(exit, why)),
            redact: &report.redact,
            state: &environment.state,
        };
        // The failure itself is reported. A run without a summary is listed as not judged, too.
        concluding.conclude().ok();
    }
}

impl Tried {
    /// Writes that belljar itself failed, so that the judgement does not stand.
    pub(crate) fn conclude_unjudged(&self, why: &str, environment: &HostEnvironment) {
        let Self { report, directory, subject, .. } = self;
        EndedRun { report, directory, subject, environment }.conclude_unjudged(ExitCode::LaunchFailed, why);
    }

    /// Writes what was judged to the run's directory, and seals it. A chat is not judged.
    ///
    /// # Errors
    /// If it cannot be written: a verdict without its record is not given.
    pub(crate) fn conclude(&self, environment: &HostEnvironment) -> Result<(), TrialError> {
        let Judgement { conclusion, checks, signals } = self.judgement.clone();
        let verdict = RunVerdict { conclusion, exit_code: conclusion.exit().code(), checks, signals };
        let concluding = Concluding {
            directory: &self.directory,
            subject: &self.subject,
            verdict: (self.subject.verb != RunVerb::Chat).then_some(verdict),
            redact: &self.report.redact,
            state: &environment.state,
        };
        concluding.conclude_read(&self.run).map_err(|error| TrialError::Unrecorded {
            directory: self.directory.clone(),
            why: with_causes(&error),
        })
    }
}
