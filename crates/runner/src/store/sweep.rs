//! Finds everything that is no longer needed, and removes it on request.
//!
//! Nothing in use is ever removed, whatever its age. Use is detected by locks that the kernel holds, not by files that
//! may be stale.

mod data;
mod runs;
mod sandboxes;

use crate::environment::HostEnvironment;
use crate::store::findings::FindingsError;
use crate::store::instances::InstanceError;
use crate::store::leftovers;
use crate::store::runtime::RuntimeError;
use belljar_contract::{AbsPath, TimeSpan};
use belljar_record::{ReadError, RemoveError, measure, remove_tree};
use belljar_sandbox::{EngineError, LayersError};
use belljar_sys::cgroup::CgroupError;
use data::{applies, instances};
use runs::{conversations, findings, runs, stages};
use sandboxes::{containers, groups, runtime};
use std::time::{Duration, SystemTime};

/// Whether the sweep removes entries or only lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepMode {
    DryRun,
    Remove,
}

#[derive(Debug)]
pub struct SweepRequest<'a> {
    pub environment: &'a HostEnvironment,
    pub mode: SweepMode,
    /// Removes directories of runs, and conversations, that were last used before this long. Without it, none is
    /// removed.
    pub runs_older_than: Option<TimeSpan>,
    pub now: SystemTime,
}

/// An entry that the sweep found.
#[derive(Debug)]
pub struct Swept {
    pub kind: SweptKind,
    /// The present or former path.
    pub path: AbsPath,
    /// The bytes that it uses or used.
    pub bytes: u64,
    pub outcome: SweepOutcome,
}

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SweptKind {
    /// The state of a project that was deleted.
    Instance {
        /// The project's root, if it is known.
        root: Option<AbsPath>,
    },
    /// The directory of a run.
    Run,
    /// The runtime directory of a run that has ended.
    Runtime,
    /// The stage of a test that has ended.
    Stage,
    /// A conversation that could be continued.
    Conversation,
    /// A container whose supervisor has ended.
    Container { id: String },
    /// An image whose build failed or was interrupted.
    Image { id: String },
    /// The list of a run's findings.
    Findings,
    /// Something whose creation or removal was interrupted.
    Leftover,
}

/// What the sweep did with an entry.
#[derive(Debug)]
pub enum SweepOutcome {
    Removed,
    /// It would be removed without `--dry-run`.
    WouldRemove,
    /// It is kept, for this reason.
    Kept(String),
    Failed(SweepError),
}

/// Why an entry was not removed, or could not be examined.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Instance(#[from] InstanceError),
    #[error(transparent)]
    Run(#[from] RemoveError),
    /// The listing of runs.
    #[error(transparent)]
    Runs(#[from] ReadError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("cannot list or remove control groups")]
    Group(#[from] CgroupError),
    #[error(transparent)]
    Layers(#[from] LayersError),
    #[error("cannot list or remove containers")]
    Container(#[from] EngineError),
    #[error(transparent)]
    Findings(#[from] FindingsError),
    #[error("cannot remove `{path}`")]
    Tree {
        path: AbsPath,
        #[source]
        cause: std::io::Error,
    },
}

/// Sweeps. Entries that could not be removed, and directories that could not be read, are in the list with their
/// errors, together with everything that was removed.
#[must_use]
pub fn sweep(request: &SweepRequest<'_>) -> Vec<Swept> {
    let HostEnvironment { data, runtime: runtime_path, state, .. } = request.environment;
    // Stages before instances: the instance of a workspace that is removed here is not needed either.
    let places: [(Sweeper, &AbsPath, SweptKind); 10] = [
        (stages, state, SweptKind::Stage),
        (conversations, state, SweptKind::Conversation),
        (instances, data, SweptKind::Instance { root: None }),
        (runtime, runtime_path, SweptKind::Runtime),
        (runs, state, SweptKind::Run),
        (findings, state, SweptKind::Findings),
        (groups, runtime_path, SweptKind::Leftover),
        // Before the traces of commands with their own engine are removed.
        (containers, runtime_path, SweptKind::Container { id: String::new() }),
        (interrupted, data, SweptKind::Leftover),
        (applies, data, SweptKind::Leftover),
    ];
    let mut out = Vec::new();
    for (place, path, kind) in places {
        if let Err(error) = place(request, &mut out) {
            let outcome = SweepOutcome::Failed(error);
            out.push(Swept { kind, path: path.clone(), bytes: 0, outcome });
        }
    }
    out
}

type Sweeper = fn(&SweepRequest<'_>, &mut Vec<Swept>) -> Result<(), SweepError>;

impl SweepRequest<'_> {
    fn act(&self, remove: impl FnOnce() -> Result<SweepOutcome, SweepError>) -> SweepOutcome {
        match self.mode {
            SweepMode::DryRun => SweepOutcome::WouldRemove,
            SweepMode::Remove => remove().unwrap_or_else(SweepOutcome::Failed),
        }
    }

    fn leftover(&self, path: AbsPath, remove: impl FnOnce() -> Result<(), SweepError>) -> Swept {
        let bytes = measure(path.as_path()).bytes;
        let outcome = self.act(|| remove().map(|()| SweepOutcome::Removed));
        Swept { kind: SweptKind::Leftover, bytes, outcome, path }
    }
}

/// What interrupted commands left outside belljar's own directories.
fn interrupted(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    for leftover in leftovers::find(request.environment, request.now) {
        let path = leftover.path().clone();
        let failed = |cause| SweepError::Tree { path: path.clone(), cause };
        out.push(request.leftover(path.clone(), || leftover.remove().map_err(failed)));
    }
    Ok(())
}

fn tree(path: &AbsPath) -> Result<(), SweepError> {
    remove_tree(path.as_path()).map_err(|cause| SweepError::Tree { path: path.clone(), cause })
}

/// A proof, or unpacking a guest, takes seconds; older remains come from an interrupted one.
const LEFT_AGE: Duration = Duration::from_secs(3600);

fn old_entries(directory: &AbsPath, now: SystemTime) -> Vec<AbsPath> {
    // A missing directory counts as empty.
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let old = |entry: &std::fs::DirEntry| entry.metadata().is_ok_and(|found| is_old(&found, now));
    entries.flatten().filter(old).filter_map(|entry| AbsPath::new(entry.path()).ok()).collect()
}

fn is_old(found: &std::fs::Metadata, now: SystemTime) -> bool {
    found.modified().is_ok_and(|time| now.duration_since(time).is_ok_and(|age| age > LEFT_AGE))
}
const IN_USE: &str = "a run uses it";
