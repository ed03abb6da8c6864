//! The journal of an apply that writes a group, so that the next command can undo it if it is killed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use belljar_sys::beneath::{Status, Time};

use super::apply::{RefusedBecause, failed};
use super::{LayersError, Overlay};

pub(super) const JOURNAL: &str = "group";
pub(super) const HEAD: &[u8] = b"belljar group 2";
/// The first version, which recorded only the inode of a new entry.
const HEAD_1: &[u8] = b"belljar group 1";
/// How far a group got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Locking,
    Committing,
    Done,
}

impl State {
    fn word(self) -> &'static [u8] {
        match self {
            State::Locking => b"locking",
            State::Committing => b"committing",
            State::Done => b"done",
        }
    }
}

/// What a step does, as the journal has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JournalAct {
    /// Takes a lock of git.
    Lock,
    /// Moves a file to a temporary name.
    Delete,
    RemoveDirectory,
    MakeDirectory,
    /// Finds the directory that is wanted.
    KeepDirectory,
    /// Puts a file where nothing is.
    New,
    /// Lets a file change places with the user's.
    Exchange,
}

impl JournalAct {
    pub(super) const ALL: [JournalAct; 7] = [
        JournalAct::Lock,
        JournalAct::Delete,
        JournalAct::RemoveDirectory,
        JournalAct::MakeDirectory,
        JournalAct::KeepDirectory,
        JournalAct::New,
        JournalAct::Exchange,
    ];

    fn letter(self) -> char {
        match self {
            JournalAct::Lock => 'l',
            JournalAct::Delete => 'd',
            JournalAct::RemoveDirectory => 'r',
            JournalAct::MakeDirectory => 'm',
            JournalAct::KeepDirectory => 'k',
            JournalAct::New => 'n',
            JournalAct::Exchange => 'x',
        }
    }
}

/// Identifies the entry that was made or, for a directory, removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JournalMark {
    pub inode: u64,
    pub mode: u32,
    pub owner: u32,
    pub group: u32,
    pub size: u64,
    pub modified: Time,
}

impl From<&Status> for JournalMark {
    fn from(status: &Status) -> Self {
        let Status { identity, mode, owner, group, size, modified, .. } = *status;
        JournalMark { inode: identity.inode, mode, owner, group, size, modified }
    }
}

impl JournalMark {
    /// An entry of the first version. The inode alone does not prove that the file is unchanged.
    fn of_old(deed: JournalAct, inode: u64) -> Option<Self> {
        let owner = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let modified = Time { seconds: 0, nanoseconds: 0 };
        let mark = JournalMark { inode, mode: 0o755, owner, group, size: 0, modified };
        (inode != 0 || deed == JournalAct::RemoveDirectory).then_some(mark)
    }
}

/// A step as the journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JournalStep {
    pub tree: usize,
    pub deed: JournalAct,
    /// Whether the user's change goes with it.
    pub forced: bool,
    /// The name beside the place.
    pub beside: OsString,
    pub mark: Option<JournalMark>,
    pub path: PathBuf,
}

impl JournalStep {
    /// Whether this is the entry that was made, and it was not written to since. Its ctime is that of the exchange.
    pub(super) fn is_ours(&self, found: &Status) -> bool {
        self.mark == Some(JournalMark::from(found))
    }

    pub(super) fn is_made(&self, found: &Status) -> bool {
        self.mark.is_some_and(|mark| mark.inode == found.identity.inode)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Journal {
    pub state: State,
    pub steps: Vec<JournalStep>,
}

impl Journal {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = [HEAD, self.state.word()].join(&0);
        for JournalStep { tree, deed, forced, beside, mark, path } in &self.steps {
            let letter = deed.letter();
            let letter = if *forced { letter.to_ascii_uppercase() } else { letter };
            out.extend(format!("\0{tree} {letter}").as_bytes());
            if let Some(JournalMark {
                inode,
                mode,
                owner,
                group,
                size,
                modified: Time { seconds, nanoseconds },
            }) = mark
            {
                let mark = format!(" {inode} {mode} {owner} {group} {size} {seconds} {nanoseconds}");
                out.extend(mark.as_bytes());
            }
            out.push(0);
            out.extend(beside.as_bytes());
            out.push(0);
            out.extend(path.as_os_str().as_bytes());
        }
        out.extend(b"\0\0");
        out
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = |bytes: &[u8]| OsString::from(OsStr::from_bytes(bytes));
        let mut parts = bytes.strip_suffix(b"\0\0")?.split(|byte| *byte == 0);
        let head = parts.next()?;
        let is_old = head == HEAD_1;
        (is_old || head == HEAD).then_some(())?;
        let word = parts.next()?;
        let state = [State::Locking, State::Committing, State::Done]
            .into_iter()
            .find(|state| state.word() == word)?;
        let mut steps = Vec::new();
        while let Some(head) = parts.next() {
            let mut fields = std::str::from_utf8(head).ok()?.split(' ');
            let tree = fields.next()?.parse().ok()?;
            let letter = fields.next()?.parse::<char>().ok()?;
            let deed =
                JournalAct::ALL.into_iter().find(|deed| deed.letter() == letter.to_ascii_lowercase())?;
            let mark = match fields.next() {
                None => None,
                Some(inode) if is_old => JournalMark::of_old(deed, inode.parse().ok()?),
                Some(inode) => Some(JournalMark {
                    inode: inode.parse().ok()?,
                    mode: fields.next()?.parse().ok()?,
                    owner: fields.next()?.parse().ok()?,
                    group: fields.next()?.parse().ok()?,
                    size: fields.next()?.parse().ok()?,
                    modified: Time {
                        seconds: fields.next()?.parse().ok()?,
                        nanoseconds: fields.next()?.parse().ok()?,
                    },
                }),
            };
            let forced = letter.is_ascii_uppercase();
            let (beside, path) = (text(parts.next()?), text(parts.next()?).into());
            steps.push(JournalStep { tree, deed, forced, beside, mark, path });
        }
        Some(Journal { state, steps })
    }

    /// Reads it; `None` where there is none. One that is not understood is an error.
    pub(super) fn read(overlays: &[Overlay]) -> Result<Option<Self>, LayersError> {
        let Some(first) = overlays.first() else { return Ok(None) };
        let path = first.directory.join(JOURNAL);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(LayersError::Journal { path, cause }),
            Ok(bytes) => bytes,
        };
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "written by another version, or damaged");
        Self::parse(&bytes).map(Some).ok_or_else(|| LayersError::Journal { path, cause: strange() })
    }

    pub(super) fn write(&self, overlays: &[Overlay]) -> Result<(), RefusedBecause> {
        let path = overlays[0].directory.join(JOURNAL);
        super::replace(&path, &self.bytes()).map_err(|error| failed(belljar_sys::fds::errno_of(&error)))
    }

    pub(super) fn remove(overlays: &[Overlay]) {
        // If the journal cannot be removed, the next command reads it and finds nothing to do.
        fs::remove_file(overlays[0].directory.join(JOURNAL)).ok();
    }
}

/// Whether a group was interrupted.
pub(super) fn is_interrupted(overlay: &Overlay) -> bool {
    match overlay.directory.join(JOURNAL).symlink_metadata() {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(_) => true,
    }
}
