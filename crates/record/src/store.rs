//! All runs of this user.

use crate::disk::{Size, make_private, measure, remove_tree};
use crate::error::{ReadError, RemoveError, WriteError};
use crate::reader::{HEAD_MAX, RunReader};
use crate::redact::Redact;
use crate::writer::{RunWriter, head_text, new_file};
use belljar_contract::{AbsPath, RunHead, RunResult, UtcTime};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, SystemTime};

/// Before the name of a folder that is being made.
const MAKING: &str = ".making-";
/// The length of the time in a name, to the second.
const COMPACT_TIME: usize = "YYYYMMDD-HHMMSS".len();
/// Before the name of a folder that is being removed.
const REMOVING: &str = ".removing-";

/// Nobody takes longer to make a folder.
const SETTLED: Duration = Duration::from_secs(3600);

/// The folder of all runs.
#[derive(Debug, Clone)]
pub struct RunStore {
    directory: AbsPath,
}

/// A run in a listing.
#[derive(Debug)]
pub struct RunEntry {
    /// Its folder.
    pub directory: AbsPath,
    /// What was known at its start; the reason when that cannot be read.
    pub head: Result<RunHead, ReadError>,
    /// Where it stands.
    pub state: RunState,
    /// When its log was last written to, or its folder changed where there is none.
    pub last_change: Option<SystemTime>,
    /// What it takes.
    pub size: Size,
}

/// Where a run stands.
#[derive(Debug)]
pub enum RunState {
    /// Its writer lives.
    Running,
    /// It ended in order.
    Ended(RunResult),
    /// Its writer is gone, and there is no result.
    CutShort,
    /// Its result cannot be read.
    Unreadable(ReadError),
}

impl RunStore {
    /// The runs below belljar's state.
    #[must_use]
    pub fn new(state: &AbsPath) -> Self {
        Self { directory: state.child("runs") }
    }

    /// Where the runs are.
    #[must_use]
    pub fn directory(&self) -> &AbsPath {
        &self.directory
    }

    /// Makes the folder of a new run, whole or not at all, and writes its first event.
    ///
    /// # Errors
    /// When that fails; what was begun is taken away.
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
            // What remains is found by the sweep.
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

    /// All runs, the oldest first.
    ///
    /// # Errors
    /// When the folder of all runs cannot be read. One that is not there is an empty one.
    pub fn list(&self) -> Result<Vec<RunEntry>, ReadError> {
        let mut runs: Vec<RunEntry> =
            self.folders(|name| !name.starts_with('.'))?.into_iter().map(entry).collect();
        // Names have the second; within one, the head says which was first.
        let second = |run: &RunEntry| {
            let name = run.directory.file_name().map(|name| name.to_string_lossy().into_owned());
            name.map(|name| name.chars().take(COMPACT_TIME).collect::<String>())
        };
        runs.sort_by_cached_key(|run| (second(run), run.head.as_ref().ok().map(|head| head.started_at_ms)));
        Ok(runs)
    }

    /// Folders that a writer or a removal left half done, with nobody at work on them.
    ///
    /// # Errors
    /// When the folder of all runs cannot be read.
    pub fn leftovers(&self, now: SystemTime) -> Result<Vec<AbsPath>, ReadError> {
        // There is a moment in which a new folder has no lock yet.
        let old = |path: &AbsPath| {
            let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
            changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age > SETTLED))
        };
        let mut making = self.folders(|name| name.starts_with(MAKING))?;
        making.retain(|path| old(path) && !matches!(exclusive(path), Ok(Held::Busy) | Err(_)));
        let mut found = self.folders(|name| name.starts_with(REMOVING))?;
        found.append(&mut making);
        Ok(found)
    }

    fn folders(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<AbsPath>, ReadError> {
        let failed = |cause| ReadError::Read { path: self.directory.clone(), cause };
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(failed(cause)),
        };
        let mut out = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // Our names are UTF-8, and never links.
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            if wanted(&name) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                out.push(self.directory.child(&name));
            }
        }
        out.sort();
        Ok(out)
    }

    /// Removes a run's folder, or a leftover.
    ///
    /// # Errors
    /// When the run is going on, or something of it remains.
    pub fn remove(&self, directory: &AbsPath) -> Result<(), RemoveError> {
        let failed = |cause| RemoveError::Remove { path: directory.clone(), cause };
        let name = directory.file_name().and_then(|name| name.to_str());
        let (Some(name), true) = (name, directory.parent().as_ref() == Some(&self.directory)) else {
            return Err(failed(io::Error::other("it is not a run's folder")));
        };
        // Kept until the end, so that nobody else begins.
        let held = exclusive(directory).map_err(failed)?;
        if matches!(held, Held::Busy) {
            return Err(RemoveError::Running { path: directory.clone() });
        }
        // Under another name first: half a folder must not pass for a run that was cut short.
        let plain = name.trim_start_matches(REMOVING);
        let removing = self.directory.child(&format!("{REMOVING}{plain}"));
        fs::rename(directory, &removing).map_err(failed)?;
        let removed = remove_tree(removing.as_path());
        drop(held);
        removed.map_err(|cause| RemoveError::Remove { path: removing, cause })
    }
}

enum Held {
    Free(#[expect(dead_code, reason = "held, not looked at")] File),
    Busy,
    NoLock,
}

/// Takes the lock of a run's folder for ourselves.
fn exclusive(directory: &AbsPath) -> io::Result<Held> {
    held(directory, File::try_lock)
}

/// Whether somebody has the lock of a run's folder for themselves. Any number can ask at once.
fn is_busy(directory: &AbsPath) -> bool {
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
        // Asked before the result is looked for: a run that ends in between has one.
        state: match (is_busy(&directory), reader.result()) {
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
