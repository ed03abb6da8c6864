//! Changes that are written together or not at all: a commit with its refs, its index and its files.
//!
//! First everything is made beside its place; a full disk stops it there, and nothing shows. Then a journal is written that
//! names every step, and names change places, which takes no room. What was in a place stays beside it until all steps are
//! done. If one fails, or the process ends, the steps are undone: at once, or by the next command that looks at the changes.
//! Once the journal says that all is done, the rest is tidying up.
//!
//! A journal that cannot be read stops everything: without it, it is not known which of two versions is the user's. It
//! stays until every step is undone. What the user changed after an interruption stays, and both versions are kept.

mod locks;
mod undo;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Onto, Status};

use locks::{release_lock, release_locks_in, take_lock};
use undo::undo_noted;

use super::apply::{RefusedBecause, failed, place_failed};
pub(super) use super::journal::is_interrupted;
use super::journal::{Journal, JournalAct, JournalMark, JournalStep, State};
use super::layers::Layers;
use super::merging::Merged;
use super::{LayersError, Overlay};
use crate::workspace::place::{Content, Filling, PlaceError, Placing};
use crate::workspace::removal::{absent_is_fine, opened};
use crate::workspace::unfinished::{Recovered, Unfinished, Version};

/// Directories are made closed to others, and get their permissions once all is done.
const MADE: u32 = 0o700;

/// The act of a step.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// A file or link goes.
    Delete { before: Status },
    /// A directory goes, if nothing is in it.
    RemoveDirectory,
    /// A directory is made.
    MakeDirectory,
    /// What the upper layer has takes the place of this.
    Place { before: Option<Status> },
    /// What was made of both versions takes the place of the project's.
    Merge { before: Status, merged: Merged },
    /// A file with this content comes where nothing is.
    Write { content: Vec<u8>, like: Status },
}

/// A step; steps are done in order.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub tree: usize,
    pub path: PathBuf,
    pub act: Act,
    /// Whether what is in the place is known to have changed since the run began.
    pub forced: bool,
}

/// Why a group was stopped, and at which path.
pub(super) struct Stopped {
    /// Where.
    pub tree: usize,
    pub path: PathBuf,
    pub why: RefusedBecause,
}

/// Does all steps or none. `locks` are made as git makes them, and removed afterwards.
pub(super) fn carry_out(
    overlays: &[Overlay],
    layers: &[Layers],
    locks: &[(usize, PathBuf)],
    steps: &[Step],
    check: &dyn Fn() -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let stopped = |tree: usize, path: &Path| {
        let path = path.to_owned();
        move |why| Stopped { tree, path, why }
    };
    let top = || stopped(0, Path::new(""));
    let mut journal = Journal { state: State::Locking, steps: locks.iter().map(lock).collect() };
    journal.write(overlays).map_err(top())?;
    let mut taken = 0;
    let outcome = (|| {
        for (tree, path) in locks {
            take_lock(&layers[*tree], path).map_err(stopped(*tree, path))?;
            taken += 1;
        }
        // Files that were compared before the locks were taken may have changed since.
        check()?;
        for step in steps {
            let noted = stage(layers, step).map_err(stopped(step.tree, &step.path))?;
            journal.steps.push(noted);
        }
        sync(layers).map_err(top())?;
        journal.state = State::Committing;
        journal.write(overlays).map_err(top())?;
        let going = going(steps);
        for (step, noted) in steps.iter().zip(&mut journal.steps[locks.len()..]) {
            commit(layers, &going, step, noted).map_err(stopped(step.tree, &step.path))?;
        }
        sync(layers).map_err(top())?;
        journal.state = State::Done;
        journal.write(overlays).map_err(top())
    })();
    match outcome {
        Ok(()) => {
            finish(layers, &journal.steps);
            Journal::remove(overlays);
            Ok(())
        }
        Err(stopped) => {
            if journal.state == State::Done {
                // The journal may have been written in spite of the error; recovery must undo the steps and not finish them.
                journal.state = State::Committing;
                journal.write(overlays).ok();
            }
            // Locks of somebody else are not ours to remove.
            let (locks, staged) = journal.steps.split_at(locks.len());
            let own: Vec<JournalStep> = locks[..taken].iter().chain(staged).cloned().collect();
            // What is left to undo is in the journal, and the next command that looks at it says so.
            undo_noted(overlays, layers, own).ok();
            Err(stopped)
        }
    }
}

fn lock((tree, path): &(usize, PathBuf)) -> JournalStep {
    let (deed, forced, beside, mark) = (JournalAct::Lock, false, OsString::new(), None);
    JournalStep { tree: *tree, deed, forced, beside, mark, path: path.clone() }
}

/// Directories that are removed: no file may get its temporary name in them.
type Going = BTreeSet<(usize, PathBuf)>;

fn going(steps: &[Step]) -> Going {
    let removed = steps.iter().filter(|step| matches!(step.act, Act::RemoveDirectory));
    removed.map(|step| (step.tree, step.path.clone())).collect()
}

/// Brings what was written to the disk. One call for all files: one for each would take minutes with many.
fn sync(layers: &[Layers]) -> Result<(), RefusedBecause> {
    layers.iter().try_for_each(|own| own.lower.root().sync_file_system()).map_err(failed)
}

/// Finishes or undoes a group that was interrupted.
pub(super) fn recover(overlays: &[Overlay]) -> Result<Recovered, LayersError> {
    let Some(journal) = Journal::read(overlays)? else { return Ok(Recovered::default()) };
    let layers = overlays.iter().map(Overlay::open).collect::<Result<Vec<_>, _>>()?;
    match journal.state {
        State::Locking | State::Committing => undo_noted(overlays, &layers, journal.steps),
        State::Done => {
            finish(&layers, &journal.steps);
            Journal::remove(overlays);
            Ok(Recovered::default())
        }
    }
}

fn stage(layers: &[Layers], step: &Step) -> Result<JournalStep, RefusedBecause> {
    let Step { tree, path, act, forced } = step;
    let own = &layers[*tree];
    let note = |deed: JournalAct, beside: OsString, mark: Option<JournalMark>| JournalStep {
        tree: *tree,
        deed,
        forced: *forced,
        beside,
        mark,
        path: path.clone(),
    };
    match act {
        Act::Delete { before } => {
            Ok(note(JournalAct::Delete, Placing::temporary_name(before).map_err(place_failed)?, None))
        }
        Act::RemoveDirectory => {
            let now = own.lower.status(path).map_err(failed)?;
            Ok(note(JournalAct::RemoveDirectory, OsString::new(), now.as_ref().map(JournalMark::from)))
        }
        Act::MakeDirectory => {
            let now = own.lower.status(path).map_err(failed)?;
            let is_there = now.is_some_and(|now| now.kind == InodeKind::Directory);
            Ok(note(
                if is_there { JournalAct::KeepDirectory } else { JournalAct::MakeDirectory },
                OsString::new(),
                None,
            ))
        }
        Act::Place { before } => {
            let (upper, name) = own.upper.parent(path).map_err(failed)?;
            let like = upper.status(name).map_err(failed)?;
            // Made beside the nearest directory that is there: its own may be made by an earlier step.
            let (parent, place) = staging(own, path)?;
            let placing = Placing::new(parent, place);
            let staged = if like.kind == InodeKind::Symlink {
                let target = upper.link_target(name).map_err(failed)?;
                placing.stage(&Content::Link(&target), &like, before.as_ref())
            } else {
                let file = upper.file(name).map_err(failed)?;
                placing.stage(&Content::File(Filling::Like(&file)), &like, before.as_ref())
            };
            let (beside, made) = staged.map_err(place_failed)?;
            let deed = if before.is_some() { JournalAct::Exchange } else { JournalAct::New };
            Ok(note(deed, beside, Some(JournalMark::from(&made))))
        }
        Act::Write { content, like } => {
            let (parent, place) = staging(own, path)?;
            let content = Content::File(Filling::New(content));
            let (beside, made) =
                Placing::new(parent, place).stage(&content, like, None).map_err(place_failed)?;
            Ok(note(JournalAct::New, beside, Some(JournalMark::from(&made))))
        }
        Act::Merge { before, merged: Merged { content, mode } } => {
            let (parent, place) = staging(own, path)?;
            let like = Status { mode: *mode, ..*before };
            let content = Content::File(Filling::New(content));
            let staged = Placing::new(parent, place).stage(&content, &like, Some(before));
            let (beside, made) = staged.map_err(place_failed)?;
            // A file that the user changed must still count as changed when it is put back.
            Ok(JournalStep {
                forced: true,
                ..note(JournalAct::Exchange, beside, Some(JournalMark::from(&made)))
            })
        }
    }
}

/// The directory in which something is made: its own, or the nearest above it that is there.
fn staging<'path>(layers: &Layers, path: &'path Path) -> Result<(Directory, &'path OsStr), RefusedBecause> {
    let name = path.file_name().ok_or(RefusedBecause::NotBelow)?;
    for above in path.ancestors().skip(1) {
        match layers.lower.root().passage(above) {
            Ok(directory) => return Ok((directory, name)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(cause) => return Err(failed(cause)),
        }
    }
    Err(RefusedBecause::NotBelow)
}

fn commit(
    layers: &[Layers],
    going: &Going,
    step: &Step,
    noted: &mut JournalStep,
) -> Result<(), RefusedBecause> {
    let Step { tree, path, act, forced: _ } = step;
    let own = &layers[*tree];
    let (parent, name) = own.lower.parent(path).map_err(failed)?;
    match act {
        Act::Delete { before } => {
            // A temporary file in a directory that is to be removed would prevent the removal.
            let stays = |above: &&Path| !going.contains(&(*tree, above.to_path_buf()));
            let above = path.ancestors().skip(1).find(stays).ok_or(RefusedBecause::NotBelow)?;
            let temporary = own.lower.root().passage(above).map_err(failed)?;
            Placing::new(parent, name).move_away(&temporary, &noted.beside, before).map_err(place_failed)
        }
        Act::RemoveDirectory => {
            release_locks_in(own, path).map_err(failed)?;
            match Placing::new(parent, name).remove_directory() {
                // Something of the user's is in it, so that it stays. If a file is to take its place, that fails.
                Err(PlaceError::NotAsExpected) => Ok(()),
                answer => answer.map_err(place_failed),
            }
        }
        Act::MakeDirectory => match Placing::new(parent, name).make_directory() {
            // The user has one, too.
            Err(PlaceError::NotAsExpected) => {
                noted.deed = JournalAct::KeepDirectory;
                Ok(())
            }
            answer => answer.map_err(place_failed),
        },
        Act::Merge { before, merged: _ } => {
            Placing::new(parent, name).exchange(&noted.beside, Some(before)).map_err(place_failed)
        }
        Act::Place { before } => put(own, noted, parent, name, before.as_ref()),
        Act::Write { .. } => put(own, noted, parent, name, None),
    }
}

/// Brings what was made beside a place to it.
fn put(
    own: &Layers,
    noted: &JournalStep,
    parent: Directory,
    name: &OsStr,
    before: Option<&Status>,
) -> Result<(), RefusedBecause> {
    let Beside { home: beside_parent, .. } =
        locate(own, noted).map_err(failed)?.ok_or(RefusedBecause::NotBelow)?;
    let same =
        beside_parent.own_status().map_err(failed)?.identity == parent.own_status().map_err(failed)?.identity;
    if !same {
        // It was made further up, because this directory was not there yet.
        opened(&parent, || beside_parent.rename(&noted.beside, &parent, &noted.beside, Onto::Nothing))
            .map_err(failed)?;
    }
    Placing::new(parent, name).exchange(&noted.beside, before).map_err(place_failed)
}

/// What is beside a place.
struct Beside {
    /// The directory that holds it: the place's own, or one above it.
    home: Directory,
    above: PathBuf,
    status: Status,
}

fn locate(layers: &Layers, noted: &JournalStep) -> Result<Option<Beside>, Errno> {
    for above in noted.path.ancestors().skip(1).filter(|_| !noted.beside.is_empty()) {
        let home = match layers.lower.root().passage(above) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            answer => answer?,
        };
        if let Some(status) = home.status_if_present(&noted.beside)? {
            return Ok(Some(Beside { home, above: above.to_owned(), status }));
        }
    }
    Ok(None)
}

/// Removes what was in the places, and what the layers have of it. What fails is found under its name by the next look.
fn finish(layers: &[Layers], steps: &[JournalStep]) {
    use super::discard::{forget, forget_deletion};
    for noted in steps {
        let Some(own) = layers.get(noted.tree) else { continue };
        // A version that somebody wrote to since stays.
        let before =
            Unfinished::parse(&noted.beside).and_then(|name| name.places).map(|places| places.before);
        if let Ok(Some(Beside { home, above: _, status })) = locate(own, noted)
            && before == Some(Version::from(&status))
        {
            opened(&home, || absent_is_fine(home.remove(&noted.beside))).ok();
        }
    }
    // The deepest first, so that directories are empty when their turn comes.
    let mut all: Vec<&JournalStep> = steps.iter().collect();
    all.sort_by(|one, other| other.path.cmp(&one.path));
    for noted in &all {
        let Some(own) = layers.get(noted.tree).filter(|_| noted.deed == JournalAct::MakeDirectory) else {
            continue;
        };
        let Ok((parent, name)) = own.lower.parent(&noted.path) else { continue };
        // The layer has none where the agent's git kept refs together.
        let like = match own.upper.status(&noted.path) {
            Ok(Some(like)) if like.kind == InodeKind::Directory => Ok(like),
            Ok(_) | Err(_) => parent.own_status(),
        };
        if let Ok(like) = like {
            Placing::new(parent, name).finish_directory(&like).ok();
        }
    }
    for noted in all {
        let Some(own) = layers.get(noted.tree) else { continue };
        match noted.deed {
            JournalAct::Lock => release_lock(own, &noted.path).ok(),
            JournalAct::Delete => forget_deletion(own, &noted.path).ok(),
            JournalAct::RemoveDirectory if matches!(own.lower.status(&noted.path), Ok(None)) => {
                forget_deletion(own, &noted.path).ok()
            }
            JournalAct::RemoveDirectory => None,
            JournalAct::MakeDirectory
            | JournalAct::KeepDirectory
            | JournalAct::New
            | JournalAct::Exchange => forget(own, &noted.path).ok(),
        };
    }
}

#[cfg(test)]
mod tests;
