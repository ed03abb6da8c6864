//! Everything that a run keeps: the changes to the project, and to its repository, wherever that lies.
//!
//! What git wrote belongs together: a ref, its commits, the index and the files that it names. [`Kept::apply`] writes such a
//! group as a whole or not at all, whatever stops it: a file that the user changed, a lock that git holds, a ref whose commits
//! carry files that this machine would execute. Objects come first; they mean nothing until a ref names them, and each must
//! hold what its name says.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::apply::{
    Applied, ApplyMode, ApplyRequest, Consent, OnConflict, Refused, RefusedBecause, Selection,
};
use super::changes::{Change, ChangeKind, Changes, compare};
use super::discard::{Discarded, forget};
use super::layers::Layers;
use super::merging::{Merging, Unmerged};
use super::repository::{Place, States};
use super::transaction;
use super::{LayersError, Overlay};
use crate::workspace::Unseen;
use crate::workspace::git::{self, Known, RepositoryChanges};
use crate::workspace::unfinished::{Recovered, Recovery};
use belljar_class::Class;

/// Notes of git that matter to nobody once it is done.
const SCRATCH: [&str; 4] = ["COMMIT_EDITMSG", "ORIG_HEAD", "FETCH_HEAD", "gc.log"];

/// Where git keeps what it is in the middle of. A part of it is of no use, so what needs a yes there holds the rest back.
const OPERATIONS: [&str; 3] = ["rebase-merge", "rebase-apply", "sequencer"];

/// The changes of a run to a project and to its repository elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub(super) overlays: Vec<Overlay>,
}

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptChanges {
    /// Changes to files, those of the repository left out that are told as commits. A path of a repository elsewhere is
    /// absolute.
    pub files: Vec<Change>,
    /// What happened to the repository.
    pub repository: RepositoryChanges,
    /// Files of the repository that are left out of `files`.
    pub folded: Vec<PathBuf>,
    /// Files of `files` that the user changed as well since the run began.
    pub both: Vec<BothChanged>,
    /// What could not be read.
    pub unseen: Vec<Unseen>,
}

/// A file that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BothChanged {
    /// Which.
    pub path: PathBuf,
    /// Why it is not merged; `None` where it is.
    pub unmerged: Option<Unmerged>,
}

impl KeptChanges {
    /// Whether something is kept at a path or below it.
    #[must_use]
    pub fn has(&self, path: &Path) -> bool {
        let unseen = self.unseen.iter().map(|one| &one.path);
        let mut all = self.files.iter().map(|change| &change.path).chain(&self.folded).chain(unseen);
        all.any(|known| known.starts_with(path))
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folded.is_empty() && self.unseen.is_empty()
    }
}

/// The layers, opened and compared.
pub(super) struct Opened {
    pub layers: Vec<Layers>,
    changes: Vec<Changes>,
    pub place: Option<Place>,
    pub states: Option<States>,
}

/// What a change in a repository is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Not git's, or asked for by itself.
    Alone,
    /// An object, or something beside them.
    Object,
    /// Of no use to anybody.
    Scratch,
    /// It goes with the others.
    Group,
}

impl Opened {
    fn part(&self, tree: usize, change: &Change) -> Part {
        let Some(place) = self.place.as_ref().filter(|place| place.tree == tree) else { return Part::Alone };
        let Ok(below) = change.path.strip_prefix(&place.shared) else { return Part::Alone };
        if below.starts_with("objects") {
            return Part::Object;
        }
        let unfinished = below
            .strip_prefix(&place.own)
            .is_ok_and(|below| OPERATIONS.iter().any(|directory| below.starts_with(directory)));
        if below.as_os_str().is_empty() || change.class != Class::Ordinary && !unfinished {
            return Part::Alone;
        }
        let name = below.file_name().unwrap_or_default();
        let directory = below.parent().unwrap_or(Path::new(""));
        let own = directory == place.own || directory.as_os_str().is_empty();
        if name.as_bytes().ends_with(b".lock") || own && SCRATCH.iter().any(|known| OsStr::new(known) == name)
        {
            return Part::Scratch;
        }
        Part::Group
    }

    /// Whether a change to the work tree goes with the repository.
    fn is_checked_out(&self, tree: usize, path: &Path) -> bool {
        let Some(states) = self.states.as_ref().filter(|_| tree == 0) else { return false };
        let staged = states.changes.staged.binary_search_by(|known| known.as_path().cmp(path)).is_ok();
        // What cannot be told is taken for a part of it.
        staged || states.checked_out.as_ref().is_none_or(|paths| paths.contains(path))
    }
}

/// What belongs to the repository, each with its tree.
#[derive(Default)]
pub(super) struct Sorted {
    pub group: Vec<(usize, Change)>,
    pub objects: Vec<(usize, Change)>,
    pub scratch: Vec<(usize, Change)>,
}

impl Sorted {
    fn is_empty(&self) -> bool {
        self.group.is_empty() && self.objects.is_empty() && self.scratch.is_empty()
    }
}

impl Kept {
    /// Those of a project, and of its repository where that lies elsewhere.
    #[must_use]
    pub fn new(overlays: Vec<Overlay>) -> Self {
        Kept { overlays }
    }

    /// Takes what runs changed in copies to layers, and finishes or undoes what an interrupted apply left. The caller holds
    /// the lock.
    ///
    /// # Errors
    /// When something cannot be read or written.
    pub fn settle(&self) -> Result<Recovered, LayersError> {
        self.overlays.iter().try_for_each(Overlay::settle)?;
        let recovered = self.recover(Recovery::Remove)?;
        self.drop_same_index()?;
        self.prune()?;
        Ok(recovered)
    }

    /// Takes an index out of the layer that says what it said when the run began, or what the project's says: git writes it
    /// anew for a mere `git status`.
    fn drop_same_index(&self) -> Result<(), LayersError> {
        let Some(place) = Place::find(&self.overlays) else { return Ok(()) };
        let overlay = &self.overlays[place.tree];
        let path = place.shared.join(&place.own).join("index");
        if !overlay.upper().join(&path).symlink_metadata().is_ok_and(|found| found.is_file()) {
            return Ok(());
        }
        let layers = overlay.open()?;
        let failed = |cause| LayersError::Open { path: overlay.upper().join(&path), cause };
        if place.says_the_same(overlay, &layers) {
            forget(&layers, &path).map_err(failed)?;
        }
        Ok(())
    }

    /// What an interrupted apply left in the project: removed, or only looked for.
    ///
    /// # Errors
    /// When the project cannot be read.
    pub fn recover(&self, mode: Recovery) -> Result<Recovered, LayersError> {
        let mut out = match mode {
            Recovery::Remove => transaction::recover(&self.overlays)?,
            Recovery::Look => Recovered::default(),
        };
        for overlay in &self.overlays {
            let Recovered { removed, kept, changed: _, deleted: _ } = overlay.recover(mode)?;
            out.removed.extend(removed.into_iter().map(|path| overlay.lower.join(path)));
            out.kept.extend(kept.into_iter().map(|path| overlay.lower.join(path)));
        }
        Ok(out)
    }

    /// Whether an apply was interrupted.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        let interrupted =
            |overlay: &Overlay| overlay.is_interrupted() || transaction::is_interrupted(overlay);
        self.overlays.iter().any(interrupted)
    }

    /// The layers of the project.
    #[must_use]
    pub fn project(&self) -> &Overlay {
        &self.overlays[0]
    }

    fn open(&self) -> Result<Opened, LayersError> {
        // A layer that no run has begun on yet is empty.
        self.overlays.iter().try_for_each(Overlay::make_directories)?;
        let layers = self.overlays.iter().map(Overlay::open).collect::<Result<Vec<_>, _>>()?;
        let changes: Vec<Changes> = layers.iter().map(compare).collect();
        let place = Place::find(&self.overlays);
        let touched = |place: &Place| {
            changes[place.tree].changes.iter().any(|change| change.path.starts_with(&place.shared))
        };
        let states = match &place {
            Some(place) if touched(place) => {
                let known = Known { aliases: &layers[0].aliases, named: &layers[0].named };
                Some(States::read(place, &self.overlays[place.tree], &layers[place.tree], &known)?)
            }
            Some(_) | None => None,
        };
        Ok(Opened { layers, changes, place, states })
    }

    /// A path for people and commands: that of a repository elsewhere is absolute.
    pub(super) fn outer(&self, tree: usize, path: &Path) -> PathBuf {
        match tree {
            0 => path.to_owned(),
            // Joining an empty path would add a slash.
            _ if path.as_os_str().is_empty() => self.overlays[tree].lower.clone(),
            _ => self.overlays[tree].lower.join(path),
        }
    }

    pub(super) fn inner(&self, tree: usize, paths: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
        if tree == 0 {
            return paths.clone();
        }
        let lower = &self.overlays[tree].lower;
        paths.iter().filter_map(|path| Some(path.strip_prefix(lower).ok()?.to_owned())).collect()
    }

    /// What was said yes to, in the paths of one of the layers.
    pub(super) fn own_consent(&self, tree: usize, Consent { to, taken }: &Consent) -> Consent {
        let taken = taken.iter().filter_map(|(path, answer)| {
            let path = if tree == 0 { path } else { path.strip_prefix(&self.overlays[tree].lower).ok()? };
            Some((path.to_owned(), *answer))
        });
        Consent { to: self.inner(tree, to), taken: taken.collect() }
    }

    /// Keeps versions for a merge; of the project alone, as nothing in a repository is merged.
    fn keep_originals(&self, opened: &Opened) {
        let objects = || {
            let place = opened.place.as_ref()?;
            let shared = opened.layers[place.tree].lower.root().directory(&place.shared).ok()?;
            let hash = git::hash_length(&git::PlainFiles(&shared)).ok()?;
            Some(git::objects(&shared, None, hash))
        };
        // Without them less can be merged, which is said where it is missed.
        self.overlays[0].keep_originals(&opened.layers[0], &opened.changes[0].changes, &objects).ok();
    }

    /// Files that the user changed as well.
    fn both_changed(&self, opened: &Opened) -> Result<Vec<BothChanged>, LayersError> {
        let (layers, bases) = (&opened.layers[0], self.overlays[0].read_bases()?);
        let merging = Merging::new(&self.overlays[0], layers, &bases);
        let both = opened.changes[0].changes.iter().filter_map(|change| {
            let now = layers.lower.status(&change.path).ok()??;
            if !bases.changed(change, &now) {
                return None;
            }
            let unmerged = match merging.merge(change, &now, OnConflict::Merge) {
                Ok(_merged) => None,
                Err(RefusedBecause::Unmerged { why }) => Some(why),
                // No files on both sides, so that there is nothing to merge.
                Err(_other) => return None,
            };
            Some(BothChanged { path: change.path.clone(), unmerged })
        });
        Ok(both.collect())
    }

    /// What is kept. Versions for a merge are kept from here on, where the project still has them.
    ///
    /// # Errors
    /// When a layer cannot be opened.
    pub fn changes(&self) -> Result<KeptChanges, LayersError> {
        let opened = self.open()?;
        self.keep_originals(&opened);
        let mut out = KeptChanges { both: self.both_changed(&opened)?, ..KeptChanges::default() };
        for (tree, found) in opened.changes.iter().enumerate() {
            for change in &found.changes {
                let path = self.outer(tree, &change.path);
                match opened.part(tree, change) {
                    // What needs a yes of its own is listed, whatever it goes with.
                    Part::Group if change.class != Class::Ordinary => {
                        out.files.push(Change { path, ..change.clone() });
                    }
                    Part::Alone => out.files.push(Change { path, ..change.clone() }),
                    Part::Object | Part::Scratch | Part::Group => out.folded.push(path),
                }
            }
            out.unseen.extend(
                found
                    .unseen
                    .iter()
                    .map(|one| Unseen { path: self.outer(tree, &one.path), why: one.why.clone() }),
            );
        }
        if let Some(states) = opened.states {
            out.repository = states.changes;
        }
        Ok(out)
    }

    /// Drops changes.
    ///
    /// # Errors
    /// When a layer cannot be opened, or, when all is dropped, emptied.
    pub fn discard(&self, selection: &Selection) -> Result<Discarded, LayersError> {
        let mut out = Discarded::default();
        for (tree, overlay) in self.overlays.iter().enumerate() {
            let own = match selection {
                Selection::All => Selection::All,
                Selection::Paths(paths) => Selection::Paths(self.inner(tree, paths)),
            };
            let Discarded { discarded, refused } = overlay.discard(&own)?;
            out.discarded.extend(discarded.iter().map(|path| self.outer(tree, path)));
            let outer = |refused: Refused| Refused { path: self.outer(tree, &refused.path), ..refused };
            out.refused.extend(refused.into_iter().map(outer));
        }
        Ok(out)
    }

    /// Writes changes to the project and its repository until `stop` says so, which is asked between two of them.
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
        let whole = self.wants_group(&opened, request.selection);
        let mut sorted = Sorted::default();
        for tree in 0..self.overlays.len() {
            let mut alone = Vec::new();
            let Changes { changes, unseen } = &opened.changes[tree];
            // A directory is not written without what is in it.
            let is_seen =
                |change: &&Change| !unseen.iter().any(|unseen| change.path.starts_with(&unseen.path));
            for change in changes.iter().filter(is_seen) {
                match opened.part(tree, change) {
                    Part::Object if whole => sorted.objects.push((tree, change.clone())),
                    Part::Scratch if whole => sorted.scratch.push((tree, change.clone())),
                    Part::Group if whole => sorted.group.push((tree, change.clone())),
                    Part::Alone if whole && opened.is_checked_out(tree, &change.path) => {
                        sorted.group.push((tree, change.clone()));
                    }
                    Part::Alone => alone.push(change.clone()),
                    Part::Object | Part::Scratch | Part::Group => {}
                }
            }
            let (along, alone) = go_along(alone, &sorted.group, tree);
            let selection = match request.selection {
                Selection::All => Selection::All,
                Selection::Paths(paths) => Selection::Paths(self.inner(tree, paths)),
            };
            let consent = self.own_consent(tree, request.consent);
            let own = ApplyRequest { selection: &selection, consent: &consent, ..request.clone() };
            let done = self.overlays[tree].apply_changes(&opened.layers[tree], &alone, &own, stop)?;
            out.applied.extend(done.applied.iter().map(|path| self.outer(tree, path)));
            // A directory stays where something in it does.
            let stays = |change: &Change| done.refused.iter().any(|one| one.path.starts_with(&change.path));
            let (stay, along): (Vec<Change>, Vec<Change>) = along.into_iter().partition(stays);
            sorted.group.extend(along.into_iter().map(|change| (tree, change)));
            let why = RefusedBecause::ChangedSince;
            let stay =
                stay.iter().map(|change| Refused { path: self.outer(tree, &change.path), why: why.clone() });
            out.refused.extend(stay);
            out.merged.extend(done.merged.iter().map(|path| self.outer(tree, path)));
            let outer = |refused: Refused| Refused { path: self.outer(tree, &refused.path), ..refused };
            out.refused.extend(done.refused.into_iter().map(outer));
            out.stopped |= done.stopped;
        }
        if whole && !out.stopped && !sorted.is_empty() {
            self.apply_group(&opened, request, sorted, &mut out)?;
        }
        if request.mode == ApplyMode::Write {
            self.prune()?;
        }
        out.applied.sort();
        out.merged.sort();
        out.refused.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(out)
    }

    /// Removes what says nothing from the layers, so that they are empty when nothing is kept.
    fn prune(&self) -> Result<(), LayersError> {
        self.overlays.iter().try_for_each(Overlay::prune)
    }

    /// The file of a ref or of the index, by the name that git has for it; `None` without a repository.
    #[must_use]
    pub fn file_of(&self, name: &Path) -> Option<PathBuf> {
        let place = Place::find(&self.overlays)?;
        let is_shared = name.starts_with("refs") || name == Path::new("packed-refs");
        let below = if is_shared { name.to_owned() } else { place.own.join(name) };
        Some(self.outer(place.tree, &place.shared.join(below)))
    }

    /// The repository is written when everything is, or when something of it was named.
    fn wants_group(&self, opened: &Opened, selection: &Selection) -> bool {
        let Some(place) = &opened.place else { return false };
        let Selection::Paths(paths) = selection else { return true };
        let changes = &opened.changes[place.tree].changes;
        let wants = |path: &PathBuf| {
            let below = || changes.iter().filter(|change| change.path.starts_with(path));
            let alone = |change: &Change| opened.part(place.tree, change) == Part::Alone;
            let of_git = path.starts_with(&place.shared) || place.shared.starts_with(path);
            // A file that is asked for by itself does not bring the commits along.
            of_git && (below().next().is_none() || below().any(|change| !alone(change)))
        };
        paths.contains(Path::new("")) || self.inner(place.tree, paths).iter().any(wants)
    }
}

/// Directories that go, or become something else, and hold files of the group: they are empty only once it is written.
fn go_along(alone: Vec<Change>, group: &[(usize, Change)], tree: usize) -> (Vec<Change>, Vec<Change>) {
    let own = group.iter().filter(|(of, _)| *of == tree);
    let grouped: BTreeSet<&Path> = own.map(|(_, change)| change.path.as_path()).collect();
    alone.into_iter().partition(|change| {
        let goes = match change.kind {
            ChangeKind::Deleted | ChangeKind::TypeChanged => true,
            ChangeKind::Added | ChangeKind::Modified | ChangeKind::ModeChanged => false,
        };
        let path = change.path.as_path();
        goes && grouped.range(path..).next().is_some_and(|below| below.starts_with(path))
    })
}
