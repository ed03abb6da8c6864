//! Whether a file of a group may be written over what is in its place.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use belljar_class::{Class, EntryKind, classify_in};
use belljar_sys::beneath::{InodeKind, Status};

use super::{Group, Member};
use crate::workspace::git;
use crate::workspace::overlay::apply::{ApplyConsent, OnConflict, RefusedBecause, failed};
use crate::workspace::overlay::changes::{Change, ChangeKind};
use crate::workspace::overlay::kept::Found;
use crate::workspace::overlay::layers::Layers;
use crate::workspace::overlay::merging::{Merged, Merging};
use crate::workspace::overlay::repositories::{LARGEST_LOG, Presence};
use crate::workspace::tree::Tree;

/// A reflog.
struct Log {
    /// Whether its ref is still there, so that its lines are not the agent's to drop. The log of stashes is a list from which
    /// git itself drops.
    stays: bool,
}

impl Group<'_> {
    /// The repository of this group that a path of git lies in, and the path below its git directory.
    fn of_git<'path>(&self, tree: usize, path: &'path Path) -> Option<(&Found, &'path Path)> {
        let found = &self.opened.repositories[self.opened.of_git(tree, path)?];
        Some((found, found.repository.below(tree, path)?))
    }

    fn log(&self, tree: usize, path: &Path) -> Option<Log> {
        let (found, below) = self.of_git(tree, path)?;
        let name = found.logged(below)?;
        let is_gone = found.repository.presence == Presence::Gone;
        let stays = !is_gone && name != b"refs/stash" && found.states.wanted.values.contains_key(&name);
        Some(Log { stays })
    }

    pub(super) fn is_reflog(&self, member: &Member) -> bool {
        self.log(member.tree, &member.change.path).is_some()
    }

    /// Whether a member may be written, what is in its place, and what was made of both where the user changed it.
    ///
    /// Refs and index do not merge, so a change of the user's to a file that a commit names is one to the work tree alone. It
    /// stays that, on top of the agent's commit, as after `git pull --autostash`: the index has the agent's blob.
    pub(super) fn member(
        &self,
        merging: &Merging<'_>,
        tree: usize,
        change: &Change,
    ) -> Result<(Option<Status>, Option<Merged>), RefusedBecause> {
        let (opened, bases) = (self.opened, &self.bases[tree]);
        let consent = self.kept.own_consent(tree, self.request.consent);
        if matches!(change.class, Class::Special { .. }) {
            return Err(RefusedBecause::Special);
        }
        let presence =
            opened.of_git(tree, &change.path).map(|at| opened.repositories[at].repository.presence);
        let is_covered = match presence {
            // A yes to the end of a repository is one to that of its files.
            Some(Presence::Gone) => true,
            // Only files of a new one are obeyed.
            Some(Presence::New) if change.entry == EntryKind::Directory => true,
            Some(Presence::New | Presence::Both) | None => consent.covers(change),
        };
        if !is_covered {
            return Err(RefusedBecause::NeedsConsent { class: change.class.clone() });
        }
        let layers = &opened.layers[tree];
        if let EntryKind::Symlink(_) = change.entry {
            self.still_inside(layers, change, &consent)?;
        }
        let before = layers.lower.status(&change.path).map_err(failed)?;
        if let Some(now) = before.filter(|now| now.kind == InodeKind::File)
            && let Some(log) = self.log(tree, &change.path)
            && (bases.changed(change, &now) || log.stays)
        {
            return Ok((before, Some(joined(layers, change, &now)?)));
        }
        let on_conflict = self.request.on_conflict_at(&self.kept.outer(tree, &change.path));
        let now = match (on_conflict, before) {
            (OnConflict::Overwrite, before) => return Ok((before, None)),
            (OnConflict::Merge | OnConflict::Markers, None) => {
                let deleted = merging.is_deleted(change) && !self.means_the_same(tree, &change.path);
                return if deleted { Err(RefusedBecause::ChangedSince) } else { Ok((None, None)) };
            }
            (OnConflict::Merge | OnConflict::Markers, Some(now)) => now,
        };
        let moved = bases.moved(&layers.lower, change).map_err(failed)?;
        let as_wanted = !moved && !bases.changed(change, &now)
            || self.means_the_same(tree, &change.path)
            || is_what_is_wanted(layers, change);
        if moved && !as_wanted {
            return Err(RefusedBecause::ChangedSince);
        }
        let merged = if as_wanted { None } else { Some(merging.merge(change, &now, on_conflict)?) };
        Ok((before, merged))
    }

    /// A link may lead out by what is in the project alone.
    fn still_inside(
        &self,
        layers: &Layers,
        change: &Change,
        consent: &ApplyConsent,
    ) -> Result<(), RefusedBecause> {
        let root = layers.lower.root().directory(Path::new("")).map_err(failed)?;
        match classify_in(&change.path, &change.entry, &Tree::new(root)) {
            class @ Class::EscapingSymlink { .. } if !consent.to.contains(&change.path) => {
                Err(RefusedBecause::NeedsConsent { class })
            }
            Class::EscapingSymlink { .. }
            | Class::Ordinary
            | Class::HostExecuted { .. }
            | Class::Special { .. } => Ok(()),
        }
    }

    /// Whether a file of git that was written anew still says what it said when the run began.
    fn means_the_same(&self, tree: usize, path: &Path) -> bool {
        let Some((Found { repository, states, .. }, below)) = self.of_git(tree, path) else { return false };
        let Some(base) = &states.base else { return false };
        let now = &states.now;
        let same =
            |name: &[u8]| base.values.contains_key(name) && base.values.get(name) == now.values.get(name);
        if let Some(tree) = states.trees.iter().find(|tree| below == tree.own.join("index")) {
            return tree.base.as_ref().is_some_and(|base| base.says_the_same(&tree.now));
        }
        if let Some(tree) = states.trees.iter().find(|tree| below == tree.own.join("HEAD")) {
            return same(&repository.head_of(&tree.own));
        }
        if below == Path::new("packed-refs") {
            return base.unread.is_none() && now.unread.is_none() && base.values == now.values;
        }
        below.starts_with("refs") && same(below.as_os_str().as_bytes())
    }
}

/// The user's reflog with the agent's new lines at its end: nothing that the user did is dropped from it.
fn joined(layers: &Layers, change: &Change, now: &Status) -> Result<Merged, RefusedBecause> {
    let read = |tree: &Tree| git::read_in(tree.root(), &change.path, LARGEST_LOG).map_err(failed);
    let mut content = read(&layers.lower)?.ok_or(RefusedBecause::ChangedSince)?;
    if change.kind != ChangeKind::Deleted {
        let theirs = read(&layers.upper)?.ok_or(RefusedBecause::ChangedSince)?;
        let lines: Vec<&[u8]> = theirs.split_inclusive(|byte| *byte == b'\n').collect();
        let known: HashSet<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
        // git may have dropped old lines on either side, so that the beginnings need not be the same.
        let first = lines.iter().rposition(|line| known.contains(line)).map_or(0, |last| last + 1);
        let new = lines[first..].concat();
        content.extend(new);
    }
    Ok(Merged { content, mode: now.mode })
}

/// Whether the project already has what the layer has.
fn is_what_is_wanted(layers: &Layers, change: &Change) -> bool {
    let read = |tree: &Tree| {
        let (parent, name) = tree.parent(&change.path).ok()?;
        (parent.status(name).ok()?.kind == InodeKind::File).then_some(())?;
        git::read_in(tree.root(), &change.path, 16 << 20).ok()?
    };
    change.kind == ChangeKind::Modified
        && read(&layers.lower).is_some_and(|now| Some(now) == read(&layers.upper))
}
