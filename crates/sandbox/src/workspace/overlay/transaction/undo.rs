//! Undoes a group that was stopped or interrupted. Files that were changed meanwhile stay as they are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Onto, Status, is_superuser};

use super::locks::release_lock;
use super::{Beside, MADE, locate};
use crate::workspace::overlay::journal::{Journal, JournalAct, JournalStep, State};
use crate::workspace::overlay::layers::Layers;
use crate::workspace::overlay::{LayersError, Overlay};
use crate::workspace::removal::{absent_is_fine, opened};
use crate::workspace::unfinished::Recovered;

/// Undoes steps. Those that cannot be undone stay in the journal.
pub(super) fn undo_noted(
    overlays: &[Overlay],
    layers: &[Layers],
    steps: Vec<JournalStep>,
) -> Result<Recovered, LayersError> {
    let Undone { kept, changed, deleted, failed } = undo(overlays, layers, &steps);
    let outer = |tree: usize, path: PathBuf| overlays[tree].lower.join(path);
    let fault = |tree, path, cause| LayersError::Undo { path: outer(tree, path), cause };
    let Some((first, cause)) = failed.first().cloned() else {
        for (tree, own) in layers.iter().enumerate() {
            own.lower.root().sync_file_system().map_err(|cause| fault(tree, PathBuf::new(), cause))?;
        }
        Journal::remove(overlays);
        let all =
            |paths: Vec<(usize, PathBuf)>| paths.into_iter().map(|(tree, path)| outer(tree, path)).collect();
        let (kept, changed, deleted) = (all(kept), all(changed), all(deleted));
        return Ok(Recovered { removed: Vec::new(), kept, changed, deleted });
    };
    let mut left: Vec<JournalStep> = failed.into_iter().map(|(noted, _cause)| noted).collect();
    left.reverse();
    // If it cannot be written, the one from before stays, with more steps than are left.
    Journal { state: State::Committing, steps: left }.write(overlays).ok();
    Err(fault(first.tree, first.path, cause))
}

/// The outcome of an undo.
#[derive(Default)]
struct Undone {
    /// The user's versions from before the apply, where a later one is in the place.
    kept: Vec<(usize, PathBuf)>,
    /// What was made and the user changed since.
    changed: Vec<(usize, PathBuf)>,
    /// What the user deleted since.
    deleted: Vec<(usize, PathBuf)>,
    /// Steps that are still to be undone, the last first.
    failed: Vec<(JournalStep, Errno)>,
}

/// The outcome of undoing one step.
enum Became {
    Undone,
    /// The project has again what it had.
    Restored,
    /// The user's version from before the apply is here.
    Kept(PathBuf),
    /// The user changed what was made, and it stays.
    Changed,
    /// The user deleted what was there, and it stays deleted. Their version from before the apply may be here.
    Deleted(Option<PathBuf>),
}

/// Undoes steps, the last first. What somebody changed meanwhile stays as it is. To come back to its place changes the time
/// of a file, so it is noted as unchanged, if it was.
fn undo(overlays: &[Overlay], layers: &[Layers], steps: &[JournalStep]) -> Undone {
    let (mut out, mut restored) = (Undone::default(), Vec::new());
    for noted in steps.iter().rev() {
        let Some(own) = layers.get(noted.tree) else { continue };
        match undo_one(own, noted, steps) {
            Ok(Became::Undone) => {}
            Ok(Became::Restored) => restored.push(noted),
            Ok(Became::Kept(path)) => out.kept.push((noted.tree, path)),
            Ok(Became::Changed) => out.changed.push((noted.tree, noted.path.clone())),
            Ok(Became::Deleted(before)) => {
                out.deleted.push((noted.tree, noted.path.clone()));
                out.kept.extend(before.map(|path| (noted.tree, path)));
            }
            Err(cause) => out.failed.push((noted.clone(), cause)),
        }
    }
    note_restored(overlays, layers, &restored);
    out
}

fn undo_one(own: &Layers, noted: &JournalStep, steps: &[JournalStep]) -> Result<Became, Errno> {
    let (parent, name) = match own.lower.parent(&noted.path) {
        // The user took away the directory that it was in.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return undo_without_place(own, noted),
        answer => answer?,
    };
    let now = parent.status_if_present(name)?;
    match noted.deed {
        JournalAct::Lock => release_lock(own, &noted.path)?,
        JournalAct::KeepDirectory => {}
        JournalAct::MakeDirectory => {
            let is_ours = now.is_some_and(|now| now.kind == InodeKind::Directory && now.mode == MADE);
            let removed = if is_ours { opened(&parent, || parent.remove_directory(name)) } else { Ok(()) };
            match removed {
                Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Became::Changed),
                answer => absent_is_fine(answer)?,
            }
        }
        JournalAct::RemoveDirectory => {
            if let (None, Some(mark)) = (now, noted.mark) {
                if !was_emptied(own, noted, steps)? {
                    return Ok(Became::Deleted(None));
                }
                opened(&parent, || parent.make_directory(name, MADE))?;
                if is_superuser() {
                    opened(&parent, || parent.set_owner(name, mark.owner, mark.group))?;
                }
                opened(&parent, || parent.set_mode(name, mark.mode))?;
                // As after any other change to it: see `changed_after`.
                parent.passage(Path::new(name))?.touch()?;
                return Ok(Became::Restored);
            }
        }
        JournalAct::New => match now {
            Some(now) if noted.is_ours(&now) => opened(&parent, || absent_is_fine(parent.remove(name)))?,
            Some(now) if noted.is_made(&now) => return Ok(Became::Changed),
            // What was made is not beside its place any more, so it was in it.
            None if locate(own, noted)?.is_none() => return Ok(Became::Deleted(None)),
            Some(_) | None => remove_staged(own, noted)?,
        },
        JournalAct::Delete | JournalAct::Exchange => return put_back(own, noted, (&parent, name), now),
    }
    Ok(Became::Undone)
}

/// Whether the apply had moved everything out of a directory. If it had not, somebody else removed the directory.
fn was_emptied(own: &Layers, directory: &JournalStep, steps: &[JournalStep]) -> Result<bool, Errno> {
    for step in steps {
        let below = step.tree == directory.tree && step.path.starts_with(&directory.path);
        if step.deed == JournalAct::Delete && below && locate(own, step)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Brings the user's version back from beside its place.
fn put_back(
    own: &Layers,
    noted: &JournalStep,
    (parent, name): (&Directory, &OsStr),
    now: Option<Status>,
) -> Result<Became, Errno> {
    let Some(Beside { home, above: _, status }) = locate(own, noted)? else { return Ok(Became::Undone) };
    if noted.is_made(&status) {
        // It had not changed places yet.
        remove_staged(own, noted)?;
        return Ok(Became::Undone);
    }
    let above = noted.path.parent().unwrap_or(Path::new("")).to_owned();
    let rename = |onto| opened(parent, || opened(&home, || home.rename(&noted.beside, parent, name, onto)));
    match now {
        // The user's version is beside the place, so the agent's was in it.
        None if noted.deed == JournalAct::Exchange => {
            return set_apart(noted, &home, (parent, &above)).map(|path| Became::Deleted(Some(path)));
        }
        None => rename(Onto::Nothing)?,
        Some(now) if noted.is_ours(&now) => {
            rename(Onto::Exchange)?;
            if !noted.is_ours(&home.status(&noted.beside)?) {
                rename(Onto::Exchange)?;
                return set_apart(noted, &home, (parent, &above)).map(Became::Kept);
            }
            opened(&home, || absent_is_fine(home.remove(&noted.beside)))?;
        }
        Some(_) => return set_apart(noted, &home, (parent, &above)).map(Became::Kept),
    }
    Ok(Became::Restored)
}

/// Without its directory a file has no place to come back to.
fn undo_without_place(own: &Layers, noted: &JournalStep) -> Result<Became, Errno> {
    match (noted.deed, locate(own, noted)?) {
        (JournalAct::Delete | JournalAct::Exchange | JournalAct::New, Some(beside))
            if noted.is_made(&beside.status) =>
        {
            remove_staged(own, noted)?;
            Ok(Became::Undone)
        }
        (JournalAct::Delete | JournalAct::Exchange, Some(Beside { home, above, status: _ })) => {
            set_apart(noted, &home, (&home, &above)).map(Became::Kept)
        }
        (
            JournalAct::Lock
            | JournalAct::Delete
            | JournalAct::RemoveDirectory
            | JournalAct::MakeDirectory
            | JournalAct::KeepDirectory
            | JournalAct::New
            | JournalAct::Exchange,
            _,
        ) => Ok(Became::Undone),
    }
}

/// Removes what was made beside its place, and only that.
fn remove_staged(own: &Layers, noted: &JournalStep) -> Result<(), Errno> {
    match locate(own, noted)? {
        Some(Beside { home, above: _, status }) if noted.is_made(&status) => {
            opened(&home, || absent_is_fine(home.remove(&noted.beside)))
        }
        Some(_) | None => Ok(()),
    }
}

/// Gives the user's version from before the apply a name to be found under: in its place is a later one.
fn set_apart(
    noted: &JournalStep,
    home: &Directory,
    (to, above): (&Directory, &Path),
) -> Result<PathBuf, Errno> {
    let own = noted.path.file_name().ok_or(Errno::INVAL)?;
    let mut number = 0_u32;
    loop {
        number += 1;
        let mut name = own.to_owned();
        name.push(if number == 1 { ".before-apply".to_owned() } else { format!(".before-apply-{number}") });
        match opened(to, || opened(home, || home.rename(&noted.beside, to, &name, Onto::Nothing))) {
            Err(Errno::EXIST) => {}
            answer => {
                answer?;
                return Ok(above.join(name));
            }
        }
    }
}

fn note_restored(overlays: &[Overlay], layers: &[Layers], restored: &[&JournalStep]) {
    for (tree, (overlay, layers)) in overlays.iter().zip(layers).enumerate() {
        let own = restored.iter().filter(|noted| noted.tree == tree && !noted.forced);
        let now = |noted: &&JournalStep| {
            let status = layers.lower.status(&noted.path).ok()??;
            Some((noted.path.clone(), status))
        };
        // Without the note it is asked about, and nothing is lost.
        overlay.note_restored(own.filter_map(now).collect()).ok();
    }
}
