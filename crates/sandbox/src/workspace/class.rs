//! How the class of guarded files sees an entry of the disk.

use std::path::PathBuf;

use belljar_class::{EntryKind, SpecialKind};
use belljar_sys::beneath::{InodeKind, Status};

const SET_ID_BITS: u32 = 0o6000;

/// The kind for a class; the text of a link is fetched by `target`.
pub(super) fn entry_kind<E>(
    status: &Status,
    target: impl FnOnce() -> Result<PathBuf, E>,
) -> Result<EntryKind, E> {
    Ok(match status.kind {
        InodeKind::Directory => EntryKind::Directory,
        InodeKind::Symlink => EntryKind::Symlink(target()?),
        InodeKind::File if status.mode & SET_ID_BITS != 0 => EntryKind::SetIdFile,
        InodeKind::File => EntryKind::File,
        InodeKind::Fifo
        | InodeKind::Socket
        | InodeKind::CharacterDevice
        | InodeKind::BlockDevice
        | InodeKind::Unknown => EntryKind::Special(special(status.kind).unwrap_or(SpecialKind::Unknown)),
    })
}

/// `None` for files, directories and links.
pub(super) fn special(kind: InodeKind) -> Option<SpecialKind> {
    match kind {
        InodeKind::File | InodeKind::Directory | InodeKind::Symlink => None,
        InodeKind::Fifo => Some(SpecialKind::Fifo),
        InodeKind::Socket => Some(SpecialKind::Socket),
        InodeKind::CharacterDevice => Some(SpecialKind::CharacterDevice),
        InodeKind::BlockDevice => Some(SpecialKind::BlockDevice),
        InodeKind::Unknown => Some(SpecialKind::Unknown),
    }
}
