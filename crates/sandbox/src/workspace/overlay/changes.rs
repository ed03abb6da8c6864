//! Compares the two layers to find what the agent changed.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use belljar_class::{Class, EntryKind, classify_in};
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Status, Time};

use super::layers::{Layers, is_opaque, is_whiteout};
use super::{LayersError, Overlay};
use crate::workspace::class::entry_kind;
use crate::workspace::scan::{Unseen, UnseenBecause};

const DEEPEST: usize = 512;

/// One change to the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its path in the project.
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The type of the entry now; for a deletion, before.
    pub entry: EntryKind,
    /// What it means for the host.
    pub class: Class,
    /// Bytes, of what it is now; for a deletion, of what it was.
    pub size: u64,
    /// When the entry of the upper layer that says so was made.
    pub(super) born: Option<Time>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// The entry is new.
    Added,
    /// Its content, or where it leads, is another; its permissions may be, too.
    Modified,
    /// It is gone. Of a directory everything is listed that went with it.
    Deleted,
    /// It is something else now: a file, a directory, a link.
    TypeChanged,
    /// Only its permissions are others.
    ModeChanged,
}

/// What a comparison found, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The changes.
    pub changes: Vec<Change>,
    /// Parts of the upper layer that could not be read. They are not applied; they can be discarded.
    pub unseen: Vec<Unseen>,
}

impl Overlay {
    /// Returns what the agent changed.
    ///
    /// # Errors
    /// Fails if a layer cannot be opened.
    pub fn changes(&self) -> Result<Changes, LayersError> {
        Ok(compare(&self.open()?))
    }
}

pub(super) fn compare(layers: &Layers) -> Changes {
    let mut walk = Comparison { layers, out: Changes::default() };
    let mut pending = vec![(PathBuf::new(), Shown::Both)];
    while let Some((path, shown)) = pending.pop() {
        if let Err(why) = walk.directory(&path, shown, &mut pending) {
            walk.out.unseen.push(Unseen { path, why });
        }
    }
    let mut out = walk.out;
    out.changes.sort_by(|one, other| one.path.cmp(&other.path));
    out.unseen.sort();
    out
}

/// Which layers a directory of the upper layer shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Both,
    UpperOnly,
}

struct Comparison<'layers> {
    layers: &'layers Layers,
    out: Changes,
}

fn refused(cause: Errno) -> UnseenBecause {
    UnseenBecause::Refused(cause.raw_os_error())
}

impl Comparison<'_> {
    fn directory(
        &mut self,
        path: &Path,
        shown: Shown,
        pending: &mut Vec<(PathBuf, Shown)>,
    ) -> Result<(), UnseenBecause> {
        if path.iter().count() > DEEPEST {
            return Err(UnseenBecause::TooDeep);
        }
        let upper = self.layers.upper.root().directory(path).map_err(refused)?;
        let names = names(&upper).map_err(refused)?;
        if shown == Shown::UpperOnly {
            let born = upper.own_status().map_err(refused)?.born;
            self.deleted_but(path, &names, born)?;
        }
        for name in &names {
            let at = path.join(name);
            match self.entry(&upper, name, &at, shown) {
                Ok(Some(shown)) => pending.push((at, shown)),
                Ok(None) => {}
                Err(why) => self.out.unseen.push(Unseen { path: at, why }),
            }
        }
        Ok(())
    }

    /// Compares one entry of the upper layer; returns how to go on if it is a directory.
    fn entry(
        &mut self,
        upper: &Directory,
        name: &OsStr,
        path: &Path,
        shown: Shown,
    ) -> Result<Option<Shown>, UnseenBecause> {
        let above = upper.status(name).map_err(refused)?;
        let below = self.layers.lower.status(path).map_err(refused)?;
        if is_whiteout(&above) {
            if below.is_some() {
                self.deleted(path, above.born)?;
            }
            return Ok(None);
        }
        let entry = entry_kind(&above, || upper.link_target(name)).map_err(refused)?;
        let kind = match &below {
            None => Some(ChangeKind::Added),
            Some(below) if below.kind != above.kind => Some(ChangeKind::TypeChanged),
            Some(below) => self.same_kind(upper, name, path, &above, below, &entry)?,
        };
        if below.is_some_and(|below| below.kind == InodeKind::Directory) && above.kind != InodeKind::Directory
        {
            self.deleted_but(path, &BTreeSet::new(), above.born)?;
        }
        if let Some(kind) = kind {
            self.push(path, kind, entry, &above, above.born);
        }
        if above.kind != InodeKind::Directory {
            return Ok(None);
        }
        let directory = upper.passage(Path::new(name)).map_err(refused)?;
        let hides = shown == Shown::UpperOnly || is_opaque(&directory).map_err(refused)?;
        Ok(Some(if hides { Shown::UpperOnly } else { Shown::Both }))
    }

    fn same_kind(
        &self,
        upper: &Directory,
        name: &OsStr,
        path: &Path,
        above: &Status,
        below: &Status,
        entry: &EntryKind,
    ) -> Result<Option<ChangeKind>, UnseenBecause> {
        let mode = (above.mode != below.mode).then_some(ChangeKind::ModeChanged);
        Ok(match entry {
            EntryKind::Directory => mode,
            EntryKind::Special(_) => Some(ChangeKind::Modified),
            EntryKind::Symlink(target) => {
                let before = self.layers.lower.read_link(path).map_err(refused)?;
                (before != *target).then_some(ChangeKind::Modified)
            }
            EntryKind::File | EntryKind::SetIdFile => {
                let (directory, _) = self.layers.lower.parent(path).map_err(refused)?;
                let same = above.size == below.size
                    && match (upper.file(name), directory.file(name)) {
                        (Ok(one), Ok(other)) => same_content(one, other),
                        // Files that cannot be compared count as changed.
                        (Err(_), _) | (_, Err(_)) => false,
                    };
                if same { mode } else { Some(ChangeKind::Modified) }
            }
        })
    }

    /// Everything that the project has in a directory under other names than these.
    fn deleted_but(
        &mut self,
        path: &Path,
        kept: &BTreeSet<OsString>,
        born: Option<Time>,
    ) -> Result<(), UnseenBecause> {
        let directory = match self.layers.lower.root().directory(path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            answer => answer.map_err(refused)?,
        };
        for name in names(&directory).map_err(refused)?.difference(kept) {
            self.deleted(&path.join(name), born)?;
        }
        Ok(())
    }

    fn deleted(&mut self, path: &Path, born: Option<Time>) -> Result<(), UnseenBecause> {
        let mut pending = vec![path.to_owned()];
        while let Some(path) = pending.pop() {
            let Some(status) = self.layers.lower.status(&path).map_err(refused)? else { continue };
            let is_directory = status.kind == InodeKind::Directory;
            if is_directory {
                let directory = self.layers.lower.root().directory(&path).map_err(refused)?;
                pending.extend(names(&directory).map_err(refused)?.iter().map(|name| path.join(name)));
            }
            // That a link led out, or that it was a pipe, does not matter once it is gone.
            let entry = if is_directory { EntryKind::Directory } else { EntryKind::File };
            self.push(&path, ChangeKind::Deleted, entry, &status, born);
        }
        Ok(())
    }

    fn push(&mut self, path: &Path, kind: ChangeKind, entry: EntryKind, status: &Status, born: Option<Time>) {
        let class = classify_in(path, &entry, self.layers);
        let size = if status.kind == InodeKind::Directory { 0 } else { status.size };
        self.out.changes.push(Change { path: path.to_owned(), kind, entry, class, size, born });
    }
}

fn names(directory: &Directory) -> Result<BTreeSet<OsString>, Errno> {
    let mut names = BTreeSet::new();
    directory.entries(|name, _| {
        names.insert(name.to_owned());
    })?;
    Ok(names)
}

/// Whether two files have the same content; false if one cannot be read.
pub(super) fn same_content(mut one: File, mut other: File) -> bool {
    let mut buffers = [vec![0; 64 << 10], vec![0; 64 << 10]];
    loop {
        let [first, second] = &mut buffers;
        let Ok(length) = one.read(first) else { return false };
        if other.read_exact(&mut second[..length]).is_err() || first[..length] != second[..length] {
            return false;
        }
        if length == 0 {
            return true;
        }
    }
}
