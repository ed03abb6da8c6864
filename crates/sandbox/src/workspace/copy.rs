//! A copy of a project for a run that may do with it what it likes.
//!
//! Blocks are shared where the file system can. Permissions, times, links, and several names of one file are kept;
//! set-id bits are not, because the copy may belong to somebody else. Devices, pipes and sockets are left out and
//! named.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use belljar_class::SpecialKind;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Status, is_superuser};
use belljar_sys::mounts::{Copied, Identity, share_or_copy};

use super::class::special;
use super::place::copy_errno;
use super::removal::empty;

/// Why a project was not copied. What was copied of it is gone again, unless `Remove` says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The project, or the directory for the copy, cannot be used.
    #[error("cannot open {}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The copy cannot be begun; there may be something in its place.
    #[error("cannot make {}", path.display())]
    Make {
        /// The path of the copy.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// An entry cannot be copied.
    #[error("cannot copy {}", path.display())]
    Entry {
        /// Its path in the project.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The copy would be made inside the project.
    #[error("cannot copy {} into itself", path.display())]
    IntoItself {
        /// The project.
        path: PathBuf,
    },
    /// An entry could not be copied, and what was copied before could not be removed.
    #[error("cannot remove the unfinished copy {}", path.display())]
    Remove {
        /// The unfinished copy.
        path: PathBuf,
        /// Why it is unfinished.
        #[source]
        because: Box<CopyError>,
    },
}

/// Counts of a finished copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopiedTree {
    /// Files, by content.
    pub files: u64,
    /// Files whose blocks are shared with the project's.
    pub shared: u64,
    /// Entries that were left out, with their types.
    pub skipped: Vec<(PathBuf, SpecialKind)>,
}

/// Copies the tree `from` to `to`, which must not exist.
///
/// # Errors
/// Names the entry that could not be copied; nothing is left of the copy.
pub fn copy_tree(from: &Path, to: &Path) -> Result<CopiedTree, CopyError> {
    let open =
        |path: &Path| Directory::open(path).map_err(|cause| CopyError::Open { path: path.to_owned(), cause });
    let make = |cause| CopyError::Make { path: to.to_owned(), cause };
    let source = open(from)?;
    let parent = open(to.parent().unwrap_or(Path::new("/")))?;
    let name = to.file_name().ok_or_else(|| make(Errno::INVAL))?;
    parent.make_directory(name, 0o700).map_err(make)?;
    copy_into(from, &source, &parent, name, to).map_err(|because| {
        let removed = parent
            .directory(Path::new(name))
            .map_err(|cause| (OsString::new(), cause))
            .and_then(|target| empty(&target))
            .and_then(|()| parent.remove_directory(name).map_err(|cause| (OsString::new(), cause)));
        match removed {
            Ok(()) => because,
            Err(_left) => CopyError::Remove { path: to.to_owned(), because: Box::new(because) },
        }
    })
}

fn copy_into(
    from: &Path,
    source: &Directory,
    parent: &Directory,
    name: &OsStr,
    to: &Path,
) -> Result<CopiedTree, CopyError> {
    let make = |cause| CopyError::Make { path: to.to_owned(), cause };
    let target = parent.directory(Path::new(name)).map_err(make)?;
    let top = source.own_status().map_err(make)?;
    let mut copy = Copy {
        source,
        target: &target,
        own: target.own_status().map_err(make)?.identity,
        names: HashMap::new(),
        directories: Vec::new(),
        out: CopiedTree::default(),
    };
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        copy.directory(&path, &mut pending).map_err(|(path, fault)| match fault {
            Fault::Refused(cause) => CopyError::Entry { path, cause },
            Fault::IntoItself => CopyError::IntoItself { path: from.to_owned() },
        })?;
    }
    copy.finish_directories().map_err(|(path, cause)| CopyError::Entry { path, cause })?;
    finish(parent, name, &top).map_err(make)?;
    Ok(copy.out)
}

enum Fault {
    Refused(Errno),
    IntoItself,
}

impl From<Errno> for Fault {
    fn from(cause: Errno) -> Self {
        Fault::Refused(cause)
    }
}

/// How to go on after an entry.
enum Next {
    /// It is a directory.
    Enter,
    Done,
}

struct Copy<'copy> {
    source: &'copy Directory,
    target: &'copy Directory,
    /// The copy itself, which must not be met in the project.
    own: Identity,
    /// Files with several names, and the first of them.
    names: HashMap<Identity, PathBuf>,
    directories: Vec<(PathBuf, Status)>,
    out: CopiedTree,
}

impl Copy<'_> {
    fn directory(&mut self, path: &Path, pending: &mut Vec<PathBuf>) -> Result<(), (PathBuf, Fault)> {
        let here = |cause: Errno| (path.to_owned(), Fault::Refused(cause));
        // What vanishes while it is copied, as when git tidies up, is left out.
        let source = match self.source.directory(path) {
            Err(Errno::NOENT) if !path.as_os_str().is_empty() => return Ok(()),
            found => found.map_err(here)?,
        };
        let target = self.target.directory(path).map_err(here)?;
        let mut entries = Vec::new();
        match source.entries(|name, _| entries.push(name.to_owned())) {
            Err(Errno::NOENT) if !path.as_os_str().is_empty() => {}
            read => read.map_err(here)?,
        }
        for name in entries {
            let at = path.join(&name);
            match self.entry(&source, &target, &name, &at) {
                Ok(Next::Enter) => pending.push(at),
                Ok(Next::Done) => {}
                Err(fault) => return Err((at, fault)),
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        source: &Directory,
        target: &Directory,
        name: &OsStr,
        path: &Path,
    ) -> Result<Next, Fault> {
        let Some(status) = source.status_if_present(name)? else { return Ok(Next::Done) };
        match status.kind {
            InodeKind::Directory => {
                if status.identity == self.own {
                    return Err(Fault::IntoItself);
                }
                target.make_directory(name, 0o700)?;
                self.directories.push((path.to_owned(), status));
                return Ok(Next::Enter);
            }
            InodeKind::Symlink => {
                let leads_to = match source.link_target(name) {
                    Err(Errno::NOENT) => return Ok(Next::Done),
                    found => found?,
                };
                target.make_symlink(&leads_to, name)?;
                if is_superuser() {
                    target.set_owner(name, status.owner, status.group)?;
                }
                target.set_modified(name, Some(status.modified))?;
            }
            InodeKind::File => self.file(source, target, name, path, &status)?,
            InodeKind::Fifo
            | InodeKind::Socket
            | InodeKind::CharacterDevice
            | InodeKind::BlockDevice
            | InodeKind::Unknown => {
                let kind = special(status.kind).unwrap_or(SpecialKind::Unknown);
                self.out.skipped.push((path.to_owned(), kind));
            }
        }
        Ok(Next::Done)
    }

    fn file(
        &mut self,
        source: &Directory,
        target: &Directory,
        name: &OsStr,
        path: &Path,
        status: &Status,
    ) -> Result<(), Fault> {
        let content = match source.file(name) {
            Err(Errno::NOENT) => return Ok(()),
            found => found?,
        };
        if status.links > 1 {
            if let Some(first) = self.names.get(&status.identity) {
                let first_name = first.file_name().ok_or(Errno::INVAL)?;
                let directory = self.target.passage(first.parent().unwrap_or(Path::new("")))?;
                return Ok(target.make_hard_link(&directory, first_name, name)?);
            }
            self.names.insert(status.identity, path.to_owned());
        }
        let made = target.create(name, 0o600)?;
        self.out.files += 1;
        if share_or_copy(&content, &made).map_err(copy_errno)? == Copied::Shared {
            self.out.shared += 1;
        }
        Ok(finish(target, name, status)?)
    }

    /// Last, the deepest first: a closed directory would stop what goes into it, and that would change its time.
    fn finish_directories(&mut self) -> Result<(), (PathBuf, Errno)> {
        self.directories.sort_by(|(one, _), (other, _)| other.cmp(one));
        for (path, status) in &self.directories {
            let done = self
                .target
                .passage(path.parent().unwrap_or(Path::new("")))
                .and_then(|parent| finish(&parent, path.file_name().ok_or(Errno::INVAL)?, status));
            done.map_err(|cause| (path.clone(), cause))?;
        }
        Ok(())
    }
}

fn finish(directory: &Directory, name: &OsStr, like: &Status) -> Result<(), Errno> {
    const SET_ID: u32 = 0o6000;
    if is_superuser() {
        directory.set_owner(name, like.owner, like.group)?;
    }
    let mode = if like.kind == InodeKind::Directory { like.mode } else { like.mode & !SET_ID };
    directory.set_mode(name, mode)?;
    directory.set_modified(name, Some(like.modified))
}
