//! Finds recorded runs, and lists them.

use crate::environment::HostEnvironment;
use crate::store::kept_run::{agent_used, subject, verb};
use crate::store::seal::Seals;
use belljar_contract::{
    AbsPath, AgentUsed, Conclusion, ExitCode, PathError, RunId, RunStatus, RunSummary, RunVerb, with_causes,
};
use belljar_record::{ReadError, RunPlace, RunReader, RunStore, SUMMARY, is_running};
use serde::Serialize;
use std::path::Path;

/// The most runs that the error about an ambiguous name lists.
const SHOWN: usize = 5;

/// Why a run was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindRunError {
    /// The path cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The runs cannot be listed.
    #[error(transparent)]
    List(#[from] ReadError),
    #[error("no run is called `{wanted}`")]
    NoRun {
        wanted: String,
        /// The directory that was searched, as the user would write it.
        runs: String,
    },
    #[error("`{wanted}` can mean {count} runs")]
    Ambiguous {
        wanted: String,
        count: usize,
        /// The names of the newest ones.
        names: Vec<String>,
    },
}

/// Finds the directory of a run: by its path, by its id or the beginning of it, by the last parts of the directory's name, or by
/// `last`.
///
/// # Errors
/// If the runs cannot be listed, none matches, or several do.
pub fn find_run(wanted: &Path, environment: &HostEnvironment) -> Result<AbsPath, FindRunError> {
    let written = environment.directory.join(wanted)?;
    if written.child("run.json").as_path().is_file() {
        return Ok(written);
    }
    let places = RunStore::new(&environment.state).places()?;
    let wanted = wanted.to_string_lossy().into_owned();
    let missing = || FindRunError::NoRun {
        wanted: wanted.clone(),
        runs: environment.shown_from_home(&environment.state.child("runs")),
    };
    if wanted == "last" {
        return places.into_iter().next().map(|place| place.directory).ok_or_else(missing);
    }
    if wanted.is_empty() {
        return Err(missing());
    }
    let by_id = |place: &&RunPlace| place.id.as_ref().is_some_and(|id| id.as_str().starts_with(&wanted));
    // Part of an id is its beginning: the end of one could be that of another run.
    let end = format!("-{wanted}");
    let by_name = |place: &&RunPlace| place.name == wanted || place.name.ends_with(&end);
    let mut found: Vec<&RunPlace> = places.iter().filter(by_id).collect();
    if found.is_empty() {
        found = places.iter().filter(by_name).collect();
    }
    match found.as_slice() {
        [] => Err(missing()),
        [one] => Ok(one.directory.clone()),
        several => Err(FindRunError::Ambiguous {
            wanted,
            count: several.len(),
            names: several.iter().take(SHOWN).map(|place| place.name.clone()).collect(),
        }),
    }
}

/// A recorded run, in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    /// `None` for a directory that belljar did not make.
    pub id: Option<RunId>,
    pub directory: AbsPath,
    /// Milliseconds since 1970.
    pub started_at_ms: Option<u64>,
    pub verb: Option<RunVerb>,
    /// The name of the scenario, or of the agent.
    pub subject: Option<String>,
    /// The program of the agent, if the record says it and is as it was written.
    pub agent: Option<AgentUsed>,
    #[serde(flatten)]
    pub end: RunRowEnd,
    pub duration_ms: Option<u64>,
    pub tool_calls: Option<u64>,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunRowEnd {
    Running,
    Judged {
        conclusion: Conclusion,
        exit_code: u8,
    },
    /// It ended and was not judged.
    Ended {
        status: RunStatus,
    },
    /// It ended and was to be judged, but no verdict was kept.
    NotJudged {
        status: RunStatus,
    },
    /// belljar was killed before the run ended.
    CutShort,
    /// A file is not as it was when the run ended.
    Changed {
        why: String,
    },
    /// The record cannot be read.
    Broken {
        why: String,
    },
}

impl RunRowEnd {
    /// Whether it is over and did not pass.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Running => false,
            Self::Judged { exit_code, .. } => *exit_code != ExitCode::Passed.code(),
            Self::Ended { status } => *status != RunStatus::Exited { code: 0 },
            Self::NotJudged { .. } | Self::CutShort | Self::Changed { .. } | Self::Broken { .. } => true,
        }
    }
}

/// All runs, newest first. Of most of them only the summary, the head, and the names and times of the other files are read.
///
/// # Errors
/// If the directory of runs cannot be read.
pub fn list_runs(environment: &HostEnvironment) -> Result<Vec<RunRow>, ReadError> {
    let seals = Seals::new(&environment.state);
    let places = RunStore::new(&environment.state).places()?;
    Ok(places.into_iter().map(|place| row(place, &seals)).collect())
}

fn row(place: RunPlace, seals: &Seals) -> RunRow {
    let reader = RunReader::new(place.directory.clone());
    let unread = |place: &RunPlace, why: &ReadError| RunRow {
        id: place.id.clone(),
        directory: place.directory.clone(),
        started_at_ms: None,
        verb: None,
        subject: None,
        agent: None,
        end: RunRowEnd::Broken { why: with_causes(why) },
        duration_ms: None,
        tool_calls: None,
    };
    match reader.summary() {
        Ok(Some(summary)) => summarised(place, summary, seals),
        Ok(None) => unsummarised(&place, &reader).unwrap_or_else(|why| unread(&place, &why)),
        Err(why) => unread(&place, &why),
    }
}

fn summarised(place: RunPlace, summary: RunSummary, seals: &Seals) -> RunRow {
    let RunPlace { directory, name: _, id } = place;
    // The name of the directory counts, so that a summary does not pass in another run's place.
    let run = id.as_ref().unwrap_or(&summary.run);
    let changes = seals.check_recent(&directory, run, SUMMARY);
    let end = match (changes.as_deref(), &summary.verdict) {
        (Err(why), _) => RunRowEnd::Broken { why: with_causes(why) },
        (Ok([change, ..]), _) => RunRowEnd::Changed { why: change.to_string() },
        (Ok([]), Some(verdict)) => {
            RunRowEnd::Judged { conclusion: verdict.conclusion, exit_code: verdict.exit_code }
        }
        (Ok([]), None) => without_verdict(Some(summary.verb), summary.status.clone()),
    };
    // Nothing is taken from a record that was changed.
    let agent = match changes.as_deref() {
        Ok([]) => RunReader::new(directory.clone()).head().ok().as_ref().and_then(agent_used),
        Ok([_, ..]) | Err(_) => None,
    };
    RunRow {
        id,
        directory,
        agent,
        started_at_ms: Some(summary.started_at_ms),
        verb: Some(summary.verb),
        tool_calls: Some(summary.tool_calls()),
        subject: Some(summary.subject),
        end,
        duration_ms: Some(summary.duration_ms),
    }
}

/// A run that goes on, was cut short, or is older than summaries.
fn unsummarised(place: &RunPlace, reader: &RunReader<'_>) -> Result<RunRow, ReadError> {
    // Evaluated before the result is read: a run that ends in between has one.
    let running = is_running(&place.directory);
    let head = reader.head()?;
    let result = reader.result()?;
    Ok(RunRow {
        id: place.id.clone(),
        directory: place.directory.clone(),
        started_at_ms: Some(head.started_at_ms),
        verb: verb(&head),
        subject: Some(subject(&head)),
        agent: agent_used(&head),
        duration_ms: result.as_ref().map(|result| result.duration_ms),
        end: match (running, result) {
            (true, _) => RunRowEnd::Running,
            (false, Some(result)) => without_verdict(verb(&head), result.status),
            (false, None) => RunRowEnd::CutShort,
        },
        tool_calls: None,
    })
}

/// A scenario whose command ended without a verdict is not green, whatever the command's status was.
fn without_verdict(verb: Option<RunVerb>, status: RunStatus) -> RunRowEnd {
    let is_judged = verb.is_some_and(|verb| verb.is_trial() && verb != RunVerb::Chat);
    match (is_judged, &status) {
        (true, RunStatus::Exited { .. } | RunStatus::Killed { .. } | RunStatus::LimitReached { .. }) => {
            RunRowEnd::NotJudged { status }
        }
        (true, RunStatus::NotStarted { .. } | RunStatus::Stopped) | (false, _) => RunRowEnd::Ended { status },
    }
}
