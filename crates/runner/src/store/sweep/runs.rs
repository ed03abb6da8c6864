//! Records of runs, and what tests leave in the state directory.

use super::sandboxes::orphans;
use super::{IN_USE, SweepError, SweepOutcome, SweepRequest, Swept, SweptKind, old_entries, tree};
use crate::store::findings::FindingsStore;
use crate::store::locks;
use crate::store::runtime::MAKING_PREFIX;
use crate::suite::{stage, unsealed};
use belljar_contract::{AbsPath, TimeSpan};
use belljar_record::{RemoveError, RunEntry, RunState, RunStore, measure};
use std::time::{Duration, SystemTime};

/// How long lists of findings are kept.
const FINDINGS_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The prefix of a conversation that is being removed; if one remains, its removal was interrupted.
const REMOVING_PREFIX: &str = ".removing-";

pub(super) fn stages(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
    for staging in [stage::staging(&request.environment.state), unsealed::staging(request.environment)] {
        orphans(request, &staging, &SweptKind::Stage, out)?;
        // A process that was killed while it created its stage had no lock yet.
        for path in old_entries(&staging, request.now) {
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(MAKING_PREFIX)) {
                out.push(request.leftover(path.clone(), || tree(&path)));
            }
        }
    }
    Ok(())
}

/// Conversations that were not continued for as long as runs are kept.
pub(super) fn conversations(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
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

pub(super) fn runs(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
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

/// Findings matter in the days after a run. Old lists are removed, and with `runs_older_than` those of that age.
pub(super) fn findings(request: &SweepRequest<'_>, out: &mut Vec<Swept>) -> Result<(), SweepError> {
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
