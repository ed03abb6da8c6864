//! Removes a whole tree with untrusted content.
//!
//! It may be deeper than descriptors or path lengths reach, and its directories may be closed. Each directory is
//! opened to its owner and moved up to the top before it is emptied, so that depth does not matter.

use std::ffi::{OsStr, OsString};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Onto};
use std::path::Path;

/// Removes everything in a directory; the directory stays.
pub(super) fn empty(top: &Directory) -> Result<(), (OsString, Errno)> {
    let mut number = 0_u64;
    loop {
        let entries = entries(top).map_err(|cause| (OsString::new(), cause))?;
        if entries.is_empty() {
            return Ok(());
        }
        for (name, kind) in entries {
            remove_one(top, &name, kind, &mut number).map_err(|cause| (name, cause))?;
        }
    }
}

fn remove_one(top: &Directory, name: &OsStr, kind: InodeKind, number: &mut u64) -> Result<(), Errno> {
    if kind != InodeKind::Directory {
        return absent_is_fine(top.remove(name));
    }
    top.set_mode(name, 0o700)?;
    let directory = top.directory(Path::new(name))?;
    for (child, kind) in entries(&directory)? {
        if kind != InodeKind::Directory {
            absent_is_fine(directory.remove(&child))?;
            continue;
        }
        // A directory that changes its parent must be writable itself.
        directory.set_mode(&child, 0o700)?;
        loop {
            *number += 1;
            let to = OsString::from(format!(".belljar-removed-{number}"));
            match directory.rename(&child, top, &to, Onto::Nothing) {
                Err(Errno::EXIST) => {}
                answer => break answer?,
            }
        }
    }
    top.remove_directory(name)
}

fn entries(directory: &Directory) -> Result<Vec<(OsString, InodeKind)>, Errno> {
    let mut entries = Vec::new();
    directory.entries(|name, kind| entries.push((name.to_owned(), kind)))?;
    Ok(entries)
}

pub(super) fn absent_is_fine(answer: Result<(), Errno>) -> Result<(), Errno> {
    match answer {
        Err(Errno::NOENT) => Ok(()),
        answer => answer,
    }
}

/// Does `act` in a directory of ours that may be closed even to its owner; it is as closed as before afterwards.
pub(super) fn opened<T>(directory: &Directory, act: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match act() {
        Err(Errno::ACCESS) => {
            let mode = directory.own_status()?.mode;
            directory.set_own_mode(mode | 0o700)?;
            let outcome = act();
            directory.set_own_mode(mode)?;
            // Permissions were changed by us, not by somebody who moved the directory; see `Starts::moved`.
            directory.touch()?;
            outcome
        }
        answer => answer,
    }
}
