//! The request and the outcome of an apply.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use belljar_class::{Class, EntryKind};
use belljar_sys::Errno;
use belljar_sys::beneath::{InodeKind, Status};

use super::changes::{Change, ChangeKind};
use super::layers::Layers;
use super::merging::Unmerged;
use crate::workspace::Carried;
use crate::workspace::git::RefValue;
use crate::workspace::place::PlaceError;

/// The changes to apply or discard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeSelection {
    /// All of them.
    All,
    /// These and what lies below them.
    Paths(BTreeSet<PathBuf>),
}

impl ChangeSelection {
    pub(super) fn includes(&self, path: &Path) -> bool {
        match self {
            ChangeSelection::All => true,
            ChangeSelection::Paths(paths) => path.ancestors().any(|above| paths.contains(above)),
        }
    }
}

/// The changes that somebody said yes to by name, beyond ordinary ones. Nothing is meant by a directory but itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApplyConsent {
    /// The paths.
    pub to: BTreeSet<PathBuf>,
    /// What to do where the project changed, for these paths and what lies below them.
    pub taken: BTreeMap<PathBuf, OnConflict>,
}

impl ApplyConsent {
    pub(super) fn covers(&self, change: &Change) -> bool {
        match (&change.class, &change.entry) {
            (Class::Ordinary, _) => true,
            (Class::Special { .. }, _) => false,
            // A directory that leads to a file with consent needs none of its own.
            (Class::HostExecuted { .. }, EntryKind::Directory) => {
                self.to.range(change.path.clone()..).next().is_some_and(|path| path.starts_with(&change.path))
            }
            (Class::HostExecuted { .. } | Class::EscapingSymlink { .. }, _) => self.to.contains(&change.path),
        }
    }
}

/// What to do where the project changed since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Merge what both sides changed, if they changed different lines; leave the project as it is otherwise.
    Merge,
    /// Merge it, and put both versions of the same lines between conflict markers.
    Markers,
    /// Write over it.
    Overwrite,
}

/// Whether anything is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyMode {
    /// Changes are written.
    Write,
    /// The outcome is computed, and nothing is written.
    DryRun,
}

/// An apply.
#[derive(Debug, Clone)]
pub struct ApplyRequest<'request> {
    /// Which changes.
    pub selection: &'request ChangeSelection,
    /// What was said yes to.
    pub consent: &'request ApplyConsent,
    /// What to do where the project changed.
    pub on_conflict: OnConflict,
    /// Whether anything is written.
    pub mode: ApplyMode,
}

impl ApplyRequest<'_> {
    /// What to do where the project changed this path: what was said of it, or of the nearest directory above it.
    pub(super) fn on_conflict_at(&self, path: &Path) -> OnConflict {
        let taken = &self.consent.taken;
        path.ancestors().find_map(|above| taken.get(above)).copied().unwrap_or(self.on_conflict)
    }
}

/// A change that was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedChange {
    /// The path of the change.
    pub path: PathBuf,
    /// The reason.
    pub why: RefusedBecause,
}

/// What a work tree uses a branch for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchUse {
    /// Its HEAD is this branch.
    CheckedOut,
    /// An unfinished rebase moves it in the end.
    Rebased,
    /// An unfinished bisection returns to it.
    Bisected,
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedBecause {
    /// It needs a yes by name.
    NeedsConsent {
        /// Its class.
        class: Class,
    },
    /// A device, a pipe or a socket: no yes is enough.
    Special,
    /// The project changed here since the run began.
    ChangedSince,
    /// The user moved, made or deleted this ref since the run began.
    Moved {
        /// Its whole name.
        name: Vec<u8>,
    },
    /// The user has checked out something else since the run began than what the index and the files are of.
    Elsewhere {
        /// What was checked out.
        head: RefValue,
    },
    /// A work tree has this branch in use, and its index and files are not written with it.
    InUse {
        /// Its whole name.
        name: Vec<u8>,
        /// The work tree, from the project; empty for the project itself.
        place: PathBuf,
        /// What it is used for.
        how: BranchUse,
    },
    /// Commits need an object that is missing.
    Incomplete {
        /// The missing object.
        missing: String,
    },
    /// It goes with commits that are not dropped.
    PartOfCommits,
    /// Neither a ref nor a log would lead to commits that this ref led to.
    LosesCommits {
        /// How many.
        count: usize,
    },
    /// A repository goes, with all its commits.
    DeletesRepository,
    /// It is staged, and neither a commit nor the file has it.
    StagedOnly,
    /// Commits name those of another repository, which is not written.
    NeedsRepository {
        /// Where that one is.
        path: PathBuf,
    },
    /// It could not be read.
    Unseen,
    /// Both sides changed this file, and it is not merged.
    Unmerged {
        /// Why not.
        why: Unmerged,
    },
    /// Commits on this name, or the index, hold what the host would execute later, or could not be read.
    Carries {
        /// The files in question.
        paths: Vec<Carried>,
        /// Why not everything is known.
        unread: Option<String>,
    },
    /// It goes with others of which not all could be written.
    HeldBack {
        /// How many there are.
        files: usize,
    },
    /// git has it locked.
    Locked,
    /// An object of git that does not hold what its name says.
    Unsound,
    /// A directory on the way is a link now.
    LinkAbove {
        /// The link.
        link: PathBuf,
    },
    /// A directory on the way changed while it was written, or is on another file system.
    NotBelow,
    /// A directory above it was not made.
    NeedsParent {
        /// The directory.
        parent: PathBuf,
    },
    /// The kernel said no, with this number.
    Failed {
        /// The number.
        errno: i32,
    },
}

/// The outcome of an apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Changes that the project has now.
    pub applied: Vec<PathBuf>,
    /// Those of them that were merged with the user's own.
    pub merged: Vec<PathBuf>,
    /// Changes that were not written.
    pub refused: Vec<RefusedChange>,
    /// Repositories whose commits, refs and index were written.
    pub repositories: BTreeSet<PathBuf>,
    /// Whether it was asked to stop; what was not tried by then is in neither list.
    pub stopped: bool,
}

pub(super) fn failed(cause: Errno) -> RefusedBecause {
    match cause {
        Errno::LOOP | Errno::XDEV => RefusedBecause::NotBelow,
        other => RefusedBecause::Failed { errno: other.raw_os_error() },
    }
}

pub(super) fn place_failed(error: PlaceError) -> RefusedBecause {
    match error {
        PlaceError::NotAsExpected => RefusedBecause::ChangedSince,
        PlaceError::Refused(cause) => failed(cause),
    }
}

/// Whether such a change takes away what is in the place, rather than changing it.
pub(super) fn removes(kind: ChangeKind) -> bool {
    match kind {
        ChangeKind::Deleted | ChangeKind::TypeChanged => true,
        ChangeKind::Added | ChangeKind::Modified | ChangeKind::ModeChanged => false,
    }
}

/// Whether the directories on the way to a change are there, or `made` by an apply; the first that is not, otherwise.
pub(super) fn way_to(
    layers: &Layers,
    path: &Path,
    made: &dyn Fn(&Path) -> bool,
) -> Result<(), RefusedBecause> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    for above in above.into_iter().filter(|above| !made(above)) {
        match layers.lower.status(above).map_err(failed)?.map(|now| now.kind) {
            Some(InodeKind::Directory) => {}
            Some(InodeKind::Symlink) => return Err(RefusedBecause::LinkAbove { link: above.to_owned() }),
            Some(_) | None => return Err(RefusedBecause::NeedsParent { parent: above.to_owned() }),
        }
    }
    Ok(())
}

/// Whether a directory that is to go is empty once `going` has gone; of anything else nothing stays.
pub(super) fn emptied(
    layers: &Layers,
    path: &Path,
    before: Option<&Status>,
    going: &BTreeSet<PathBuf>,
) -> Result<bool, Errno> {
    if before.is_none_or(|before| before.kind != InodeKind::Directory) {
        return Ok(true);
    }
    let mut emptied = true;
    layers
        .lower
        .root()
        .directory(path)?
        .entries(|name, _kind| emptied &= going.contains(&path.join(name)))?;
    Ok(emptied)
}
