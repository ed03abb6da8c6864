//! When runs began, by the clock of the file system: what changed in the project after that is not overwritten.
//!
//! Nothing is recorded per file, so that a start costs the same for ten files and a hundred thousand. A ctime cannot
//! be set by anyone, and a change later than the start has a later one. So has a file one of whose other names was
//! applied before: its second name is refused in a later apply, which is safe, and rare.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use belljar_sys::beneath::{Directory, Status, Time};

/// The form of the file, and its version.
const HEAD: &str = "belljar overlay starts 1";

/// The beginnings of the runs on an upper layer, earliest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Starts(Vec<Time>);

impl Starts {
    /// Notes that a run begins now.
    pub(super) fn add(directory: &Path, file: &Path) -> std::io::Result<()> {
        let now = now(directory)?;
        let mut out = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
        if out.metadata()?.len() == 0 {
            writeln!(out, "{HEAD}")?;
        }
        writeln!(out, "{} {}", now.seconds, now.nanoseconds)
    }

    /// Reads them. Without the file there are none; a line that is not understood is an error.
    pub(super) fn read(file: &Path) -> std::io::Result<Self> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Starts(Vec::new())),
            answer => answer?,
        };
        let malformed = || std::io::Error::new(std::io::ErrorKind::InvalidData, "not a list of starts");
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(malformed());
        }
        let mut starts = Vec::new();
        for line in lines {
            let (seconds, nanoseconds) = line.split_once(' ').ok_or_else(malformed)?;
            let seconds = seconds.parse().map_err(|_number| malformed())?;
            let nanoseconds = nanoseconds.parse().map_err(|_number| malformed())?;
            starts.push(Time { seconds, nanoseconds });
        }
        starts.sort();
        Ok(Starts(starts))
    }

    /// The start of the run that made an entry of the upper layer. `None` when no start is known: then nothing in the
    /// project is known to be older.
    pub(super) fn of(&self, born: Option<Time>) -> Option<Time> {
        let began = |start: &&Time| born.is_none_or(|born| **start <= born);
        match born {
            Some(_) => self.0.iter().rev().find(began).or(self.0.first()).copied(),
            None => self.0.first().copied(),
        }
    }
}

/// Whether an entry of the project changed after the start.
///
/// The times of a directory move with its entries, so that only being moved itself, or given other permissions, is
/// told: it sets the ctime without the mtime.
pub(super) fn changed_after(start: Option<Time>, status: &Status) -> bool {
    let Some(start) = start else { return true };
    // Equal is before: the clock of files ticks in milliseconds, and the agent starts later than that.
    let later = status.changed > start;
    match status.kind {
        belljar_sys::beneath::Kind::Directory => later && status.modified < status.changed,
        _ => later,
    }
}

fn now(directory: &Path) -> std::io::Result<Time> {
    let directory = Directory::open(directory)?;
    let name = OsStr::new("now");
    super::super::removal::absent_is_fine(directory.remove(name))?;
    directory.create(name, 0o600)?;
    let now = directory.status(name)?.changed;
    directory.remove(name)?;
    Ok(now)
}
