//! Reads repositories without git: refs, commits, trees and the index, as untrusted data.
//!
//! git obeys the configuration that it finds, and an agent may have written it; so no git program is started for any of
//! this.

mod branch_name;
mod history;
pub mod index;
mod lost;
mod moved;
mod object;
mod packed;
mod refs;
mod staged;
mod store;
#[cfg(test)]
mod tests;
mod watch;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::beneath::{Directory, InodeKind};

pub use branch_name::bad_branch;
pub(crate) use history::ClassContext;
pub use history::{Carried, NewCommit, RefChange};
pub(crate) use lost::note_lost;
pub use object::ObjectId;
pub(crate) use packed::Packed;
pub(crate) use refs::{GitFiles, LARGEST_PACKED, Refs};
pub use refs::{RefValue, short_ref};
pub(crate) use staged::{Index, Indexes, indexes};
pub(crate) use store::{MOST_PACKED, Objects};
pub use watch::RepositoryWatch;

use belljar_class::{LARGEST_CONFIG, git_settings};
use index::HashLength;
use object::{Naming, ObjectKind};
use store::Pack;

/// An index of some 600,000 files.
pub(crate) const LARGEST_INDEX: u64 = 64 << 20;
/// Places of objects that the user's own repository borrows from.
const MOST_ALTERNATES: usize = 16;

/// What changed in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepositoryChanges {
    /// Names that stand for something else now.
    pub refs: Vec<RefChange>,
    /// Paths that the index has in another way.
    pub staged: Vec<PathBuf>,
    /// Those of them that this machine executes, or that lead out: `git restore` would write them.
    pub staged_class: Vec<Carried>,
    /// Why it is not known what all names stand for, though something was done to them.
    pub unread_refs: Option<String>,
    /// Why it is not known what the index holds.
    pub unread_index: Option<String>,
}

impl RepositoryChanges {
    /// Whether no change is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty() && self.staged.is_empty() && self.unread().next().is_none()
    }

    /// Returns what could not be read, for messages.
    pub fn unread(&self) -> impl Iterator<Item = &String> {
        self.unread_refs.iter().chain(&self.unread_index)
    }
}

/// How long the names of objects are. Without a configuration they are as long as git makes them by itself.
pub(crate) fn hash_length(files: &dyn GitFiles) -> Result<HashLength, belljar_sys::Errno> {
    let text = files.read(Path::new("config"), LARGEST_CONFIG)?.unwrap_or_default();
    let settings = git_settings(&text);
    let format = settings.iter().rfind(|setting| setting.is("extensions", "objectformat"));
    match format.map(|setting| setting.value.as_deref().unwrap_or_default()) {
        Some(format) if format.eq_ignore_ascii_case(b"sha256") => Ok(HashLength::ThirtyTwo),
        Some(format) if !format.eq_ignore_ascii_case(b"sha1") => Err(belljar_sys::Errno::NOTSUP),
        Some(_) | None => Ok(HashLength::Twenty),
    }
}

/// Where objects are: those of the user first, and what these borrow from.
pub(crate) fn objects(lower: Option<&Directory>, upper: Option<Directory>, hash: HashLength) -> Objects {
    let mut directories = Vec::new();
    let own = lower.and_then(|lower| lower.directory(Path::new("objects")).ok());
    let alternates = own.as_ref().and_then(|own| {
        let file = own.passage(Path::new("info")).ok()?.file(OsStr::new("alternates")).ok()?;
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, 64 << 10), &mut text).ok()?;
        Some(text)
    });
    directories.extend(own);
    let alternates = alternates.unwrap_or_default();
    let mut gaps = alternates.split(|byte| *byte == b'\n').count() > MOST_ALTERNATES;
    for line in alternates.split(|byte| *byte == b'\n').take(MOST_ALTERNATES) {
        let path = Path::new(OsStr::from_bytes(line));
        let other = path.is_absolute().then(|| Directory::open(path).ok()).flatten();
        let borrows = |other: &Directory| {
            other.passage(Path::new("info")).is_ok_and(|info| info.file(OsStr::new("alternates")).is_ok())
        };
        gaps |= !line.is_empty() && other.as_ref().is_none_or(borrows);
        directories.extend(other);
    }
    directories.extend(upper);
    let mut objects = Objects::new(directories, hash);
    objects.gaps = gaps;
    objects
}

/// Compares two states of a repository. `own` is the git directory of the work tree whose index is listed.
pub(crate) fn compare(
    (before, after): (&Refs, &Refs),
    (indexes_before, indexes_after): (&Indexes, &Indexes),
    own: &Path,
    objects: &Objects,
    known: &ClassContext<'_>,
) -> RepositoryChanges {
    let mut out =
        RepositoryChanges { refs: history::compare(before, after, objects, known), ..Default::default() };
    // Refs that could not be read before either need no consent again, if their files are the same.
    if after.unread.is_some() && (after.storage.is_none() || before.storage != after.storage) {
        out.unread_refs.clone_from(&after.unread);
    }
    staged::compare((indexes_before, indexes_after), own, objects, known, &mut out);
    out
}

/// The content that a blob of the user's repository has, if it is what its name says.
pub(crate) fn blob(objects: &Objects, id: &ObjectId) -> Option<Vec<u8>> {
    let object = objects.read(id).ok()?;
    (object.kind == ObjectKind::Blob).then_some(object.content)
}

/// The name that git gives to a content.
pub(crate) fn blob_id(content: &[u8], hash: HashLength) -> Option<ObjectId> {
    let mut naming = Naming::new(hash, ObjectKind::Blob, content.len() as u64);
    naming.update(content);
    naming.finish()
}

/// The paths that differ between the old and the new commit of a HEAD; `None` if that is not known.
pub(crate) fn checked_out(
    (before, after): (&Refs, &Refs),
    head: &[u8],
    objects: &Objects,
) -> Option<std::collections::BTreeSet<PathBuf>> {
    let tree = |refs: &Refs| match refs.resolve(head) {
        None => Some(None),
        Some(id) => objects.commit(&id).ok().map(|commit| Some(commit.tree)),
    };
    history::differing(tree(before)?, tree(after)?, objects).ok()
}

/// The commit that an object is, or that a tag leads to.
pub(crate) fn commit_of(objects: &Objects, id: &ObjectId) -> Option<ObjectId> {
    objects.peeled(id).ok()?
}

/// The files of a commit, each with its object and its permissions; `None` where they cannot be read.
pub(crate) fn files_of(objects: &Objects, commit: &ObjectId) -> Option<BTreeMap<PathBuf, (ObjectId, u32)>> {
    history::files(objects.commit(commit).ok()?.tree, objects).ok()
}

/// An object that new commits need and that is missing; `None` also if that is not known.
pub(crate) fn missing(before: &Refs, after: &Refs, objects: &Objects) -> Option<String> {
    history::missing(before, after, objects).filter(|_| objects.are_all_known())
}

/// The result of checking an addition to the objects of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addition {
    /// It holds what its name says.
    Sound,
    /// It does not, or that is not known.
    Unsound,
    /// Something that git makes anew from the rest, and believes: it is not taken over.
    Derived,
}

/// Checks a file that is added below `objects`, by its path there. Loose objects share the bytes that are left to be
/// unpacked, because there may be any number of them.
pub(crate) fn addition(
    objects: &Directory,
    path: &Path,
    hash: HashLength,
    left_for_loose: &Cell<u64>,
) -> Addition {
    let names: Vec<&[u8]> = path.iter().map(OsStrExt::as_bytes).collect();
    let sound = |sound: bool| if sound { Addition::Sound } else { Addition::Unsound };
    let open =
        |path: &Path| -> Option<File> { objects.passage(path.parent()?).ok()?.file(path.file_name()?).ok() };
    match names.as_slice() {
        [b"pack", name] => {
            let Some(stem) = name.strip_suffix(b".pack").or_else(|| name.strip_suffix(b".idx")) else {
                return Addition::Derived;
            };
            let file = |end: &[u8]| open(&Path::new("pack").join(OsStr::from_bytes(&[stem, end].concat())));
            let pack = file(b".idx").zip(file(b".pack"));
            let pack = pack.and_then(|(index, pack)| Pack::of(index, pack, hash).ok());
            sound(pack.is_some_and(|pack| pack.verify(hash).is_ok()))
        }
        [first, rest] if first.len() == 2 => {
            let Some(id) = ObjectId::parse(&[first, *rest].concat()) else { return Addition::Derived };
            sound(
                open(path).is_some_and(|file| store::verify_loose(&file, &id, hash, left_for_loose).is_ok()),
            )
        }
        _ => Addition::Derived,
    }
}

/// A git directory without an overlay.
pub(crate) struct PlainFiles<'a>(pub &'a Directory);

impl GitFiles for PlainFiles<'_> {
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, belljar_sys::Errno> {
        read_in(self.0, path, limit)
    }

    fn list(&self, path: &Path) -> Result<Vec<(PathBuf, InodeKind)>, belljar_sys::Errno> {
        list_in(self.0, path)
    }
}

/// Reads a regular file below a directory, no link followed.
pub(crate) fn read_in(
    top: &Directory,
    path: &Path,
    limit: u64,
) -> Result<Option<Vec<u8>>, belljar_sys::Errno> {
    use belljar_sys::Errno;
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let opened = top.passage(path.parent().unwrap_or(Path::new(""))).and_then(|above| above.file(name));
    let file = match opened {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        answer => answer?,
    };
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, limit + 1), &mut bytes)
        .map_err(|error| belljar_sys::fds::errno_of(&error))?;
    if bytes.len() as u64 > limit { Err(Errno::FBIG) } else { Ok(Some(bytes)) }
}

pub(crate) fn list_in(top: &Directory, path: &Path) -> Result<Vec<(PathBuf, InodeKind)>, belljar_sys::Errno> {
    use belljar_sys::Errno;
    let directory = match top.directory(path) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        answer => answer?,
    };
    let mut out = Vec::new();
    directory.entries(|name, kind| out.push((path.join(name), kind)))?;
    Ok(out)
}
