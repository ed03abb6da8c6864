//! A file that both sides changed since the run began, made one of both.

use std::cell::Cell;

use belljar_class::{Class, EntryKind};
use belljar_sys::Errno;
use belljar_sys::beneath::{InodeKind, Status};

use super::Overlay;
use super::apply::{OnConflict, RefusedBecause, failed};
use super::changes::{Change, ChangeKind};
use super::layers::Layers;
use super::merge::{LARGEST, Merge, NotText, Versions, check_text, merge};
use super::originals::{Originals, is_mergeable};
use super::starts::Bases;
use crate::workspace::git::read_in;
use crate::workspace::tree::Tree;

/// Bytes of merged files that one apply holds.
const MOST_HELD: u64 = 256 << 20;
/// Permissions that the owner of a file cannot give to a merged one without a thought.
const SET_ID_BITS: u32 = 0o6000;

/// Why a file that both sides changed is not merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmerged {
    /// The version that both began with was not kept, or is damaged.
    NoOriginal,
    /// The sides changed the same lines.
    Overlap {
        /// In how many places.
        places: usize,
    },
    /// Not a text.
    Binary,
    /// Larger, or of more lines, than what is merged.
    TooLarge,
    /// Both changed the permissions.
    Modes,
    /// This machine executes it: one of the versions is taken as a whole.
    Whole,
}

/// What is written instead of either version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Merged {
    pub content: Vec<u8>,
    pub mode: u32,
}

pub(super) struct Merging<'layers> {
    layers: &'layers Layers,
    bases: &'layers Bases,
    originals: Originals,
    left: Cell<u64>,
}

impl<'layers> Merging<'layers> {
    pub(super) fn new(overlay: &Overlay, layers: &'layers Layers, bases: &'layers Bases) -> Self {
        Merging { layers, bases, originals: Originals::read(overlay), left: Cell::new(MOST_HELD) }
    }

    /// Whether the user deleted what the agent changed.
    pub(super) fn is_deleted(&self, change: &Change) -> bool {
        let was_there = || self.originals.was_there(change, self.bases) || self.bases.was_there(change);
        change.kind == ChangeKind::Added && was_there()
    }

    /// Merges a change with what the user did to the file that is there now.
    pub(super) fn merge(
        &self,
        change: &Change,
        before: &Status,
        on_conflict: OnConflict,
    ) -> Result<Merged, RefusedBecause> {
        let unmerged = |why| RefusedBecause::Unmerged { why };
        let both_files = change.entry == EntryKind::File && before.kind == InodeKind::File;
        if !both_files || change.kind == ChangeKind::Deleted {
            return Err(RefusedBecause::ChangedSince);
        }
        if change.class != Class::Ordinary || before.mode & SET_ID_BITS != 0 {
            return Err(unmerged(Unmerged::Whole));
        }
        if !is_mergeable(self.layers, change) {
            return Err(RefusedBecause::ChangedSince);
        }
        let ours = text(&self.layers.lower, change)?;
        let theirs = text(&self.layers.upper, change)?;
        let original = self.originals.of(change, self.bases).ok_or_else(|| unmerged(Unmerged::NoOriginal))?;
        let above = self.layers.upper.status(&change.path).map_err(failed)?;
        let mode = above.and_then(|above| one_mode(original.mode, before.mode, above.mode));
        let mode = mode.ok_or_else(|| unmerged(Unmerged::Modes))?;
        let versions = Versions { base: &original.content, ours: &ours, theirs: &theirs };
        let Merge { text: content, conflicts } = merge(versions).map_err(|why| unmerged(why.into()))?;
        if conflicts > 0 && on_conflict != OnConflict::Markers {
            return Err(unmerged(Unmerged::Overlap { places: conflicts }));
        }
        let left = self.left.get().checked_sub(content.len() as u64);
        self.left.set(left.ok_or_else(|| unmerged(Unmerged::TooLarge))?);
        Ok(Merged { content, mode })
    }
}

impl From<NotText> for Unmerged {
    fn from(why: NotText) -> Self {
        match why {
            NotText::Binary => Unmerged::Binary,
            NotText::TooLarge => Unmerged::TooLarge,
        }
    }
}

/// The permissions of the side that changed them; `None` where both did, in different ways.
fn one_mode(base: u32, ours: u32, theirs: u32) -> Option<u32> {
    match () {
        () if ours == theirs || theirs == base => Some(ours),
        () if ours == base => Some(theirs),
        () => None,
    }
}

fn text(tree: &Tree, change: &Change) -> Result<Vec<u8>, RefusedBecause> {
    let unmerged = |why| RefusedBecause::Unmerged { why };
    let bytes = match read_in(tree.root(), &change.path, LARGEST) {
        Err(Errno::FBIG) => return Err(unmerged(Unmerged::TooLarge)),
        answer => answer.map_err(failed)?.ok_or(RefusedBecause::ChangedSince)?,
    };
    check_text(&bytes).map_err(|why| unmerged(why.into()))?;
    Ok(bytes)
}
