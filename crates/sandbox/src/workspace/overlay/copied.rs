//! A copy of the project, kept until it is applied or discarded.
//!
//! Beside the copy lies a list of what was copied, with the inode and the ctime of each file of the copy. Programs cannot
//! set a ctime, so a file that has both is unchanged. When the run is over, everything that differs is moved to an upper
//! layer, as an overlay would have kept it, and the rest of the copy is removed. From then on a copy and an overlay are
//! treated alike.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Status, is_superuser};
use belljar_sys::mounts::share_or_copy;

use super::starts::Starts;
use super::{LayersError, Overlay, make_private};
use crate::workspace::copy::{CopiedTree, copy_tree};
use crate::workspace::place::copy_errno;

/// The form of the list, and its version.
const HEAD: &[u8] = b"belljar copied 1";

/// An entry of the copy as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CopyMark {
    is_directory: bool,
    mode: u32,
    inode: u64,
    seconds: i64,
    nanoseconds: u32,
}

impl From<&Status> for CopyMark {
    fn from(status: &Status) -> Self {
        let is_directory = status.kind == InodeKind::Directory;
        let (inode, changed) = (status.identity.inode, status.changed);
        // The times of a directory move with its entries.
        if is_directory {
            return CopyMark { is_directory, mode: status.mode, inode: 0, seconds: 0, nanoseconds: 0 };
        }
        CopyMark {
            is_directory,
            mode: status.mode,
            inode,
            seconds: changed.seconds,
            nanoseconds: changed.nanoseconds,
        }
    }
}

type Baseline = BTreeMap<PathBuf, CopyMark>;

fn baseline_bytes(baseline: &Baseline) -> Vec<u8> {
    let mut out = HEAD.to_vec();
    for (path, mark) in baseline {
        let CopyMark { is_directory, mode, inode, seconds, nanoseconds } = mark;
        out.extend(
            format!("\0{} {mode} {inode} {seconds} {nanoseconds} ", u8::from(*is_directory)).as_bytes(),
        );
        out.extend(path.as_os_str().as_bytes());
    }
    out.extend(b"\0\0");
    out
}

fn parse_baseline(bytes: &[u8]) -> Option<Baseline> {
    let mut parts = bytes.strip_suffix(b"\0\0")?.split(|byte| *byte == 0);
    (parts.next()? == HEAD).then_some(())?;
    let entry = |part: &[u8]| {
        let mut fields = part.splitn(6, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<i64>().ok();
        let mark = CopyMark {
            is_directory: number()? == 1,
            mode: u32::try_from(number()?).ok()?,
            inode: number()?.cast_unsigned(),
            seconds: number()?,
            nanoseconds: u32::try_from(number()?).ok()?,
        };
        Some((PathBuf::from(OsStr::from_bytes(fields.next()?)), mark))
    };
    parts.map(entry).collect()
}

impl Overlay {
    /// Where a copy of the project lies while a run has it.
    #[must_use]
    pub fn copy(&self) -> PathBuf {
        self.directory.join("copy")
    }

    fn baseline(&self) -> PathBuf {
        self.directory.join("copied")
    }

    /// Copies the project for a run, and notes what was copied.
    ///
    /// # Errors
    /// When something cannot be copied, or the list not be written; a run must not begin then.
    pub fn begin_copy(&self) -> Result<CopiedTree, LayersError> {
        make_private(&self.directory)?;
        self.note_start()?;
        let copied = copy_tree(&self.lower, &self.copy())?;
        let path = self.baseline();
        let failed = |cause| LayersError::Copied { path: path.clone(), cause };
        let baseline = listed(&self.copy()).map_err(|cause| failed(cause.into()))?;
        super::replace(&path, &baseline_bytes(&baseline)).map_err(failed)?;
        Ok(copied)
    }

    /// Whether a copy is there that a run may have changed.
    #[must_use]
    pub fn has_copy(&self) -> bool {
        !super::is_absent(&self.baseline()) && self.copy().exists()
    }

    /// Moves what a run changed in the copy to the upper layer. Without a copy it does nothing; a copy that was interrupted
    /// before its run began is removed.
    ///
    /// # Errors
    /// When something cannot be read or written; the copy is as it was then.
    pub fn settle(&self) -> Result<(), LayersError> {
        let (copy, list) = (self.copy(), self.baseline());
        if !copy.exists() {
            return Ok(());
        }
        let noted = match fs::read(&list) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // A copy whose list cannot be read may hold work.
            answer => Some(answer.map_err(|cause| LayersError::Copied { path: list.clone(), cause })?),
        };
        if super::is_absent(&self.upper())
            && let Some(bytes) = noted
        {
            let malformed = || LayersError::Copied {
                path: list.clone(),
                cause: io::Error::new(io::ErrorKind::InvalidData, "not a list of what was copied"),
            };
            let baseline = parse_baseline(&bytes).ok_or_else(malformed)?;
            let making = self.directory.join("upper.making");
            clear_away(&making)?;
            make_private(&making)?;
            take_changes(&copy, &making, &baseline)
                .map_err(|(path, cause)| LayersError::Open { path: copy.join(path), cause })?;
            // On the disk before the copy goes.
            let sync = || Directory::open(&self.directory)?.sync_file_system();
            let sync = || sync().map_err(|cause| LayersError::Open { path: self.directory.clone(), cause });
            sync()?;
            let named = fs::rename(&making, self.upper());
            named.map_err(|cause| LayersError::Copied { path: self.upper(), cause })?;
            sync()?;
        }
        clear_away(&copy)?;
        // Gone last: while it is there, the copy holds work.
        fs::remove_file(&list).ok();
        Ok(())
    }
}

fn clear_away(path: &Path) -> Result<(), LayersError> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    super::discard::clear(path)?;
    fs::remove_dir(path).map_err(|cause| LayersError::Copied { path: path.to_owned(), cause })
}

fn listed(top: &Path) -> Result<Baseline, Errno> {
    let root = Directory::open(top)?;
    let mut out = Baseline::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        // Closed directories are copied as such.
        let Ok(directory) = root.directory(&path) else { continue };
        let mut names = Vec::new();
        directory.entries(|name, _kind| names.push(name.to_owned()))?;
        for name in names {
            let (at, status) = (path.join(&name), directory.status(&name)?);
            if status.kind == InodeKind::Directory {
                pending.push(at.clone());
            }
            out.insert(at, CopyMark::from(&status));
        }
    }
    Ok(out)
}

/// Makes an upper layer of what differs from the list.
fn take_changes(copy: &Path, making: &Path, baseline: &Baseline) -> Result<(), (PathBuf, Errno)> {
    let top = |cause| (PathBuf::new(), cause);
    let source = Directory::open(copy).map_err(top)?;
    let target = Directory::open(making).map_err(top)?;
    let own = source.own_status().map_err(top)?;
    let mut taking =
        Taking { source, target, made: HashMap::new(), statuses: HashMap::new(), seen: HashSet::new() };
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        taking.directory(&path, baseline, &mut pending).map_err(|cause| (path.clone(), cause))?;
    }
    for path in baseline.keys() {
        let parent = path.parent().unwrap_or(Path::new(""));
        let stands = parent.as_os_str().is_empty() || taking.statuses.contains_key(parent);
        if stands && !taking.seen.contains(path) {
            taking.gone(path).map_err(|cause| (path.clone(), cause))?;
        }
    }
    taking.finish().map_err(top)?;
    taking.target.set_own_mode(own.mode).map_err(top)
}

struct Taking {
    source: Directory,
    target: Directory,
    /// Directories of the layer that were made, each with the permissions it gets at the end.
    made: HashMap<PathBuf, Status>,
    /// Directories of the copy, as the run left them.
    statuses: HashMap<PathBuf, Status>,
    /// All entries of the copy.
    seen: HashSet<PathBuf>,
}

impl Taking {
    fn directory(
        &mut self,
        path: &Path,
        baseline: &Baseline,
        pending: &mut Vec<PathBuf>,
    ) -> Result<(), Errno> {
        let directory = self.source.directory(path)?;
        let mut names = Vec::new();
        directory.entries(|name, _kind| names.push(name.to_owned()))?;
        for name in names {
            let at = path.join(&name);
            let status = directory.status(&name)?;
            let known = baseline.get(&at) == Some(&CopyMark::from(&status));
            match status.kind {
                InodeKind::Directory => {
                    // The run may have closed it to us; it is our copy.
                    if status.mode & 0o700 != 0o700 {
                        directory.set_mode(&name, status.mode | 0o700)?;
                    }
                    self.statuses.insert(at.clone(), status);
                    if !known {
                        self.make(&at)?;
                    }
                    pending.push(at.clone());
                }
                InodeKind::File | InodeKind::Symlink => {
                    if !known {
                        self.take(&directory, &name, &at, &status)?;
                    }
                }
                // They hold nothing and are never applied. A pipe stands for each, so that it is shown.
                InodeKind::Fifo
                | InodeKind::Socket
                | InodeKind::CharacterDevice
                | InodeKind::BlockDevice
                | InodeKind::Unknown => {
                    if !known {
                        self.parent(&at)?.make_pipe(&name)?;
                    }
                }
            }
            self.seen.insert(at);
        }
        Ok(())
    }

    /// The directory of the layer at this path, made with those above it.
    fn make(&mut self, path: &Path) -> Result<(), Errno> {
        let mut at = PathBuf::new();
        for name in path.iter() {
            let above = self.target.directory(&at)?;
            at.push(name);
            if self.made.contains_key(&at) {
                continue;
            }
            let Some(status) = self.statuses.get(&at) else { return Err(Errno::NOENT) };
            above.make_directory(name, 0o700)?;
            self.made.insert(at.clone(), *status);
        }
        Ok(())
    }

    fn parent(&mut self, path: &Path) -> Result<Directory, Errno> {
        let parent = path.parent().unwrap_or(Path::new(""));
        self.make(parent)?;
        self.target.directory(parent)
    }

    fn take(&mut self, from: &Directory, name: &OsStr, path: &Path, status: &Status) -> Result<(), Errno> {
        let to = self.parent(path)?;
        if status.kind == InodeKind::Symlink {
            to.make_symlink(&from.link_target(name)?, name)?;
            if is_superuser() {
                to.set_owner(name, status.owner, status.group)?;
            }
            return to.set_modified(name, Some(status.modified));
        }
        if status.mode & 0o400 == 0 {
            from.set_mode(name, status.mode | 0o400)?;
        }
        let made = to.create(name, 0o600)?;
        share_or_copy(&from.file(name)?, &made).map_err(copy_errno)?;
        if is_superuser() {
            to.set_owner(name, status.owner, status.group)?;
        }
        to.set_mode(name, status.mode)?;
        to.set_modified(name, Some(status.modified))
    }

    fn gone(&mut self, path: &Path) -> Result<(), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        self.parent(path)?.make_whiteout(name)
    }

    /// Last, the deepest first: a closed directory would stop what goes into it.
    fn finish(&self) -> Result<(), Errno> {
        let mut made: Vec<_> = self.made.iter().collect();
        made.sort_by(|(one, _), (other, _)| other.cmp(one));
        for (path, status) in made {
            let parent = self.target.passage(path.parent().unwrap_or(Path::new("")))?;
            let name = path.file_name().ok_or(Errno::INVAL)?;
            if is_superuser() {
                parent.set_owner(name, status.owner, status.group)?;
            }
            parent.set_mode(name, status.mode)?;
        }
        Ok(())
    }
}

impl Overlay {
    /// Notes that a run begins, and on what: see [`Starts`].
    pub(super) fn note_start(&self) -> Result<(), LayersError> {
        let starts = self.starts();
        let failed = |cause| LayersError::Starts { path: starts.clone(), cause };
        let carried = self.note_bases().map_err(failed)?;
        let start = Starts::add(&self.directory, &starts).map_err(failed)?;
        let git = self.note_known(start, carried.into_iter()).map_err(failed)?;
        self.note_nested(&git)?;
        self.note_tracked(start).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_whole_or_not_at_all() {
        let mark =
            |is_directory| CopyMark { is_directory, mode: 0o644, inode: 7, seconds: -1, nanoseconds: 5 };
        let baseline = Baseline::from([
            (PathBuf::from("a b\nc"), mark(false)),
            (PathBuf::from(OsStr::from_bytes(b"\xff/x")), mark(true)),
        ]);
        let bytes = baseline_bytes(&baseline);
        assert_eq!(parse_baseline(&bytes), Some(baseline));
        for end in 0..bytes.len() {
            assert_eq!(parse_baseline(&bytes[..end]), None, "{end}");
        }
        assert_eq!(parse_baseline(&baseline_bytes(&Baseline::new())), Some(Baseline::new()));
    }
}
