//! Applies kept changes: first those that belong to no commit, then one repository after the other, the deepest first.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Kept, Opened, Part};
use crate::workspace::overlay::LayersError;
use crate::workspace::overlay::apply::{
    Applied, ApplyMode, ApplyRequest, ChangeSelection, RefusedBecause, RefusedChange, removes,
};
use crate::workspace::overlay::changes::{Change, ChangeKind, Changes};
use belljar_class::EntryKind;

/// What belongs to a repository, each with its tree.
#[derive(Default)]
pub(in crate::workspace::overlay) struct Sorted {
    pub group: Vec<(usize, Change)>,
    /// Directories that go once the rest is written.
    pub along: Vec<(usize, Change)>,
    pub objects: Vec<(usize, Change)>,
    pub scratch: Vec<(usize, Change)>,
    /// Files of refs, which are written by name.
    pub refs: Vec<(usize, Change)>,
}

impl Sorted {
    fn is_empty(&self) -> bool {
        let Sorted { group, along, objects, scratch, refs } = self;
        [group, along, objects, scratch, refs].iter().all(|changes| changes.is_empty())
    }
}

impl Kept {
    /// Writes changes to the project and its repositories until `stop` says so, which is asked between two of them.
    ///
    /// # Errors
    /// When a layer cannot be opened; what cannot be written is in the outcome.
    pub fn apply(
        &self,
        request: &ApplyRequest<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Applied, LayersError> {
        let opened = self.open()?;
        self.keep_originals(&opened);
        let mut out = Applied::default();
        let mut sorted: Vec<Option<Sorted>> = (0..opened.repositories.len())
            .map(|at| self.wants(&opened, at, request.selection).then(Sorted::default))
            .collect();
        let mut late: Vec<Vec<Change>> = Vec::new();
        for tree in 0..self.overlays.len() {
            let alone = sort(&opened, tree, &mut sorted);
            let alone = go_along(alone, &mut sorted, tree);
            let (below, alone): (Vec<Change>, Vec<Change>) =
                alone.into_iter().partition(|change| needs_group(change, &sorted, tree));
            late.push(below);
            self.apply_alone(&opened, request, tree, &alone, stop, &mut out)?;
            stay(self, tree, &mut sorted, &mut out);
        }
        let mut held = BTreeSet::new();
        for (at, sorted) in sorted.into_iter().enumerate() {
            let Some(sorted) = sorted else {
                held.insert(at);
                continue;
            };
            out.stopped = out.stopped || stop();
            if out.stopped {
                break;
            }
            if !sorted.is_empty() && !self.apply_group(&opened, request, at, sorted, &held, &mut out)? {
                held.insert(at);
            }
        }
        for (tree, below) in late.iter().enumerate() {
            if !out.stopped && !below.is_empty() {
                self.apply_alone(&opened, request, tree, below, stop, &mut out)?;
            }
        }
        if request.mode == ApplyMode::Write {
            self.prune()?;
        }
        out.applied.sort();
        out.merged.sort();
        out.refused.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(out)
    }

    /// Writes what goes with no commit.
    fn apply_alone(
        &self,
        opened: &Opened,
        request: &ApplyRequest<'_>,
        tree: usize,
        alone: &[Change],
        stop: &mut dyn FnMut() -> bool,
        out: &mut Applied,
    ) -> Result<(), LayersError> {
        let selection = match request.selection {
            ChangeSelection::All => ChangeSelection::All,
            ChangeSelection::Paths(paths) => ChangeSelection::Paths(self.inner(tree, paths)),
        };
        let consent = self.own_consent(tree, request.consent);
        let own = ApplyRequest { selection: &selection, consent: &consent, ..request.clone() };
        let made = self.inner(tree, &out.applied.iter().cloned().collect());
        let done = self.overlays[tree].apply_changes(&opened.layers[tree], alone, &made, &own, stop)?;
        out.applied.extend(done.applied.iter().map(|path| self.outer(tree, path)));
        out.merged.extend(done.merged.iter().map(|path| self.outer(tree, path)));
        let outer =
            |refused: RefusedChange| RefusedChange { path: self.outer(tree, &refused.path), ..refused };
        out.refused.extend(done.refused.into_iter().map(outer));
        out.stopped |= done.stopped;
        Ok(())
    }

    /// A repository is written when everything is, or when it, or something of git's in it, was named.
    fn wants(&self, opened: &Opened, at: usize, selection: &ChangeSelection) -> bool {
        let repository = &opened.repositories[at].repository;
        let ChangeSelection::Paths(paths) = selection else { return true };
        let changes = &opened.changes[repository.tree].changes;
        let of_git = |path: &PathBuf| {
            if !path.starts_with(&repository.git) && !repository.git.starts_with(path) {
                return false;
            }
            // A file that is asked for by itself does not bring the commits along.
            let below = changes.iter().filter(|change| change.path.starts_with(path));
            let mut below = below.map(|change| opened.home(repository.tree, change)).peekable();
            let goes_with_it = |home| matches!(home, Some((of, part)) if of == at && part != Part::Alone);
            path.starts_with(&repository.git) && below.peek().is_none() || below.any(goes_with_it)
        };
        let of_tree = |path: &PathBuf| repository.top.as_ref().is_some_and(|top| top.starts_with(path));
        self.inner(repository.tree, paths).iter().any(of_git) || self.inner(0, paths).iter().any(of_tree)
    }
}

/// Sorts changes by the repositories that are written; returns the rest.
fn sort(opened: &Opened, tree: usize, sorted: &mut [Option<Sorted>]) -> Vec<Change> {
    let mut alone = Vec::new();
    let Changes { changes, unseen } = &opened.changes[tree];
    // A directory is not written without what is in it.
    let is_seen = |change: &&Change| !unseen.iter().any(|unseen| change.path.starts_with(&unseen.path));
    for change in changes.iter().filter(is_seen) {
        let Some((at, part)) = opened.home(tree, change) else {
            alone.push(change.clone());
            continue;
        };
        let entry = (tree, change.clone());
        match (sorted[at].as_mut(), part) {
            (_, Part::Alone) | (None, Part::Tree) => alone.push(change.clone()),
            (Some(own), Part::Object) => own.objects.push(entry),
            (Some(own), Part::Scratch) => own.scratch.push(entry),
            (Some(own), Part::Ref) => own.refs.push(entry),
            (Some(own), Part::Group | Part::Tree) => own.group.push(entry),
            (None, Part::Object | Part::Scratch | Part::Ref | Part::Group) => {}
        }
    }
    alone
}

/// Takes out directories that go, or become something else, and hold files of a repository's: they are empty only once it is
/// written, so they go with the last of those.
fn go_along(alone: Vec<Change>, sorted: &mut [Option<Sorted>], tree: usize) -> Vec<Change> {
    let paths = |own: &Sorted| {
        let own = own.group.iter().filter(|(of, _)| *of == tree);
        own.map(|(_, change)| change.path.clone()).collect::<BTreeSet<PathBuf>>()
    };
    let grouped: Vec<BTreeSet<PathBuf>> =
        sorted.iter().map(|own| own.as_ref().map(paths).unwrap_or_default()).collect();
    let holds = |paths: &BTreeSet<PathBuf>, path: &Path| {
        paths.range(path.to_owned()..).next().is_some_and(|below| below.starts_with(path))
    };
    let mut out = Vec::new();
    for change in alone {
        let with = grouped.iter().rposition(|paths| removes(change.kind) && holds(paths, &change.path));
        match with.and_then(|at| sorted[at].as_mut()) {
            Some(own) => own.along.push((tree, change)),
            None => out.push(change),
        }
    }
    out
}

/// Whether a change lies in a directory that a repository's group makes in the place of a file: it is written after the group.
fn needs_group(change: &Change, sorted: &[Option<Sorted>], tree: usize) -> bool {
    let makes_directory = |above: &Change| {
        above.kind == ChangeKind::TypeChanged
            && above.entry == EntryKind::Directory
            && change.path.starts_with(&above.path)
    };
    let groups = sorted.iter().flatten().flat_map(|own| &own.group);
    groups.into_iter().any(|(of, above)| *of == tree && makes_directory(above))
}

/// Directories stay where something in them does.
fn stay(kept: &Kept, tree: usize, sorted: &mut [Option<Sorted>], out: &mut Applied) {
    let refused: Vec<PathBuf> = out.refused.iter().map(|refused| refused.path.clone()).collect();
    for own in sorted.iter_mut().flatten() {
        let stay = own.along.extract_if(.., |(of, change)| {
            let path = kept.outer(*of, &change.path);
            *of == tree && refused.iter().any(|refused| refused.starts_with(&path))
        });
        let why = RefusedBecause::ChangedSince;
        let stay =
            stay.map(|(of, change)| RefusedChange { path: kept.outer(of, &change.path), why: why.clone() });
        out.refused.extend(stay);
    }
}
