//! The files that git had, when a run began, as the project had them: their content is in the repository, also when the user
//! changed them while the run lasted.
//!
//! They are listed right after the start was noted, each with the name of its blob. A file whose ctime is not later than the
//! start is what it was then, and its content is compared with the name: what the index says of its time and size is not
//! believed, because an index that was applied is the agent's word, and filters of git change the content without a trace there.
//! So this is the one thing at a start that grows with the project, and it is bounded.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::beneath::{Directory, InodeKind, Time};

use super::Overlay;
use super::merge::LARGEST;
use super::originals::{List, OriginalNote, list_bytes, parse_list};
use crate::workspace::git::index::{self, HashLength, IndexEntry};
use crate::workspace::git::{LARGEST_INDEX, ObjectId, blob_id, read_in};

const HEAD: &[u8] = b"belljar tracked 1";
/// Files that are looked at, and bytes that are read of them, so that a start stays short.
const MOST: usize = 20_000;
const MOST_READ: u64 = 32 << 20;

impl Overlay {
    fn tracked(&self) -> PathBuf {
        self.directory.join("tracked")
    }

    /// The list; without it there is less to merge.
    pub(super) fn read_tracked(&self) -> List {
        fs::read(self.tracked()).ok().and_then(|bytes| parse_list(HEAD, &bytes)).unwrap_or_default()
    }

    /// Lists them for the run that begins. What the layer holds from before stays listed with the start that it belongs to.
    pub(super) fn note_tracked(&self, start: Time) -> io::Result<()> {
        let mut list = self.read_tracked();
        let upper = self.upper();
        list.retain(|path, _noted| upper.join(path).symlink_metadata().is_ok());
        for (path, noted) in unchanged(&self.lower, start).unwrap_or_default() {
            if upper.join(&path).symlink_metadata().is_err() {
                list.insert(path, noted);
            }
        }
        if list.is_empty() {
            fs::remove_file(self.tracked())
                .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
        } else {
            super::replace(&self.tracked(), &list_bytes(HEAD, &list))
        }
    }
}

/// The git directory of a work tree.
fn git_directory(project: &Path) -> Option<Directory> {
    let top = Directory::open(project).ok()?;
    if top.status(OsStr::new(".git")).ok()?.kind == InodeKind::Directory {
        return top.directory(Path::new(".git")).ok();
    }
    let text = read_in(&top, Path::new(".git"), 16 << 10).ok()??;
    let stated = text.strip_prefix(b"gitdir:")?.trim_ascii();
    Directory::open(&project.join(OsStr::from_bytes(stated))).ok()
}

fn parse(bytes: &[u8], hash: HashLength) -> Option<BTreeMap<PathBuf, ObjectId>> {
    let mut out = BTreeMap::new();
    let read = index::read(bytes, hash, |IndexEntry { path, id, mode, stage, .. }| {
        let is_file = mode & 0o170_000 == 0o100_000 && stage == 0;
        if let (true, Some(id)) = (is_file, ObjectId::new(id)) {
            out.insert(PathBuf::from(OsStr::from_bytes(path)), id);
        }
        ControlFlow::Continue(())
    });
    read.is_ok().then_some(out)
}

/// Files that hold what the index says, and did at the start.
fn unchanged(project: &Path, start: Time) -> Option<List> {
    let git = git_directory(project)?;
    let bytes = read_in(&git, Path::new("index"), LARGEST_INDEX).ok()??;
    // An index of the other kind does not parse, and its names would fit no content.
    let (hash, indexed) = [HashLength::Twenty, HashLength::ThirtyTwo]
        .into_iter()
        .find_map(|hash| Some((hash, parse(&bytes, hash)?)))?;
    let top = Directory::open(project).ok()?;
    let (mut left, mut list) = (MOST_READ, List::new());
    let mut parent: Option<(PathBuf, Directory)> = None;
    for (path, id) in indexed.into_iter().take(MOST) {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { continue };
        if parent.as_ref().is_none_or(|(open, _)| open != above) {
            parent = top.passage(above).ok().map(|directory| (above.to_owned(), directory));
        }
        let Some((_, directory)) = &parent else { continue };
        let Ok(Some(now)) = directory.status_if_present(name) else { continue };
        if now.kind != InodeKind::File || now.size > LARGEST.min(left) || now.changed > start {
            continue;
        }
        left -= now.size;
        if holds(directory, name, &id, hash) && directory.status(name) == Ok(now) {
            list.insert(path, OriginalNote { start, mode: now.mode, name: id.hex() });
        }
    }
    Some(list)
}

fn holds(directory: &Directory, name: &OsStr, id: &ObjectId, hash: HashLength) -> bool {
    let content = read_in(directory, Path::new(name), LARGEST).ok().flatten();
    content.and_then(|content| blob_id(&content, hash)) == Some(*id)
}
