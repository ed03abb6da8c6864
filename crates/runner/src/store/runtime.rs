//! The directory for the names and sockets of running commands.

use crate::store::locks::{self, Lock};
use belljar_contract::{AbsPath, RunId};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

/// The prefix of a run's directory that is not locked yet.
pub(crate) const MAKING_PREFIX: &str = ".making-";

/// belljar's runtime directory, which only the user can enter.
#[derive(Debug, Clone)]
pub struct RuntimeDirectory {
    path: AbsPath,
}

/// Why the runtime directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The directory, or an entry of it, cannot be created or read.
    #[error("cannot use `{path}`")]
    Use {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// Another user owns it, who could read the sockets in it or replace them.
    #[error("`{path}` belongs to user {owner}, not to user {user}")]
    Owner {
        path: AbsPath,
        owner: u32,
        /// The user that belljar runs as.
        user: u32,
    },
    #[error("`{path}` has mode {mode:o}: other users can enter it; `chmod 700` it")]
    Open { path: AbsPath, mode: u32 },
    /// It is a link or a file.
    #[error("`{path}` is not a directory")]
    NotADirectory { path: AbsPath },
}

/// Creates a directory for the user alone under a temporary name, to be renamed when it is complete.
pub(crate) fn make_staging(parent: &AbsPath, prefix: &str) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}

/// Creates a directory and its parents, for the user alone.
pub(crate) fn make_private(path: &AbsPath) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl RuntimeDirectory {
    /// Opens the directory at `path`; it is created if it is missing.
    ///
    /// # Errors
    /// If it cannot be created, or others can enter it.
    pub fn open(path: &AbsPath) -> Result<Self, RuntimeError> {
        make_private(path).map_err(|cause| RuntimeError::Use { path: path.clone(), cause })?;
        Self::check(path)?;
        Ok(Self { path: path.clone() })
    }

    /// Opens the directory at `path`, if it exists.
    ///
    /// # Errors
    /// If others can enter it.
    pub fn existing(path: &AbsPath) -> Result<Option<Self>, RuntimeError> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Self::check(path).map(|()| Some(Self { path: path.clone() })),
        }
    }

    fn check(path: &AbsPath) -> Result<(), RuntimeError> {
        let found =
            fs::symlink_metadata(path).map_err(|cause| RuntimeError::Use { path: path.clone(), cause })?;
        let (path, owner, user) = (path.clone(), found.uid(), rustix::process::geteuid().as_raw());
        if !found.is_dir() {
            Err(RuntimeError::NotADirectory { path })
        } else if owner != user {
            Err(RuntimeError::Owner { path, owner, user })
        } else if found.mode() & 0o077 != 0 {
            Err(RuntimeError::Open { path, mode: found.mode() & 0o7777 })
        } else {
            Ok(())
        }
    }

    #[must_use]
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Creates the directory of a run. Its name is the run's id alone, because paths of sockets must be short.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn make_run(&self, id: &RunId) -> Result<RunDirectory, RuntimeError> {
        let path = self.path.child(id.as_str());
        let make = || -> io::Result<RunDirectory> {
            // Under a temporary name until it is locked, so that a sweep does not take it for an orphan.
            let making = make_staging(&self.path, MAKING_PREFIX)?;
            let lock =
                locks::wait_exclusive(&AbsPath::new(making.path().join("lock")).map_err(io::Error::other)?)?;
            fs::rename(making.path(), &path)?;
            // It was renamed, so the temporary name needs no removal.
            drop(making.keep());
            Ok(RunDirectory { path: path.clone(), _lock: lock })
        };
        make().map_err(|cause| RuntimeError::Use { path: path.clone(), cause })
    }

    /// Directories of runs that were killed or lost power.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn orphans(&self) -> Result<Vec<Orphan>, RuntimeError> {
        let failed = |cause| RuntimeError::Use { path: self.path.clone(), cause };
        let mut out = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(RunId::parse) else { continue };
            if !entry.file_type().map_err(failed)?.is_dir() {
                continue;
            }
            let path = self.path.child(id.as_str());
            match locks::try_exclusive(&path.child("lock")) {
                Ok(Some(lock)) => out.push(Orphan { path, _lock: lock }),
                Ok(None) => {}
                // The run has just ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(RuntimeError::Use { path, cause }),
            }
        }
        out.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(out)
    }
}

/// The directory of a run, removed when this is dropped.
#[derive(Debug)]
pub struct RunDirectory {
    path: AbsPath,
    _lock: Lock,
}

impl RunDirectory {
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Removes the directory and reports a failure.
    ///
    /// Removes the directory and everything in it.
    ///
    /// # Errors
    /// If something of it remains.
    pub fn remove(self) -> io::Result<()> {
        belljar_record::remove_tree(self.path.as_path())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // Already removed by `remove`; otherwise the sweep finds the remainder.
        belljar_record::remove_tree(self.path.as_path()).ok();
    }
}

/// A directory whose run has ended; locked, so that two sweeps do not remove it at the same time.
#[derive(Debug)]
pub struct Orphan {
    path: AbsPath,
    _lock: Lock,
}

impl Orphan {
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Removes the directory and everything in it.
    ///
    /// # Errors
    /// If something of it remains.
    pub fn remove(self) -> io::Result<()> {
        belljar_record::remove_tree(self.path.as_path())
    }
}
