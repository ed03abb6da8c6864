//! Changes that are written together or not at all: a commit with its refs, its index and its files.
//!
//! First everything is made beside its place; a full disk stops it there, and nothing shows. Then a journal is written that
//! names every step, and names change places, which takes no room. What was in a place stays beside it until all steps are
//! done. If one fails, or the process ends, the steps are undone: at once, or by the next command that looks at the changes.
//! Once the journal says that all is done, the rest is tidying up.
//!
//! A journal that cannot be read stops everything: without it nobody knows which of two versions is the user's. It stays until
//! every step is undone. What the user changed after an interruption stays as it is, and both versions are kept.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, Kind, Onto, Status, is_superuser};

use super::apply::{RefusedBecause, failed, place_failed};
pub(super) use super::journal::is_interrupted;
use super::journal::{Deed, Journal, Mark, Noted, State};
use super::layers::Layers;
use super::merging::Merged;
use super::{LayersError, Overlay};
use crate::workspace::place::{Content, Filling, PlaceError, Placing};
use crate::workspace::removal::{absent_is_fine, opened};
use crate::workspace::unfinished::{Recovered, Unfinished, Version};

/// Directories are made closed to others, and get their permissions once all is done.
const MADE: u32 = 0o700;

/// What is done at a path.
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

/// What stopped a group.
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
        // What was looked at before the locks may have changed since.
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
                // It may have been written all the same; undoing must not be taken for tidying up.
                journal.state = State::Committing;
                journal.write(overlays).ok();
            }
            // Locks of somebody else are not ours to remove.
            let (locks, staged) = journal.steps.split_at(locks.len());
            let own: Vec<Noted> = locks[..taken].iter().chain(staged).cloned().collect();
            // What is left to undo is in the journal, and the next command that looks at it says so.
            undo_noted(overlays, layers, own).ok();
            Err(stopped)
        }
    }
}

fn lock((tree, path): &(usize, PathBuf)) -> Noted {
    let (deed, forced, beside, mark) = (Deed::Lock, false, OsString::new(), None);
    Noted { tree: *tree, deed, forced, beside, mark, path: path.clone() }
}

/// Directories that are removed: nothing may be moved aside in them.
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

/// Undoes steps. Those that cannot be undone stay in the journal.
fn undo_noted(overlays: &[Overlay], layers: &[Layers], steps: Vec<Noted>) -> Result<Recovered, LayersError> {
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
    let mut left: Vec<Noted> = failed.into_iter().map(|(noted, _cause)| noted).collect();
    left.reverse();
    // If it cannot be written, the one from before stays, with more steps than are left.
    Journal { state: State::Committing, steps: left }.write(overlays).ok();
    Err(fault(first.tree, first.path, cause))
}

/// What our locks hold, so that they are told from git's.
const SIGNATURE: &[u8] = b"belljar apply\n";

fn take_lock(layers: &Layers, path: &Path) -> Result<(), RefusedBecause> {
    let (parent, name) = match layers.lower.parent(path) {
        // Where there is no directory there is nothing to lock.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        answer => answer.map_err(failed)?,
    };
    // Whole before it has its name, so that one that is left behind is known for ours.
    let fresh = Placing::fresh_name().map_err(place_failed)?;
    let mut file = opened(&parent, || parent.create(&fresh, 0o600)).map_err(failed)?;
    let written = file.write_all(SIGNATURE).map_err(|error| belljar_sys::fds::errno_of(&error));
    let named =
        written.and_then(|()| opened(&parent, || parent.rename(&fresh, &parent, name, Onto::Nothing)));
    match named {
        Ok(()) => Ok(()),
        Err(cause) => {
            opened(&parent, || absent_is_fine(parent.remove(&fresh))).map_err(failed)?;
            Err(if cause == Errno::EXIST { RefusedBecause::Locked } else { failed(cause) })
        }
    }
}

/// Removes a lock, if it is ours.
fn release_lock(layers: &Layers, path: &Path) -> Result<(), Errno> {
    let (parent, name) = match layers.lower.parent(path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        answer => answer?,
    };
    let file = match parent.file(name) {
        Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => return Ok(()),
        answer => answer?,
    };
    let mut found = Vec::new();
    let read = io::Read::read_to_end(&mut io::Read::take(file, 64), &mut found);
    read.map_err(|error| belljar_sys::fds::errno_of(&error))?;
    if found == SIGNATURE {
        opened(&parent, || absent_is_fine(parent.remove(name)))?;
    }
    Ok(())
}

fn stage(layers: &[Layers], step: &Step) -> Result<Noted, RefusedBecause> {
    let Step { tree, path, act, forced } = step;
    let own = &layers[*tree];
    let note = |deed: Deed, beside: OsString, mark: Option<Mark>| Noted {
        tree: *tree,
        deed,
        forced: *forced,
        beside,
        mark,
        path: path.clone(),
    };
    match act {
        Act::Delete { before } => Ok(note(Deed::Delete, Placing::aside(before).map_err(place_failed)?, None)),
        Act::RemoveDirectory => {
            let now = own.lower.status(path).map_err(failed)?;
            Ok(note(Deed::RemoveDirectory, OsString::new(), now.as_ref().map(Mark::from)))
        }
        Act::MakeDirectory => {
            let now = own.lower.status(path).map_err(failed)?;
            let is_there = now.is_some_and(|now| now.kind == Kind::Directory);
            Ok(note(if is_there { Deed::KeepDirectory } else { Deed::MakeDirectory }, OsString::new(), None))
        }
        Act::Place { before } => {
            let (upper, name) = own.upper.parent(path).map_err(failed)?;
            let like = upper.status(name).map_err(failed)?;
            // Made beside the nearest directory that is there: its own may be made by an earlier step.
            let (parent, place) = staging(own, path)?;
            let placing = Placing::new(parent, place);
            let staged = if like.kind == Kind::Symlink {
                let target = upper.link_target(name).map_err(failed)?;
                placing.stage(&Content::Link(&target), &like, before.as_ref())
            } else {
                let file = upper.file(name).map_err(failed)?;
                placing.stage(&Content::File(Filling::Like(&file)), &like, before.as_ref())
            };
            let (beside, made) = staged.map_err(place_failed)?;
            let deed = if before.is_some() { Deed::Exchange } else { Deed::New };
            Ok(note(deed, beside, Some(Mark::from(&made))))
        }
        Act::Write { content, like } => {
            let (parent, place) = staging(own, path)?;
            let content = Content::File(Filling::New(content));
            let (beside, made) =
                Placing::new(parent, place).stage(&content, like, None).map_err(place_failed)?;
            Ok(note(Deed::New, beside, Some(Mark::from(&made))))
        }
        Act::Merge { before, merged: Merged { content, mode } } => {
            let (parent, place) = staging(own, path)?;
            let like = Status { mode: *mode, ..*before };
            let content = Content::File(Filling::New(content));
            let staged = Placing::new(parent, place).stage(&content, &like, Some(before));
            let (beside, made) = staged.map_err(place_failed)?;
            // What the user changed is still changed when it is put back.
            Ok(Noted { forced: true, ..note(Deed::Exchange, beside, Some(Mark::from(&made))) })
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

fn commit(layers: &[Layers], going: &Going, step: &Step, noted: &mut Noted) -> Result<(), RefusedBecause> {
    let Step { tree, path, act, forced: _ } = step;
    let own = &layers[*tree];
    let (parent, name) = own.lower.parent(path).map_err(failed)?;
    match act {
        Act::Delete { before } => {
            // What is moved aside in a directory that goes would keep it from going.
            let stays = |above: &&Path| !going.contains(&(*tree, above.to_path_buf()));
            let above = path.ancestors().skip(1).find(stays).ok_or(RefusedBecause::NotBelow)?;
            let aside = own.lower.root().passage(above).map_err(failed)?;
            Placing::new(parent, name).move_aside(&aside, &noted.beside, before).map_err(place_failed)
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
                noted.deed = Deed::KeepDirectory;
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
    noted: &Noted,
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

/// Removes our locks of what was in a directory that goes: where it was nobody can lock anything any more.
fn release_locks_in(layers: &Layers, directory: &Path) -> Result<(), Errno> {
    let mut names = Vec::new();
    match layers.lower.root().directory(directory) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(()),
        answer => answer?.entries(|name, _kind| names.push(name.to_owned()))?,
    }
    let locks = names.iter().filter(|name| name.as_bytes().ends_with(b".lock"));
    locks.map(|name| directory.join(name)).try_for_each(|path| release_lock(layers, &path))
}

/// What is beside a place.
struct Beside {
    /// The directory that holds it: the place's own, or one above it.
    home: Directory,
    above: PathBuf,
    status: Status,
}

fn locate(layers: &Layers, noted: &Noted) -> Result<Option<Beside>, Errno> {
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

/// What became of an undo.
#[derive(Default)]
struct Undone {
    /// The user's versions from before the apply, where a later one is in the place.
    kept: Vec<(usize, PathBuf)>,
    /// What was made and the user changed since.
    changed: Vec<(usize, PathBuf)>,
    /// What the user deleted since.
    deleted: Vec<(usize, PathBuf)>,
    /// Steps that are still to be undone, the last first.
    failed: Vec<(Noted, Errno)>,
}

/// What became of one step.
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
fn undo(overlays: &[Overlay], layers: &[Layers], steps: &[Noted]) -> Undone {
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

fn undo_one(own: &Layers, noted: &Noted, steps: &[Noted]) -> Result<Became, Errno> {
    let (parent, name) = match own.lower.parent(&noted.path) {
        // The user took away the directory that it was in.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return undo_without_place(own, noted),
        answer => answer?,
    };
    let now = parent.status_if_present(name)?;
    match noted.deed {
        Deed::Lock => release_lock(own, &noted.path)?,
        Deed::KeepDirectory => {}
        Deed::MakeDirectory => {
            let is_ours = now.is_some_and(|now| now.kind == Kind::Directory && now.mode == MADE);
            let removed = if is_ours { opened(&parent, || parent.remove_directory(name)) } else { Ok(()) };
            match removed {
                Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Became::Changed),
                answer => absent_is_fine(answer)?,
            }
        }
        Deed::RemoveDirectory => {
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
        Deed::New => match now {
            Some(now) if noted.is_ours(&now) => opened(&parent, || absent_is_fine(parent.remove(name)))?,
            Some(now) if noted.is_made(&now) => return Ok(Became::Changed),
            // What was made is not beside its place any more, so it was in it.
            None if locate(own, noted)?.is_none() => return Ok(Became::Deleted(None)),
            Some(_) | None => remove_staged(own, noted)?,
        },
        Deed::Delete | Deed::Exchange => return put_back(own, noted, (&parent, name), now),
    }
    Ok(Became::Undone)
}

/// Whether the apply had moved everything out of a directory. If it had not, somebody else removed the directory.
fn was_emptied(own: &Layers, directory: &Noted, steps: &[Noted]) -> Result<bool, Errno> {
    for step in steps {
        let below = step.tree == directory.tree && step.path.starts_with(&directory.path);
        if step.deed == Deed::Delete && below && locate(own, step)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Brings the user's version back from beside its place.
fn put_back(
    own: &Layers,
    noted: &Noted,
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
        None if noted.deed == Deed::Exchange => {
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
fn undo_without_place(own: &Layers, noted: &Noted) -> Result<Became, Errno> {
    match (noted.deed, locate(own, noted)?) {
        (Deed::Delete | Deed::Exchange | Deed::New, Some(beside)) if noted.is_made(&beside.status) => {
            remove_staged(own, noted)?;
            Ok(Became::Undone)
        }
        (Deed::Delete | Deed::Exchange, Some(Beside { home, above, status: _ })) => {
            set_apart(noted, &home, (&home, &above)).map(Became::Kept)
        }
        (
            Deed::Lock
            | Deed::Delete
            | Deed::RemoveDirectory
            | Deed::MakeDirectory
            | Deed::KeepDirectory
            | Deed::New
            | Deed::Exchange,
            _,
        ) => Ok(Became::Undone),
    }
}

/// Removes what was made beside its place, and only that.
fn remove_staged(own: &Layers, noted: &Noted) -> Result<(), Errno> {
    match locate(own, noted)? {
        Some(Beside { home, above: _, status }) if noted.is_made(&status) => {
            opened(&home, || absent_is_fine(home.remove(&noted.beside)))
        }
        Some(_) | None => Ok(()),
    }
}

/// Gives the user's version from before the apply a name to be found under: in its place is a later one.
fn set_apart(noted: &Noted, home: &Directory, (to, above): (&Directory, &Path)) -> Result<PathBuf, Errno> {
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

fn note_restored(overlays: &[Overlay], layers: &[Layers], restored: &[&Noted]) {
    for (tree, (overlay, layers)) in overlays.iter().zip(layers).enumerate() {
        let own = restored.iter().filter(|noted| noted.tree == tree && !noted.forced);
        let now = |noted: &&Noted| {
            let status = layers.lower.status(&noted.path).ok()??;
            Some((noted.path.clone(), status))
        };
        // Without the note it is asked about, and nothing is lost.
        overlay.note_restored(own.filter_map(now).collect()).ok();
    }
}

/// Removes what was in the places, and what the layers have of it. What fails is found under its name by the next look.
fn finish(layers: &[Layers], steps: &[Noted]) {
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
    let mut all: Vec<&Noted> = steps.iter().collect();
    all.sort_by(|one, other| other.path.cmp(&one.path));
    for noted in &all {
        let Some(own) = layers.get(noted.tree).filter(|_| noted.deed == Deed::MakeDirectory) else {
            continue;
        };
        let Ok((parent, name)) = own.lower.parent(&noted.path) else { continue };
        // The layer has none where the agent's git kept refs together.
        let like = match own.upper.status(&noted.path) {
            Ok(Some(like)) if like.kind == Kind::Directory => Ok(like),
            Ok(_) | Err(_) => parent.own_status(),
        };
        if let Ok(like) = like {
            Placing::new(parent, name).finish_directory(&like).ok();
        }
    }
    for noted in all {
        let Some(own) = layers.get(noted.tree) else { continue };
        match noted.deed {
            Deed::Lock => release_lock(own, &noted.path).ok(),
            Deed::Delete => forget_deletion(own, &noted.path).ok(),
            Deed::RemoveDirectory if matches!(own.lower.status(&noted.path), Ok(None)) => {
                forget_deletion(own, &noted.path).ok()
            }
            Deed::RemoveDirectory => None,
            Deed::MakeDirectory | Deed::KeepDirectory | Deed::New | Deed::Exchange => {
                forget(own, &noted.path).ok()
            }
        };
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
