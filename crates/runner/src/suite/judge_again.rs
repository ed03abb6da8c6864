//! Judges a kept run again, by the scenario that it was run with or by another one.

use super::denials::held_before;
use super::load::{LoadError, load_scenario_alone, scenario_alone};
use super::scope::Scope;
use crate::environment::HostEnvironment;
use crate::store::kept_run::{KeptRun, KeptRunError};
use crate::tape::{changed_besides_checks, is_tape};
use belljar_contract::{AbsPath, Judgement, holds_redaction};
use belljar_plan::DocumentText;
use belljar_record::{ReadError, RunReader, SCENARIO};
use belljar_verdict::{StaleRule, distrust, judge_as_replayed, judge_stale};

/// The largest scenario that is read, as for a run.
pub(super) const LONGEST: u64 = 4 << 20;

/// Why a run cannot be judged again.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Kept(#[from] KeptRunError),
    /// A tape names its scenario, and a replay judges by it.
    #[error("`{directory}` is a tape, not a run")]
    Tape { directory: AbsPath },
    /// The scenario is not valid.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The run was made without one, or by an older belljar.
    #[error("the run in `{directory}` has no scenario of its own")]
    NoScenario { directory: AbsPath },
    /// Its checks would compare other texts than the live ones did, and it may not even be valid.
    #[error("secrets were replaced in the kept scenario, so that its checks are not those of the run")]
    Redacted,
    #[error("cannot read `{path}`")]
    Scenario {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
}

/// A run that was judged again.
#[derive(Debug)]
pub struct JudgedAgain {
    pub judgement: Judgement,
    /// The name of the scenario.
    pub scenario: String,
    pub kept: KeptRun,
}

/// Judges a run by its own scenario, or by the one in a file. Evidence that was not kept is unknown, and so is everything
/// if the record was changed. A replay stays stale or drifted, and a tape is stale if the scenario in the file asks for
/// another run.
///
/// # Errors
/// If the run or the scenario cannot be read.
pub fn judge_again(
    directory: AbsPath,
    scenario: Option<&AbsPath>,
    environment: &HostEnvironment,
) -> Result<JudgedAgain, JudgeError> {
    let trial = match scenario {
        Some(file) => load_scenario_alone(environment, file)?,
        None if is_tape(&directory) => return Err(JudgeError::Tape { directory }),
        None => own_scenario(&directory, environment).map_err(|error| {
            KeptRunError::changed(&directory, environment).map_or(error, JudgeError::Kept)
        })?,
    };
    let kept = KeptRun::open(directory, environment, trial.scenario.lane)?;
    let mut judgement = trial.judge(&kept.evidence);
    if let Some(before) = kept.summary.as_ref().and_then(|summary| summary.verdict.as_ref()) {
        judge_as_replayed(&mut judgement, before);
        if scenario.is_none() {
            held_before(&mut judgement, before);
        }
    }
    if let (Some(file), Some(head)) = (scenario, &kept.tape) {
        let changed = changed_besides_checks(file, head, environment);
        judge_stale(&mut judgement, changed, StaleRule::Unverified);
    }
    let judgement = distrust(judgement, &kept.doubts());
    // A scenario without a name has that of its file, which the run's own copy does not keep.
    let scenario = scenario.map_or_else(|| kept.subject(), |_| trial.scenario.name);
    Ok(JudgedAgain { judgement, scenario, kept })
}

/// The scenario as it was used, redacted as the record is.
fn own_scenario(directory: &AbsPath, environment: &HostEnvironment) -> Result<super::Trial, JudgeError> {
    let reader = RunReader::new(directory.clone());
    // A directory that is not a run is named as such.
    reader.head()?;
    let path = directory.child(SCENARIO);
    let bytes =
        reader.file(SCENARIO, LONGEST).map_err(|cause| JudgeError::Scenario { path: path.clone(), cause })?;
    let Some(bytes) = bytes else { return Err(JudgeError::NoScenario { directory: directory.clone() }) };
    if holds_redaction(&bytes) {
        return Err(JudgeError::Redacted);
    }
    let text = DocumentText { name: environment.shown(&path), bytes: bytes.into_owned() };
    Ok(scenario_alone(text, Scope::of_file(&path, environment))?)
}
