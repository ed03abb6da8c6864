//! All instances: what they are for, what they take, whether they are still wanted.

use super::{InstanceError, MAKING, read_path, volume};
use crate::changes::layers::{LayerEntry, kept_in};
use crate::store::locks::{self, Lock};
use belljar_contract::{AbsPath, InstanceKey};
use belljar_record::{Size, measure};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::time::SystemTime;

/// Before the name of a directory that is being removed.
const REMOVING: &str = ".removing-";

/// All instances of this user.
#[derive(Debug, Clone)]
pub struct Instances {
    directory: AbsPath,
}

/// An instance in a listing.
#[derive(Debug)]
pub struct InstanceEntry {
    /// Its key.
    pub key: InstanceKey,
    /// Where it is.
    pub directory: AbsPath,
    /// The project it is for, when it says so.
    pub root: Option<AbsPath>,
    /// What became of the project.
    pub project: ProjectState,
    /// What it takes.
    pub size: Size,
    /// When a run last began in it.
    pub last_used: Option<SystemTime>,
    /// Whether a run uses it now.
    pub in_use: bool,
    /// Changes that are kept beside the project, and neither applied nor discarded.
    pub kept: Vec<LayerEntry>,
}

/// What became of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectState {
    /// It is there.
    Present,
    /// Its root is gone, while the place where it was is there.
    Gone,
    /// It cannot be told.
    Unknown(String),
}

/// What came of taking an instance.
enum Held {
    Free(Lock),
    InUse,
    Gone,
}

impl Instances {
    /// The instances below belljar's data.
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

    /// All of them, by key.
    ///
    /// # Errors
    /// When they cannot be read. A directory that is not there is an empty one.
    pub fn list(&self) -> Result<Vec<InstanceEntry>, InstanceError> {
        let names = self.read()?;
        let keys = names.iter().filter_map(|name| InstanceKey::parse(name.to_str()?));
        keys.filter_map(|key| self.entry(key).transpose()).collect()
    }

    /// `None` when it was removed meanwhile.
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
                Ok(None) => ProjectState::Unknown("it does not say which project it is for".to_owned()),
                Err(error) => ProjectState::Unknown(format!("its `root` cannot be read: {error}")),
            },
            root: root.ok().flatten(),
            size: measure(directory.as_path()),
            last_used,
            in_use,
            // What cannot be read is not lost: it stays where it is.
            kept: kept_in(&directory).unwrap_or_default(),
            key,
            directory,
        }))
    }

    /// Takes an instance that no run uses.
    ///
    /// Whoever asks holds the lock for a moment. They ask one after the other, so that none takes another's question
    /// for a run.
    fn hold(&self, directory: &AbsPath) -> Result<Held, InstanceError> {
        let path = directory.child("lock");
        let door = self.directory.child(".lock");
        match locks::wait_exclusive(&door).and_then(|_door| locks::try_exclusive(&path)) {
            Ok(Some(lock)) => Ok(Held::Free(lock)),
            Ok(None) => Ok(Held::InUse),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Held::Gone),
            Err(cause) => Err(InstanceError::Read { path, cause }),
        }
    }

    /// Removes an instance that no run uses; whether it is gone.
    ///
    /// # Errors
    /// When something of it remains.
    pub fn remove(&self, entry: &InstanceEntry) -> Result<bool, InstanceError> {
        let lock = match self.hold(&entry.directory)? {
            Held::Free(lock) => lock,
            Held::InUse => return Ok(false),
            Held::Gone => return Ok(true),
        };
        // Under another name first: a run that begins meanwhile makes a new one.
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

    /// Directories that were left half made an hour ago or half removed.
    ///
    /// # Errors
    /// When they cannot be read.
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

/// Whether a project is gone, and not merely out of sight: on a disk that is not mounted now, for instance.
fn project_state(root: &AbsPath, instance: &AbsPath) -> ProjectState {
    match fs::symlink_metadata(root) {
        Ok(_) => return ProjectState::Present,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return ProjectState::Unknown(format!("`{root}` cannot be looked at: {error}")),
    }
    if let Ok(Some(at)) = read_path(&instance.child("volume"))
        && volume(&at).as_ref() != Some(&at)
    {
        return ProjectState::Unknown(format!("nothing is mounted at `{at}` now"));
    }
    match root.parent() {
        Some(parent) if parent.as_path().is_dir() => ProjectState::Gone,
        Some(parent) => ProjectState::Unknown(format!("`{parent}` is not there either")),
        None => ProjectState::Present,
    }
}
