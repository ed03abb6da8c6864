//! Replaying tapes: with the real agent in the sandbox, or by reading the recorded conversation again.

use super::cassette::{self, Cassette};
use super::protocol::{self, ProtocolError, ReadAgain};
use super::{
    Changed, FindError, Mutations, OnDrift, Pace, ReplayModel, ReplayReport, Tape, TapeFailure, Taping,
    UnknownNormaliser, agent_version, mutate, scenario_changes, scenario_of,
};
use crate::environment::HostEnvironment;
use crate::launch::Model;
use crate::session::conversation::Then;
use crate::suite::{
    Answering, Consent, Conversation, Fidelity, Keep, LoadError, Trial, TrialError, TrialRequest, Tried,
    load_scenario_alone,
};
use belljar_contract::{AbsPath, Event, ExitCode, RunVerb, SandboxChoice};
use belljar_record::CassetteFault;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most conversations that are in memory at once.
const AT_ONCE: usize = 64;

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
    /// The tape was made with a normaliser that this version does not know.
    #[error(transparent)]
    Normaliser(#[from] UnknownNormaliser),
    /// The scenario did not run.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A cassette has no exchanges with the model.
    #[error("`{name}` has no exchanges with the model, so the agent cannot be run from it")]
    NothingToRun {
        /// The cassette, as the user would write it.
        name: String,
    },
    /// The scenario runs without isolation, but the replay must not use the network.
    #[error("`fidelity: protocol` runs without isolation, so that a replay cannot block the network")]
    OpenNetwork,
}

/// Scenarios that were read: many tapes may belong to one.
#[derive(Default)]
pub struct Scenarios {
    read: Mutex<BTreeMap<AbsPath, Arc<Trial>>>,
    time: Option<Duration>,
}

impl Scenarios {
    /// A set with a time limit that overrides the scenarios' own.
    #[must_use]
    pub fn within(time: Option<Duration>) -> Self {
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
        trial.scenario.timeout = self.time.or(trial.scenario.timeout);
        let trial = Arc::new(trial);
        known.insert(path, Arc::clone(&trial));
        Ok(trial)
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

/// Whether a replay may run without isolation.
///
/// # Errors
/// If the scenario runs without isolation and the network must stay blocked.
pub fn check_closed_network(trial: &Trial, sandbox: &SandboxChoice) -> Result<(), ReplayError> {
    match sandbox.backend.is_none() && trial.scenario.fidelity == Some(Fidelity::Protocol) {
        true => Err(ReplayError::OpenNetwork),
        false => Ok(()),
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
    /// What to do with a request that the tape does not have.
    pub on_drift: OnDrift,
    /// How fast answers are given.
    pub pace: Pace,
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
    tape: AbsPath,
}

/// Runs the real agent in its sandbox with the recorded answers.
///
/// # Errors
/// If the scenario did not run.
pub fn replay(request: ReplayRequest<'_>) -> Result<Replayed, ReplayError> {
    let ReplayRequest { environment, tape, trial, consent, sandbox, on_drift, pace, answering, keep, watch } =
        request;
    let tape = Arc::new(tape);
    let model = ReplayModel::new(Arc::clone(&tape), on_drift, pace)?;
    let tried = trial.run(TrialRequest {
        verb: RunVerb::Replay,
        environment,
        model: Model::Replay(model),
        sandbox,
        consent,
        name: None,
        answering,
        then: Then::End,
        conversation: Conversation::Fresh,
        keep,
        taping: Taping::Off,
        watch,
    })?;
    let report = tried.report.replayed.clone().unwrap_or_default();
    let mut changed = tried.facts.changed_since(&tape.head, agent_version(&tried.run).as_deref());
    changed.extend(scenario_changes(trial, &tape.head));
    Ok(Replayed { tried, report, changed, tape: tape.directory().clone() })
}

impl Replayed {
    /// A replay with drift has drifted, whatever its checks say.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        match self.report.is_faithful() {
            true => self.tried.judgement.conclusion.exit(),
            false => ExitCode::Drifted,
        }
    }

    #[must_use]
    pub fn json(&self, trial: &Trial) -> Value {
        let mut value = json!(self.tried.result(trial));
        value["tape"] = json!(self.tape);
        value["lane"] = json!("model");
        value["exit_code"] = json!(self.exit().code());
        value["replay"] = json!(self.report);
        value["changed"] = json!(self.changed);
        value
    }
}

/// Whether recorded results are changed one at a time, to find changes that no check notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutate {
    Yes,
    No,
}

/// A recorded conversation that was replayed from its frames and judged again.
pub struct Rejudged {
    pub trial: Arc<Trial>,
    pub found: ReadAgain,
    /// The format of the cassette, if it was one.
    pub cassette: Option<u64>,
    /// The mutations, if they were requested and everything passes.
    pub mutations: Option<Mutations>,
    asked: Mutate,
    path: AbsPath,
}

/// Reads a tape, or a cassette of another tool, and judges it again.
///
/// # Errors
/// If it cannot be read, or its scenario is not valid.
pub fn rejudge(
    path: &AbsPath,
    environment: &HostEnvironment,
    scenarios: &Scenarios,
    asked: Mutate,
) -> Result<Rejudged, ReplayError> {
    let (trial, found, cassette) = if path.as_path().is_file() {
        let cassette = open_cassette(path, environment)?;
        let trial = Arc::new(cassette::scenario(&cassette, (path, &environment.shown(path)))?);
        let found = cassette::replay(&cassette, &trial).map_err(ReplayError::CassetteProtocol)?;
        (trial, found, Some(cassette.format))
    } else {
        // The files that the scenario names are not needed.
        let load = |file: &AbsPath| Ok::<_, ReplayError>(load_scenario_alone(environment, file)?);
        let (tape, trial) = scenarios.open(path, environment, load)?;
        let found = protocol::replay(&Arc::new(tape), &trial)?;
        (trial, found, None)
    };
    let mut out = Rejudged { trial, found, cassette, mutations: None, asked, path: path.clone() };
    // If a check fails already, an unnoticed change proves nothing.
    if asked == Mutate::Yes && out.exit() == ExitCode::Passed {
        out.mutations = Some(mutate(&out.found.evidence, &out.trial.checks));
    }
    Ok(out)
}

impl Rejudged {
    /// A conversation whose observations differ from the recorded ones has drifted. One with an unnoticed change has
    /// failed.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        if self.found.mismatch.is_some() {
            return ExitCode::Drifted;
        }
        match self.mutations.as_ref().map(|mutations| (mutations.tried, mutations.unnoticed.len())) {
            None => self.found.judgement.conclusion.exit(),
            Some((0, _)) => ExitCode::Unverified,
            Some((_, 0)) => ExitCode::Passed,
            Some(_) => ExitCode::Failed,
        }
    }

    #[must_use]
    pub fn json(&self) -> Value {
        let Self { trial, found, cassette, mutations, asked, path } = self;
        let mut value = json!({
            "tape": path,
            "scenario": trial.scenario.name,
            "lane": "protocol",
            "conclusion": found.judgement.conclusion,
            "exit_code": self.exit().code(),
            "checks": found.judgement.checks,
            "signals": found.judgement.signals,
            "observations": found.observations,
            "mismatch": found.mismatch,
        });
        if *asked == Mutate::Yes {
            value["mutations"] = json!(mutations);
        }
        if let Some(format) = cassette {
            value["format"] = json!(format);
            value["notes"] = json!([cassette::UNSAID]);
        }
        value
    }
}

/// Judges many recordings again, on all processors; `each` receives them in their order.
pub fn rejudge_many(
    paths: &[AbsPath],
    environment: &HostEnvironment,
    scenarios: &Scenarios,
    asked: Mutate,
    each: &mut dyn FnMut(&AbsPath, Result<Rejudged, ReplayError>),
) {
    for some in paths.chunks(AT_ONCE) {
        let read = on_all_processors(some, |path| rejudge(path, environment, scenarios, asked));
        some.iter().zip(read).for_each(|(path, read)| each(path, read));
    }
}

fn on_all_processors<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let work = &work;
    std::thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(workers).max(1));
        let begun: Vec<_> =
            parts.map(|some| scope.spawn(move || some.iter().map(work).collect::<Vec<R>>())).collect();
        let end = |worker: std::thread::ScopedJoinHandle<'_, Vec<R>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        begun.into_iter().flat_map(end).collect()
    })
}

/// Opens a cassette.
///
/// # Errors
/// If the file cannot be read or is not a cassette.
pub fn open_cassette(path: &AbsPath, environment: &HostEnvironment) -> Result<Cassette, ReplayError> {
    Cassette::open(path).map_err(|cause| ReplayError::Cassette { name: environment.shown(path), cause })
}
