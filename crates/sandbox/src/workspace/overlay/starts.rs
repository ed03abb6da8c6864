//! When runs began, by the clock of the file system: what changed in the project after that is not overwritten.
//!
//! Of a file of the project nothing is recorded but its name ([`known`](super::known)) and what git has of it
//! ([`tracked`](super::tracked)). Programs cannot set a ctime, and a change later than the start has a later one. So has a
//! file one of whose other names was applied before: its second name is refused in a later apply, which is safe, and rare.
//!
//! A run may go on with the changes of an earlier one. What the layer holds then is noted with the start that it belongs
//! to: a program that saves by renaming makes it anew, but it is still a change to what the project was at that start. What
//! lies below a directory that was deleted or replaced has no entry; it belongs to the start of the run that did so, also
//! where a later run makes the directory again.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_class::EntryKind;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Status, Time};

use super::apply::removes;
use super::changes::Change;
use super::known::Known;
use super::layers::is_opaque;
use super::{LayersError, Overlay};
use crate::workspace::tree::Tree;

/// The form of the file, and its version.
const HEAD: &str = "belljar overlay starts 1";
/// The same for the list of what was in the layer.
const BASES: &[u8] = b"belljar overlay bases 2";
/// The first version, which did not record what hides the project's own entries.
const BASES_1: &[u8] = b"belljar overlay bases 1";

/// The beginnings of the runs on an upper layer, earliest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Starts(Vec<Time>);

impl Starts {
    /// Notes that a run begins now, and returns the time.
    pub(super) fn add(directory: &Path, file: &Path) -> std::io::Result<Time> {
        let Starts(mut starts) = Self::read(file)?;
        let start = now(directory)?;
        starts.push(start);
        let line = |time: &Time| format!("{} {}\n", time.seconds, time.nanoseconds);
        let text: String = starts.iter().map(line).collect();
        super::replace(file, format!("{HEAD}\n{text}").as_bytes())?;
        Ok(start)
    }

    /// Reads them. Without the file there are none; a line that is not understood is an error.
    pub(super) fn read(file: &Path) -> std::io::Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Starts(Vec::new())),
            answer => answer?,
        };
        let malformed = || std::io::Error::new(std::io::ErrorKind::InvalidData, "not a list of starts");
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(malformed());
        }
        let mut starts = Vec::new();
        for line in lines {
            let (seconds, nanoseconds) = line.split_once(' ').ok_or_else(malformed)?;
            let seconds = seconds.parse().map_err(|_number| malformed())?;
            let nanoseconds = nanoseconds.parse().map_err(|_number| malformed())?;
            starts.push(Time { seconds, nanoseconds });
        }
        starts.sort();
        Ok(Starts(starts))
    }

    /// The start of the run that made an entry of the upper layer. `None` when no start is known: then nothing in the
    /// project is known to be older.
    pub(super) fn of(&self, born: Option<Time>) -> Option<Time> {
        let began = |start: &&Time| born.is_none_or(|born| **start <= born);
        match born {
            Some(_) => self.0.iter().rev().find(began).or(self.0.first()).copied(),
            None => self.0.first().copied(),
        }
    }
}

/// The form of the list of what was put back.
const RESTORED: &[u8] = b"belljar restored 1";

fn parse_restored(bytes: &[u8]) -> Option<HashMap<PathBuf, (u64, Time)>> {
    let mut parts = bytes.strip_suffix(b"\0\0")?.split(|byte| *byte == 0);
    (parts.next()? == RESTORED).then_some(())?;
    let entry = |part: &[u8]| {
        let mut fields = part.splitn(4, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let inode = text()?.parse().ok()?;
        let time = Time { seconds: text()?.parse().ok()?, nanoseconds: text()?.parse().ok()? };
        Some((PathBuf::from(OsStr::from_bytes(fields.next()?)), (inode, time)))
    };
    parts.map(entry).collect()
}

/// An entry that was in the layer when the last run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CarriedStart {
    start: Time,
    /// Whether what the project has below it did not show.
    hides: bool,
}

/// The state of the project that each change of the layer is based on.
pub(super) struct Bases {
    starts: Starts,
    carried: HashMap<PathBuf, CarriedStart>,
    /// Entries of the project that an undone apply put back: their inode, and the time that this gave them.
    restored: HashMap<PathBuf, (u64, Time)>,
    known: Known,
}

impl Bases {
    /// Whether the project's entry changed after the start that a change belongs to.
    pub(super) fn changed(&self, change: &Change, now: &Status) -> bool {
        let put_back = self.restored.get(&change.path) == Some(&(now.identity.inode, now.changed));
        !put_back && (changed_after(self.of(change), now) || self.is_new_directory(change, now))
    }

    /// Whether a directory that a change takes away is not known for the one that the run began with.
    fn is_new_directory(&self, change: &Change, now: &Status) -> bool {
        let (path, start) = (&change.path, self.of(change));
        let put_back = || self.restored.get(path).is_some_and(|(inode, _)| *inode == now.identity.inode);
        let is_new = |start| now.changed > start && !self.known.is_same(path, now, start);
        now.kind == InodeKind::Directory && removes(change.kind) && start.is_none_or(is_new) && !put_back()
    }

    /// Whether what the project has at the place of a change may have come there with a directory: one on the way is not known
    /// for the one that the run began with. What is in a directory that is moved keeps its times.
    pub(super) fn moved(&self, lower: &Tree, change: &Change) -> Result<bool, Errno> {
        let Some(start) = self.of(change) else { return Ok(true) };
        for above in change.path.ancestors().skip(1) {
            let Some(now) = lower.status(above)?.filter(|now| now.kind == InodeKind::Directory) else {
                continue;
            };
            let put_back = self.restored.get(above).is_some_and(|(inode, _)| *inode == now.identity.inode);
            let moved = if above.as_os_str().is_empty() {
                self.known.is_other(above, &now)
            } else {
                now.changed > start && !self.known.is_same(above, &now, start)
            };
            if moved && !put_back {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the user deleted the file that a change was one to.
    pub(super) fn was_there(&self, change: &Change) -> bool {
        change.entry != EntryKind::Directory && self.known.was_there(&change.path)
    }

    /// The start that a change belongs to.
    pub(super) fn of(&self, change: &Change) -> Option<Time> {
        self.at(&change.path, change.born)
    }

    fn at(&self, path: &Path, born: Option<Time>) -> Option<Time> {
        if let Some(carried) = self.carried.get(path) {
            return Some(carried.start);
        }
        // What went with a directory has no entry of its own, and no run since has seen it.
        let hidden = path.ancestors().skip(1).filter_map(|above| self.carried.get(above));
        let hidden = hidden.filter(|above| above.hides).map(|above| above.start).min();
        hidden.or_else(|| self.starts.of(born))
    }

    fn bytes(carried: &HashMap<PathBuf, CarriedStart>) -> Vec<u8> {
        let mut out = BASES.to_vec();
        for (path, CarriedStart { start, hides }) in carried {
            let hides = u8::from(*hides);
            out.extend(format!("\0{} {} {hides} ", start.seconds, start.nanoseconds).as_bytes());
            out.extend(path.as_os_str().as_bytes());
        }
        out.extend(b"\0\0");
        out
    }

    fn parse(bytes: &[u8]) -> Option<HashMap<PathBuf, CarriedStart>> {
        let mut parts = bytes.strip_suffix(b"\0\0")?.split(|byte| *byte == 0);
        let head = parts.next()?;
        let records_hiding = match head {
            _ if head == BASES => true,
            _ if head == BASES_1 => false,
            _ => return None,
        };
        let entry = |part: &[u8]| {
            let mut fields = part.splitn(if records_hiding { 4 } else { 3 }, |byte| *byte == b' ');
            let mut text = || std::str::from_utf8(fields.next()?).ok();
            let start = Time { seconds: text()?.parse().ok()?, nanoseconds: text()?.parse().ok()? };
            // An old list does not say; assuming that it hides gives an earlier start, which is safe.
            let hides = !records_hiding || text()?.parse::<u8>().ok()? != 0;
            Some((PathBuf::from(OsStr::from_bytes(fields.next()?)), CarriedStart { start, hides }))
        };
        parts.map(entry).collect()
    }
}

impl Overlay {
    fn bases(&self) -> PathBuf {
        self.directory.join("bases")
    }

    pub(super) fn read_bases(&self) -> Result<Bases, LayersError> {
        let path = self.starts();
        let starts = Starts::read(&path).map_err(|cause| LayersError::Starts { path, cause })?;
        let path = self.bases();
        let carried = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => HashMap::new(),
            answer => answer
                .and_then(|bytes| {
                    Bases::parse(&bytes).ok_or_else(|| std::io::Error::other("not a list of bases"))
                })
                .map_err(|cause| LayersError::Starts { path, cause })?,
        };
        let path = self.directory.clone();
        let known = self.read_known().map_err(|cause| LayersError::Starts { path, cause })?;
        // Without it more is asked about.
        let restored = std::fs::read(self.restored()).ok().and_then(|bytes| parse_restored(&bytes));
        Ok(Bases { starts, carried, restored: restored.unwrap_or_default(), known })
    }

    fn restored(&self) -> PathBuf {
        self.directory.join("restored")
    }

    /// Notes entries that an undone apply put back, unchanged.
    pub(super) fn note_restored(&self, entries: Vec<(PathBuf, Status)>) -> std::io::Result<()> {
        let earlier = std::fs::read(self.restored()).ok().and_then(|bytes| parse_restored(&bytes));
        let mut all = earlier.unwrap_or_default();
        all.extend(entries.into_iter().map(|(path, now)| (path, (now.identity.inode, now.changed))));
        if all.is_empty() {
            return Ok(());
        }
        let mut out = RESTORED.to_vec();
        for (path, (inode, time)) in &all {
            out.extend(format!("\0{inode} {} {} ", time.seconds, time.nanoseconds).as_bytes());
            out.extend(path.as_os_str().as_bytes());
        }
        out.extend(b"\0\0");
        super::replace(&self.restored(), &out)
    }

    /// Notes what the layer holds before another run begins, each entry with the start that it belongs to. Gives the paths.
    pub(super) fn note_bases(&self) -> std::io::Result<Vec<PathBuf>> {
        let Ok(upper) = Directory::open(&self.upper()) else { return Ok(Vec::new()) };
        let before = self.read_bases().map_err(std::io::Error::other)?;
        let mut carried = HashMap::new();
        let mut pending = vec![PathBuf::new()];
        while let Some(path) = pending.pop() {
            // A directory that cannot be read cannot be applied either.
            let Ok(directory) = upper.directory(&path) else { continue };
            let mut names = Vec::new();
            directory.entries(|name, _kind| names.push(name.to_owned()))?;
            for name in names {
                let (at, status) = (path.join(&name), directory.status(&name)?);
                let hides =
                    status.kind != InodeKind::Directory || is_opaque(&directory.passage(Path::new(&name))?)?;
                if let Some(start) = before.at(&at, status.born) {
                    carried.insert(at.clone(), CarriedStart { start, hides });
                }
                if status.kind == InodeKind::Directory {
                    pending.push(at);
                }
            }
        }
        super::replace(&self.bases(), &Bases::bytes(&carried))?;
        Ok(carried.into_keys().collect())
    }
}

/// Whether an entry of the project changed after the start.
///
/// The times of a directory change with its entries, so only a move or a change of permissions of the directory itself
/// counts: these set the ctime without the mtime.
pub(super) fn changed_after(start: Option<Time>, status: &Status) -> bool {
    let Some(start) = start else { return true };
    // Equal is before: the clock of files ticks in milliseconds, and the agent starts later than that.
    let later = status.changed > start;
    later && (status.kind != InodeKind::Directory || status.modified < status.changed)
}

fn now(directory: &Path) -> std::io::Result<Time> {
    let directory = Directory::open(directory)?;
    let name = OsStr::new("now");
    super::super::removal::absent_is_fine(directory.remove(name))?;
    directory.create(name, 0o600)?;
    let now = directory.status(name)?.changed;
    directory.remove(name)?;
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_are_read_whole_or_not_at_all_in_both_forms() {
        let start = Time { seconds: -5, nanoseconds: 7 };
        let carried = |hides| CarriedStart { start, hides };
        let all = HashMap::from([
            (PathBuf::from("a b\nc"), carried(true)),
            (PathBuf::from(OsStr::from_bytes(b"\xff/x")), carried(false)),
        ]);
        let bytes = Bases::bytes(&all);
        assert_eq!(Bases::parse(&bytes), Some(all));
        for end in 0..bytes.len() {
            assert_eq!(Bases::parse(&bytes[..end]), None, "{end}");
        }
        let old = b"belljar overlay bases 1\0-5 7 a b\0\0";
        assert_eq!(Bases::parse(old), Some(HashMap::from([(PathBuf::from("a b"), carried(true))])));
        assert_eq!(Bases::parse(b"belljar overlay bases 3\0\0"), None);
    }
}
