//! Trials without a sandbox: where their stage is, and what must not lie above it.
//!
//! Agents read instructions and settings from every directory above the one that they work in. In a sandbox these
//! directories are empty. Without one the stage lies outside the user's home, and a directory above it that holds such a
//! file is refused.

use super::stage::Stage;
use super::trial::TrialError;
use crate::environment::HostEnvironment;
use crate::launch::Model;
use crate::store::names::fresh_run_id;
use crate::tape::Taping;
use belljar_contract::{AbsPath, BackendKind};
use belljar_session::Harnesses;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A repository above the workspace: the agent would take the workspace for a part of it.
const REPOSITORY: &str = ".git";

/// The directory of stages for runs without a sandbox.
pub(crate) fn staging(environment: &HostEnvironment) -> AbsPath {
    if !environment.runtime.is_within(&environment.home) {
        return environment.runtime.child("host");
    }
    let temporary = environment.variables.get(OsStr::new("TMPDIR")).map(PathBuf::from);
    let temporary = temporary.filter(|path| path.is_absolute() && path.is_dir());
    let temporary = temporary.and_then(|path| AbsPath::new(path.canonicalize().ok()?).ok());
    // Private: it is opened only if no other user can enter it.
    let name = format!("belljar-{}", rustix::process::geteuid().as_raw());
    match temporary.or_else(|| AbsPath::new("/tmp").ok()) {
        Some(temporary) => temporary.child(&name),
        None => environment.runtime.child("host"),
    }
}

/// A stage with nothing above it that an agent would read.
pub(super) fn stage(environment: &HostEnvironment) -> Result<Stage, TrialError> {
    let staging = staging(environment);
    let profile = Harnesses::built_in().usual().profile();
    let names = profile.read_above.iter().map(String::as_str).chain([REPOSITORY]);
    if let Some(found) = read_above(staging.as_path(), &names.collect::<Vec<_>>()) {
        return Err(TrialError::Unsupported(format!(
            "without a sandbox the agent would read `{}`, which lies above its workspace; set XDG_RUNTIME_DIR or \
             TMPDIR to a directory elsewhere, or use `--backend bwrap`",
            found.display()
        )));
    }
    Ok(Stage::new(&staging, &fresh_run_id())?)
}

/// Refuses what cannot be honest without a sandbox.
pub(super) fn check(backend: BackendKind, model: &Model, taping: &Taping) -> Result<(), TrialError> {
    if backend.isolates() {
        return Ok(());
    }
    let refused = |why: &str| Err(TrialError::Unsupported(format!("{why}; use `--backend bwrap`")));
    match (model, taping) {
        (Model::Replay(_), _) => refused(
            "a replay without a sandbox cannot keep the agent off the network, and the recorded requests name the \
             paths of a sandbox",
        ),
        (_, Taping::On(_)) => refused(
            "without a sandbox the requests hold paths of this machine that differ in every run, so that no replay \
             could match a tape of them",
        ),
        (Model::Absent | Model::Live | Model::Script(_), Taping::Off) => Ok(()),
    }
}

/// Why a conversation without a sandbox cannot be continued.
pub(super) fn not_resumed() -> TrialError {
    TrialError::Unsupported(
        "a conversation that can be resumed is kept below your home, where without a sandbox the agent would read your \
         own instructions; do not name the conversation, or use `--backend bwrap`"
            .to_owned(),
    )
}

/// The first of these names in the directory or in one above it.
fn read_above(directory: &Path, names: &[&str]) -> Option<PathBuf> {
    let above = directory.ancestors().flat_map(|above| names.iter().map(|name| above.join(name)));
    // A file that cannot be examined may be there.
    above.into_iter().find(|path| match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::requests::tests::environment;
    use std::fs;

    #[test]
    fn the_stage_lies_outside_the_home_of_the_user() {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        let mut environment = environment(&top);
        assert_eq!(staging(&environment), top.child("run/host"));
        environment.runtime = top.child("home/.local/state/belljar/run");
        fs::create_dir_all(top.child("tmp")).unwrap();
        environment.variables.insert("TMPDIR".into(), top.child("tmp").as_path().into());
        assert!(staging(&environment).is_within(&top.child("tmp")), "{}", staging(&environment));
        environment.variables.insert("TMPDIR".into(), "relative".into());
        assert!(!staging(&environment).is_within(&environment.home));
    }

    #[test]
    fn a_file_above_the_workspace_that_the_agent_would_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        let environment = environment(&top);
        let profile = Harnesses::built_in().usual().profile();
        let made = stage(&environment).unwrap();
        assert!(made.workspace().is_within(&top.child("run/host")));
        drop(made);
        for name in profile.read_above.iter().map(String::as_str).chain([REPOSITORY]) {
            fs::write(top.child("run").child(name), "mine").unwrap();
            let refused = stage(&environment).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("above its workspace"), "{refused}");
            fs::remove_file(top.child("run").child(name)).unwrap();
        }
        stage(&environment).unwrap();
    }
}
