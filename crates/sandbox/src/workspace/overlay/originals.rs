//! The versions that both sides began with, for a merge.
//!
//! Of each text that the layer changed, the project's version is kept for as long as the project still has it as it was at
//! the start, which its ctime tells (see [`starts`](super::starts)). Where the user changed the file while the run lasted, git may have the
//! version: see [`tracked`](super::tracked). They lie beside the upper layer, where no sandbox reaches; each is named by its SHA-256, and one
//! that holds anything else, because it was cut off or changed, is not used. The list is replaced as a whole.
//!
//! A version belongs to the start of a run, so that it is not used as the base of a later run's change to the same path.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use belljar_class::{Class, EntryKind, TreeFacts};
use belljar_sys::beneath::{Directory, InodeKind, Time};
use belljar_sys::mounts::share_or_copy;

use super::changes::{Change, ChangeKind};
use super::layers::Layers;
use super::merge::{LARGEST, check_text};
use super::starts::Bases;
use super::{LayersError, Overlay, make_private};
use crate::workspace::git::{self, ObjectId, Objects};

/// Bytes that are kept beside one layer.
const MOST: u64 = 256 << 20;
const HEAD: &[u8] = b"belljar originals 1";
const LIST: &str = "list";
const MAKING: &str = "making";

/// A version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OriginalNote {
    /// The start of the run that began with it.
    pub start: Time,
    /// The permissions.
    pub mode: u32,
    /// The digits of its SHA-256, or the name of the blob.
    pub name: String,
}

pub(super) type List = BTreeMap<PathBuf, OriginalNote>;

pub(super) fn list_bytes(head: &[u8], list: &List) -> Vec<u8> {
    let mut out = head.to_vec();
    for (path, OriginalNote { start, mode, name }) in list {
        out.extend(format!("\0{} {} {mode} {name} ", start.seconds, start.nanoseconds).as_bytes());
        out.extend(path.as_os_str().as_bytes());
    }
    out.extend(b"\0\0");
    out
}

/// Reads a list; `None` if it is incomplete.
pub(super) fn parse_list(head: &[u8], bytes: &[u8]) -> Option<List> {
    let mut parts = bytes.strip_suffix(b"\0\0")?.split(|byte| *byte == 0);
    (parts.next()? == head).then_some(())?;
    let entry = |part: &[u8]| {
        let mut fields = part.splitn(5, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let start = Time { seconds: text()?.parse().ok()?, nanoseconds: text()?.parse().ok()? };
        let (mode, name) = (text()?.parse().ok()?, text()?.to_owned());
        let hexadecimal = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let path = fields.next().filter(|path| hexadecimal && !path.is_empty())?;
        Some((PathBuf::from(OsStr::from_bytes(path)), OriginalNote { start, mode, name }))
    };
    parts.map(entry).collect()
}

/// A version that both sides began with.
pub(super) struct Original {
    pub content: Vec<u8>,
    pub mode: u32,
}

/// What is known of them.
pub(super) struct Originals {
    directory: PathBuf,
    kept: List,
    tracked: List,
}

impl Originals {
    pub(super) fn read(overlay: &Overlay) -> Self {
        let directory = overlay.originals();
        // Without it there is less to merge.
        let kept = fs::read(directory.join(LIST)).ok().and_then(|bytes| parse_list(HEAD, &bytes));
        Originals { directory, kept: kept.unwrap_or_default(), tracked: overlay.read_tracked() }
    }

    /// Whether the project had a file here when the run began.
    pub(super) fn was_there(&self, change: &Change, bases: &Bases) -> bool {
        [&self.kept, &self.tracked].iter().any(|list| noted(list, change, bases).is_some())
    }

    /// The version that a change is a change to.
    pub(super) fn of(&self, change: &Change, bases: &Bases) -> Option<Original> {
        let OriginalNote { start: _, mode, name } = noted(&self.kept, change, bases)?;
        let content = read(&self.directory, name)?;
        (hexadecimal(&content) == *name).then_some(Original { content, mode: *mode })
    }
}

fn noted<'list>(list: &'list List, change: &Change, bases: &Bases) -> Option<&'list OriginalNote> {
    list.get(&change.path).filter(|noted| bases.of(change) == Some(noted.start))
}

fn hexadecimal(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(directory: &Path, name: &str) -> Option<Vec<u8>> {
    git::read_in(&Directory::open(directory).ok()?, Path::new(name), LARGEST).ok()?
}

/// Whether a change may be merged at all. What this machine executes is decided about as a whole, and so is what git wrote.
pub(super) fn is_mergeable(layers: &Layers, change: &Change) -> bool {
    let of_git = |path: &Path| {
        let named = path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        named || layers.is_git_directory(path)
    };
    matches!(change.kind, ChangeKind::Modified | ChangeKind::ModeChanged)
        && change.class == Class::Ordinary
        && change.entry == EntryKind::File
        && !change.path.ancestors().any(of_git)
}

impl Overlay {
    pub(super) fn originals(&self) -> PathBuf {
        self.directory.join("originals")
    }

    /// Keeps the versions that these changes, all of the layer, are changes to, as far as they can still be had.
    pub(super) fn keep_originals(
        &self,
        layers: &Layers,
        changes: &[Change],
        objects: &dyn Fn() -> Option<Objects>,
    ) -> Result<(), LayersError> {
        let bases = self.read_bases()?;
        let known = Originals::read(self);
        let is_wanted = |change: &&Change| {
            // Also of a file that the user deleted, although it is not merged: that it existed must stay known.
            noted(&known.kept, change, &bases).is_some() || is_mergeable(layers, change)
        };
        let wanted: Vec<&Change> = changes.iter().filter(is_wanted).collect();
        if wanted.is_empty() && known.kept.is_empty() {
            return Ok(());
        }
        let path = self.originals();
        make_private(&path)?;
        let keeping = Keeping {
            path: &path,
            layers,
            bases: &bases,
            tracked: &known.tracked,
            objects,
            opened: OnceCell::new(),
        };
        let (mut list, mut room) = (List::new(), MOST);
        for change in wanted {
            let old = noted(&known.kept, change, &bases).cloned();
            let Some(noted) = old.or_else(|| keeping.keep(change, room)) else { continue };
            let size = fs::metadata(path.join(&noted.name)).map_or(0, |found| found.len());
            if let Some(rest) = room.checked_sub(size) {
                room = rest;
                list.insert(change.path.clone(), noted);
            }
        }
        let failed = |cause| LayersError::Originals { path: path.clone(), cause };
        if list != known.kept {
            super::replace(&path.join(LIST), &list_bytes(HEAD, &list)).map_err(failed)?;
        }
        tidy(&path, &list).map_err(failed)
    }
}

/// Removes what the list does not name.
fn tidy(path: &Path, list: &List) -> io::Result<()> {
    let named: std::collections::BTreeSet<&str> = list.values().map(|noted| noted.name.as_str()).collect();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if name != LIST && !name.to_str().is_some_and(|name| named.contains(name)) {
            fs::remove_file(path.join(name))?;
        }
    }
    Ok(())
}

struct Keeping<'keep> {
    path: &'keep Path,
    layers: &'keep Layers,
    bases: &'keep Bases,
    tracked: &'keep List,
    objects: &'keep dyn Fn() -> Option<Objects>,
    opened: OnceCell<Option<Objects>>,
}

impl Keeping<'_> {
    /// `None` where it cannot be had any more, or is not merged anyway.
    fn keep(&self, change: &Change, room: u64) -> Option<OriginalNote> {
        self.of_project(change, room).or_else(|| self.of_git(change, room))
    }

    fn of_project(&self, change: &Change, room: u64) -> Option<OriginalNote> {
        let start = self.bases.of(change)?;
        let lower = &self.layers.lower;
        let before = lower.status(&change.path).ok()??;
        let changed = self.bases.changed(change, &before) || self.bases.moved(lower, change).ok()?;
        if changed || before.kind != InodeKind::File || before.size > LARGEST.min(room) {
            return None;
        }
        let (parent, name) = lower.parent(&change.path).ok()?;
        let file = parent.file(name).ok()?;
        let name =
            self.store(&|made| share_or_copy(&file, made).map(drop).map_err(io::Error::other)).ok()??;
        // What was read is the version of the start if the file has not changed since.
        (lower.status(&change.path) == Ok(Some(before))).then_some(OriginalNote {
            start,
            mode: before.mode,
            name,
        })
    }

    fn of_git(&self, change: &Change, room: u64) -> Option<OriginalNote> {
        let OriginalNote { start, mode, name } = noted(self.tracked, change, self.bases)?.clone();
        let objects = self.opened.get_or_init(self.objects).as_ref()?;
        let content = git::blob(objects, &ObjectId::parse(name.as_bytes())?)?;
        if content.len() as u64 > room {
            return None;
        }
        let name = self.store(&|mut made| made.write_all(&content)).ok()??;
        Some(OriginalNote { start, mode, name })
    }

    /// Stores a file under its digest; `None` if it is not text.
    fn store(&self, fill: &dyn Fn(&File) -> io::Result<()>) -> io::Result<Option<String>> {
        let making = self.path.join(MAKING);
        let mut made = File::options().read(true).write(true).create(true).truncate(true).open(&making)?;
        fill(&made)?;
        let mut content = Vec::new();
        io::Seek::rewind(&mut made)?;
        made.take(LARGEST + 1).read_to_end(&mut content)?;
        if check_text(&content).is_err() {
            return Ok(None);
        }
        let name = hexadecimal(&content);
        fs::rename(&making, self.path.join(&name))?;
        Ok(Some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_whole_or_not_at_all() {
        let start = Time { seconds: -5, nanoseconds: 7 };
        let noted = |name: &str| OriginalNote { start, mode: 0o644, name: name.to_owned() };
        let list = List::from([
            (PathBuf::from("a b\nc"), noted("0a")),
            (PathBuf::from(OsStr::from_bytes(b"\xff/x")), noted("ff")),
        ]);
        let bytes = list_bytes(HEAD, &list);
        assert_eq!(parse_list(HEAD, &bytes), Some(list));
        for end in 0..bytes.len() {
            assert_eq!(parse_list(HEAD, &bytes[..end]), None, "{end}");
        }
        for name in ["../../secret", "", "list"] {
            let list = List::from([(PathBuf::from("a"), noted(name))]);
            assert_eq!(parse_list(HEAD, &list_bytes(HEAD, &list)), None, "{name} is not a digest");
        }
    }
}
