//! What sandboxes leave behind: control groups, containers, runtime directories.

use super::{SweepError, SweepOutcome, SweepRequest, Swept, SweptKind, is_old, old_entries, tree};
use crate::launch::engine::engine_places;
use crate::store::leftovers;
use crate::store::runtime::RuntimeDirectory;
use belljar_contract::AbsPath;
use belljar_record::measure;
use belljar_sandbox::{CONTAINER_DIRECTORY_PREFIX, Engine, LEAF_PREFIX, leaf_maker};
use belljar_sys::birth::Standing;
use belljar_sys::cgroup::Leaf;
use std::os::unix::fs::MetadataExt;

/// Empty control groups whose supervisor was killed before it could remove them.
pub(super) fn groups(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
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

/// Containers that have lost their supervisor, in the engine that would be used now. If no engine runs, podman is
/// started only if belljar has used it before.
pub(super) fn containers(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    let places = engine_places(request.environment);
    for path in old_entries(&request.environment.runtime, request.now) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with(CONTAINER_DIRECTORY_PREFIX)) {
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

pub(super) fn runtime(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    orphans(request, &request.environment.runtime, &SweptKind::Runtime, out)
}

pub(super) fn orphans(
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
