//! A repository in three states: as it was when the run began, as it is in the project, as the agent left it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::notes::Base;
use super::{InProject, InSandbox, Presence, Repository};
use crate::workspace::git::index::HashLength;
use crate::workspace::git::{
    self, ClassContext, GitFiles, Index, Indexes, LARGEST_PACKED, ObjectId, Objects, Packed, RefValue, Refs,
    RepositoryChanges, read_in,
};
use crate::workspace::overlay::layers::Layers;
use crate::workspace::overlay::{LayersError, Overlay};

/// More than a reflog grows to.
pub(in crate::workspace::overlay) const LARGEST_LOG: u64 = 64 << 20;
/// The log that is a list of its own: git drops entries from it.
const STASH: &[u8] = b"refs/stash";

/// A work tree of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::workspace::overlay) struct TreeState {
    /// Its git directory below the shared one; empty for the main work tree.
    pub own: PathBuf,
    /// Where its files lie in the project; `None` where they are elsewhere, or nowhere.
    pub top: Option<PathBuf>,
    /// The name of its HEAD.
    pub head: Vec<u8>,
    /// Its index when the run began; `None` where that was not noted.
    pub base: Option<Index>,
    pub now: Index,
    pub after: Index,
    /// Paths that the agent's index has in another way.
    pub staged: BTreeSet<PathBuf>,
    /// Paths that a checkout of the new HEAD writes; `None` if that is not known.
    pub checked_out: Option<BTreeSet<PathBuf>>,
}

impl TreeState {
    /// Whether a path of the work tree goes with the commits or the index.
    pub(in crate::workspace::overlay) fn claims(&self, below: &Path) -> bool {
        self.staged.contains(below) || self.checked_out.as_ref().is_none_or(|paths| paths.contains(below))
    }
}

pub(in crate::workspace::overlay) struct States {
    /// The refs as they were; `None` if they were not noted, so that nothing counts as unchanged.
    pub base: Option<Refs>,
    pub now: Refs,
    /// The refs as the agent left them.
    pub after: Refs,
    /// What the project has once everything is written: the refs that either side moved, and the agent's where both did.
    pub wanted: Refs,
    pub hash: HashLength,
    pub trees: Vec<TreeState>,
    pub changes: RepositoryChanges,
    /// An object that new commits need and that is missing.
    pub missing: Option<String>,
    pub presence: Presence,
}

impl States {
    /// Reads them.
    pub(in crate::workspace::overlay) fn read(
        repository: &Repository,
        overlays: &[Overlay],
        layers: &[Layers],
    ) -> Result<Self, LayersError> {
        let Repository { tree, git, own, top, is_main, presence } = repository;
        let (overlay, own_layers, shared) = (&overlays[*tree], &layers[*tree], git.as_path());
        let (project, seen) =
            (InProject { layers: own_layers, shared }, InSandbox { layers: own_layers, shared });
        let config: &dyn GitFiles = if *presence == Presence::New { &seen } else { &project };
        let path = || overlay.lower.join(git).join("config");
        let hash = git::hash_length(config).map_err(|cause| LayersError::Open { path: path(), cause })?;
        let objects = objects(own_layers, git, hash);
        let noted = overlay.base(git, is_main.then_some(own.as_path()));
        let (now, after) = both_refs(repository, own_layers, noted.as_ref());
        // One that is in neither place was not there.
        let noted = noted.or_else(|| (*presence == Presence::New).then(Base::nothing));
        let base = noted.as_ref().map(|noted| noted.refs.clone());
        let mut wanted = after.clone();
        if let Some(base) = base.as_ref().filter(|_| *presence == Presence::Both) {
            wanted.values = joined(base, &now, &after);
        }
        let tops: Vec<PathBuf> =
            now.tops.iter().chain(&after.tops).cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let indexes = (git::indexes(&project, &tops, hash), git::indexes(&seen, &tops, hash));
        let nowhere = PathBuf::new();
        let at = top.as_ref().unwrap_or(&nowhere);
        let known = ClassContext { aliases: &layers[0].aliases, named: &layers[0].named, at };
        let mut changes = git::compare((&now, &wanted), (&indexes.0, &indexes.1), own, &objects, &known);
        let logged = |id: &ObjectId| stays_logged(&project, &seen, &wanted, id);
        git::note_lost((&now, &wanted), &objects, &logged, &mut changes.refs);
        let missing = git::missing(&now, &wanted, &objects);
        let tree = |tree_own: &PathBuf| {
            let absent = Index::absent();
            let index = |indexes: &Indexes| indexes.get(tree_own).unwrap_or(&absent).clone();
            let (now_index, after_index) = (index(&indexes.0), index(&indexes.1));
            let head = repository.head_of(tree_own);
            let files = if tree_own == own {
                top.clone()
            } else {
                repository.linked_tree(overlays, layers, tree_own)
            };
            TreeState {
                base: noted.as_ref().and_then(|noted| noted.index(tree_own, hash)),
                staged: now_index.differing(&after_index),
                checked_out: base.as_ref().and_then(|base| git::checked_out((base, &after), &head, &objects)),
                own: tree_own.clone(),
                top: files,
                head,
                now: now_index,
                after: after_index,
            }
        };
        let trees = tops.iter().map(tree).collect();
        let presence = *presence;
        Ok(States { base, now, after, wanted, hash, trees, changes, missing, presence })
    }

    /// Whether all refs are known, so that they are written by name and not by file.
    pub(in crate::workspace::overlay) fn knows_refs(&self) -> bool {
        let known = |refs: &Refs| refs.unread.is_none();
        self.presence == Presence::Both
            && self.base.as_ref().is_some_and(known)
            && known(&self.now)
            && known(&self.after)
    }

    /// Refs that both sides moved, in different ways. Without a note of the start this is not known, and the files are
    /// compared.
    pub(in crate::workspace::overlay) fn moved(&self) -> Vec<&Vec<u8>> {
        let States { now, after, .. } = self;
        let base = self.base.as_ref().unwrap_or(now);
        let names: BTreeSet<&Vec<u8>> =
            base.values.keys().chain(now.values.keys()).chain(after.values.keys()).collect();
        // Where they are not joined, the agent's files would take back what the user alone moved.
        let joins = self.knows_refs();
        let is_moved = |name: &&Vec<u8>| {
            let [base, now, after] = [base, now, after].map(|refs| refs.values.get(*name));
            base != now && after != now && !(joins && base == after)
        };
        names.into_iter().filter(is_moved).collect()
    }

    /// What was checked out in a work tree when the run began and the agent left so, where the user has something else checked
    /// out now.
    pub(in crate::workspace::overlay) fn left_behind(&self, head: &[u8]) -> Option<&RefValue> {
        let (now, after) = (self.now.values.get(head), self.after.values.get(head));
        let base = self.base.as_ref()?.values.get(head)?;
        (Some(base) != now && (after == now || after == Some(base))).then_some(base)
    }

    /// Refs that are going to be written, with what they become.
    pub(in crate::workspace::overlay) fn written(&self) -> Vec<(&Vec<u8>, Option<&RefValue>)> {
        let names: BTreeSet<&Vec<u8>> = self.now.values.keys().chain(self.wanted.values.keys()).collect();
        let value = |name| (name, self.wanted.values.get(name));
        names.into_iter().map(value).filter(|(name, wanted)| self.now.values.get(*name) != *wanted).collect()
    }

    /// Refs that the agent's git has in another way than the project.
    pub(in crate::workspace::overlay) fn changed_by_agent(&self) -> Vec<&Vec<u8>> {
        let names: BTreeSet<&Vec<u8>> = self.now.values.keys().chain(self.after.values.keys()).collect();
        let differs = |name: &&Vec<u8>| self.now.values.get(*name) != self.after.values.get(*name);
        names.into_iter().filter(differs).collect()
    }
}

/// The objects of a repository, on both sides.
pub(in crate::workspace::overlay) fn objects(layers: &Layers, git: &Path, hash: HashLength) -> Objects {
    let upper = layers.upper.root().directory(&git.join("objects")).ok();
    git::objects(layers.lower.root().directory(git).ok().as_ref(), upper, hash)
}

/// The refs of the project, and those that the agent's git had.
fn both_refs(repository: &Repository, layers: &Layers, noted: Option<&Base>) -> (Refs, Refs) {
    let (shared, own) = (repository.git.as_path(), repository.own.as_path());
    let now = Refs::read(&InProject { layers, shared }, own);
    let mut after = Refs::read(&InSandbox { layers, shared }, own);
    if let Some(noted) = noted {
        see_behind(repository, layers, (noted, &now), &mut after);
    }
    (now, after)
}

/// Whether the agent's git has all refs as the project has them; the git directories of the work trees, if so.
pub(in crate::workspace::overlay) fn same_refs(
    repository: &Repository,
    overlay: &Overlay,
    layers: &Layers,
) -> Option<Vec<PathBuf>> {
    let noted = overlay.base(&repository.git, repository.is_main.then_some(repository.own.as_path()));
    let (now, after) = both_refs(repository, layers, noted.as_ref());
    let known = now.unread.is_none() && after.unread.is_none();
    let trees: BTreeSet<PathBuf> = now.tops.into_iter().chain(after.tops).collect();
    (known && now.values == after.values).then(|| trees.into_iter().collect())
}

/// Takes refs out of what the agent saw that the user wrote since: a file that came to the project later shows in place of
/// what the agent's git had packed.
fn see_behind(repository: &Repository, layers: &Layers, (noted, now): (&Base, &Refs), after: &mut Refs) {
    let packed = read_in(layers.upper.root(), &repository.git.join("packed-refs"), LARGEST_PACKED);
    let Some(packed) = packed.ok().flatten().and_then(|text| Packed::parse(&text)) else { return };
    let earlier = noted.packed();
    for (name, value) in &now.values {
        let (file, base) = (repository.file_of(name), noted.refs.values.get(name));
        let is_shown = matches!(layers.upper.status(&file), Ok(None)) && layers.shows(&file);
        if !is_shown || base == Some(value) {
            continue;
        }
        // A line that is as it was may be older than the file that the agent saw.
        let moved = packed.id(name) != earlier.as_ref().and_then(|earlier| earlier.id(name));
        let seen = if moved { packed.id(name).map(RefValue::Object) } else { base.cloned() };
        match seen {
            Some(seen) => after.values.insert(name.clone(), seen),
            None => after.values.remove(name),
        };
    }
}

/// The refs with what each side did to them. Where both moved one, it is the agent's.
fn joined(base: &Refs, now: &Refs, after: &Refs) -> BTreeMap<Vec<u8>, RefValue> {
    let names: BTreeSet<&Vec<u8>> = now.values.keys().chain(after.values.keys()).collect();
    let value = |name: &Vec<u8>| {
        let [base, now, after] = [base, now, after].map(|refs| refs.values.get(name));
        if base == after { now } else { after }
    };
    names.into_iter().filter_map(|name| Some((name.clone(), value(name)?.clone()))).collect()
}

/// Whether a reflog that stays names an object. Those of refs that go are deleted, and stashes are a list of their own.
fn stays_logged(project: &InProject<'_>, seen: &InSandbox<'_>, wanted: &Refs, id: &ObjectId) -> bool {
    let hex = id.hex();
    let names = |files: &dyn GitFiles, log: &Path| {
        let text = files.read(log, LARGEST_LOG).ok().flatten().unwrap_or_default();
        text.windows(hex.len()).any(|part| part == hex.as_bytes())
    };
    wanted.values.keys().filter(|name| *name != STASH).any(|name| {
        let name = Path::new(OsStr::from_bytes(name));
        // `logs/HEAD`, and that of a work tree beside its HEAD.
        let log = match (name.parent(), name.file_name()) {
            (Some(above), Some(head)) if name.starts_with("worktrees") => above.join("logs").join(head),
            (_, Some(head)) if name == Path::new("main-worktree/HEAD") => Path::new("logs").join(head),
            (_, _) => Path::new("logs").join(name),
        };
        names(project, &log) || names(seen, &log)
    })
}
