//! The versions of agents on this machine: `agents/NAME/VERSION/` in the data directory, with the program, a
//! description, and a lock.
//!
//! A version is complete or absent: it is made beside the others and renamed. A run holds its lock, so that it is not
//! removed meanwhile.

use super::integrity::Integrity;
use crate::plan::agent_version::program_digest;
use crate::store::leftovers::{self, Scratch};
use crate::store::locks::{self, Lock};
use crate::store::runtime::make_private;
use belljar_contract::{AbsPath, Digest, PublishedVersion};
use belljar_record::remove_tree;
use belljar_sys::regular::read_regular;
use rustix::fs::{RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// The version of the format of [`AgentDescription`].
pub(super) const FORMAT: u32 = 1;
const DESCRIPTION: &str = "agent.json";
const DESCRIPTION_MAX: u64 = 64 << 10;
/// Its time is that of the last use, or [`NEVER`].
const LOCK: &str = "lock";
const NEVER: SystemTime = SystemTime::UNIX_EPOCH;
/// The prefix of versions that are being made or removed.
pub(crate) const UNFINISHED_PREFIX: &str = ".unfinished-";

/// What is stored beside a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDescription {
    /// [`FORMAT`].
    pub(super) format: u32,
    pub name: String,
    pub version: PublishedVersion,
    /// The package of the platform that the program comes from.
    pub package: String,
    /// The integrity of the package's archive, which was verified.
    pub integrity: Integrity,
    /// Milliseconds since 1970.
    pub installed_at_ms: u64,
    /// The digest of the program.
    pub program: Digest,
    /// The size of the program.
    pub bytes: u64,
}

/// A version that is installed.
#[derive(Debug, Clone)]
pub struct InstalledAgent {
    pub description: AgentDescription,
    /// The path of the program.
    pub program: AbsPath,
    directory: AbsPath,
    pub last_used: Option<SystemTime>,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AgentStoreError {
    #[error("cannot use `{path}`")]
    Use {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    #[error("{name}@{version} is in use by a run")]
    InUse { name: String, version: PublishedVersion },
    /// It was not written by this belljar, or was changed.
    #[error("`{path}` is damaged: {why}")]
    Damaged { path: AbsPath, why: String },
}

impl AgentStoreError {
    /// The remedy, if one is known.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Damaged { path, .. } => {
                let mut names = path.as_path().iter().rev();
                let version = names.next()?.to_string_lossy();
                let release = format!("{}@{version}", names.next()?.to_string_lossy());
                Some(format!("`belljar agent remove {release}`, then `belljar agent install {release}`"))
            }
            Self::Use { .. } | Self::InUse { .. } => None,
        }
    }
}

/// The store of one user.
#[derive(Debug, Clone)]
pub struct AgentStore {
    directory: AbsPath,
}

impl AgentStore {
    #[must_use]
    pub fn new(data: &AbsPath) -> Self {
        Self { directory: agents_directory(data) }
    }

    fn at(&self, name: &str, version: &PublishedVersion) -> AbsPath {
        self.directory.child(name).child(version.as_str())
    }

    /// A version of the agent `name`, whose program is called `program`; `None` if it is not installed.
    ///
    /// # Errors
    /// When it is damaged or cannot be read.
    pub fn find(
        &self,
        (name, program): (&str, &str),
        version: &PublishedVersion,
    ) -> Result<Option<InstalledAgent>, AgentStoreError> {
        let directory = self.at(name, version);
        let text = match read_regular(directory.child(DESCRIPTION).as_path(), DESCRIPTION_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.as_path().exists() => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = format!("it has no {DESCRIPTION}");
                return Err(AgentStoreError::Damaged { path: directory, why });
            }
            Err(cause) => return Err(AgentStoreError::Use { path: directory.child(DESCRIPTION), cause }),
        };
        let damaged = |why: String| AgentStoreError::Damaged { path: directory.clone(), why };
        let description = read_description(&text).map_err(damaged)?;
        if description.name != name || description.version != *version {
            return Err(damaged(format!("it describes {}@{}", description.name, description.version)));
        }
        let program = directory.child(program);
        let found = fs::symlink_metadata(&program);
        if !found.is_ok_and(|found| found.is_file() && found.len() == description.bytes) {
            return Err(damaged("its program is missing or has another size".to_owned()));
        }
        let last_used = fs::metadata(directory.child(LOCK)).and_then(|found| found.modified()).ok();
        let last_used = last_used.filter(|time| *time > NEVER);
        Ok(Some(InstalledAgent { description, program, directory, last_used }))
    }

    /// The installed versions of an agent, the newest first.
    ///
    /// # Errors
    /// When the directory cannot be read. A damaged version is an entry with its error.
    pub fn list(
        &self,
        (name, program): (&str, &str),
    ) -> Result<Vec<Result<InstalledAgent, AgentStoreError>>, AgentStoreError> {
        let directory = self.directory.child(name);
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(AgentStoreError::Use { path: directory, cause }),
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut versions: Vec<PublishedVersion> =
            names.filter_map(|name| PublishedVersion::parse(name.to_str()?)).collect();
        versions.sort_by(|a, b| b.cmp(a));
        let found = versions.iter().map(|version| self.find((name, program), version).transpose());
        Ok(found.flatten().collect())
    }

    /// Locks the installation of a version, so that one process at a time does it. `waiting` is called if another does.
    pub(super) fn lock_install(
        &self,
        name: &str,
        version: &PublishedVersion,
        waiting: impl FnOnce(),
    ) -> Result<InstallLock, AgentStoreError> {
        let directory = self.directory.child(name);
        let path = directory.child(&format!(".{version}.lock"));
        let locked = || {
            make_private(&directory)?;
            if let Some(lock) = locks::try_exclusive(&path)? {
                return Ok(lock);
            }
            waiting();
            locks::wait_exclusive(&path)
        };
        match locked() {
            Ok(lock) => Ok(InstallLock { path, _lock: lock }),
            Err(cause) => Err(AgentStoreError::Use { path, cause }),
        }
    }

    /// A directory to make a version in. It is removed if it is not put into the store.
    pub(super) fn scratch(&self) -> Result<Scratch, AgentStoreError> {
        let made = make_private(&self.directory)
            .and_then(|()| Scratch::make(self.directory.as_path(), UNFINISHED_PREFIX));
        made.map_err(|cause| AgentStoreError::Use { path: self.directory.clone(), cause })
    }

    /// Puts a version into the store: `made` contains its program, complete and on the disk.
    pub(super) fn insert(&self, made: &Path, new: &AgentDescription) -> Result<(), AgentStoreError> {
        let to = self.at(&new.name, &new.version);
        let inserted = || {
            let text = serde_json::to_vec_pretty(new)?;
            let file = made.join(DESCRIPTION);
            fs::write(&file, text)?;
            File::open(&file)?.sync_all()?;
            File::create(made.join(LOCK))?.set_modified(NEVER)?;
            File::open(made)?.sync_all()?;
            // What is there is complete, and may be in use.
            renameat_with(rustix::fs::CWD, made, rustix::fs::CWD, to.as_path(), RenameFlags::NOREPLACE)?;
            to.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
        };
        inserted().map_err(|cause| AgentStoreError::Use { path: to.clone(), cause })
    }

    /// Removes a version.
    ///
    /// # Errors
    /// If a run uses it.
    pub fn remove(&self, name: &str, version: &PublishedVersion) -> Result<(), AgentStoreError> {
        let directory = self.at(name, version);
        let failed = |cause| AgentStoreError::Use { path: directory.clone(), cause };
        let lock = locks::try_exclusive(&directory.child(LOCK)).map_err(failed)?;
        let Some(_unused) = lock else {
            return Err(AgentStoreError::InUse { name: name.to_owned(), version: version.clone() });
        };
        // First out of the way, so that a half-removed version is never found.
        let scratch = self.scratch()?;
        let gone = scratch.path().join("removed");
        fs::rename(&directory, &gone).map_err(failed)?;
        remove_tree(&gone).map_err(failed)
    }

    /// Removes what interrupted installations left.
    pub(crate) fn sweep(&self, now: SystemTime) {
        for path in leftovers::orphans(self.directory.as_path(), &[UNFINISHED_PREFIX], now) {
            // What remains is found by the next sweep.
            remove_tree(path.as_path()).ok();
        }
        for path in self.stale_locks() {
            remove_lock(&path).ok();
        }
    }

    /// The locks of installations. One that is held is not removed.
    pub(crate) fn stale_locks(&self) -> Vec<AbsPath> {
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        let is_lock = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(".lock"))
        };
        let agents = entries(self.directory.as_path()).map(|entry| entry.path());
        let found = agents.flat_map(|agent| entries(&agent).filter(is_lock).map(|entry| entry.path()));
        let found: Vec<_> = found.filter_map(|path| AbsPath::new(path).ok()).collect();
        found.into_iter().filter(|path| matches!(locks::try_exclusive(path), Ok(Some(_)))).collect()
    }
}

/// Removes the lock of an installation that has ended.
pub(crate) fn remove_lock(path: &AbsPath) -> io::Result<()> {
    match locks::try_exclusive(path)? {
        Some(_held) => fs::remove_file(path),
        None => Ok(()),
    }
}

impl InstalledAgent {
    /// Compares the program with the digest of what was installed. It is read again only when its file changed.
    ///
    /// # Errors
    /// When it was altered since, or cannot be read.
    pub(crate) fn verify(&self, state: &AbsPath) -> Result<(), AgentStoreError> {
        match program_digest(state, &self.program) {
            Ok(found) if found == self.description.program => Ok(()),
            Ok(_other) => Err(AgentStoreError::Damaged {
                path: self.directory.clone(),
                why: "its program was altered after the installation".to_owned(),
            }),
            Err(cause) => Err(AgentStoreError::Use { path: self.program.clone(), cause }),
        }
    }

    /// Marks the version as used, for as long as the result lives.
    ///
    /// # Errors
    /// When it was removed meanwhile.
    pub fn hold(&self) -> Result<HeldAgent, AgentStoreError> {
        let path = self.directory.child(LOCK);
        let held = locks::wait_shared(&path).and_then(|lock| lock.touch().map(|()| lock));
        match held {
            Ok(lock) => Ok(HeldAgent(lock)),
            Err(cause) => Err(AgentStoreError::Use { path, cause }),
        }
    }

    /// Whether a run uses it.
    #[must_use]
    pub fn in_use(&self) -> bool {
        matches!(locks::try_exclusive(&self.directory.child(LOCK)), Ok(None))
    }
}

/// A version that is not removed while this value lives.
#[derive(Debug)]
pub struct HeldAgent(#[expect(dead_code, reason = "held, not looked at")] Lock);

/// The lock of an installation. Its file is removed when it is released.
#[derive(Debug)]
pub(super) struct InstallLock {
    path: AbsPath,
    _lock: Lock,
}

impl Drop for InstallLock {
    fn drop(&mut self) {
        // It is still locked. If it cannot be removed, a sweep does it.
        fs::remove_file(&self.path).ok();
    }
}

/// Where the agents of a user are.
pub(crate) fn agents_directory(data: &AbsPath) -> AbsPath {
    data.child("agents")
}

fn read_description(text: &[u8]) -> Result<AgentDescription, String> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if format != FORMAT {
        return Err(format!("it has format {format}; this belljar reads format {FORMAT}"));
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by the first belljar with this store.
    const FIRST: &str = r#"{
  "format": 1, "name": "an-agent", "version": "2.1.3", "package": "@x/agent-linux-x64",
  "integrity": "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
  "installed_at_ms": 1794781843120,
  "program": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "bytes": 1
}"#;

    fn store() -> (tempfile::TempDir, AgentStore, PublishedVersion) {
        let directory = tempfile::tempdir().unwrap();
        let store = AgentStore::new(&AbsPath::new(directory.path()).unwrap());
        let version = PublishedVersion::parse("2.1.3").unwrap();
        let at = store.at("an-agent", &version);
        fs::create_dir_all(&at).unwrap();
        fs::write(at.child(DESCRIPTION), FIRST).unwrap();
        fs::write(at.child("agent"), "x").unwrap();
        (directory, store, version)
    }

    #[test]
    fn the_first_format_is_read() {
        let (_directory, store, version) = store();
        let found = store.find(("an-agent", "agent"), &version).unwrap().unwrap();
        assert_eq!(found.description.installed_at_ms, 1_794_781_843_120);
        assert_eq!(store.list(("an-agent", "agent")).unwrap().len(), 1);
        assert!(store.list(("another", "agent")).unwrap().is_empty());
    }

    #[test]
    fn a_damaged_version_is_not_used() {
        let (_directory, store, version) = store();
        let at = store.at("an-agent", &version);
        let damaged = || store.find(("an-agent", "agent"), &version).unwrap_err().to_string();
        fs::write(at.child("agent"), "xx").unwrap();
        assert!(damaged().contains("another size"), "{}", damaged());
        fs::write(at.child(DESCRIPTION), FIRST.replace("\"format\": 1", "\"format\": 2")).unwrap();
        assert!(damaged().contains("format 2"), "{}", damaged());
        fs::write(at.child(DESCRIPTION), FIRST.replace("2.1.3", "2.1.4")).unwrap();
        assert!(damaged().contains("it describes an-agent@2.1.4"), "{}", damaged());
        fs::remove_file(at.child(DESCRIPTION)).unwrap();
        assert!(store.find(("an-agent", "agent"), &version).is_err());
    }

    #[test]
    fn a_version_in_use_is_not_removed() {
        let (_directory, store, version) = store();
        let found = store.find(("an-agent", "agent"), &version).unwrap().unwrap();
        let held = found.hold().unwrap();
        assert!(found.in_use());
        assert!(matches!(store.remove("an-agent", &version), Err(AgentStoreError::InUse { .. })));
        drop(held);
        store.remove("an-agent", &version).unwrap();
        assert!(store.find(("an-agent", "agent"), &version).unwrap().is_none());
        assert!(found.hold().is_err(), "it is gone");
        assert_eq!(fs::read_dir(&store.directory).unwrap().count(), 1, "the directory of the agent alone");
    }
}
