//! The store of all runs of this user.

use crate::disk::{Size, make_private, measure, remove_tree};
use crate::error::{ReadError, RemoveError, WriteError};
use crate::reader::{HEAD_MAX, RunReader};
use crate::redact::Redact;
use crate::writer::{RunWriter, head_text, new_file};
use belljar_contract::{AbsPath, RunHead, RunId, RunResult, UtcTime};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, SystemTime};

/// The prefix of a directory that is being created.
const MAKING: &str = ".making-";
/// The length of the time in a directory's name.
const COMPACT_TIME: usize = "YYYYMMDD-HHMMSS".len();
/// The prefix of a directory that is being removed.
const REMOVING: &str = ".removing-";

/// Creating a directory never takes longer than this.
const SETTLED: Duration = Duration::from_secs(3600);

/// The directory of all runs.
#[derive(Debug, Clone)]
pub struct RunStore {
    directory: AbsPath,
}

#[derive(Debug)]
pub struct RunEntry {
    pub directory: AbsPath,
    /// The content of `run.json`, or why it cannot be read.
    pub head: Result<RunHead, ReadError>,
    pub state: RunState,
    /// When its log was last written, or its directory changed if there is no log.
    pub last_change: Option<SystemTime>,
    /// Its disk usage.
    pub size: Size,
}

/// Where a run is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlace {
    pub directory: AbsPath,
    /// The name of the directory.
    pub name: String,
    /// The id in the name; `None` if belljar did not make the directory.
    pub id: Option<RunId>,
}

impl RunPlace {
    fn new(directory: AbsPath) -> Self {
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let id = name.rsplit_once('-').and_then(|(_, id)| RunId::parse(id));
        Self { directory, name, id }
    }

    fn second(&self) -> String {
        self.name.chars().take(COMPACT_TIME).collect()
    }
}

/// The state of a run.
#[derive(Debug)]
pub enum RunState {
    /// Its writer is alive.
    Running,
    /// It ended in order.
    Ended(RunResult),
    /// Its writer is gone, and there is no result.
    CutShort,
    /// Its result cannot be read.
    Unreadable(ReadError),
}

impl RunStore {
    /// The store in belljar's state directory.
    #[must_use]
    pub fn new(state: &AbsPath) -> Self {
        Self { directory: state.child("runs") }
    }

    /// Where the runs are.
    #[must_use]
    pub fn directory(&self) -> &AbsPath {
        &self.directory
    }

    /// Creates the directory of a new run atomically and writes the first event.
    ///
    /// # Errors
    /// When that fails; the incomplete directory is removed.
    pub fn create(&self, head: &RunHead, redact: Redact) -> Result<RunWriter, WriteError> {
        let date = UtcTime::from_unix_ms(head.started_at_ms).compact();
        let name = format!("{date}-{}-{}", head.name, head.id);
        let making = self.directory.child(&format!("{MAKING}{name}"));
        make_private(self.directory.as_path())
            .map_err(|cause| WriteError::Make { path: self.directory.clone(), cause })?;
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&making)
            .map_err(|cause| WriteError::Make { path: making.clone(), cause })?;
        self.fill(&making, &name, head, redact).inspect_err(|_| {
            // [`Self::leftovers`] finds what cannot be removed now.
            remove_tree(making.as_path()).ok();
        })
    }

    fn fill(
        &self,
        making: &AbsPath,
        name: &str,
        head: &RunHead,
        redact: Redact,
    ) -> Result<RunWriter, WriteError> {
        let failed = |path: &AbsPath, cause| WriteError::Write { path: path.clone(), cause };
        let lock_path = making.child("lock");
        let lock = new_file(&lock_path)?;
        lock.lock().map_err(|cause| failed(&lock_path, cause))?;
        let head_path = making.child("run.json");
        let text = head_text(head, &redact);
        if text.len() as u64 > HEAD_MAX {
            return Err(WriteError::TooLarge { path: head_path, limit: HEAD_MAX });
        }
        let mut file = new_file(&head_path)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|cause| failed(&head_path, cause))?;
        let mut writer = RunWriter::begin(making.clone(), head, &text, redact, lock)?;
        let path = self.directory.child(name);
        match fs::rename(making, &path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                return Err(WriteError::Exists { path });
            }
            Err(cause) => return Err(failed(&path, cause)),
        }
        writer.moved_to(path);
        Ok(writer)
    }

    /// All runs, oldest first.
    ///
    /// # Errors
    /// When the directory of all runs cannot be read. A missing directory counts as empty.
    pub fn list(&self) -> Result<Vec<RunEntry>, ReadError> {
        let mut runs: Vec<RunEntry> =
            self.directories(|name| !name.starts_with('.'))?.into_iter().map(entry).collect();
        // Names contain the second; `run.json` has the order within a second.
        let second = |run: &RunEntry| {
            let name = run.directory.file_name().map(|name| name.to_string_lossy().into_owned());
            name.map(|name| name.chars().take(COMPACT_TIME).collect::<String>())
        };
        runs.sort_by_cached_key(|run| (second(run), run.head.as_ref().ok().map(|head| head.started_at_ms)));
        Ok(runs)
    }

    /// The directories of all runs, newest first. Little is read, so that a thousand are listed at once.
    ///
    /// # Errors
    /// When the directory of all runs cannot be read. A missing directory counts as empty.
    pub fn places(&self) -> Result<Vec<RunPlace>, ReadError> {
        let directories = self.directories(|name| !name.starts_with('.'))?;
        let mut places: Vec<RunPlace> = directories.into_iter().map(RunPlace::new).collect();
        let mut seconds: BTreeMap<String, usize> = BTreeMap::new();
        places.iter().for_each(|place| *seconds.entry(place.second()).or_default() += 1);
        // Names contain the second; `run.json` has the order within a second.
        places.sort_by_cached_key(|place| {
            let second = place.second();
            let shared = seconds.get(&second).is_some_and(|count| *count > 1);
            let started = shared.then(|| RunReader::new(place.directory.clone()).started_at_ms()).flatten();
            (second, started, place.name.clone())
        });
        places.reverse();
        Ok(places)
    }

    /// Incomplete directories of a writer or a removal that is no longer active.
    ///
    /// # Errors
    /// When the directory of all runs cannot be read.
    pub fn leftovers(&self, now: SystemTime) -> Result<Vec<AbsPath>, ReadError> {
        // A new directory has no lock for a moment.
        let old = |path: &AbsPath| {
            let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
            changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age > SETTLED))
        };
        let mut making = self.directories(|name| name.starts_with(MAKING))?;
        making.retain(|path| old(path) && !matches!(exclusive(path), Ok(Held::Busy) | Err(_)));
        let mut found = self.directories(|name| name.starts_with(REMOVING))?;
        found.append(&mut making);
        Ok(found)
    }

    fn directories(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<AbsPath>, ReadError> {
        let failed = |cause| ReadError::Read { path: self.directory.clone(), cause };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(failed(cause)),
        };
        let mut out = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // Names of runs are UTF-8, and runs are never symbolic links.
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if wanted(&name) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                out.push(self.directory.child(&name));
            }
        }
        out.sort();
        Ok(out)
    }

    /// Removes a run's directory, or a leftover.
    ///
    /// # Errors
    /// When the run is active, or something of it remains.
    pub fn remove(&self, directory: &AbsPath) -> Result<(), RemoveError> {
        let failed = |cause| RemoveError::Remove { path: directory.clone(), cause };
        let name = directory.file_name().and_then(|name| name.to_str());
        let (Some(name), true) = (name, directory.parent().as_ref() == Some(&self.directory)) else {
            return Err(failed(io::Error::other("it is not the directory of a run")));
        };
        // Kept until the end, so that no other process starts to remove it.
        let held = exclusive(directory).map_err(failed)?;
        if matches!(held, Held::Busy) {
            return Err(RemoveError::Running { path: directory.clone() });
        }
        // Renamed first, so that a partly removed directory does not look like an interrupted run.
        let plain = name.trim_start_matches(REMOVING);
        let removing = self.directory.child(&format!("{REMOVING}{plain}"));
        fs::rename(directory, &removing).map_err(failed)?;
        let removed = remove_tree(removing.as_path());
        drop(held);
        removed.map_err(|cause| RemoveError::Remove { path: removing, cause })
    }
}

enum Held {
    Free(#[expect(dead_code, reason = "keeps the lock until it is dropped")] File),
    Busy,
    NoLock,
}

/// Takes the exclusive lock of a run's directory.
fn exclusive(directory: &AbsPath) -> io::Result<Held> {
    held(directory, File::try_lock)
}

/// Whether the writer of a run is alive: it has the exclusive lock of the directory. Any number of processes can ask at
/// once.
#[must_use]
pub fn is_running(directory: &AbsPath) -> bool {
    matches!(held(directory, File::try_lock_shared), Ok(Held::Busy))
}

fn held(directory: &AbsPath, take: fn(&File) -> Result<(), TryLockError>) -> io::Result<Held> {
    let file = match File::options().read(true).append(true).open(directory.child("lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Held::NoLock),
        Err(error) => return Err(error),
    };
    match take(&file) {
        Ok(()) => Ok(Held::Free(file)),
        Err(TryLockError::WouldBlock) => Ok(Held::Busy),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn entry(directory: AbsPath) -> RunEntry {
    let reader = RunReader::new(directory.clone());
    let changed = |path: &AbsPath| fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
    RunEntry {
        head: reader.head(),
        // Evaluated before the result is read: a run that ends in between has one.
        state: match (is_running(&directory), reader.result()) {
            (true, _) => RunState::Running,
            (false, Ok(Some(result))) => RunState::Ended(result),
            (false, Ok(None)) => RunState::CutShort,
            (false, Err(error)) => RunState::Unreadable(error),
        },
        last_change: changed(&directory.child("events.jsonl")).or_else(|| changed(&directory)),
        size: measure(directory.as_path()),
        directory,
    }
}
