//! A tape that is being made. It has a temporary name until it is complete and synced; then it is renamed in one
//! step.

use super::error::TapeWriteError;
use super::reader::Tape;
use super::target::{check_replaced, check_target};
use super::{BODIES, EXCHANGES, HEAD, REQUESTS, TEXT};
use crate::disk::remove_tree;
use crate::line;
use belljar_contract::{AbsPath, Digest, EventRecord, Logged, Run, RunResult, TapeHead, TapePart};
use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The prefix and the middle of the temporary name.
const BEFORE: &str = ".";
const BEHIND: &str = ".recording-";

/// An incomplete tape. Dropping it removes its files.
#[derive(Debug)]
pub struct TapeDraft {
    target: AbsPath,
    path: AbsPath,
    /// The directory itself, locked while this process lives, so that others can tell whether the draft is alive.
    held: File,
    parts: BTreeMap<String, TapePart>,
    placed: bool,
}

impl TapeDraft {
    /// Checks that a tape can be started: without its directory, that the directory could be made.
    ///
    /// # Errors
    /// As [`TapeDraft::begin`].
    pub fn check(target: &AbsPath) -> Result<(), TapeWriteError> {
        let is_there = |path: &AbsPath| fs::symlink_metadata(path).is_ok();
        let Some(directory) = target.parent().filter(|directory| !is_there(directory)) else {
            return Self::begin(target).map(drop);
        };
        let above = std::iter::successors(directory.parent(), AbsPath::parent).find(is_there);
        let above = above.unwrap_or(directory);
        let writable = match fs::metadata(&above) {
            Ok(found) if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
            found => found.and_then(|_| Ok(access(above.as_path(), Access::WRITE_OK | Access::EXEC_OK)?)),
        };
        writable.map_err(|cause| TapeWriteError::Write { path: above, cause })
    }

    /// Starts a tape, and removes drafts that dead processes left for the same tape.
    ///
    /// # Errors
    /// When it cannot be created, or another process is making it.
    pub fn begin(target: &AbsPath) -> Result<Self, TapeWriteError> {
        let failed = |path: &AbsPath, cause| TapeWriteError::Write { path: path.clone(), cause };
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(directory) = target.parent() else {
            return Err(failed(target, io::Error::other("it has no parent directory")));
        };
        fs::create_dir_all(&directory).map_err(|cause| failed(&directory, cause))?;
        check_target(target)?;
        let prefix = format!("{BEFORE}{name}{BEHIND}");
        sweep(&directory, &prefix)?;
        let path = directory.child(&format!("{prefix}{}", std::process::id()));
        fs::create_dir(&path).map_err(|cause| failed(&path, cause))?;
        let held = File::open(&path).map_err(|cause| failed(&path, cause))?;
        held.try_lock().map_err(|error| failed(&path, error.into()))?;
        Ok(Self { target: target.clone(), path, held, parts: BTreeMap::new(), placed: false })
    }

    /// Copies a file as a part of this name; a missing file is skipped.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn file(&mut self, name: &str, from: &AbsPath) -> Result<(), TapeWriteError> {
        match self.copy(name, from)? {
            Some(part) => self.parts.insert(name.to_owned(), part),
            None => None,
        };
        Ok(())
    }

    /// Copies a directory, file by file. `listed` says whether its files are parts; bodies are listed by the
    /// exchanges.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn directory(&mut self, name: &str, from: &AbsPath, listed: Listed) -> Result<(), TapeWriteError> {
        for entry in fs::read_dir(from).into_iter().flatten().flatten() {
            let Ok(file) = entry.file_name().into_string() else { continue };
            let (inner, source) = (format!("{name}/{file}"), from.child(&file));
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.directory(&inner, &source, listed)?,
                Ok(kind) if kind.is_file() => match listed {
                    Listed::AsParts => self.file(&inner, &source)?,
                    Listed::ByExchanges => self.copy(&inner, &source).map(drop)?,
                },
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Copies the exchanges that an [`ExchangeLog`](super::ExchangeLog) stored.
    ///
    /// # Errors
    /// When they cannot be copied.
    pub fn exchanges(&mut self, from: &AbsPath) -> Result<(), TapeWriteError> {
        for name in [EXCHANGES, REQUESTS, TEXT] {
            self.file(name, &from.child(name))?;
        }
        self.directory(BODIES, &from.child(BODIES), Listed::ByExchanges)
    }

    /// Writes a part.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn part(&mut self, name: &str, bytes: &[u8]) -> Result<(), TapeWriteError> {
        let to = self.path.child(name);
        let failed = |cause| TapeWriteError::Write { path: to.clone(), cause };
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        File::create_new(&to).and_then(|mut file| file.write_all(bytes)).map_err(failed)?;
        let part = TapePart { bytes: bytes.len() as u64, digest: Digest::of(bytes) };
        self.parts.insert(name.to_owned(), part);
        Ok(())
    }

    /// Writes the record of a run with a new chain.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn record(&mut self, run: &Run) -> Result<(), TapeWriteError> {
        let Run { head, events, result, completeness: _ } = run;
        let head = format!("{:#}\n", json!(head));
        let (mut chain, mut log) = (Digest::of(head.as_bytes()), String::new());
        for EventRecord { seq, offset_ms, event } in events {
            let event = match event {
                Logged::Known(event) => json!(event),
                Logged::Unread(value) => value.clone(),
            };
            let (line, next) = line::encode(&chain, *seq, *offset_ms, &event);
            log.push_str(&line);
            chain = next;
        }
        self.part("run.json", head.as_bytes())?;
        self.part("events.jsonl", log.as_bytes())?;
        if let Some(result) = result {
            let result = RunResult { chain, ..result.clone() };
            self.part("result.json", format!("{:#}\n", json!(result)).as_bytes())?;
        }
        Ok(())
    }

    fn copy(&self, name: &str, from: &AbsPath) -> Result<Option<TapePart>, TapeWriteError> {
        let to = self.path.child(name);
        let failed = |cause| TapeWriteError::Write { path: to.clone(), cause };
        let Some((mut source, _)) = crate::disk::open_regular(from.as_path()).map_err(failed)? else {
            return Ok(None);
        };
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut file = File::options().write(true).create_new(true).open(&to).map_err(failed)?;
        let bytes = io::copy(&mut source, &mut file).map_err(failed)?;
        let mut written = File::open(&to).map_err(failed)?;
        let digest = Digest::of_reader(&mut written).map_err(failed)?;
        Ok(Some(TapePart { bytes, digest }))
    }

    /// Writes the manifest, verifies the whole tape, and moves it to its place, where it replaces an old tape.
    ///
    /// # Errors
    /// When that fails; the old tape is kept.
    pub fn finish(mut self, mut head: TapeHead) -> Result<AbsPath, TapeWriteError> {
        head.parts = std::mem::take(&mut self.parts);
        head.integrity = head.reckoned();
        let path = self.path.child(HEAD);
        let failed = |path: &AbsPath, cause| TapeWriteError::Write { path: path.clone(), cause };
        let text = serde_json::to_string_pretty(&head).map_err(|error| failed(&path, error.into()))? + "\n";
        let mut file = File::create_new(&path).map_err(|cause| failed(&path, cause))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|cause| failed(&path, cause))?;
        Tape::open(&self.path).map_err(|failure| TapeWriteError::ReadBack(failure.fault))?;
        sync(self.path.as_path()).map_err(|cause| failed(&self.path, cause))?;
        self.place()?;
        Ok(self.target.clone())
    }

    fn place(&mut self) -> Result<(), TapeWriteError> {
        let (from, to) = (self.path.as_path(), self.target.as_path());
        let failed = |cause| TapeWriteError::Write { path: self.target.clone(), cause };
        let exchange = || renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE);
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => self.placed = true,
            // The old tape gets the draft's name and is removed with it.
            Err(Errno::EXIST) => {
                exchange().map_err(|errno| failed(errno.into()))?;
                // Looked at once more: something may have come there since the tape was begun.
                if let Err(found) = check_replaced(&self.path, &self.target) {
                    // It is not removed unless it is back in its place.
                    self.placed = true;
                    exchange().map_err(|errno| failed(errno.into()))?;
                    self.placed = false;
                    return Err(found);
                }
            }
            Err(errno) => return Err(failed(errno.into())),
        }
        match self.target.parent() {
            Some(parent) => File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed),
            None => Ok(()),
        }
    }
}

impl Drop for TapeDraft {
    fn drop(&mut self) {
        if !self.placed {
            // The next recording removes what cannot be removed now.
            remove_tree(self.path.as_path()).ok();
        }
        self.held.unlock().ok();
    }
}

/// How the files of a directory are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Each is a part with a digest.
    AsParts,
    /// Each is a body, named by its digest.
    ByExchanges,
}

/// Removes drafts whose processes are dead.
fn sweep(directory: &AbsPath, prefix: &str) -> Result<(), TapeWriteError> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with(prefix) || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = directory.child(&name);
        let failed = |cause| TapeWriteError::Write { path: path.clone(), cause };
        let held = File::open(&path).map_err(failed)?;
        match held.try_lock() {
            Ok(()) => remove_tree(path.as_path()).map_err(failed)?,
            Err(TryLockError::WouldBlock) => return Err(TapeWriteError::Busy { path }),
            Err(TryLockError::Error(cause)) => return Err(failed(cause)),
        }
    }
    Ok(())
}

/// Above this number, the whole file system is synced instead of each file.
const ONE_BY_ONE: usize = 256;

/// Syncs a tree to disk.
fn sync(directory: &Path) -> io::Result<()> {
    let mut all = Vec::new();
    list(directory, &mut all)?;
    if all.len() > ONE_BY_ONE {
        return Ok(rustix::fs::syncfs(File::open(directory)?)?);
    }
    all.iter().try_for_each(|path| File::open(path)?.sync_all())
}

/// Everything below a directory, then the directory itself.
fn list(directory: &Path, all: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => list(&entry.path(), all)?,
            false => all.push(entry.path()),
        }
    }
    all.push(directory.to_owned());
    Ok(())
}
