//! Lists all instances: their projects, their sizes, and whether they are still needed.

use super::{InstanceError, MAKING, read_path, volume};
use crate::changes::layers::{LayerEntry, kept_in};
use crate::store::locks::{self, Lock};
use belljar_contract::{AbsPath, InstanceKey};
use belljar_record::{Size, measure};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::time::SystemTime;

/// The prefix of a directory that is being removed.
const REMOVING: &str = ".removing-";

/// All instances of this user.
#[derive(Debug, Clone)]
pub struct Instances {
    directory: AbsPath,
}

/// An instance in a listing.
#[derive(Debug)]
pub struct InstanceEntry {
    pub key: InstanceKey,
    pub directory: AbsPath,
    /// The project that it belongs to, if that is recorded.
    pub root: Option<AbsPath>,
    /// Whether the project still exists.
    pub project: ProjectState,
    pub size: Size,
    /// When a run last began in it.
    pub last_used: Option<SystemTime>,
    /// Whether a run uses it now.
    pub in_use: bool,
    /// Changes that are kept beside the project and were neither applied nor discarded.
    pub kept: Vec<LayerEntry>,
}

/// Whether a project still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectState {
    Present,
    /// Its root does not exist, although its parent directory does.
    Gone,
    Unknown(String),
}

/// The result of trying to lock an instance.
enum Held {
    Free(Lock),
    InUse,
    Gone,
}

impl Instances {
    /// The instances below belljar's data directory.
    #[must_use]
    pub fn new(data: &AbsPath) -> Self {
        Self { directory: data.child("instances") }
    }

    fn read(&self) -> Result<Vec<OsString>, InstanceError> {
        let failed = |cause| InstanceError::Read { path: self.directory.clone(), cause };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(failed(cause)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.push(entry.file_name());
            }
        }
        names.sort();
        Ok(names)
    }

    /// All instances, by key.
    ///
    /// # Errors
    /// If they cannot be read. A missing directory counts as empty.
    pub fn list(&self) -> Result<Vec<InstanceEntry>, InstanceError> {
        let names = self.read()?;
        let keys = names.iter().filter_map(|name| InstanceKey::parse(name.to_str()?));
        keys.filter_map(|key| self.entry(key).transpose()).collect()
    }

    /// `None` if it was removed meanwhile.
    fn entry(&self, key: InstanceKey) -> Result<Option<InstanceEntry>, InstanceError> {
        let directory = self.directory.child(key.as_str());
        let root = read_path(&directory.child("root"));
        let last_used = fs::metadata(directory.child("last-used")).and_then(|found| found.modified()).ok();
        let in_use = match self.hold(&directory)? {
            Held::Free(_) => false,
            Held::InUse => true,
            Held::Gone => return Ok(None),
        };
        Ok(Some(InstanceEntry {
            project: match &root {
                Ok(Some(root)) => project_state(root, &directory),
                Ok(None) => ProjectState::Unknown("its project is not recorded".to_owned()),
                Err(error) => ProjectState::Unknown(format!("its `root` cannot be read: {error}")),
            },
            root: root.ok().flatten(),
            size: measure(directory.as_path()),
            last_used,
            in_use,
            // Unreadable changes are not lost: they stay where they are.
            kept: kept_in(&directory).unwrap_or_default(),
            key,
            directory,
        }))
    }

    /// Locks an instance that no run uses.
    ///
    /// The lock is only held for a moment. A second lock serializes these attempts, so that none of them mistakes
    /// another for a run.
    fn hold(&self, directory: &AbsPath) -> Result<Held, InstanceError> {
        let path = directory.child("lock");
        let gate = self.directory.child(".lock");
        match locks::wait_exclusive(&gate).and_then(|_gate| locks::try_exclusive(&path)) {
            Ok(Some(lock)) => Ok(Held::Free(lock)),
            Ok(None) => Ok(Held::InUse),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Held::Gone),
            Err(cause) => Err(InstanceError::Read { path, cause }),
        }
    }

    /// Removes an instance that no run uses. Returns whether it was removed.
    ///
    /// # Errors
    /// If something of it remains.
    pub fn remove(&self, entry: &InstanceEntry) -> Result<bool, InstanceError> {
        let lock = match self.hold(&entry.directory)? {
            Held::Free(lock) => lock,
            Held::InUse => return Ok(false),
            Held::Gone => return Ok(true),
        };
        // Renamed first, so that a run that begins meanwhile creates a new one.
        let removing = self.directory.child(&format!("{REMOVING}{}", entry.key));
        let failed = |cause| InstanceError::Remove { path: removing.clone(), cause };
        if fs::symlink_metadata(&removing).is_ok() {
            belljar_record::remove_tree(removing.as_path()).map_err(failed)?;
        }
        let removed = fs::rename(&entry.directory, &removing)
            .and_then(|()| belljar_record::remove_tree(removing.as_path()));
        drop(lock);
        removed.map(|()| true).map_err(failed)
    }

    /// Directories whose creation was interrupted over an hour ago, or whose removal was interrupted.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn leftovers(&self, now: SystemTime) -> Result<Vec<AbsPath>, InstanceError> {
        let old = |path: &AbsPath| {
            let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
            changed.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age.as_secs() > 3600))
        };
        let path = |name: &OsString| {
            let name = name.to_str()?;
            let path = self.directory.child(name);
            let left = name.starts_with(REMOVING) || (name.starts_with(MAKING) && old(&path));
            left.then_some(path)
        };
        Ok(self.read()?.iter().filter_map(path).collect())
    }
}

/// Whether a project was deleted, or is only unavailable: on a disk that is not mounted now, for example.
fn project_state(root: &AbsPath, instance: &AbsPath) -> ProjectState {
    match fs::symlink_metadata(root) {
        Ok(_) => return ProjectState::Present,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return ProjectState::Unknown(format!("`{root}` cannot be read: {error}")),
    }
    if let Ok(Some(at)) = read_path(&instance.child("volume"))
        && volume(&at).as_ref() != Some(&at)
    {
        return ProjectState::Unknown(format!("nothing is mounted at `{at}` now"));
    }
    match root.parent() {
        Some(parent) if parent.as_path().is_dir() => ProjectState::Gone,
        Some(parent) => ProjectState::Unknown(format!("`{parent}` does not exist either")),
        None => ProjectState::Present,
    }
}
