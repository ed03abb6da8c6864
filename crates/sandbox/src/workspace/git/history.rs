//! Compares the refs of two states of a repository: which commits are new, and what they would check out.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::moved::{self, MovedRef};
use super::object::{Commit, ObjectError, ObjectId, ObjectKind, TreeMode, tree_entries};
use super::refs::{RefValue, Refs};
use super::store::Objects;
use belljar_class::{Alias, Class, EntryKind, TreeFacts, classify_in};

/// Commits that are looked at.
const MOST_COMMITS: usize = 50_000;
/// Commits that are listed of each name.
const LISTED: usize = 50;
/// Entries of trees that are looked at.
const MOST_ENTRIES: usize = 2_000_000;
/// Paths of the class that are listed.
const MOST_PATHS: usize = 1000;
const LONGEST_LINK: usize = 4096;

/// A ref that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefChange {
    /// Its whole name, such as `refs/heads/main`.
    pub name: Vec<u8>,
    /// Its value before.
    pub before: Option<RefValue>,
    /// Its value now.
    pub after: Option<RefValue>,
    /// Commits that no name led to before, the newest first; the first ones.
    pub commits: Vec<NewCommit>,
    /// The number of such commits.
    pub count: usize,
    /// Files in them that this machine would execute once checked out, or links that lead out of the work tree.
    pub class: Vec<Carried>,
    /// Why not everything about it is known.
    pub unread: Option<String>,
    /// Commits that it led to, and that neither a ref nor a log leads to any more.
    pub lost: usize,
}

impl RefChange {
    pub(super) fn new(name: Vec<u8>) -> Self {
        RefChange {
            name,
            before: None,
            after: None,
            commits: Vec::new(),
            count: 0,
            class: Vec::new(),
            unread: None,
            lost: 0,
        }
    }

    /// Whether writing it needs a yes of its own.
    #[must_use]
    pub fn needs_consent(&self) -> bool {
        !self.class.is_empty() || self.unread.is_some() || self.lost > 0
    }
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit {
    /// Its name.
    pub id: ObjectId,
    /// The first line of its message.
    pub subject: Vec<u8>,
}

/// A path that a commit or the index changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// The path in the work tree.
    pub path: PathBuf,
    /// What it means for the host.
    pub class: Class,
    /// The commit.
    pub commit: Option<ObjectId>,
}

/// What the class depends on beyond paths.
pub(crate) struct ClassContext<'a> {
    pub aliases: &'a [Alias],
    pub named: &'a [PathBuf],
    /// Where commits are checked out in the project.
    pub at: &'a Path,
}

/// Compares names.
pub(super) fn compare(
    before: &Refs,
    after: &Refs,
    objects: &Objects,
    known: &ClassContext<'_>,
) -> Vec<RefChange> {
    let names: BTreeSet<&Vec<u8>> = before.values.keys().chain(after.values.keys()).collect();
    let changed = names.into_iter().filter(|name| before.values.get(*name) != after.values.get(*name));
    let mut changes: Vec<RefChange> = changed
        .map(|name| RefChange {
            before: before.values.get(name).cloned(),
            after: after.values.get(name).cloned(),
            ..RefChange::new(name.clone())
        })
        .collect();
    let named = changes.len();
    changes.extend(going_on(before, after, &changes));
    let mut history = History::new(objects);
    let old: Vec<ObjectId> = before.tips().collect();
    let known_tips: HashSet<ObjectId> = old.iter().copied().collect();
    let unknown = |change: &RefChange| {
        let mut targets = targets(change, after);
        targets.retain(|id| !known_tips.contains(id) || moved::is_replacement(&change.name));
        targets
    };
    let targets: Vec<Vec<ObjectId>> = changes.iter().map(unknown).collect();
    let mut tips = Vec::new();
    for (change, targets) in changes.iter_mut().zip(&targets) {
        for id in targets {
            match objects.peeled(id) {
                Ok(Some(tip)) => tips.push(tip),
                Ok(None) => change.unread = Some("it leads to no commit".to_owned()),
                Err(error) => change.unread = Some(format!("{}: {error}", id.short())),
            }
        }
    }
    let new = match history.new_commits(&tips, &old) {
        Ok(new) => new,
        Err(error) => {
            changes.iter_mut().for_each(|change| change.unread = Some(error.to_string()));
            return changes;
        }
    };
    let mut carried =
        Carrying { history: &history, known, entries: 0, of: HashMap::new(), between: HashMap::new() };
    for (change, targets) in changes.iter_mut().zip(&targets) {
        let tips: Vec<ObjectId> = targets.iter().filter_map(|id| objects.peeled(id).ok()?).collect();
        let own = history.within(&tips, &new);
        change.count = own.len();
        for id in &own {
            match carried.of_commit(id) {
                Ok(found) => change.class.extend(found),
                Err(error) => change.unread = Some(format!("the commit {}: {error}", id.short())),
            }
        }
        let steps = moved::steps(change, (before, after), objects);
        let between = steps.and_then(|steps| steps.into_iter().map(|step| carried.of_step(step)).collect());
        let between: Result<Vec<Vec<Carried>>, ObjectError> = between;
        match between {
            Ok(found) => change.class.extend(found.into_iter().flatten()),
            Err(error) => _ = change.unread.get_or_insert_with(|| error.to_string()),
        }
        change.class.sort_by(|one, other| one.path.cmp(&other.path));
        change.class.dedup_by(|one, other| one.path == other.path);
        change.class.truncate(MOST_PATHS);
        let listed = own.iter().take(LISTED);
        let listed = listed.filter_map(|id| Some((*id, history.commits.get(id)?)));
        change.commits =
            listed.map(|(id, commit)| NewCommit { id, subject: commit.subject.clone() }).collect();
    }
    // Objects of an unfinished operation are reported only if they need consent.
    let unfinished = changes.split_off(named).into_iter().filter(RefChange::needs_consent);
    changes.extend(unfinished);
    changes
}

/// Objects of unfinished operations that are new and that no changed ref names.
fn going_on(before: &Refs, after: &Refs, changed: &[RefChange]) -> Vec<RefChange> {
    // Only a change that is compared with the same commit can stand for such a file.
    let compared = changed.iter().filter(|change| moved::is_compared_with_head(&change.name, before, after));
    let changed: HashSet<ObjectId> = compared.flat_map(|change| targets(change, after)).collect();
    let differing = after.others.iter().filter(|(name, ids)| before.others.get(*name) != Some(ids));
    let change = |(name, ids): (&Vec<u8>, &Option<Vec<ObjectId>>)| {
        let first = match ids {
            Some(ids) => Some(ids.iter().find(|id| !changed.contains(id))?),
            None => None,
        };
        Some(RefChange {
            after: first.copied().map(RefValue::Object),
            unread: ids.is_none().then(|| "it holds something else than objects".to_owned()),
            ..RefChange::new(name.clone())
        })
    };
    differing.filter_map(change).collect()
}

/// The objects that a changed name stands for, or that its file holds.
fn targets(change: &RefChange, after: &Refs) -> Vec<ObjectId> {
    match (after.others.get(&change.name), &change.after) {
        (Some(ids), _) => ids.clone().unwrap_or_default(),
        (None, Some(RefValue::Object(id))) => vec![*id],
        (None, Some(RefValue::Symbolic(_)) | None) => Vec::new(),
    }
}

/// An object that new commits need and that is missing. If there is too much to look at, or something cannot be read,
/// [`compare`] reports that.
pub(super) fn missing(before: &Refs, after: &Refs, objects: &Objects) -> Option<String> {
    let mut tips = Vec::new();
    for (name, value) in &after.values {
        let RefValue::Object(id) = value else { continue };
        if before.values.get(name) == Some(value) {
            continue;
        }
        match objects.peeled(id) {
            Ok(tip) => tips.extend(tip),
            Err(ObjectError::Missing) => return Some(id.short()),
            Err(_unread) => {}
        }
    }
    let mut history = History::new(objects);
    let old: Vec<ObjectId> = before.tips().collect();
    let new = match history.new_commits(&tips, &old) {
        Ok(new) => new,
        Err(ObjectError::Missing) => return Some("a commit before them".to_owned()),
        Err(_unread) => return None,
    };
    let mut seen = HashSet::new();
    for commit in new.iter().filter_map(|id| history.commits.get(id)) {
        // Objects of a parent existed before, or are checked with the parent.
        let parent = commit.parents.first().and_then(|parent| objects.commit(parent).ok());
        let mut pending = vec![(parent.map(|parent| parent.tree), commit.tree)];
        while let Some((before, after)) = pending.pop() {
            if before == Some(after) || !seen.insert(after) {
                continue;
            }
            let content = match objects.tree(&after) {
                Ok(content) => content,
                Err(ObjectError::Missing) => return Some(after.short()),
                Err(_unread) => return None,
            };
            let old = before.and_then(|before| objects.tree(&before).ok()).unwrap_or_default();
            let old = tree_entries(&old, objects.hash).unwrap_or_default();
            let old: HashMap<&[u8], ObjectId> = old.iter().map(|entry| (entry.name, entry.id)).collect();
            for entry in tree_entries(&content, objects.hash)? {
                let before = old.get(entry.name).copied();
                match entry.mode {
                    TreeMode::Tree => pending.push((before, entry.id)),
                    TreeMode::Gitlink => {}
                    TreeMode::File | TreeMode::Symlink => {
                        let is_new = before != Some(entry.id) && seen.insert(entry.id);
                        if is_new && !objects.has(&entry.id) {
                            return Some(entry.id.short());
                        }
                    }
                }
            }
            if seen.len() > MOST_ENTRIES {
                return None;
            }
        }
    }
    None
}

pub(super) struct History<'a> {
    objects: &'a Objects,
    commits: HashMap<ObjectId, Commit>,
}

impl<'a> History<'a> {
    pub(super) fn new(objects: &'a Objects) -> Self {
        History { objects, commits: HashMap::new() }
    }
}

impl History<'_> {
    fn load(&mut self, id: &ObjectId) -> Result<(), ObjectError> {
        if !self.commits.contains_key(id) {
            if self.commits.len() >= MOST_COMMITS {
                return Err(ObjectError::TooMuch);
            }
            let commit = self.objects.commit(id)?;
            self.commits.insert(*id, commit);
        }
        Ok(())
    }

    /// The commits that the new tips lead to and the old ones do not.
    ///
    /// Both are followed back in the order of their dates until only old ones are left that are older than all new ones. A date
    /// that lies can make an old commit count as new, and never a new one as old: that takes a way from an old tip.
    pub(super) fn new_commits(
        &mut self,
        tips: &[ObjectId],
        old: &[ObjectId],
    ) -> Result<HashSet<ObjectId>, ObjectError> {
        let mut new = HashSet::new();
        if tips.is_empty() {
            return Ok(new);
        }
        let (mut done_old, mut heap, mut open) = (HashSet::new(), BinaryHeap::new(), 0_usize);
        for tip in tips {
            self.load(tip)?;
            if new.insert(*tip) {
                heap.push((self.commits[tip].time, *tip, false));
                open += 1;
            }
        }
        for id in old {
            // A tag of a tree, or a name that leads nowhere, has no commits.
            let Ok(Some(tip)) = self.objects.peeled(id) else { continue };
            self.load(&tip)?;
            if done_old.insert(tip) {
                heap.push((self.commits[&tip].time, tip, true));
            }
        }
        let mut earliest = i64::MAX;
        while let Some((time, id, is_old)) = heap.pop() {
            // An old commit of the same second may still lead to a new one.
            if open == 0 && time < earliest {
                break;
            }
            if !is_old {
                open -= 1;
                earliest = time.min(earliest);
            }
            if !is_old && done_old.contains(&id) {
                continue;
            }
            for parent in self.commits[&id].parents.clone() {
                match self.load(&parent) {
                    Ok(()) => {}
                    // A shallow clone ends here; of a new commit every parent must be there.
                    Err(ObjectError::Missing) if is_old => continue,
                    Err(error) => return Err(error),
                }
                let time = self.commits[&parent].time;
                if is_old {
                    if done_old.insert(parent) {
                        heap.push((time, parent, true));
                    }
                } else if !done_old.contains(&parent) && new.insert(parent) {
                    heap.push((time, parent, false));
                    open += 1;
                }
            }
        }
        new.retain(|id| !done_old.contains(id));
        Ok(new)
    }

    /// Those of the new commits that tips lead to, the newest first.
    pub(super) fn within(&self, tips: &[ObjectId], new: &HashSet<ObjectId>) -> Vec<ObjectId> {
        let (mut out, mut seen, mut heap) = (Vec::new(), HashSet::new(), BinaryHeap::new());
        let time = |id: &ObjectId| self.commits.get(id).map_or(0, |commit| commit.time);
        for tip in tips.iter().filter(|tip| new.contains(tip)) {
            if seen.insert(*tip) {
                heap.push((time(tip), *tip));
            }
        }
        while let Some((_, id)) = heap.pop() {
            out.push(id);
            for parent in self.commits.get(&id).into_iter().flat_map(|commit| &commit.parents) {
                if new.contains(parent) && seen.insert(*parent) {
                    heap.push((time(parent), *parent));
                }
            }
        }
        out
    }
}

/// Looks for paths of the class in what commits change.
struct Carrying<'a> {
    history: &'a History<'a>,
    known: &'a ClassContext<'a>,
    entries: usize,
    of: HashMap<ObjectId, Vec<Carried>>,
    between: HashMap<MovedRef, Vec<Carried>>,
}

impl Carrying<'_> {
    /// The paths of the class that differ between two commits, whatever commits lie between them.
    fn of_step(&mut self, step: MovedRef) -> Result<Vec<Carried>, ObjectError> {
        if let Some(known) = self.between.get(&step) {
            return Ok(known.clone());
        }
        let (before, after) = step;
        let objects = self.history.objects;
        let base = before.map(|before| objects.commit(&before)).transpose()?.map(|commit| commit.tree);
        let (mut out, at) = (Vec::new(), self.known.at);
        self.trees(base, objects.commit(&after)?.tree, at, &mut |path, _id, class| {
            out.push(Carried { path, class, commit: Some(after) });
        })?;
        self.between.insert(step, out.clone());
        Ok(out)
    }

    fn of_commit(&mut self, id: &ObjectId) -> Result<Vec<Carried>, ObjectError> {
        if let Some(known) = self.of.get(id) {
            return Ok(known.clone());
        }
        let commit = self.history.commits.get(id).ok_or(ObjectError::Missing)?.clone();
        let mut found: Option<BTreeMap<PathBuf, (ObjectId, Class)>> = None;
        let parents: Vec<Option<ObjectId>> = match commit.parents.as_slice() {
            [] => vec![None],
            parents => parents.iter().copied().map(Some).collect(),
        };
        // A file that a merge takes from one of its parents counts for that parent.
        for parent in parents {
            let before = match parent {
                None => None,
                Some(parent) => match self.history.commits.get(&parent) {
                    Some(parent) => Some(parent.tree),
                    None => Some(self.history.objects.commit(&parent)?.tree),
                },
            };
            let mut differing = BTreeMap::new();
            let at = self.known.at;
            self.trees(before, commit.tree, at, &mut |path, id, class| {
                differing.insert(path, (id, class));
            })?;
            found = Some(match found {
                None => differing,
                Some(mut found) => {
                    found.retain(|path, _| differing.contains_key(path));
                    found
                }
            });
        }
        let carried = found.unwrap_or_default().into_iter();
        let carried: Vec<Carried> =
            carried.map(|(path, (_, class))| Carried { path, class, commit: Some(*id) }).collect();
        self.of.insert(*id, carried.clone());
        Ok(carried)
    }

    /// Shows every path of the class that differs.
    fn trees(
        &mut self,
        before: Option<ObjectId>,
        after: ObjectId,
        at: &Path,
        found: &mut dyn FnMut(PathBuf, ObjectId, Class),
    ) -> Result<(), ObjectError> {
        let mut pending = vec![(before, after, at.to_owned(), Vec::new())];
        while let Some((before, after, at, above)) = pending.pop() {
            if before == Some(after) {
                continue;
            }
            let objects = self.history.objects;
            let old_content = before.map(|id| objects.tree(&id)).transpose()?.unwrap_or_default();
            let content = objects.tree(&after)?;
            let old = tree_entries(&old_content, objects.hash).ok_or(ObjectError::Damaged)?;
            let new = tree_entries(&content, objects.hash).ok_or(ObjectError::Damaged)?;
            let depth: usize = at.iter().count();
            self.entries += new.len();
            if self.entries > MOST_ENTRIES || depth > 512 {
                return Err(ObjectError::TooMuch);
            }
            let old: HashMap<&[u8], _> = old.iter().map(|entry| (entry.name, entry)).collect();
            let mut repositories: Vec<PathBuf> = above;
            let has = |name: &[u8]| new.iter().any(|entry| entry.name.eq_ignore_ascii_case(name));
            if has(b"HEAD") && has(b"objects") && has(b"refs") {
                repositories.push(at.clone());
            }
            for entry in &new {
                let before = old.get(entry.name);
                if before.is_some_and(|before| before.id == entry.id && before.bits == entry.bits) {
                    continue;
                }
                let path = at.join(OsStr::from_bytes(entry.name));
                let kind = match entry.mode {
                    TreeMode::Tree => {
                        let before = before.filter(|before| before.mode == TreeMode::Tree).map(|old| old.id);
                        pending.push((before, entry.id, path, repositories.clone()));
                        continue;
                    }
                    TreeMode::Gitlink => continue,
                    TreeMode::File => EntryKind::File,
                    TreeMode::Symlink => {
                        let blob = objects.read(&entry.id)?;
                        if blob.kind != ObjectKind::Blob || blob.content.len() > LONGEST_LINK {
                            return Err(ObjectError::Damaged);
                        }
                        EntryKind::Symlink(PathBuf::from(OsStr::from_bytes(&blob.content)))
                    }
                };
                let class =
                    classify_in(&path, &kind, &InTree { known: self.known, repositories: &repositories });
                if class != Class::Ordinary {
                    found(path, entry.id, class);
                }
            }
        }
        Ok(())
    }
}

/// An entry of one of two trees: its object, its permissions, and whether it is a tree.
type TreeSide = (ObjectId, u32, bool);

/// The paths that differ between two trees, of whatever class.
pub(super) fn differing(
    before: Option<ObjectId>,
    after: Option<ObjectId>,
    objects: &Objects,
) -> Result<BTreeSet<PathBuf>, ObjectError> {
    let mut out = BTreeSet::new();
    let (mut pending, mut seen) = (vec![(before, after, PathBuf::new())], 0);
    while let Some((before, after, at)) = pending.pop() {
        if before == after {
            continue;
        }
        let content = |id: Option<ObjectId>| id.map(|id| objects.tree(&id)).transpose();
        let contents = [content(before)?.unwrap_or_default(), content(after)?.unwrap_or_default()];
        let mut sides: BTreeMap<&[u8], [Option<TreeSide>; 2]> = BTreeMap::new();
        for (side, content) in contents.iter().enumerate() {
            let entries = tree_entries(content, objects.hash).ok_or(ObjectError::Damaged)?;
            seen += entries.len();
            for entry in entries {
                let value = (entry.id, entry.bits, entry.mode == TreeMode::Tree);
                sides.entry(entry.name).or_default()[side] = Some(value);
            }
        }
        if seen > MOST_ENTRIES || at.iter().count() > 512 {
            return Err(ObjectError::TooMuch);
        }
        for (name, [one, other]) in sides {
            if one == other {
                continue;
            }
            let path = at.join(OsStr::from_bytes(name));
            let tree = |side: Option<TreeSide>| side.filter(|side| side.2).map(|side| side.0);
            let file = |side: Option<TreeSide>| side.is_some_and(|side| !side.2);
            if file(one) || file(other) {
                out.insert(path.clone());
            }
            if tree(one).is_some() || tree(other).is_some() {
                pending.push((tree(one), tree(other), path));
            }
        }
    }
    Ok(out)
}

/// The files of a tree.
pub(super) fn files(
    tree: ObjectId,
    objects: &Objects,
) -> Result<BTreeMap<PathBuf, (ObjectId, u32)>, ObjectError> {
    let (mut out, mut pending) = (BTreeMap::new(), vec![(tree, PathBuf::new())]);
    while let Some((tree, at)) = pending.pop() {
        let content = objects.tree(&tree)?;
        for entry in tree_entries(&content, objects.hash).ok_or(ObjectError::Damaged)? {
            let path = at.join(OsStr::from_bytes(entry.name));
            match entry.mode {
                TreeMode::Tree => pending.push((entry.id, path)),
                TreeMode::File | TreeMode::Symlink | TreeMode::Gitlink => {
                    out.insert(path, (entry.id, entry.bits));
                }
            }
        }
        if out.len() + pending.len() > MOST_ENTRIES || at.iter().count() > 512 {
            return Err(ObjectError::TooMuch);
        }
    }
    Ok(out)
}

/// A tree that is not checked out.
pub(super) struct InTree<'a> {
    pub known: &'a ClassContext<'a>,
    /// Directories that look like repositories.
    pub repositories: &'a [PathBuf],
}

impl TreeFacts for InTree<'_> {
    fn is_git_directory(&self, directory: &Path) -> bool {
        self.repositories.iter().any(|known| known == directory)
    }

    fn link_target(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    fn aliases(&self) -> &[Alias] {
        self.known.aliases
    }

    fn named(&self) -> &[PathBuf] {
        self.known.named
    }
}
