//! Writes changes that belong to no commit to the project, one by one.
//!
//! Every change is compared and classified anew, so that what is consented to is what is written. Deletions come
//! first, the deepest before the others; then what is new, directories before what is in them; last the permissions of
//! directories, so that a closed one does not stop what goes into it. What is written is taken out of the upper layer once
//! all of it is on the disk; what is refused, or fails, stays there, and another apply goes on with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use belljar_class::{Class, EntryKind, classify_in};
use belljar_sys::Errno;
use belljar_sys::beneath::{InodeKind, Status};

use super::apply::{
    Applied, ApplyMode, ApplyRequest, OnConflict, RefusedBecause, RefusedChange, emptied, failed,
    place_failed, removes, way_to,
};
use super::changes::{Change, ChangeKind, compare};
use super::discard::{forget, forget_deletion};
use super::layers::Layers;
use super::merging::{Merged, Merging};
use super::starts::Bases;
use super::{LayersError, Overlay};
use crate::workspace::place::{Expected, Placing};
use crate::workspace::tree::Tree;

impl Overlay {
    /// Writes changes to the project.
    ///
    /// # Errors
    /// Fails if a layer cannot be opened; what cannot be written is in the outcome.
    pub fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, LayersError> {
        self.apply_until(request, &mut || false)
    }

    /// Writes changes to the project until `stop` says so, which is asked between two of them.
    ///
    /// # Errors
    /// As [`Overlay::apply`].
    pub fn apply_until(
        &self,
        request: &ApplyRequest<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Applied, LayersError> {
        let layers = self.open()?;
        let changes = compare(&layers).changes;
        self.apply_changes(&layers, &changes, &BTreeSet::new(), request, stop)
    }

    /// The same with some of the changes. `made` are directories that the project has by then.
    pub(super) fn apply_changes(
        &self,
        layers: &Layers,
        changes: &[Change],
        made: &BTreeSet<PathBuf>,
        request: &ApplyRequest<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Applied, LayersError> {
        let bases = self.read_bases()?;
        let merging = Merging::new(self, layers, &bases);
        let mut work =
            Applying { layers, request, out: Applied::default(), modes: Vec::new(), written: Vec::new() };
        let tasks = work.choose(changes, made, &bases, &merging);
        if request.mode == ApplyMode::DryRun {
            let path = |task: &Task<'_>| task.change.path.clone();
            work.out.applied = tasks.iter().map(path).collect();
            work.out.merged = tasks.iter().filter(|task| task.merged.is_some()).map(path).collect();
            return Ok(work.out);
        }
        let parent = |task: &Task<'_>| task.change.path.parent().map(Path::to_owned).unwrap_or_default();
        self.begin_apply(tasks.iter().map(parent).collect())?;
        let deleted = |task: &&Task<'_>| task.change.kind == ChangeKind::Deleted;
        let deletions = tasks.iter().rev().filter(deleted).map(|task| (task, FileAct::Delete));
        let writes = tasks.iter().filter(|task| !deleted(task)).map(|task| (task, FileAct::Write));
        for (task, deed) in deletions.chain(writes) {
            if stop() {
                work.out.stopped = true;
                break;
            }
            match deed {
                FileAct::Delete => work.delete(task),
                FileAct::Write => work.write(task),
            }
        }
        work.finish_directories();
        work.forget_written();
        self.end_apply()?;
        let mut out = work.out;
        out.applied.sort();
        out.merged.sort();
        out.refused.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(out)
    }
}

/// A change that will be tried, and what it is expected to meet.
struct Task<'changes> {
    change: &'changes Change,
    before: Option<Status>,
    /// What is written instead of the agent's version.
    merged: Option<Merged>,
}

/// Whether what is in the place goes.
fn goes(task: &Task<'_>) -> bool {
    removes(task.change.kind)
}

fn path_of(task: &Task<'_>) -> PathBuf {
    task.change.path.clone()
}

#[derive(Clone, Copy)]
enum FileAct {
    Delete,
    Write,
}

struct Applying<'apply> {
    layers: &'apply Layers,
    request: &'apply ApplyRequest<'apply>,
    out: Applied,
    /// Directories that get their permissions at the end.
    modes: Vec<(PathBuf, Status)>,
    /// What the project has now, and how the layer forgets it.
    written: Vec<(PathBuf, Forget)>,
}

type Forget = fn(&Layers, &Path) -> Result<(), Errno>;

impl Applying<'_> {
    fn refuse(&mut self, path: &Path, why: RefusedBecause) {
        self.out.refused.push(RefusedChange { path: path.to_owned(), why });
    }

    /// The changes that may be made, looked at before anything is written.
    fn choose<'changes>(
        &mut self,
        changes: &'changes [Change],
        made: &BTreeSet<PathBuf>,
        bases: &Bases,
        merging: &Merging<'_>,
    ) -> Vec<Task<'changes>> {
        let selection = &self.request.selection;
        let chosen: Vec<&Change> = changes.iter().filter(|change| selection.includes(&change.path)).collect();
        // Directories that are new and lead to a chosen change come along.
        let by_path: BTreeMap<&Path, &Change> =
            changes.iter().map(|change| (change.path.as_path(), change)).collect();
        let new = |change: &Change| change.kind == ChangeKind::Added && change.entry == EntryKind::Directory;
        let mut wanted: BTreeMap<&Path, &Change> = BTreeMap::new();
        for change in chosen {
            let above = change.path.ancestors().skip(1).filter_map(|path| by_path.get(path).copied());
            wanted.extend(above.filter(|change| new(change)).map(|change| (change.path.as_path(), change)));
            wanted.insert(&change.path, change);
        }
        let (mut tasks, mut made) = (Vec::new(), made.clone());
        // A directory comes before what is in it.
        for (path, change) in wanted {
            let checked = self.check(change, bases, merging).and_then(|checked| {
                way_to(self.layers, path, &|above| made.contains(above))?;
                Ok(checked)
            });
            match checked {
                Ok((before, merged)) => {
                    if change.entry == EntryKind::Directory && change.kind != ChangeKind::Deleted {
                        made.insert(path.to_owned());
                    }
                    tasks.push(Task { change, before, merged });
                }
                Err(why) => self.refuse(path, why),
            }
        }
        self.without_directories_that_stay(tasks)
    }

    /// A directory neither goes nor becomes something else where something in it stays.
    fn without_directories_that_stay<'changes>(&mut self, tasks: Vec<Task<'changes>>) -> Vec<Task<'changes>> {
        let mut going: BTreeSet<PathBuf> = tasks.iter().filter(|task| goes(task)).map(path_of).collect();
        let mut out = Vec::new();
        // The entries of a directory come before it.
        for task in tasks.into_iter().rev() {
            let path = &task.change.path;
            match emptied(self.layers, path, task.before.as_ref().filter(|_| goes(&task)), &going) {
                Ok(true) => out.push(task),
                Ok(false) => {
                    going.remove(path);
                    self.refuse(path, RefusedBecause::ChangedSince);
                }
                Err(cause) => {
                    going.remove(path);
                    self.refuse(path, failed(cause));
                }
            }
        }
        out.reverse();
        out
    }

    fn check(
        &self,
        change: &Change,
        bases: &Bases,
        merging: &Merging<'_>,
    ) -> Result<(Option<Status>, Option<Merged>), RefusedBecause> {
        if matches!(change.class, Class::Special { .. }) {
            return Err(RefusedBecause::Special);
        }
        if !self.request.consent.covers(change) {
            return Err(RefusedBecause::NeedsConsent { class: change.class.clone() });
        }
        let before = self.layers.lower.status(&change.path).map_err(failed)?;
        let merged = match (self.request.on_conflict_at(&change.path), &before) {
            (OnConflict::Overwrite, _) => return Ok((before, None)),
            (on_conflict, Some(now)) if bases.changed(change, now) => {
                Some(merging.merge(change, now, on_conflict)?)
            }
            (OnConflict::Merge | OnConflict::Markers, None) if merging.is_deleted(change) => {
                return Err(RefusedBecause::ChangedSince);
            }
            (OnConflict::Merge | OnConflict::Markers, _) => None,
        };
        if before.is_some() && bases.moved(&self.layers.lower, change).map_err(failed)? {
            return Err(RefusedBecause::ChangedSince);
        }
        Ok((before, merged))
    }

    fn delete(&mut self, task: &Task<'_>) {
        let path = &task.change.path;
        let outcome = self.placing(path).and_then(|placing| match task.before {
            Some(before) => self.remove(path, &placing, &before),
            None => Ok(()),
        });
        self.settle(path, outcome, forget_deletion);
    }

    fn write(&mut self, task: &Task<'_>) {
        let outcome = self.try_write(task);
        let path = &task.change.path;
        self.settle(path, outcome, forget);
        if task.merged.is_some() && self.out.applied.last() == Some(path) {
            self.out.merged.push(path.clone());
        }
    }

    fn settle(&mut self, path: &Path, outcome: Result<(), RefusedBecause>, forget: Forget) {
        match outcome {
            Ok(()) => {
                self.written.push((path.to_owned(), forget));
                self.out.applied.push(path.to_owned());
            }
            Err(why) => self.refuse(path, why),
        }
    }

    /// Takes what is written out of the layer; not before it is on the disk, or both could be lost with the power.
    fn forget_written(&mut self) {
        let written = std::mem::take(&mut self.written);
        if written.is_empty() {
            return;
        }
        let synced = self.layers.lower.root().sync_file_system();
        for (path, forget) in written {
            let forgotten = synced.and_then(|()| forget(self.layers, &path));
            if let Err(cause) = forgotten {
                self.fail(&path, failed(cause));
            }
        }
    }

    /// Takes back that a change was applied.
    fn fail(&mut self, path: &Path, why: RefusedBecause) {
        self.out.applied.retain(|applied| applied != path);
        self.out.merged.retain(|merged| merged != path);
        self.written.retain(|(written, _)| written != path);
        self.out.refused.retain(|refused| refused.path != path);
        self.refuse(path, why);
    }

    fn placing<'path>(&self, path: &'path Path) -> Result<Placing<'path>, RefusedBecause> {
        match self.layers.lower.parent(path) {
            Ok((parent, name)) => Ok(Placing::new(parent, name)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                way_to(self.layers, path, &|_| false)?;
                Err(RefusedBecause::NotBelow)
            }
            Err(cause) => Err(failed(cause)),
        }
    }

    fn expected(&self, path: &Path, before: Option<Status>) -> Expected {
        match (self.request.on_conflict_at(path), before) {
            (OnConflict::Overwrite, Some(_)) => Expected::Anything,
            (OnConflict::Merge | OnConflict::Markers, Some(before)) => Expected::Same(before),
            (_, None) => Expected::Nothing,
        }
    }

    fn remove(&self, path: &Path, placing: &Placing<'_>, before: &Status) -> Result<(), RefusedBecause> {
        let removed = match before.kind {
            InodeKind::Directory => placing.remove_directory(),
            InodeKind::File
            | InodeKind::Symlink
            | InodeKind::Fifo
            | InodeKind::Socket
            | InodeKind::CharacterDevice
            | InodeKind::BlockDevice
            | InodeKind::Unknown => placing.remove(&self.expected(path, Some(*before))),
        };
        removed.map_err(place_failed)
    }

    fn try_write(&mut self, task: &Task<'_>) -> Result<(), RefusedBecause> {
        let Task { change, before, merged } = task;
        let path = &change.path;
        let placing = self.placing(path)?;
        if let (Some(Merged { content, mode }), Some(before)) = (merged, before) {
            let like = Status { mode: *mode, ..*before };
            let expected = self.expected(path, Some(*before));
            return placing.bytes(content, &like, &expected).map_err(place_failed);
        }
        let (upper, name) = self.layers.upper.parent(path).map_err(failed)?;
        let above = upper.status(name).map_err(failed)?;
        let directory_involved = above.kind == InodeKind::Directory
            || before.is_some_and(|before| before.kind == InodeKind::Directory);
        if change.kind == ChangeKind::ModeChanged {
            if above.kind == InodeKind::Directory {
                self.modes.push((path.clone(), above));
                return Ok(());
            }
            return placing.set_mode(&above, &self.expected(path, *before)).map_err(place_failed);
        }
        let mut expected = self.expected(path, *before);
        if let (ChangeKind::TypeChanged, Some(before), true) = (change.kind, before, directory_involved) {
            self.remove(path, &placing, before)?;
            expected = Expected::Nothing;
        }
        match &change.entry {
            EntryKind::Directory => {
                placing.make_directory().map_err(place_failed)?;
                self.modes.push((path.clone(), above));
                Ok(())
            }
            EntryKind::Symlink(target) => {
                self.still_inside(change)?;
                placing.symlink(target, &above, &expected).map_err(place_failed)
            }
            EntryKind::File | EntryKind::SetIdFile => {
                let content = upper.file(name).map_err(failed)?;
                placing.file(&content, &above, &expected).map_err(place_failed)
            }
            EntryKind::Special(_) => Err(RefusedBecause::Special),
        }
    }

    /// A link may lead out by what is in the project alone, when not everything is applied.
    fn still_inside(&self, change: &Change) -> Result<(), RefusedBecause> {
        let root = self.layers.lower.root().directory(Path::new("")).map_err(failed)?;
        let class = classify_in(&change.path, &change.entry, &Tree::new(root));
        match class {
            Class::EscapingSymlink { .. } if !self.request.consent.to.contains(&change.path) => {
                Err(RefusedBecause::NeedsConsent { class })
            }
            Class::EscapingSymlink { .. }
            | Class::Ordinary
            | Class::HostExecuted { .. }
            | Class::Special { .. } => Ok(()),
        }
    }

    fn finish_directories(&mut self) {
        let mut modes = std::mem::take(&mut self.modes);
        modes.sort_by(|(one, _), (other, _)| other.cmp(one));
        for (path, above) in modes {
            let outcome = self
                .placing(&path)
                .and_then(|placing| placing.finish_directory(&above).map_err(place_failed));
            match outcome {
                // Again, once what is in it is forgotten.
                Ok(()) => self.written.push((path, forget)),
                Err(why) => self.fail(&path, why),
            }
        }
    }
}
