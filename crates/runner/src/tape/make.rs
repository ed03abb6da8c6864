//! Makes a tape from the directory of a run.

use super::copy::{frames, record};
use super::facts::TapeFacts;
use super::find::relative_path;
use super::scenario_files::ScenarioFiles;
use super::{Normaliser, TapeWriteError};
use crate::suite::{Trial, Tried, Untracked};
use belljar_contract::{
    AbsPath, Digest, Event, Observation, Run, SuiteNormaliser, TAPE_FORMAT, TAPE_KIND, TapeAgent, TapeHead,
    TapeNormaliser, TapeScenario, TapeUntracked,
};
use belljar_egress::tape::{SuiteChanges, Taped};
use belljar_record::tape::{Listed, TapeDraft};
use std::collections::BTreeMap;
use std::io;

/// Files of the run's directory that are copied unchanged.
const TAKEN: [&str; 2] = ["egress.jsonl", "files.json"];

/// Why no tape could be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The exchanges were not recorded completely.
    #[error("the exchanges with the model were not recorded: {why}")]
    Exchanges { why: String },
    /// The scenario cannot be read again.
    #[error("cannot read `{path}`")]
    Read {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// What the agent was given cannot be read.
    #[error("cannot read the uploads, directories and projects of the test: {why}")]
    Inputs { why: String },
    /// The trial has no scenario file that the tape could be stored beside.
    #[error("a tape needs a scenario file, and this test has none")]
    NoFile,
    #[error(transparent)]
    Write(#[from] TapeWriteError),
}

/// Makes a tape of a trial, and replaces an older one. Gives its path, and what it says of what was recorded.
///
/// # Errors
/// If it cannot be made; an older tape is kept.
pub fn make(
    trial: &Trial,
    tried: &Tried,
    normalisers: &[Normaliser],
    target: &AbsPath,
) -> Result<(AbsPath, TapeHead), MakeError> {
    let Taped { exchanges, leaks, suite } = match &tried.report.taped {
        Some(Ok(taped)) => taped.clone(),
        Some(Err(why)) => return Err(MakeError::Exchanges { why: why.clone() }),
        None => return Err(MakeError::Exchanges { why: "the run had no model".to_owned() }),
    };
    let mut scenario = scenario(trial, &tried.facts, target)?;
    scenario.normalise = suite_normalisers(&trial.session.normalise, &suite);
    let TapeFacts { program, program_before, .. } = &tried.facts;
    let digest = match (program, program_before) {
        (Some(_), Some(Ok(digest))) => Some(*digest),
        (Some(path), Some(Err(why))) => return Err(read(path, io::Error::other(why.clone()))),
        (Some(_), None) | (None, _) => None,
    };
    let mut draft = TapeDraft::begin(target)?;
    for name in TAKEN {
        draft.file(name, &tried.directory.child(name))?;
    }
    draft.record(&record(&tried.run, &tried.facts))?;
    let path = tried.directory.child("frames.jsonl");
    draft.part("frames.jsonl", frames(&path).map_err(|cause| read(&path, cause))?.as_bytes())?;
    draft.directory("artifacts/files", &tried.directory.child("artifacts/files"), Listed::AsParts)?;
    draft.exchanges(&tried.directory.child("tape"))?;
    let head = TapeHead {
        kind: TAPE_KIND.to_owned(),
        format: TAPE_FORMAT,
        belljar: env!("CARGO_PKG_VERSION").to_owned(),
        recorded_at_ms: tried.run.head.started_at_ms,
        scenario,
        agent: TapeAgent {
            harness: tried.facts.harness.clone(),
            version: agent_version(&tried.run),
            program: digest,
        },
        plan: tried.facts.plan_digest(),
        environment: tried.facts.environment.clone(),
        normalisers: normalisers.iter().map(|one| one.name().to_owned()).collect(),
        exchanges,
        parts: BTreeMap::new(),
        leaks: Some(leaks),
        values: tried.report.values.clone(),
        integrity: Digest::of(b""),
    };
    Ok((draft.finish(head.clone())?, head))
}

/// The normalisers of a suite with what they changed.
pub(super) fn suite_normalisers(of: &[SuiteNormaliser], changes: &[SuiteChanges]) -> Vec<TapeNormaliser> {
    let one = |(one, changes): (&SuiteNormaliser, &SuiteChanges)| TapeNormaliser {
        values: changes.values.len() as u64,
        requests: changes.requests,
        ..one.kept().clone()
    };
    of.iter().zip(changes).map(one).collect()
}

fn read(path: &AbsPath, cause: io::Error) -> MakeError {
    MakeError::Read { path: path.clone(), cause }
}

fn scenario(trial: &Trial, facts: &TapeFacts, target: &AbsPath) -> Result<TapeScenario, MakeError> {
    let file = trial.file.as_ref().ok_or(MakeError::NoFile)?;
    // A tape names it, so it has to be there still.
    std::fs::metadata(file).map_err(|cause| read(file, cause))?;
    let directory = target.parent().unwrap_or_else(|| target.clone());
    let ScenarioFiles { text, keys, session, servers, normalise: _ } = ScenarioFiles::of(trial);
    Ok(TapeScenario {
        name: trial.scenario.name.clone(),
        file: relative_path(&directory, file),
        digest: text.ok_or_else(|| read(file, io::ErrorKind::NotFound.into()))?,
        keys,
        session,
        servers,
        normalise: Vec::new(),
        skills: facts.skills.clone(),
        plugins: facts.plugins.clone(),
        untracked: match trial.untracked {
            Untracked::LeftOut => TapeUntracked::LeftOut,
            Untracked::Included => TapeUntracked::Included,
        },
        inputs: Some(facts.inputs.0.clone().map_err(|why| MakeError::Inputs { why })?),
        trees: facts.covered,
        places: facts.places.clone(),
    })
}

/// The version that the agent reported.
#[must_use]
pub fn agent_version(run: &Run) -> Option<String> {
    run.events.iter().find_map(|record| {
        let Some(Event::Seen { what }) = record.event.known() else { return None };
        let Observation::ConversationBegan { version, .. } = &**what else { return None };
        version.clone()
    })
}
