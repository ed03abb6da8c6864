//! A tape in the making. It has another name until it is whole and on the disk; then it takes its place in one step.

use super::error::TapeWriteError;
use super::reader::Tape;
use super::{EXCHANGES, HEAD};
use crate::disk::remove_tree;
use crate::line;
use belljar_contract::{AbsPath, Digest, EventRecord, Logged, Run, RunResult, TapeHead, TapePart};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// What stands before and behind the tape's name while it is made.
const BEFORE: &str = ".";
const BEHIND: &str = ".recording-";

/// A tape that nobody can mistake for one. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct TapeDraft {
    target: AbsPath,
    path: AbsPath,
    /// The folder itself, locked for as long as this process lives: whoever finds a draft can tell whether it is alive.
    held: File,
    parts: BTreeMap<String, TapePart>,
    placed: bool,
}

impl TapeDraft {
    /// Begins a tape, and removes what dead ones left at the same place.
    ///
    /// # Errors
    /// When it cannot be made, or another one is being made.
    pub fn begin(target: &AbsPath) -> Result<Self, TapeWriteError> {
        let failed = |path: &AbsPath, cause| TapeWriteError::Write { path: path.clone(), cause };
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(folder) = target.parent() else {
            return Err(failed(target, io::Error::other("it has no folder")));
        };
        fs::create_dir_all(&folder).map_err(|cause| failed(&folder, cause))?;
        if fs::symlink_metadata(target).is_ok() && !target.child(HEAD).as_path().is_file() {
            return Err(TapeWriteError::InTheWay { path: target.clone() });
        }
        let prefix = format!("{BEFORE}{name}{BEHIND}");
        sweep(&folder, &prefix)?;
        let path = folder.child(&format!("{prefix}{}", std::process::id()));
        fs::create_dir(&path).map_err(|cause| failed(&path, cause))?;
        let held = File::open(&path).map_err(|cause| failed(&path, cause))?;
        held.try_lock().map_err(|error| failed(&path, error.into()))?;
        Ok(Self { target: target.clone(), path, held, parts: BTreeMap::new(), placed: false })
    }

    /// Takes a file over, as a part of this name; one that is not there is no part.
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

    /// Takes a folder over, file by file. `listed` says whether they are parts; bodies are listed by the exchanges.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn folder(&mut self, name: &str, from: &AbsPath, listed: Listed) -> Result<(), TapeWriteError> {
        for entry in fs::read_dir(from).into_iter().flatten().flatten() {
            let Ok(file) = entry.file_name().into_string() else { continue };
            let (inner, source) = (format!("{name}/{file}"), from.child(&file));
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.folder(&inner, &source, listed)?,
                Ok(kind) if kind.is_file() => match listed {
                    Listed::AsParts => self.file(&inner, &source)?,
                    Listed::ByExchanges => self.copy(&inner, &source).map(drop)?,
                },
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
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

    /// Writes the record of a run, chained anew.
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

    /// How many exchanges it has.
    ///
    /// # Errors
    /// When they cannot be counted.
    pub fn exchanges(&self) -> Result<u64, TapeWriteError> {
        let path = self.path.child(EXCHANGES);
        let failed = |cause| TapeWriteError::Write { path: path.clone(), cause };
        let mut file = File::open(&path).map_err(failed)?;
        let (mut buffer, mut lines) = ([0; 64 << 10], 0);
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => return Ok(lines),
                count => lines += buffer[..count].iter().filter(|byte| **byte == b'\n').count() as u64,
            }
        }
    }

    /// Writes the manifest, reads all of it back, and puts the tape in its place. An old one there is replaced.
    ///
    /// # Errors
    /// When that fails; then what was there is there still.
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
        self.place().map_err(|cause| failed(&self.target, cause))?;
        Ok(self.target.clone())
    }

    fn place(&mut self) -> io::Result<()> {
        let (from, to) = (self.path.as_path(), self.target.as_path());
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => self.placed = true,
            // The old tape gets the draft's name, and goes with it.
            Err(Errno::EXIST) => renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)?,
            Err(errno) => return Err(errno.into()),
        }
        match self.target.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for TapeDraft {
    fn drop(&mut self) {
        if !self.placed {
            // The next recording sweeps what cannot be removed now.
            remove_tree(self.path.as_path()).ok();
        }
        self.held.unlock().ok();
    }
}

/// How the files of a folder are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Each is a part with a digest.
    AsParts,
    /// Each is a body, called by its digest.
    ByExchanges,
}

/// Removes drafts whose makers are dead.
fn sweep(folder: &AbsPath, prefix: &str) -> Result<(), TapeWriteError> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with(prefix) || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = folder.child(&name);
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

/// More files than this are not flushed one by one.
const ONE_BY_ONE: usize = 256;

/// Brings a tree to the disk.
fn sync(folder: &Path) -> io::Result<()> {
    let mut all = Vec::new();
    list(folder, &mut all)?;
    if all.len() > ONE_BY_ONE {
        return Ok(rustix::fs::syncfs(File::open(folder)?)?);
    }
    all.iter().try_for_each(|path| File::open(path)?.sync_all())
}

/// Everything below a folder, and then the folder.
fn list(folder: &Path, all: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => list(&entry.path(), all)?,
            false => all.push(entry.path()),
        }
    }
    all.push(folder.to_owned());
    Ok(())
}
