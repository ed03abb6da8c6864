//! Indexes: what they say, and what differs between two states of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::history::{Carried, ClassContext, InTree};
use super::index::{self, HashLength, IndexEntry};
use super::object::ObjectId;
use super::refs::GitFiles;
use super::store::Objects;
use super::{LARGEST_INDEX, RepositoryChanges, blob_id};
use belljar_class::{Class, EntryKind, GitSigns, classify_in};

/// What an index says of a path and a side: its mode, and the name of the object.
pub(crate) type Staged = BTreeMap<(Vec<u8>, u8), (u32, Vec<u8>)>;

/// The index of a work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    /// A name for the bytes; `None` where there are none, or they cannot be read.
    content: Option<ObjectId>,
    /// Its entries, or why they cannot be read.
    pub staged: Result<Staged, String>,
}

/// The indexes of all work trees, by their git directories.
pub(crate) type Indexes = BTreeMap<PathBuf, Index>;

impl Index {
    /// The index of a work tree without an index file: nothing is staged.
    pub(crate) fn absent() -> Self {
        Index { content: None, staged: Ok(Staged::new()) }
    }

    pub(crate) fn parse(bytes: &[u8], hash: HashLength) -> Self {
        let mut staged = Staged::new();
        let read = index::read(bytes, hash, |IndexEntry { path, id, mode, stage, .. }| {
            staged.insert((path.to_vec(), stage), (mode, id.to_vec()));
            ControlFlow::Continue(())
        });
        let staged = read.map(|()| staged).map_err(|error| format!("the index cannot be read: {error}"));
        Index { content: blob_id(bytes, HashLength::ThirtyTwo), staged }
    }

    pub(crate) fn read(files: &dyn GitFiles, top: &Path, hash: HashLength) -> Self {
        match files.read(&top.join("index"), LARGEST_INDEX) {
            Ok(None) => Self::absent(),
            Ok(Some(bytes)) => Self::parse(&bytes, hash),
            Err(cause) => Index { content: None, staged: Err(format!("the index cannot be read: {cause}")) },
        }
    }

    /// Whether both are known to say the same.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        self.staged.is_ok() && self.staged == other.staged
    }

    /// The paths of which two indexes say something else; all of them where one cannot be read.
    pub(crate) fn differing(&self, other: &Self) -> BTreeSet<PathBuf> {
        let none = Staged::new();
        let (one, other) = (self.staged.as_ref().unwrap_or(&none), other.staged.as_ref().unwrap_or(&none));
        let keys = one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key));
        keys.map(|(path, _)| PathBuf::from(OsStr::from_bytes(path))).collect()
    }
}

/// Reads them; `tops` are the git directories of the work trees.
pub(crate) fn indexes(files: &dyn GitFiles, tops: &[PathBuf], hash: HashLength) -> Indexes {
    tops.iter().map(|top| (top.clone(), Index::read(files, top, hash))).collect()
}

/// Adds what the indexes would write to the work trees.
pub(super) fn compare(
    (before, after): (&Indexes, &Indexes),
    own: &Path,
    objects: &Objects,
    known: &ClassContext<'_>,
    out: &mut RepositoryChanges,
) {
    let none = Index::absent();
    for (top, after) in after {
        let before = before.get(top).unwrap_or(&none);
        // An unchanged index needs no consent, whether it can be read or not.
        if before == after && (after.content.is_some() || after.staged.is_ok()) {
            continue;
        }
        match (&before.staged, &after.staged) {
            (Ok(staged_before), Ok(staged_after)) => {
                if top == own {
                    let paths = before.differing(after).into_iter();
                    out.staged = paths.map(|path| known.at.join(path)).collect();
                }
                out.staged_class.extend(class(staged_before, staged_after, objects, known));
            }
            (_, Err(why)) | (Err(why), Ok(_)) => {
                let which = if top == own { String::new() } else { format!("{}: ", top.display()) };
                out.unread_index.get_or_insert_with(|| format!("{which}{why}"));
            }
        }
    }
}

/// New entries of an index that this machine would execute, or that lead out of the work tree.
fn class(before: &Staged, after: &Staged, objects: &Objects, known: &ClassContext<'_>) -> Vec<Carried> {
    let repositories: Vec<PathBuf> =
        repositories(after).into_iter().map(|directory| known.at.join(directory)).collect();
    let mut out = Vec::new();
    for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(*value)) {
        let (mode, id) = value;
        let path = known.at.join(OsStr::from_bytes(&key.0));
        let target = || {
            let object = objects.read(&ObjectId::new(id)?).ok()?;
            Some(PathBuf::from(OsStr::from_bytes(&object.content)))
        };
        let kind = match mode & 0o170_000 {
            // One that cannot be read cannot be written either.
            0o120_000 => target().map(EntryKind::Symlink).unwrap_or(EntryKind::File),
            _ => EntryKind::File,
        };
        let class = classify_in(&path, &kind, &InTree { known, repositories: &repositories });
        if class != Class::Ordinary {
            out.push(Carried { path, class, commit: None });
        }
    }
    out
}

/// Directories that would be repositories if everything were checked out.
fn repositories(staged: &Staged) -> Vec<PathBuf> {
    let mut signs: BTreeMap<PathBuf, GitSigns> = BTreeMap::new();
    for (path, _side) in staged.keys() {
        let mut at = PathBuf::new();
        for name in path.split(|byte| *byte == b'/').map(OsStr::from_bytes) {
            // Some file systems ignore the case of letters.
            if let Some(sign) = GitSigns::NAMES.into_iter().find(|sign| name.eq_ignore_ascii_case(sign)) {
                signs.entry(at.clone()).or_default().see(sign.as_ref());
            }
            at.push(name);
        }
    }
    signs.retain(|_, signs| signs.is_git_directory());
    signs.into_keys().collect()
}
