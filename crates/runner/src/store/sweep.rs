//! Finds everything that is no longer needed, and removes it on request.
//!
//! Nothing in use is ever removed, whatever its age. Use is detected by locks that the kernel holds, not by files that
//! may be stale.

use crate::changes::layers::Layer;
use crate::environment::HostEnvironment;
use crate::launch::engine::engine_places;
use crate::launch::guest_program;
use crate::store::findings::{FindingsError, FindingsStore};
use crate::store::instances::{InstanceEntry, InstanceError, Instances, ProjectState};
use crate::store::leftovers::{self, SCENE_PREFIX};
use crate::store::locks;
use crate::store::runtime::{MAKING_PREFIX, RuntimeDirectory, RuntimeError};
use crate::suite::stage;
use belljar_contract::{AbsPath, TimeSpan};
use belljar_record::{ReadError, RemoveError, RunEntry, RunState, RunStore, measure, remove_tree};
use belljar_sandbox::{
    CONTAINER_FOLDER_PREFIX, Engine, EngineError, Kept, LEAF_PREFIX, LayersError, Recovered, Recovery,
    leaf_maker,
};
use belljar_sys::birth::Standing;
use belljar_sys::cgroup::{CgroupError, Leaf};
use std::os::unix::fs::MetadataExt;
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

/// Empty control groups whose supervisor was killed before it could remove them.
fn groups(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    for found in Leaf::existing(LEAF_PREFIX)? {
        let Some(path) = found.path().and_then(|path| AbsPath::new(path).ok()) else { continue };
        // Groups of other users are not ours to remove; a missing group was removed by another sweep.
        let user = rustix::process::geteuid();
        let Ok(made) = std::fs::metadata(&path) else { continue };
        let is_own = made.uid() == user.as_raw() || user.is_root();
        let is_left = match leaf_maker(found.name()).map(|maker| maker.standing()) {
            Some(Standing::Runs) => false,
            Some(Standing::Ended) => true,
            Some(Standing::Elsewhere) | None => is_old(&made, request.now),
        };
        if is_own && is_left && found.is_empty()? {
            let outcome = request.act(|| {
                found.adopt().remove()?;
                Ok(SweepOutcome::Removed)
            });
            out.push(Swept { kind: SweptKind::Leftover, path, bytes: 0, outcome });
        }
    }
    Ok(())
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

/// What interrupted applies left in projects. A project whose changes are locked right now is skipped.
fn applies(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    for entry in Instances::new(&request.environment.data).list()? {
        if entry.project != ProjectState::Present {
            continue;
        }
        for kept in &entry.kept {
            let changes = Kept::new(kept.overlays());
            if !changes.is_interrupted() {
                continue;
            }
            let Ok(_held) = Layer::take(kept) else { continue };
            recover(request, &changes, out)?;
        }
    }
    Ok(())
}

fn recover(request: &SweepRequest<'_>, changes: &Kept, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let mode = match request.mode {
        SweepMode::DryRun => Recovery::Look,
        SweepMode::Remove => Recovery::Remove,
    };
    let Recovered { removed, kept, changed } = changes.recover(mode)?;
    let done = || match request.mode {
        SweepMode::DryRun => SweepOutcome::WouldRemove,
        SweepMode::Remove => SweepOutcome::Removed,
    };
    let stays = || SweepOutcome::Kept("it contains a version of a file that changed meanwhile".to_owned());
    let yours = || SweepOutcome::Kept("you changed it after an apply was interrupted".to_owned());
    let removed = removed.into_iter().map(|path| (path, done()));
    let kept = kept.into_iter().map(|path| (path, stays()));
    for (path, outcome) in removed.chain(kept).chain(changed.into_iter().map(|path| (path, yours()))) {
        if let Ok(path) = AbsPath::new(&path) {
            out.push(Swept { kind: SweptKind::Leftover, path, bytes: 0, outcome });
        }
    }
    Ok(())
}

/// Containers that have lost their supervisor, in the engine that would be used now. If no engine runs, podman is
/// started only if belljar has used it before.
fn containers(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let places = engine_places(request.environment);
    for path in old_entries(&request.environment.runtime, request.now) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with(CONTAINER_FOLDER_PREFIX)) {
            out.push(request.leftover(path.clone(), || tree(&path)));
        }
    }
    let interrupted = leftovers::used_engine(&leftovers::find(request.environment, request.now));
    let (engine, _run) = match Engine::running(&places)? {
        Some(engine) => (engine, None),
        None if interrupted => match leftovers::own_engine(request.environment) {
            Some((engine, run)) => (engine, Some(run)),
            None => return Ok(()),
        },
        None => return Ok(()),
    };
    for orphan in engine.orphans()? {
        let outcome = request.act(|| {
            engine.remove_orphan(&orphan)?;
            Ok(SweepOutcome::Removed)
        });
        let path = AbsPath::new(engine.socket()).unwrap_or_else(|_| places.runtime.clone());
        out.push(Swept { kind: SweptKind::Container { id: orphan.id }, path, bytes: 0, outcome });
    }
    // After the containers, which may have been created from them.
    for image in engine.unfinished_builds()? {
        let outcome = request.act(|| {
            engine.remove_unfinished(&image)?;
            Ok(SweepOutcome::Removed)
        });
        let path = AbsPath::new(engine.socket()).unwrap_or_else(|_| places.runtime.clone());
        out.push(Swept { kind: SweptKind::Image { id: image.id }, path, bytes: image.bytes, outcome });
    }
    Ok(())
}

/// Findings matter in the days after a run. Old lists are removed, and with `runs_older_than` those of that age.
fn findings(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let age = request.runs_older_than.map_or(FINDINGS_AGE, TimeSpan::duration).min(FINDINGS_AGE);
    let limit = request.now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let store = FindingsStore::new(&request.environment.state);
    for entry in store.list()?.into_iter().filter(|entry| entry.written < limit) {
        let bytes = std::fs::symlink_metadata(&entry.path).map_or(0, |found| found.len());
        let path = entry.path;
        let outcome = request.act(|| {
            let removed = std::fs::remove_file(&path);
            removed.map_err(|cause| SweepError::Tree { path: path.clone(), cause })?;
            Ok(SweepOutcome::Removed)
        });
        out.push(Swept { kind: SweptKind::Findings, path, bytes, outcome });
    }
    for path in old_entries(store.directory(), request.now) {
        // The temporary file of a process that was killed while it wrote its list.
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp")) {
            let removed = || std::fs::remove_file(&path);
            let removed = || removed().map_err(|cause| SweepError::Tree { path: path.clone(), cause });
            out.push(request.leftover(path.clone(), removed));
        }
    }
    Ok(())
}

fn tree(path: &AbsPath) -> Result<(), SweepError> {
    remove_tree(path.as_path()).map_err(|cause| SweepError::Tree { path: path.clone(), cause })
}

fn instances(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let instances = Instances::new(&request.environment.data);
    for entry in instances.list()? {
        let outcome = match &entry.project {
            ProjectState::Present => continue,
            ProjectState::Unknown(why) => SweepOutcome::Kept(why.clone()),
            ProjectState::Gone if entry.in_use => SweepOutcome::Kept(IN_USE.to_owned()),
            ProjectState::Gone if entry.kept.iter().any(|kept| !kept.is_empty()) => {
                SweepOutcome::Kept(UNAPPLIED.to_owned())
            }
            ProjectState::Gone => request.act(|| {
                let removed = instances.remove(&entry)?;
                Ok(if removed { SweepOutcome::Removed } else { SweepOutcome::Kept(IN_USE.to_owned()) })
            }),
        };
        let InstanceEntry { root, directory, size, .. } = entry;
        out.push(Swept { kind: SweptKind::Instance { root }, path: directory, bytes: size.bytes, outcome });
    }
    for path in instances.leftovers(request.now)?.into_iter().chain(scenes(request)) {
        out.push(request.leftover(path.clone(), || tree(&path)));
    }
    for path in guests(request) {
        let removed = || std::fs::remove_file(&path);
        let removed = || removed().map_err(|cause| SweepError::Tree { path: path.clone(), cause });
        out.push(request.leftover(path.clone(), removed));
    }
    Ok(())
}

/// An agent's work is never removed without a request.
const UNAPPLIED: &str = "its `layers` hold changes that were neither applied nor discarded; remove it yourself if \
                         they are of no use";

/// A proof, or unpacking a guest, takes seconds; older remains come from an interrupted one.
const LEFT_AGE: Duration = Duration::from_secs(3600);

/// Directories of proofs of an earlier belljar, which are not named after their creator.
fn scenes(request: &SweepRequest<'_>) -> Vec<AbsPath> {
    old_entries(&request.environment.data.child("prove"), request.now)
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SCENE_PREFIX)))
        // Those with a creator in their name are found by it.
        .filter(|path| path.file_name().is_none_or(|name| !leftovers::is_ours(name, SCENE_PREFIX)))
        .collect()
}

/// Guests of other builds of belljar. A sandbox that uses one has it mounted and keeps the file after its removal.
fn guests(request: &SweepRequest<'_>) -> Vec<AbsPath> {
    let HostEnvironment { data, guest, .. } = request.environment;
    let mut found = old_entries(&guest_program::guests(data), request.now);
    found.retain(|path| path != guest.path());
    found
}

fn old_entries(directory: &AbsPath, now: SystemTime) -> Vec<AbsPath> {
    // A missing directory counts as empty.
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let old = |entry: &std::fs::DirEntry| entry.metadata().is_ok_and(|found| is_old(&found, now));
    entries.flatten().filter(old).filter_map(|entry| AbsPath::new(entry.path()).ok()).collect()
}

fn is_old(found: &std::fs::Metadata, now: SystemTime) -> bool {
    found.modified().is_ok_and(|time| now.duration_since(time).is_ok_and(|age| age > LEFT_AGE))
}

/// How long lists of findings are kept.
const FINDINGS_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
const IN_USE: &str = "a run uses it";
/// The prefix of a conversation that is being removed; if one remains, its removal was interrupted.
const REMOVING_PREFIX: &str = ".removing-";

fn runtime(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    orphans(request, &request.environment.runtime, &SweptKind::Runtime, out)
}

fn stages(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let staging = stage::staging(&request.environment.state);
    orphans(request, &staging, &SweptKind::Stage, out)?;
    // A process that was killed while it created its stage had no lock yet.
    for path in old_entries(&staging, request.now) {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(MAKING_PREFIX)) {
            out.push(request.leftover(path.clone(), || tree(&path)));
        }
    }
    Ok(())
}

fn orphans(
    request: &SweepRequest<'_>,
    directory: &AbsPath,
    kind: &SweptKind,
    out: &mut Vec<Swept>,
) -> Result<(), SweepError> {
    let Some(directory) = RuntimeDirectory::existing(directory)? else { return Ok(()) };
    for orphan in directory.orphans()? {
        let path = orphan.path().clone();
        let bytes = measure(path.as_path()).bytes;
        let outcome = request.act(|| {
            let removed = orphan.remove();
            removed.map_err(|cause| SweepError::Tree { path: path.clone(), cause })?;
            Ok(SweepOutcome::Removed)
        });
        out.push(Swept { kind: kind.clone(), path, bytes, outcome });
    }
    Ok(())
}

/// Conversations that were not continued for as long as runs are kept.
fn conversations(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let Some(age) = request.runs_older_than else { return Ok(()) };
    let directory = stage::conversations(&request.environment.state);
    // A missing directory counts as empty.
    let Ok(entries) = std::fs::read_dir(&directory) else { return Ok(()) };
    let limit = request.now.checked_sub(age.duration()).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut paths: Vec<AbsPath> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| AbsPath::new(entry.path()).ok())
        .collect();
    paths.sort();
    for path in paths {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(REMOVING_PREFIX)) {
            out.push(request.leftover(path.clone(), || tree(&path)));
            continue;
        }
        // The time of belljar's own file counts: an agent can set any time on its files.
        let used = std::fs::symlink_metadata(path.child("lock")).and_then(|found| found.modified());
        let Ok(used) = used else { continue };
        if used < limit {
            let bytes = measure(path.as_path()).bytes;
            let outcome = request.act(|| end_conversation(&directory, &path));
            out.push(Swept { kind: SweptKind::Conversation, path, bytes, outcome });
        }
    }
    Ok(())
}

/// Renames it first, so that a run that begins the conversation again meanwhile gets a new directory.
fn end_conversation(directory: &AbsPath, path: &AbsPath) -> Result<SweepOutcome, SweepError> {
    let failed = |cause| SweepError::Tree { path: path.clone(), cause };
    let Some(_lock) = locks::try_exclusive(&path.child("lock")).map_err(failed)? else {
        return Ok(SweepOutcome::Kept(IN_USE.to_owned()));
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let away = directory.child(&format!("{REMOVING_PREFIX}{name}"));
    std::fs::rename(path, &away).map_err(failed)?;
    tree(&away)?;
    Ok(SweepOutcome::Removed)
}

fn runs(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let Some(age) = request.runs_older_than else { return Ok(()) };
    let store = RunStore::new(&request.environment.state);
    // Before 1970 no run is old enough.
    let limit = request.now.checked_sub(age.duration()).unwrap_or(SystemTime::UNIX_EPOCH);
    for entry in store.list()? {
        let RunEntry { directory, head, state, last_change, size } = entry;
        if last_change.is_some_and(|changed| changed >= limit) {
            continue;
        }
        let outcome = match (state, head) {
            (RunState::Running, _) => SweepOutcome::Kept("it is running".to_owned()),
            // A later belljar may store something there that this one does not know.
            (RunState::Unreadable(why), _) | (_, Err(why)) => SweepOutcome::Kept(why.to_string()),
            (RunState::Ended(_) | RunState::CutShort, Ok(_)) if last_change.is_none() => {
                SweepOutcome::Kept("its age is not known".to_owned())
            }
            (RunState::Ended(_) | RunState::CutShort, Ok(_)) => {
                request.act(|| match store.remove(&directory) {
                    Ok(()) => Ok(SweepOutcome::Removed),
                    Err(RemoveError::Running { .. }) => Ok(SweepOutcome::Kept("it is running".to_owned())),
                    Err(error) => Err(error.into()),
                })
            }
        };
        out.push(Swept { kind: SweptKind::Run, path: directory, bytes: size.bytes, outcome });
    }
    for path in store.leftovers(request.now)? {
        out.push(request.leftover(path.clone(), || Ok(store.remove(&path)?)));
    }
    Ok(())
}
