//! Entries of the data directory, and what interrupted applies left in projects.

use super::{IN_USE, SweepError, SweepMode, SweepOutcome, SweepRequest, Swept, SweptKind, old_entries, tree};
use crate::agents::AgentStore;
use crate::agents::store::remove_lock;
use crate::changes::layers::Layer;
use crate::environment::HostEnvironment;
use crate::launch::guest_program;
use crate::store::instances::{InstanceEntry, Instances, ProjectState};
use crate::store::leftovers::{self, SCENE_PREFIX};
use belljar_contract::AbsPath;
use belljar_sandbox::{Kept, Recovered, Recovery};

pub(super) fn instances(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
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
    for path in AgentStore::new(&request.environment.data).stale_locks() {
        let removed = || remove_lock(&path).map_err(|cause| SweepError::Tree { path: path.clone(), cause });
        out.push(request.leftover(path.clone(), removed));
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

/// What interrupted applies left in projects. A project whose changes are locked right now is skipped.
pub(super) fn applies(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
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
    let Recovered { removed, kept, changed, deleted } = changes.recover(mode)?;
    let done = || match request.mode {
        SweepMode::DryRun => SweepOutcome::WouldRemove,
        SweepMode::Remove => SweepOutcome::Removed,
    };
    let stays = || SweepOutcome::Kept("it contains a version of a file that changed meanwhile".to_owned());
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
