//! A group: everything that git wrote to a repository (refs, commits, the index and the files that they name), which is
//! applied together or not at all.

mod branch;
mod in_use;
mod judge;
mod members;
mod objects;
mod refs;
mod steps;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use belljar_sys::beneath::{InodeKind, Status};

use super::apply::{
    Applied, ApplyMode, ApplyRequest, RefusedBecause, RefusedChange, emptied, removes, way_to,
};
use super::changes::{Change, ChangeKind};
use super::discard::{forget, forget_deletion, uncover, uncover_refs};
use super::kept::{Found, Kept, Opened, Sorted};
use super::layers::Layers;
use super::merging::{Merged, Merging};
use super::starts::Bases;
use super::transaction::{self, Step, Stopped};
use super::{LayersError, Overlay};

pub use branch::{BranchRequest, Branched, NewBranch};

/// A change of a group that may be written, and what is in its place.
struct Member {
    tree: usize,
    change: Change,
    before: Option<Status>,
    /// Whether the user changed it, too.
    forced: bool,
    /// What is written instead of the agent's version.
    merged: Option<Merged>,
    /// Whether it is a directory that is removed with the group without being part of it.
    along: bool,
}

/// A group that is being written.
struct Group<'apply> {
    kept: &'apply Kept,
    opened: &'apply Opened,
    request: &'apply ApplyRequest<'apply>,
    /// Which repository it is.
    at: usize,
    bases: Vec<Bases>,
}

/// A group that is ready to be written.
struct Ready {
    members: Vec<Member>,
    objects: Vec<(usize, Change)>,
    sound: Vec<objects::Sound>,
    /// Taken out of the layer once the rest is written.
    spent: Vec<(usize, Change)>,
    refs: Vec<Step>,
    locks: Vec<(usize, PathBuf)>,
}

impl Kept {
    /// Writes the group of a repository; returns whether it was written. `held` are the repositories that were not.
    pub(super) fn apply_group(
        &self,
        opened: &Opened,
        request: &ApplyRequest<'_>,
        at: usize,
        sorted: Sorted,
        held: &BTreeSet<usize>,
        out: &mut Applied,
    ) -> Result<bool, LayersError> {
        let bases = self.overlays.iter().map(Overlay::read_bases).collect::<Result<Vec<_>, _>>()?;
        let group = Group { kept: self, opened, request, at, bases };
        let mut refused = group.judge(&sorted, held, out);
        let ready = group.ready(sorted, out, &mut refused);
        let names: Vec<PathBuf> = ready.members.iter().map(|member| group.outer(member)).collect();
        if !refused.is_empty() {
            let refs = ready.refs.len();
            group.held_back(names.len() + refs, refused, out);
            return Ok(false);
        }
        let is_merged = |member: &&Member| member.merged.is_some() && !group.is_reflog(member);
        let merged: Vec<PathBuf> =
            ready.members.iter().filter(is_merged).map(|member| group.outer(member)).collect();
        if request.mode == ApplyMode::DryRun {
            out.applied.extend(names);
            out.merged.extend(merged);
            out.repositories.insert(self.path_of(group.found()));
            return Ok(true);
        }
        let written = group.write(ready, out)?;
        if written {
            out.merged.extend(merged);
            out.repositories.insert(self.path_of(group.found()));
        }
        Ok(written)
    }
}

impl Group<'_> {
    fn found(&self) -> &Found {
        &self.opened.repositories[self.at]
    }

    fn layers(&self) -> &Layers {
        &self.opened.layers[self.found().repository.tree]
    }

    fn outer(&self, member: &Member) -> PathBuf {
        self.kept.outer(member.tree, &member.change.path)
    }

    /// Says what stopped it; `files` are those that nothing stopped.
    fn held_back(&self, files: usize, refused: Vec<RefusedChange>, out: &mut Applied) {
        let (found, files) = (self.found(), files + refused.len());
        let label = self.kept.label_of(found);
        let git = || self.kept.outer(found.repository.tree, &found.repository.git);
        let path = if found.repository.is_main { git() } else { label };
        out.refused.extend(refused);
        out.refused.push(RefusedChange { path, why: RefusedBecause::HeldBack { files } });
    }

    /// Looks at everything that is to be written, and at what is in its place.
    fn ready(&self, sorted: Sorted, out: &mut Applied, refused: &mut Vec<RefusedChange>) -> Ready {
        let Sorted { group, along, objects, mut scratch, refs } = sorted;
        let trees = self.kept.overlays.iter().zip(self.opened.layers.iter().zip(&self.bases));
        let merging: Vec<Merging<'_>> =
            trees.map(|(overlay, (layers, bases))| Merging::new(overlay, layers, bases)).collect();
        let group = group.into_iter().map(|entry| (entry, false));
        let mut members = Vec::new();
        for ((tree, change), along) in group.chain(along.into_iter().map(|entry| (entry, true))) {
            match self.member(&merging[tree], tree, &change) {
                Ok((before, merged)) => {
                    let forced = before.is_some_and(|now| self.bases[tree].changed(&change, &now));
                    members.push(Member { tree, change, before, forced, merged, along });
                }
                Err(why) => refused.push(RefusedChange { path: self.kept.outer(tree, &change.path), why }),
            }
        }
        refused.extend(self.no_way_to(&members, &out.applied));
        let stay = directories_that_stay(self.opened, &mut members, &out.applied);
        let stays =
            |member: &Member| RefusedChange { path: self.outer(member), why: RefusedBecause::ChangedSince };
        let stops = |member: &&Member| member.change.kind == ChangeKind::TypeChanged && !member.along;
        refused.extend(stay.iter().filter(stops).map(stays));
        let sound = self.check_objects(&objects, refused);
        let refs_steps = self.ref_steps(refused);
        let locks = self.locks(&members, &refs_steps);
        if self.request.mode == ApplyMode::DryRun {
            let lower = |tree: usize| &self.opened.layers[tree].lower;
            let held =
                locks.iter().filter(|(tree, path)| lower(*tree).status(path).is_ok_and(|now| now.is_some()));
            let locked = |(tree, path): &(usize, PathBuf)| RefusedChange {
                path: self.kept.outer(*tree, path),
                why: RefusedBecause::Locked,
            };
            refused.extend(held.map(locked));
        }
        if refused.is_empty() {
            out.refused.extend(stay.iter().map(stays));
        }
        scratch.extend(refs);
        Ready { members, objects, sound, spent: scratch, refs: refs_steps, locks }
    }

    /// Members that cannot be written because something on the way is not a directory. Directories that are missing are made.
    fn no_way_to(&self, members: &[Member], applied: &[PathBuf]) -> Vec<RefusedChange> {
        let changed = members.iter().map(|member| (member.tree, member.change.path.as_path()));
        let changed: BTreeSet<(usize, &Path)> =
            changed.chain(applied.iter().map(|path| (0, path.as_path()))).collect();
        let blocked = |member: &Member| {
            let Member { tree, change, .. } = member;
            let layers = &self.opened.layers[*tree];
            let is_missing = |path: &Path| matches!(layers.lower.status(path), Ok(None));
            let made = |above: &Path| changed.contains(&(*tree, above)) || is_missing(above);
            let why = way_to(layers, &change.path, &made).err()?;
            Some(RefusedChange { path: self.outer(member), why })
        };
        members.iter().filter_map(blocked).collect()
    }

    /// Writes it; whether that was done.
    fn write(&self, ready: Ready, out: &mut Applied) -> Result<bool, LayersError> {
        let Ready { members, objects, sound, spent, refs, locks } = ready;
        let (kept, opened) = (self.kept, self.opened);
        let files = members.len() + refs.len();
        if let Err(refused) = self.write_objects(&objects, &sound) {
            self.held_back(files, vec![refused], out);
            kept.overlays.iter().try_for_each(Overlay::end_apply)?;
            return Ok(false);
        }
        let steps = self.steps(&members, refs);
        for (tree, overlay) in kept.overlays.iter().enumerate() {
            let own = steps.iter().filter(|step| step.tree == tree);
            let above = own.flat_map(|step| step.path.ancestors().skip(1).map(Path::to_owned));
            overlay.begin_apply(above.collect())?;
        }
        let check = || self.unchanged();
        match transaction::carry_out(&kept.overlays, &opened.layers, &locks, &steps, &check) {
            Ok(()) => {
                // Only now: until a ref leads to them, git may delete objects that it does not know.
                self.uncover()?;
                for (tree, change) in spent.iter().rev().chain(objects.iter().rev()) {
                    drop_change(&opened.layers[*tree], change);
                }
                let (stay, gone): (Vec<&Member>, Vec<&Member>) =
                    members.iter().partition(|member| is_still_there(opened, member));
                let why = RefusedBecause::ChangedSince;
                let stay = stay
                    .into_iter()
                    .map(|member| RefusedChange { path: self.outer(member), why: why.clone() });
                out.refused.extend(stay);
                out.applied.extend(gone.into_iter().map(|member| self.outer(member)));
            }
            Err(Stopped { tree, path, why }) => {
                self.held_back(files, vec![RefusedChange { path: kept.outer(tree, &path), why }], out);
                if !transaction::is_interrupted(&kept.overlays[0]) {
                    kept.overlays.iter().try_for_each(Overlay::end_apply)?;
                }
                // If not all of it could be undone, the note says where to look.
                return Ok(false);
            }
        }
        kept.overlays.iter().try_for_each(Overlay::end_apply)?;
        Ok(true)
    }
}

impl Group<'_> {
    /// Takes out of the layer what its refs and objects were.
    fn uncover(&self) -> Result<(), LayersError> {
        let Found { repository, states, .. } = self.found();
        let (overlay, git) = (&self.kept.overlays[repository.tree], &repository.git);
        if states.knows_refs() {
            let trees: Vec<PathBuf> = states.trees.iter().map(|tree| tree.own.clone()).collect();
            uncover_refs(overlay, self.layers(), git, &trees)?;
        }
        uncover(overlay, self.layers(), git, &[Path::new("objects")])
    }
}

/// Takes a change out of the layer that is not going to be written.
fn drop_change(layers: &Layers, change: &Change) {
    // A change that cannot be dropped is listed again.
    match change.kind {
        ChangeKind::Deleted => forget_deletion(layers, &change.path).ok(),
        ChangeKind::Added | ChangeKind::Modified | ChangeKind::TypeChanged | ChangeKind::ModeChanged => {
            forget(layers, &change.path).ok()
        }
    };
}

/// Takes those directories out of a group that are to go, or to become something else, and hold what does not go.
fn directories_that_stay(opened: &Opened, members: &mut Vec<Member>, applied: &[PathBuf]) -> Vec<Member> {
    let goes = |member: &Member| removes(member.change.kind);
    let mut going: Vec<BTreeSet<PathBuf>> = vec![BTreeSet::new(); opened.layers.len()];
    // Changes that belong to no commit are written first; a dry run has to assume them.
    going[0].extend(applied.iter().cloned());
    for member in members.iter().filter(|member| goes(member)) {
        going[member.tree].insert(member.change.path.clone());
    }
    // The entries of a directory come before it.
    members.sort_by(|one, other| other.change.path.cmp(&one.change.path));
    let stay = members.extract_if(.., |member| {
        let Member { tree, change, before, .. } = member;
        let before = before.as_ref().filter(|_| removes(change.kind));
        // A directory that cannot be read is not known to be empty.
        let stays = !emptied(&opened.layers[*tree], &change.path, before, &going[*tree]).unwrap_or(false);
        if stays {
            going[*tree].remove(&change.path);
        }
        stays
    });
    let stay = stay.collect();
    members.reverse();
    stay
}

/// Whether a directory that was to go holds something of the user's.
fn is_still_there(opened: &Opened, Member { tree, change, .. }: &Member) -> bool {
    let now = || opened.layers[*tree].lower.status(&change.path).ok().flatten();
    change.kind == ChangeKind::Deleted && now().is_some_and(|now| now.kind == InodeKind::Directory)
}
