//! Finds a recorded run.

use crate::environment::HostEnvironment;
use belljar_contract::{AbsPath, PathError};
use belljar_record::{ReadError, RunStore};
use std::path::Path;

/// Why a run was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindRunError {
    /// The path cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The runs cannot be listed.
    #[error(transparent)]
    List(#[from] ReadError),
    #[error("there is no run `{wanted}`")]
    NoRun {
        wanted: String,
        /// The directory that was searched, as the user would write it.
        runs: String,
    },
}

/// Finds the directory of a run by its path, by the end of its name, or by `last`.
///
/// # Errors
/// If the runs cannot be listed, or none matches.
pub fn find_run(wanted: &Path, environment: &HostEnvironment) -> Result<AbsPath, FindRunError> {
    let written = environment.directory.join(wanted)?;
    if written.child("run.json").as_path().is_file() {
        return Ok(written);
    }
    let runs = RunStore::new(&environment.state).list()?;
    let wanted = wanted.to_string_lossy();
    let found = match &*wanted {
        "last" => runs.last(),
        text => runs.iter().rev().find(|run| run.directory.to_string().ends_with(text)),
    };
    found.map(|run| run.directory.clone()).ok_or_else(|| FindRunError::NoRun {
        wanted: wanted.clone().into_owned(),
        runs: environment.shown_from_home(&environment.state.child("runs")),
    })
}
