//! Reads the names in a git index (versions 2, 3 and 4).
//!
//! The bytes may come from a stranger: every length is checked against the bytes that are there, a path has a largest
//! length, and nothing is followed or fetched. Objects are never read.
//!
//! Written here because gix-index (0.58) follows the tree extension as deep as the file says, which ends the process,
//! and expands the paths of version 4 without a limit; it would also bring 45 crates.

use std::ops::ControlFlow;

/// No path of a file system is longer.
const LONGEST_PATH: usize = 4096;
/// Times, device, inode, mode, owner, group and size of an entry.
const STAT_LENGTH: usize = 40;
/// Where the mode lies in them.
const MODE_AT: usize = 24;

const EXTENDED: u16 = 0x4000;
const NAME_LENGTH: u16 = 0x0fff;
const SKIP_WORKTREE: u16 = 0x4000;
const INTENT_TO_ADD: u16 = 0x2000;

const TYPE_MASK: u32 = 0o170_000;
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_GITLINK: u32 = 0o160_000;

/// How many bytes an object name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashLength {
    /// SHA-1.
    Twenty,
    /// SHA-256.
    ThirtyTwo,
}

impl HashLength {
    /// The number.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Twenty => 20,
            Self::ThirtyTwo => 32,
        }
    }
}

/// An entry, as far as its name is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry<'a> {
    /// Its path in the work tree. Never empty, absolute or leading out, and never in a git directory.
    pub path: &'a [u8],
    /// The work tree does not hold it on purpose.
    pub skip_worktree: bool,
    /// Only its name was added, with `git add -N`: no content of it is in the repository.
    pub intent_to_add: bool,
    /// It stands for another repository.
    pub gitlink: bool,
    /// The name of the object.
    pub id: &'a [u8],
    /// Its kind and permissions.
    pub mode: u32,
    /// Its side, where a merge is not finished.
    pub stage: u8,
}

/// Why an index cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// It ends early, or its parts contradict each other.
    #[error("it is damaged or cut off")]
    Damaged,
    /// Another file.
    #[error("it is not a git index")]
    Foreign,
    /// A newer version, or an extension that has to be understood.
    #[error("it uses {0}, which belljar does not read")]
    Unsupported(&'static str),
    /// A path that no work tree has.
    #[error("it names a path that no work tree can have")]
    Path,
}

/// Shows each entry to `visit`, in the order of the index, until it has seen enough. An index of which any part cannot
/// be read is an error, also when the entries before that part could be.
///
/// # Errors
/// When any part of it cannot be read.
pub fn read(
    bytes: &[u8],
    hash: HashLength,
    mut visit: impl FnMut(IndexEntry<'_>) -> ControlFlow<()>,
) -> Result<(), IndexError> {
    let hash = hash.bytes();
    let content =
        bytes.len().checked_sub(hash).and_then(|end| bytes.get(..end)).ok_or(IndexError::Damaged)?;
    let mut cursor = Cursor { rest: content, taken: 0 };
    if cursor.take(4)? != b"DIRC" {
        return Err(IndexError::Foreign);
    }
    let version = match cursor.number()? {
        version @ 2..=4 => version,
        _ => return Err(IndexError::Unsupported("another version of the format")),
    };
    let count = cursor.number()?;
    let mut path = Vec::with_capacity(256);
    for _ in 0..count {
        let entry = cursor.entry(version, hash, &mut path)?;
        check(&path)?;
        let EntryHead { skip_worktree, intent_to_add, gitlink, id, mode, stage } = entry;
        let entry = IndexEntry { path: &path, skip_worktree, intent_to_add, gitlink, id, mode, stage };
        if visit(entry).is_break() {
            return Ok(());
        }
    }
    extensions(cursor)
}

/// Extensions whose name begins with a capital letter may be passed over.
fn extensions(mut cursor: Cursor<'_>) -> Result<(), IndexError> {
    while !cursor.rest.is_empty() {
        let name = cursor.take(4)?;
        let length = usize::try_from(cursor.number()?).unwrap_or(usize::MAX);
        cursor.take(length)?;
        match name {
            b"link" => return Err(IndexError::Unsupported("a split index")),
            b"sdir" => return Err(IndexError::Unsupported("a sparse index")),
            _ if name.first().is_some_and(u8::is_ascii_uppercase) => {}
            _ => return Err(IndexError::Unsupported("an extension of git")),
        }
    }
    Ok(())
}

/// What git itself refuses in an index, as far as names lead out of the work tree or into a git directory.
fn check(path: &[u8]) -> Result<(), IndexError> {
    let wrong = |name: &[u8]| matches!(name, b"" | b"." | b"..") || name.eq_ignore_ascii_case(b".git");
    if path.contains(&0) || path.split(|byte| *byte == b'/').any(wrong) {
        return Err(IndexError::Path);
    }
    Ok(())
}

struct EntryHead<'a> {
    skip_worktree: bool,
    intent_to_add: bool,
    gitlink: bool,
    id: &'a [u8],
    mode: u32,
    stage: u8,
}

struct Cursor<'a> {
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], IndexError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(IndexError::Damaged)?;
        self.rest = rest;
        self.taken += length;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, IndexError> {
        let bytes = self.take(4)?.try_into().map_err(|_length| IndexError::Damaged)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn short(&mut self) -> Result<u16, IndexError> {
        let bytes = self.take(2)?.try_into().map_err(|_length| IndexError::Damaged)?;
        Ok(u16::from_be_bytes(bytes))
    }

    /// Up to a NUL, which is taken too.
    fn text(&mut self) -> Result<&'a [u8], IndexError> {
        let within = &self.rest[..self.rest.len().min(LONGEST_PATH + 1)];
        let end = within.iter().position(|byte| *byte == 0).ok_or(IndexError::Damaged)?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(text)
    }

    /// git's number of variable length: seven bits to a byte, and each further byte adds one.
    fn varint(&mut self) -> Result<usize, IndexError> {
        let mut value = 0_usize;
        loop {
            let byte = self.take(1)?[0];
            value = (value << 7) | usize::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            value += 1;
            if value > LONGEST_PATH {
                return Err(IndexError::Damaged);
            }
        }
    }

    /// Reads an entry; `path` holds that of the entry before it, and that of this one afterwards.
    fn entry(&mut self, version: u32, hash: usize, path: &mut Vec<u8>) -> Result<EntryHead<'a>, IndexError> {
        let start = self.taken;
        let stat = self.take(STAT_LENGTH)?;
        let mode = stat[MODE_AT..MODE_AT + 4].try_into().map_err(|_length| IndexError::Damaged)?;
        let mode = u32::from_be_bytes(mode);
        let kind = mode & TYPE_MASK;
        if kind == TYPE_DIRECTORY {
            return Err(IndexError::Unsupported("a sparse index"));
        }
        let id = self.take(hash)?;
        let flags = self.short()?;
        let further = match (flags & EXTENDED != 0, version) {
            (false, _) => 0,
            (true, 2) => return Err(IndexError::Damaged),
            (true, _) => self.short()?,
        };
        if version == 4 {
            let kept = path.len().checked_sub(self.varint()?).ok_or(IndexError::Damaged)?;
            path.truncate(kept);
            path.extend_from_slice(self.text()?);
        } else {
            path.clear();
            match flags & NAME_LENGTH {
                NAME_LENGTH => path.extend_from_slice(self.text()?),
                length => {
                    path.extend_from_slice(self.take(usize::from(length))?);
                    self.take(1)?;
                }
            }
            // Padded to eight bytes; one NUL of that is taken already.
            let length = self.taken - start;
            self.take(length.next_multiple_of(8) - length)?;
        }
        if path.len() > LONGEST_PATH {
            return Err(IndexError::Path);
        }
        let stage = (flags >> 12 & 3) as u8;
        let skip_worktree = further & SKIP_WORKTREE != 0;
        let intent_to_add = further & INTENT_TO_ADD != 0;
        Ok(EntryHead { skip_worktree, intent_to_add, gitlink: kind == TYPE_GITLINK, id, mode, stage })
    }
}
