//! Everything that a run keeps: the changes to the project, and to its repository, wherever that lies.
//!
//! What git wrote belongs together: a ref, its commits, the index and the files that it names. [`Kept::apply`] writes such a
//! group as a whole or not at all, whatever stops it: a file that the user changed, a lock that git holds, a ref whose commits
//! carry files that this machine would execute. Objects come first; they mean nothing until a ref names them, and each must
//! hold what its name says.

mod apply;
mod discard;
mod opened;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::apply::{ApplyConsent, OnConflict, RefusedBecause};
use super::changes::Change;
use super::discard::{forget, uncover_refs};
use super::merging::{Merging, Unmerged};
use super::repositories::{InProject, InSandbox, Place, Presence, Repository, same_refs};
use super::transaction;
use super::{LayersError, Overlay};
use crate::workspace::Unseen;
use crate::workspace::git::{self, Index, RepositoryChanges};
use crate::workspace::unfinished::{Recovered, Recovery};
use belljar_class::Class;

pub(super) use apply::Sorted;
pub(super) use discard::drop_ref;
pub(super) use opened::{Found, Opened, Part};

/// The changes of a run to a project and to its repository elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub(super) overlays: Vec<Overlay>,
}

/// All kept changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptChanges {
    /// Changes to files, without those of repositories that are listed as commits. A path of a repository elsewhere is
    /// absolute.
    pub files: Vec<Change>,
    /// What happened to repositories, the project's own first.
    pub repositories: Vec<KeptRepository>,
    /// Files of repositories that are left out of `files`.
    pub folded: Vec<PathBuf>,
    /// Files of `files` that the user changed as well since the run began.
    pub both: Vec<BothChanged>,
    /// What could not be read.
    pub unseen: Vec<Unseen>,
}

/// What is kept of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRepository {
    /// Where it is: the directory of its files in the project, which is empty for the project's own, or its git directory.
    pub path: PathBuf,
    /// How names of its refs and its index begin on the command line: with nothing in the project's own.
    pub label: PathBuf,
    /// Its git directory; absolute where it lies elsewhere.
    pub git: PathBuf,
    /// The git directory of the project's work tree, below that one.
    pub own: PathBuf,
    /// On which sides it is one.
    pub presence: Presence,
    /// What happened to it.
    pub changes: RepositoryChanges,
    /// All refs that either side has, by their whole names.
    pub refs: BTreeSet<Vec<u8>>,
}

impl KeptRepository {
    /// The file of a ref or of the index, by the name that git has for it.
    #[must_use]
    pub fn file_of(&self, name: &Path) -> PathBuf {
        let is_shared = name.starts_with("refs") || name == Path::new("packed-refs");
        let below = if is_shared { name.to_owned() } else { self.own.join(name) };
        self.git.join(below)
    }

    /// Whether a ref was changed.
    #[must_use]
    pub fn has_ref(&self, name: &Path) -> bool {
        self.changes.refs.iter().any(|change| change.name == name.as_os_str().as_bytes())
    }
}

/// A file that both sides changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BothChanged {
    /// Its path.
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
        self.drop_same()?;
        Ok(recovered)
    }

    /// Removes entries from the layers that change nothing: indexes with the content that they had when the run began, or that
    /// the project's have, because git rewrites one for a mere `git status`; refs that match the project's; files that are the
    /// same.
    pub(super) fn drop_same(&self) -> Result<(), LayersError> {
        let main = Place::find(&self.overlays);
        for (tree, overlay) in self.overlays.iter().enumerate() {
            let failed = |cause| LayersError::Open { path: overlay.upper(), cause };
            let OfGit { indexes, refs } = overlay.files_of_git().map_err(failed)?;
            if indexes.is_empty() && refs.is_empty() {
                continue;
            }
            let layers = overlay.open()?;
            let main = main.as_ref().filter(|main| main.tree == tree);
            for path in indexes.iter().filter(|path| overlay.says_the_same(&layers, path, main)) {
                forget(&layers, path).map_err(failed)?;
            }
            let is_main = |git: &Path| main.is_some_and(|main| main.shared == git);
            for git in refs.iter().filter(|git| is_main(git) || layers.is_repository(git)) {
                let repository = Repository::shared(tree, git, main);
                if let Some(trees) = same_refs(&repository, overlay, &layers) {
                    overlay.make_directories()?;
                    uncover_refs(overlay, &layers, git, &trees)?;
                }
            }
        }
        self.prune()
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
    pub(super) fn own_consent(&self, tree: usize, ApplyConsent { to, taken }: &ApplyConsent) -> ApplyConsent {
        let taken = taken.iter().filter_map(|(path, answer)| {
            let path = if tree == 0 { path } else { path.strip_prefix(&self.overlays[tree].lower).ok()? };
            Some((path.to_owned(), *answer))
        });
        ApplyConsent { to: self.inner(tree, to), taken: taken.collect() }
    }

    /// Keeps versions for a merge; of the project alone, as nothing in a repository is merged.
    fn keep_originals(&self, opened: &Opened) {
        let objects = || {
            let place = Place::find(&self.overlays)?;
            let shared = opened.layers[place.tree].lower.root().directory(&place.shared).ok()?;
            let hash = git::hash_length(&git::PlainFiles(&shared)).ok()?;
            Some(git::objects(Some(&shared), None, hash))
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

    /// Returns the kept changes. Versions for a merge are stored from here on, where the project still has them.
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
                match opened.home(tree, change).map(|(_, part)| part) {
                    // A change that needs its own consent is listed, whatever group it belongs to.
                    Some(Part::Group) if change.class != Class::Ordinary => {
                        out.files.push(Change { path, ..change.clone() });
                    }
                    None | Some(Part::Alone | Part::Tree) => {
                        out.files.push(Change { path, ..change.clone() })
                    }
                    Some(Part::Object | Part::Scratch | Part::Ref | Part::Group) => out.folded.push(path),
                }
            }
            out.unseen.extend(
                found
                    .unseen
                    .iter()
                    .map(|one| Unseen { path: self.outer(tree, &one.path), why: one.why.clone() }),
            );
        }
        let mut repositories = opened.repositories;
        repositories.reverse();
        out.repositories = repositories.into_iter().map(|found| self.kept_repository(found)).collect();
        Ok(out)
    }

    fn kept_repository(&self, found: Found) -> KeptRepository {
        let (path, label) = (self.path_of(&found), self.label_of(&found));
        let Found { repository, states, tracked_by: _ } = found;
        KeptRepository {
            path,
            label,
            git: self.outer(repository.tree, &repository.git),
            own: repository.own,
            presence: repository.presence,
            changes: states.changes,
            refs: states.now.values.into_keys().chain(states.after.values.into_keys()).collect(),
        }
    }

    /// How a repository is called.
    pub(super) fn path_of(&self, Found { repository, .. }: &Found) -> PathBuf {
        repository.top.clone().unwrap_or_else(|| self.outer(repository.tree, &repository.git))
    }

    /// How names of its refs begin.
    pub(super) fn label_of(&self, Found { repository, .. }: &Found) -> PathBuf {
        match &repository.top {
            _ if repository.is_main => PathBuf::new(),
            Some(top) => top.join(".git"),
            None => self.outer(repository.tree, &repository.git),
        }
    }

    /// Removes entries that change nothing from the layers, so that they are empty when nothing is kept.
    fn prune(&self) -> Result<(), LayersError> {
        self.overlays.iter().try_for_each(Overlay::prune)
    }
}

/// Files of a layer that may be of repositories.
#[derive(Default)]
struct OfGit {
    indexes: Vec<PathBuf>,
    /// Directories that hold refs.
    refs: BTreeSet<PathBuf>,
}

impl Overlay {
    /// What the layer has that may be of repositories.
    fn files_of_git(&self) -> Result<OfGit, belljar_sys::Errno> {
        use belljar_sys::beneath::{Directory, InodeKind};
        let (mut out, mut pending) = (OfGit::default(), vec![PathBuf::new()]);
        if !self.upper().exists() {
            return Ok(out);
        }
        let upper = Directory::open(&self.upper())?;
        while let Some(path) = pending.pop() {
            // Directories that cannot be opened are reported by the comparison of the layers.
            let Ok(directory) = upper.directory(&path) else { continue };
            directory.entries(|name, kind| {
                if kind == InodeKind::Directory && name != "objects" {
                    pending.push(path.join(name));
                } else if kind == InodeKind::File && name == "index" {
                    out.indexes.push(path.join(name));
                }
                if name == "refs" || name == "packed-refs" {
                    out.refs.insert(path.clone());
                }
            })?;
        }
        Ok(out)
    }

    /// Whether a file is the index of a repository and says what it said when the run began, or what the project's says.
    fn says_the_same(&self, layers: &super::layers::Layers, path: &Path, main: Option<&Place>) -> bool {
        let is_main = |git: &Path| main.is_some_and(|main| main.shared == git);
        let mut above = path.ancestors().skip(1);
        let Some(git) = above.find(|git| is_main(git) || layers.is_repository(git)) else { return false };
        let own = path.parent().and_then(|own| own.strip_prefix(git).ok()).unwrap_or(Path::new(""));
        if !own.as_os_str().is_empty() && !own.starts_with("worktrees") {
            return false;
        }
        let (project, seen) = (InProject { layers, shared: git }, InSandbox { layers, shared: git });
        let Ok(hash) = git::hash_length(&project) else { return false };
        let after = Index::read(&seen, own, hash);
        let base = self.base(git, main.filter(|_| is_main(git)).map(|main| main.own.as_path()));
        let base = base.and_then(|base| base.index(own, hash));
        base.is_some_and(|base| base.says_the_same(&after))
            || Index::read(&project, own, hash).says_the_same(&after)
    }
}
