//! What a run has only while it runs: its name, and a directory for sockets.

use crate::store::locks::{self, Lock};
use belljar_contract::{AbsPath, RunId};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

/// The name of a run's directory that is not locked yet begins so.
pub(crate) const MAKING_PREFIX: &str = ".making-";

/// belljar's runtime directory, which nobody but the user can enter.
#[derive(Debug, Clone)]
pub struct RuntimeDirectory {
    path: AbsPath,
}

/// Why the runtime directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// It, or something in it, cannot be made or read.
    #[error("cannot use `{path}`")]
    Use {
        /// What.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It is somebody else's, who could look at the sockets in it or put others in their place.
    #[error("`{path}` belongs to user {owner}, not to user {user}")]
    Owner {
        /// The directory.
        path: AbsPath,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// Others can enter it.
    #[error("`{path}` has mode {mode:o}, others can enter it")]
    Open {
        /// The directory.
        path: AbsPath,
        /// Its mode.
        mode: u32,
    },
    /// It is a link or a file.
    #[error("`{path}` is not a directory")]
    NotADirectory {
        /// What it should be.
        path: AbsPath,
    },
}

/// Makes a directory for the user alone under a name of its own, which it leaves when it is whole.
pub(crate) fn make_staging(parent: &AbsPath, prefix: &str) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)
}

/// Makes a directory and those above it, for the user alone.
pub(crate) fn make_private(path: &AbsPath) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl RuntimeDirectory {
    /// The directory at `path`, made when absent.
    ///
    /// # Errors
    /// When it cannot be made, or is not ours alone.
    pub fn open(path: &AbsPath) -> Result<Self, RuntimeError> {
        make_private(path).map_err(|cause| RuntimeError::Use { path: path.clone(), cause })?;
        Self::check(path)?;
        Ok(Self { path: path.clone() })
    }

    /// The directory at `path`, if there is one.
    ///
    /// # Errors
    /// When it is not ours alone.
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Makes the directory of a run. It is called by the run's id alone, because the path of a socket is short.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make_run(&self, id: &RunId) -> Result<RunDirectory, RuntimeError> {
        let path = self.path.child(id.as_str());
        let make = || -> io::Result<RunDirectory> {
            // Under another name until it is locked, so that a sweep cannot take it for an orphan.
            let making = make_staging(&self.path, MAKING_PREFIX)?;
            let lock =
                locks::wait_exclusive(&AbsPath::new(making.path().join("lock")).map_err(io::Error::other)?)?;
            fs::rename(making.path(), &path)?;
            // It has moved; there is nothing to remove under the old name.
            drop(making.keep());
            Ok(RunDirectory { path: path.clone(), _lock: lock })
        };
        make().map_err(|cause| RuntimeError::Use { path: path.clone(), cause })
    }

    /// Directories of runs that are gone: after a power cut, or a kill.
    ///
    /// # Errors
    /// When the directory cannot be read.
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
                // It ended just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(RuntimeError::Use { path, cause }),
            }
        }
        out.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(out)
    }
}

/// The directory of a run, gone when the run is.
#[derive(Debug)]
pub struct RunDirectory {
    path: AbsPath,
    _lock: Lock,
}

impl RunDirectory {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Removes it now, and says so when that fails.
    ///
    /// # Errors
    /// When something of it remains.
    pub fn remove(self) -> io::Result<()> {
        belljar_record::remove_tree(self.path.as_path())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // Gone already after `remove`; otherwise the sweep finds what remains.
        belljar_record::remove_tree(self.path.as_path()).ok();
    }
}

/// A directory whose run is gone; locked, so that two sweeps do not meet in it.
#[derive(Debug)]
pub struct Orphan {
    path: AbsPath,
    _lock: Lock,
}

impl Orphan {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Removes it.
    ///
    /// # Errors
    /// When something of it remains.
    pub fn remove(self) -> io::Result<()> {
        belljar_record::remove_tree(self.path.as_path())
    }
}
