//! Finding a run that was recorded.

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
    /// No run is called so.
    #[error("there is no run `{wanted}`")]
    NoRun {
        /// What was looked for.
        wanted: String,
        /// Where, as the user would write it.
        runs: String,
    },
}

/// The directory of a run that is named by its directory, by the end of the directory's name, or by `last`.
///
/// # Errors
/// When the runs cannot be listed, or none is called so.
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
