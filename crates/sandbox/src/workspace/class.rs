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
    Ok(match special(status.kind) {
        Some(special) => EntryKind::Special(special),
        None => match status.kind {
            InodeKind::Directory => EntryKind::Directory,
            InodeKind::Symlink => EntryKind::Symlink(target()?),
            _ if status.mode & SET_ID_BITS != 0 => EntryKind::SetIdFile,
            _ => EntryKind::File,
        },
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
