//! The sweep: what nobody needs any more is found, and removed when asked.
//!
//! Nothing that is in use is ever removed, whatever its age: a lock that the kernel keeps says so, not a file that
//! somebody may have forgotten.

use crate::engine::engine_places;
use crate::findings::{FindingsError, FindingsStore};
use crate::guest_program;
use crate::instances::{InstanceEntry, InstanceError, Instances, ProjectState};
use crate::layers::Layer;
use crate::leftovers::{self, SCENE_PREFIX};
use crate::locks;
use crate::planning::Surroundings;
use crate::runtime::{MAKING_PREFIX, RuntimeDirectory, RuntimeError};
use crate::trial::stage;
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

/// Whether anything is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepMode {
    /// Only looked for.
    DryRun,
    /// Removed.
    Remove,
}

/// What to sweep.
#[derive(Debug)]
pub struct SweepRequest<'a> {
    /// Whose.
    pub surroundings: &'a Surroundings,
    /// Whether to remove.
    pub mode: SweepMode,
    /// Folders of runs, and conversations, that were last used before this long. Without it, none is touched.
    pub runs_older_than: Option<TimeSpan>,
    /// The time.
    pub now: SystemTime,
}

/// Something that was looked at because it seemed to be of no more use.
#[derive(Debug)]
pub struct Swept {
    /// What it is.
    pub kind: SweptKind,
    /// Where it is, or was.
    pub path: AbsPath,
    /// Bytes it takes, or took.
    pub bytes: u64,
    /// What became of it.
    pub outcome: SweepOutcome,
}

/// What a sweep finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SweptKind {
    /// The state of a project whose root is gone.
    Instance {
        /// The root, when it is known.
        root: Option<AbsPath>,
    },
    /// The folder of a run.
    Run,
    /// The runtime directory of a run that is gone.
    Runtime,
    /// The stage of a trial that is gone.
    Stage,
    /// A conversation that could be gone on with.
    Conversation,
    /// A container whose supervisor is gone.
    Container {
        /// Its number.
        id: String,
    },
    /// An image whose build did not end well.
    Image {
        /// Its number.
        id: String,
    },
    /// What a run left in its project, as a list.
    Findings,
    /// Something that was half made or half removed.
    Leftover,
}

/// What became of it.
#[derive(Debug)]
pub enum SweepOutcome {
    /// It is gone.
    Removed,
    /// It would be, without `--dry-run`.
    WouldRemove,
    /// It stays, for this reason.
    Kept(String),
    /// It should have gone.
    Failed(SweepError),
}

/// Why something remains, or was not looked at.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Instances.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// A run.
    #[error(transparent)]
    Run(#[from] RemoveError),
    /// The listing of runs.
    #[error(transparent)]
    Runs(#[from] ReadError),
    /// The runtime directory.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Control groups.
    #[error("cannot look after control groups")]
    Group(#[from] CgroupError),
    /// The layers of a project.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// Containers.
    #[error("cannot look after containers")]
    Container(#[from] EngineError),
    /// Lists of findings.
    #[error(transparent)]
    Findings(#[from] FindingsError),
    /// A tree.
    #[error("cannot remove `{path}`")]
    Tree {
        /// Its top.
        path: AbsPath,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

/// Sweeps. What could not be removed, and a place that could not be looked at, is in the list with its reason: what was
/// removed before is told in any case.
#[must_use]
pub fn sweep(request: &SweepRequest<'_>) -> Vec<Swept> {
    let Surroundings { data, runtime: runtime_path, state, .. } = request.surroundings;
    // Stages before instances: the state of a workspace that goes here is of no more use either.
    let places: [(Place, &AbsPath, SweptKind); 10] = [
        (stages, state, SweptKind::Stage),
        (conversations, state, SweptKind::Conversation),
        (instances, data, SweptKind::Instance { root: None }),
        (runtime, runtime_path, SweptKind::Runtime),
        (runs, state, SweptKind::Run),
        (findings, state, SweptKind::Findings),
        (groups, runtime_path, SweptKind::Leftover),
        // Before the traces of those that had an engine of their own are gone.
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

type Place = fn(&SweepRequest<'_>, &mut Vec<Swept>) -> Result<(), SweepError>;

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

/// Control groups that nobody is in and whose supervisor was killed before it could remove them.
fn groups(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    for found in Leaf::existing(LEAF_PREFIX)? {
        let Some(path) = found.path().and_then(|path| AbsPath::new(path).ok()) else { continue };
        // That of another user is theirs to remove; one that is gone by now was another sweep's.
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
    for leftover in leftovers::find(request.surroundings, request.now) {
        let path = leftover.path().clone();
        let failed = |cause| SweepError::Tree { path: path.clone(), cause };
        out.push(request.leftover(path.clone(), || leftover.remove().map_err(failed)));
    }
    Ok(())
}

/// What interrupted applies left in projects. A project whose changes somebody has right now is left alone.
fn applies(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    for entry in Instances::new(&request.surroundings.data).list()? {
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
    let Recovered { removed, kept, changed, deleted } = changes.recover(mode)?;
    let done = || match request.mode {
        SweepMode::DryRun => SweepOutcome::WouldRemove,
        SweepMode::Remove => SweepOutcome::Removed,
    };
    let stays = || SweepOutcome::Kept("it holds a version of a file that changed meanwhile".to_owned());
    let yours = || SweepOutcome::Kept("you changed it after an apply was interrupted".to_owned());
    let gone = || SweepOutcome::Kept("you deleted it after an apply was interrupted".to_owned());
    let removed = removed.into_iter().map(|path| (path, done()));
    let kept = kept.into_iter().map(|path| (path, stays()));
    let changed = changed.into_iter().map(|path| (path, yours()));
    let deleted = deleted.into_iter().map(|path| (path, gone()));
    for (path, outcome) in removed.chain(kept).chain(changed).chain(deleted) {
        if let Ok(path) = AbsPath::new(&path) {
            out.push(Swept { kind: SweptKind::Leftover, path, bytes: 0, outcome });
        }
    }
    Ok(())
}

/// Containers that have lost their supervisor, in the engine that would be used now. Where none runs, podman is asked only
/// if belljar has used it before: an engine is not started to find nothing.
fn containers(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let places = engine_places(request.surroundings);
    for path in old_entries(&request.surroundings.runtime, request.now) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with(CONTAINER_FOLDER_PREFIX)) {
            out.push(request.leftover(path.clone(), || tree(&path)));
        }
    }
    let interrupted = leftovers::used_engine(&leftovers::find(request.surroundings, request.now));
    let (engine, _run) = match Engine::running(&places)? {
        Some(engine) => (engine, None),
        None if interrupted => match leftovers::own_engine(request.surroundings) {
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
    // After the containers that may have been made from them.
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

/// Findings are for the days after a run. Older lists go, and with `runs_older_than` those of that age.
fn findings(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let age = request.runs_older_than.map_or(FINDINGS_AGE, TimeSpan::duration).min(FINDINGS_AGE);
    let limit = request.now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let store = FindingsStore::new(&request.surroundings.state);
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
        // One that was killed while it wrote its list.
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
    let instances = Instances::new(&request.surroundings.data);
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

/// Work of an agent is never removed unasked.
const UNAPPLIED: &str = "its `layers` hold changes that were neither applied nor discarded; remove it yourself if \
                         they are of no use";

/// A proof, or unpacking a guest, takes seconds; what is left of one after this long was interrupted.
const LEFT_AGE: Duration = Duration::from_secs(3600);

/// Directories of proofs that an earlier belljar left, which did not name their maker.
fn scenes(request: &SweepRequest<'_>) -> Vec<AbsPath> {
    old_entries(&request.surroundings.data.child("prove"), request.now)
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SCENE_PREFIX)))
        // Those that name their maker are found by it.
        .filter(|path| path.file_name().is_none_or(|name| !leftovers::is_ours(name, SCENE_PREFIX)))
        .collect()
}

/// Guests of other builds of belljar. A sandbox that uses one has it mounted and keeps it, name or no name.
fn guests(request: &SweepRequest<'_>) -> Vec<AbsPath> {
    let Surroundings { data, guest, .. } = request.surroundings;
    let mut found = old_entries(&guest_program::folder(data), request.now);
    found.retain(|path| path != guest.path());
    found
}

fn old_entries(folder: &AbsPath, now: SystemTime) -> Vec<AbsPath> {
    // No such folder yet, nothing in it.
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let old = |entry: &std::fs::DirEntry| entry.metadata().is_ok_and(|found| is_old(&found, now));
    entries.flatten().filter(old).filter_map(|entry| AbsPath::new(entry.path()).ok()).collect()
}

fn is_old(found: &std::fs::Metadata, now: SystemTime) -> bool {
    found.modified().is_ok_and(|time| now.duration_since(time).is_ok_and(|age| age > LEFT_AGE))
}

/// How long lists of findings are kept.
const FINDINGS_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
const IN_USE: &str = "a run uses it";
/// A conversation that is being removed; one that stays so was interrupted.
const REMOVING_PREFIX: &str = ".removing-";

fn runtime(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    orphans(request, &request.surroundings.runtime, &SweptKind::Runtime, out)
}

fn stages(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let staging = stage::staging(&request.surroundings.state);
    orphans(request, &staging, &SweptKind::Stage, out)?;
    // One that was killed while it made its stage had no lock yet.
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

/// Conversations that nobody has gone on with for as long as runs are kept.
fn conversations(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let Some(age) = request.runs_older_than else { return Ok(()) };
    let folder = stage::conversations(&request.surroundings.state);
    // No such folder yet, nothing in it.
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(()) };
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
        // Its use is told by belljar's own file: what the agent wrote has whatever time the agent likes.
        let used = std::fs::symlink_metadata(path.child("lock")).and_then(|found| found.modified());
        let Ok(used) = used else { continue };
        if used < limit {
            let bytes = measure(path.as_path()).bytes;
            let outcome = request.act(|| end_conversation(&folder, &path));
            out.push(Swept { kind: SweptKind::Conversation, path, bytes, outcome });
        }
    }
    Ok(())
}

/// Under another name first: whoever begins the conversation again meanwhile finds a place of its own.
fn end_conversation(folder: &AbsPath, path: &AbsPath) -> Result<SweepOutcome, SweepError> {
    let failed = |cause| SweepError::Tree { path: path.clone(), cause };
    let Some(_lock) = locks::try_exclusive(&path.child("lock")).map_err(failed)? else {
        return Ok(SweepOutcome::Kept(IN_USE.to_owned()));
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let away = folder.child(&format!("{REMOVING_PREFIX}{name}"));
    std::fs::rename(path, &away).map_err(failed)?;
    tree(&away)?;
    Ok(SweepOutcome::Removed)
}

fn runs(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let Some(age) = request.runs_older_than else { return Ok(()) };
    let store = RunStore::new(&request.surroundings.state);
    // Long before 1970 nothing is old enough.
    let limit = request.now.checked_sub(age.duration()).unwrap_or(SystemTime::UNIX_EPOCH);
    for entry in store.list()? {
        let RunEntry { directory, head, state, last_change, size } = entry;
        if last_change.is_some_and(|changed| changed >= limit) {
            continue;
        }
        let outcome = match (state, head) {
            (RunState::Running, _) => SweepOutcome::Kept("it is going on".to_owned()),
            // A later belljar may keep something there that this one does not know.
            (RunState::Unreadable(why), _) | (_, Err(why)) => SweepOutcome::Kept(why.to_string()),
            (RunState::Ended(_) | RunState::CutShort, Ok(_)) if last_change.is_none() => {
                SweepOutcome::Kept("its age cannot be told".to_owned())
            }
            (RunState::Ended(_) | RunState::CutShort, Ok(_)) => {
                request.act(|| match store.remove(&directory) {
                    Ok(()) => Ok(SweepOutcome::Removed),
                    Err(RemoveError::Running { .. }) => Ok(SweepOutcome::Kept("it is going on".to_owned())),
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
