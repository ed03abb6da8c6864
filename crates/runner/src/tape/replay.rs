//! Replaying tapes with the real agent in the sandbox.

use super::agreement::without_inputs;
use super::cassette::Cassette;
use super::make::suite_normalisers;
use super::protocol::ProtocolError;
use super::rejudge::Rejudging;
use super::scenario_files::ScenarioFiles;
use super::staleness::{Compared, PresentFiles, TreeRule};
use super::{
    AcrossVersions, Changed, FindError, Given, OnDrift, Origins, Pace, ReplayModel, ReplayReport, Tape,
    TapeFailure, TapeNormaliserError, Taping, agent_version, scenario_of,
};
use crate::environment::HostEnvironment;
use crate::launch::Model;
use crate::session::conversation::Then;
use crate::store::summary::observed;
use crate::suite::{
    Answering, Consent, Conversation, Keep, LoadError, NamedFiles, Trial, TrialError, TrialRequest, Tried,
};
use belljar_contract::{
    AbsPath, AgentChoice, Conclusion, Event, ExitCode, Judgement, RunVerb, SandboxChoice, TapeHead,
    TapeNormaliser, TimeSpan,
};
use belljar_record::CassetteFault;
use belljar_verdict::{DriftedRun, StaleRule, judge_contradicting, judge_drifted, judge_stale};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The tape is damaged, or lacks a part.
    #[error(transparent)]
    Tape(#[from] TapeFailure),
    /// The file is damaged, or not a cassette.
    #[error("the cassette `{name}` cannot be used")]
    Cassette {
        /// The file, as the user would write it.
        name: String,
        #[source]
        cause: CassetteFault,
    },
    /// The scenario of the tape cannot be found.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The scenario cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The recorded conversation cannot be read.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The conversation of a cassette cannot be read.
    #[error(transparent)]
    CassetteProtocol(ProtocolError),
    /// The tape was made with a normaliser that this version does not know, or that matches too much.
    #[error(transparent)]
    Normaliser(#[from] TapeNormaliserError),
    /// The scenario did not run.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A cassette has no exchanges with the model.
    #[error("`{name}` has no exchanges with the model, so the agent cannot be run from it")]
    NothingToRun {
        /// The cassette, as the user would write it.
        name: String,
    },
    /// A signal ended the run before it was complete.
    #[error("interrupted")]
    Interrupted,
    /// belljar could not guard or record the run, so it is not known what the agent did.
    #[error("the run in `{directory}` was not recorded completely: {why}")]
    NotRecorded { directory: AbsPath, why: String },
}

/// Scenarios that were read: many tapes may belong to one.
#[derive(Default)]
pub struct Scenarios {
    read: Mutex<BTreeMap<AbsPath, Arc<Trial>>>,
    present: Mutex<BTreeMap<(AbsPath, TreeRule), Arc<PresentFiles>>>,
    time: Option<TimeSpan>,
}

impl Scenarios {
    /// A set with a time limit that overrides the scenarios' own.
    #[must_use]
    pub fn within(time: Option<TimeSpan>) -> Self {
        Self { time, ..Self::default() }
    }

    fn load<E>(
        &self,
        path: AbsPath,
        load: impl FnOnce(&AbsPath) -> Result<Trial, E>,
    ) -> Result<Arc<Trial>, E> {
        // The map is complete even if a thread panicked while it held the lock.
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&path) {
            return Ok(Arc::clone(known));
        }
        let mut trial = load(&path)?;
        trial.time = self.time;
        let trial = Arc::new(trial);
        known.insert(path, Arc::clone(&trial));
        Ok(trial)
    }

    /// The files of a trial's scenario as they are now, by the rule that the tape was recorded with.
    pub(super) fn present(
        &self,
        (trial, head): (&Trial, &TapeHead),
        environment: &HostEnvironment,
        how: Rejudging<'_>,
    ) -> Arc<PresentFiles> {
        let Some(file) = trial.file.clone() else {
            return Arc::new(PresentFiles::unknown("the scenario has no file"));
        };
        let key = (file, TreeRule::of(head));
        let known = || self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(&key) {
            return Arc::clone(known);
        }
        // Without the lock, so that the other processors go on.
        let read = Arc::new(PresentFiles::read((&key.0, key.1), environment, &|wishes| (how.permit)(wishes)));
        known().insert(key, Arc::clone(&read));
        read
    }

    /// Opens a tape and loads its scenario.
    ///
    /// # Errors
    /// If the tape cannot be opened, or its scenario cannot be found or loaded.
    pub fn open<E: From<ReplayError>>(
        &self,
        path: &AbsPath,
        environment: &HostEnvironment,
        load: impl FnOnce(&AbsPath) -> Result<Trial, E>,
    ) -> Result<(Tape, Arc<Trial>), E> {
        let tape = Tape::open(path).map_err(ReplayError::from)?;
        let scenario = scenario_of(path, &tape.head, environment).map_err(ReplayError::from)?;
        let trial = self.load(scenario, load)?;
        Ok((tape, trial))
    }
}

/// A replay with the real agent.
pub struct ReplayRequest<'a> {
    /// The user's directories and variables.
    pub environment: &'a HostEnvironment,
    pub tape: Tape,
    pub trial: &'a Trial,
    pub consent: &'a Consent,
    /// The isolation that the command line asks for.
    pub sandbox: SandboxChoice,
    /// The version of the agent that is asked for; it overrides the session.
    pub agent: Option<AgentChoice>,
    /// What to do with a request that the tape does not have.
    pub on_drift: OnDrift,
    /// How fast answers are given.
    pub pace: Pace,
    /// What must be as recorded.
    pub across: AcrossVersions,
    /// Whether it may be green although the recorded scenario or skills were others.
    pub stale: StaleRule,
    /// What answers questions beside the scenario's own rules.
    pub answering: Answering,
    /// What is kept of the workspace.
    pub keep: Keep,
    /// Receives every event as it happens.
    pub watch: &'a mut dyn FnMut(&Event),
}

/// The result of running the real agent on a tape.
pub struct Replayed {
    /// The run and its judgement.
    pub tried: Tried,
    /// The agent's requests, compared with the tape.
    pub report: ReplayReport,
    /// The facts that changed since the tape was recorded.
    pub changed: Vec<Changed>,
    /// The versions of the agent.
    pub agents: ReplayedAgents,
    /// The normalisers of the suite, with what they changed in this run.
    pub normalise: Vec<TapeNormaliser>,
    /// Who answered and judged.
    pub origins: Origins,
    tape: AbsPath,
}

/// The version of the agent that was recorded, and of the one that was run, as each reports itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReplayedAgents {
    pub recorded: Option<String>,
    pub present: Option<String>,
}

impl ReplayedAgents {
    /// The sentence about a replay on another version.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let (recorded, present) = (self.recorded.as_ref()?, self.present.as_ref()?);
        (recorded != present).then(|| format!("replayed on {present}, recorded on {recorded}"))
    }
}

/// Why it is not known whether the session's files are the recorded ones. The instructions in a directory and an upload
/// that is mentioned reach the model in reminders, which are not compared on another version, and older tapes have no
/// digests of these files.
fn inputs_unknown(tape: &Tape, trial: &Trial) -> Option<String> {
    let NamedFiles { directories, projects, uploads, skills: _, plugins: _, servers: _ } = &trial.found;
    let has_none = directories.is_empty() && projects.is_empty() && uploads.is_empty();
    (!has_none && tape.head.scenario.inputs.is_none()).then(|| {
        "the tape has no digests of the session's uploads, directories and projects, which another version of the agent \
         needs; record it again"
            .to_owned()
    })
}

/// Only another version may differ in the agent's own parts. A program that says one version before the run and the
/// recorded one during it is not known to be another.
fn judge_crossing(judgement: &mut Judgement, report: &ReplayReport, agents: &ReplayedAgents) {
    if report.crossed > 0 && agents.sentence().is_none() {
        let why = "requests differ from the tape in the agent's own parts, and the agent does not report another version";
        judge_contradicting(judgement, Some(why.to_owned()));
    }
}

/// Runs the real agent in its sandbox with the recorded answers.
///
/// # Errors
/// If the scenario did not run.
pub fn replay(request: ReplayRequest<'_>) -> Result<Replayed, ReplayError> {
    let ReplayRequest {
        environment,
        tape,
        trial,
        consent,
        sandbox,
        agent,
        on_drift,
        pace,
        across,
        stale,
        answering,
        keep,
        watch,
    } = request;
    let tape = Arc::new(tape);
    let model = ReplayModel::new(Arc::clone(&tape), on_drift, pace, across)?;
    let normalise = model.normalisers.suite.clone();
    let mut tried = trial.run(TrialRequest {
        verb: RunVerb::Replay,
        environment,
        model: Model::Replay(model),
        sandbox,
        agent,
        consent,
        name: None,
        answering,
        then: Then::End,
        conversation: Conversation::Fresh,
        keep,
        taping: Taping::Off,
        watch,
    })?;
    if tried.was_interrupted() {
        tried.conclude(environment)?;
        return Err(ReplayError::Interrupted);
    }
    if let Some(why) = tried.own_failure() {
        tried.conclude_unjudged(&why, environment);
        return Err(ReplayError::NotRecorded { directory: tried.directory, why });
    }
    let report = tried.report.replayed.clone().unwrap_or_default();
    let mut changed = ScenarioFiles::of(trial).changed_since(&tape.head.scenario);
    let present = agent_version(&tried.run);
    changed.extend(tried.facts.changed_since(&tape.head, present.as_deref()));
    if across == AcrossVersions::Strict {
        let mut compared = Compared { changed, ..Compared::default() };
        compared.strictly(&tape.head, tried.facts.program.as_ref());
        changed = compared.all();
    }
    let agents = ReplayedAgents { recorded: tape.head.agent.version.clone(), present };
    judge_crossing(&mut tried.judgement, &report, &agents);
    judge_contradicting(&mut tried.judgement, without_inputs(&tape.head));
    if report.crossed > 0 {
        judge_contradicting(&mut tried.judgement, inputs_unknown(&tape, trial));
    }
    judge_stale(&mut tried.judgement, sentences(&changed, across), stale);
    if let Some(run) = drifted(&report, &tried.judgement, on_drift) {
        judge_drifted(&mut tried.judgement, run);
    }
    tried.conclude(environment)?;
    let normalise = suite_normalisers(&normalise, &report.suite);
    let claims = tried.run.events.iter().filter_map(|record| match record.event.known() {
        Some(Event::Judged { answers, usage: _ }) => Some(answers.as_slice()),
        Some(_) | None => None,
    });
    let claims = claims.flatten().cloned().collect::<Vec<_>>();
    // A drift may be answered by another, or by the live model.
    let judged = if report.drifts.is_empty() { Given::Recorded } else { Given::Now };
    let origins = Origins::of_run(&observed(&tried.run), &claims, judged);
    Ok(Replayed { tried, report, changed, agents, normalise, origins, tape: tape.directory().clone() })
}

/// What changed in the test itself, each a sentence; strictly, what changed at all.
pub(super) fn sentences(changed: &[Changed], across: AcrossVersions) -> impl Iterator<Item = String> {
    let counts = move |one: &&Changed| match across {
        AcrossVersions::UserSide => one.is_of_the_test(),
        AcrossVersions::Strict => true,
    };
    changed.iter().filter(counts).map(Changed::sentence)
}

/// Whether a replay drifted. Exchanges that were not asked for are no drift if the agent was ended before it could ask,
/// and neither is what an agent still sends when a limit has ended it: a drift ends the run by itself.
fn drifted(report: &ReplayReport, judgement: &Judgement, on_drift: OnDrift) -> Option<DriftedRun> {
    if !report.drifts.is_empty() {
        return match on_drift {
            OnDrift::Fail if judgement.conclusion == Conclusion::BudgetReached => None,
            OnDrift::Fail => Some(DriftedRun::Ended),
            OnDrift::Continue | OnDrift::Live => Some(DriftedRun::WentOn),
        };
    }
    let was_ended = match judgement.conclusion {
        Conclusion::AgentFailed | Conclusion::BudgetReached | Conclusion::Interrupted => true,
        Conclusion::Passed | Conclusion::Failed | Conclusion::Unverified | Conclusion::Drifted => {
            judgement.signals.iter().any(|signal| signal.code == "unanswered")
        }
    };
    (!report.unconsumed.is_empty() && !was_ended).then_some(DriftedRun::WentOn)
}

impl Replayed {
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        self.tried.judgement.conclusion.exit()
    }

    #[must_use]
    pub fn json(&self, trial: &Trial) -> Value {
        let mut value = json!(self.tried.result(trial));
        value["tape"] = json!(self.tape);
        value["lane"] = json!("model");
        value["exit_code"] = json!(self.exit().code());
        value["replay"] = json!(self.report);
        value["changed"] = json!(self.changed);
        value["agents"] = json!(self.agents);
        value["normalisers"] = json!(self.normalise);
        value["answered_by"] = json!(self.origins.answered_by);
        value["judged_by"] = json!(self.origins.judged_by);
        value
    }
}

/// Opens a cassette.
///
/// # Errors
/// If the file cannot be read or is not a cassette.
pub fn open_cassette(path: &AbsPath, environment: &HostEnvironment) -> Result<Cassette, ReplayError> {
    Cassette::open(path).map_err(|cause| ReplayError::Cassette { name: environment.shown(path), cause })
}
