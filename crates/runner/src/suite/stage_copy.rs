//! Copies files and directories into a stage.

use super::originals::Original;
use super::stage::StageError;
use belljar_contract::AbsPath;
use belljar_sandbox::copy_tree;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether a directory of the workspace exists. The agent of an earlier part may have replaced it by a link, which
/// belljar would follow; no process of the agent runs now.
pub(super) fn is_directory(path: &AbsPath) -> Result<bool, StageError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(StageError::Replaced { path: path.clone() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(StageError::Make { path: path.clone(), cause }),
    }
}

pub(super) fn copy_directory(from: &Original, to: &AbsPath) -> Result<(), StageError> {
    let wrong = |why| StageError::Source { what: from.what, path: from.path.clone(), why };
    match from.metadata() {
        Err(_gone) => return Err(wrong("does not exist")),
        Ok(found) if !found.is_dir() => return Err(wrong("is not a directory")),
        Ok(_) => {}
    }
    let copied = copy_tree(&from.place(), to.as_path());
    copied.map(|_tree| ()).map_err(|cause| StageError::Copy { path: from.path.clone(), cause })
}

pub(super) fn base_name(what: &'static str, path: &AbsPath) -> Result<String, StageError> {
    let name = path.file_name().and_then(OsStr::to_str).filter(|name| !name.starts_with('.'));
    name.map(str::to_owned).ok_or_else(|| StageError::Name { what, name: path.to_string() })
}

/// A name that is not taken yet.
pub(super) fn free_name(taken: &mut BTreeSet<String>, base: &str) -> String {
    let mut name = base.to_owned();
    let mut number = 2;
    while !taken.insert(name.clone()) {
        name = format!("{base}-{number}");
        number += 1;
    }
    name
}

/// Copies one file of a directory. Missing files, and files behind links, are not copied.
pub(super) fn copy_one(from: &Directory, file: &Path, to: &AbsPath) -> io::Result<()> {
    let Some(name) = file.file_name() else { return Ok(()) };
    let parent = match from.passage(file.parent().unwrap_or(Path::new(""))) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        parent => parent?,
    };
    let Some(found) = parent.status_if_present(name)? else { return Ok(()) };
    let target = to.as_path().join(file);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    match found.kind {
        InodeKind::Symlink => std::os::unix::fs::symlink(parent.link_target(name)?, target),
        InodeKind::File => {
            let mut source = parent.file(name)?;
            let mut made = fs::OpenOptions::new().write(true).create_new(true).open(&target)?;
            io::copy(&mut source, &mut made)?;
            // Without set-id bits, as when a whole directory is copied.
            made.set_permissions(fs::Permissions::from_mode(found.mode & 0o777))
        }
        // A nested repository; and pipes and sockets, which have no content.
        InodeKind::Directory
        | InodeKind::Fifo
        | InodeKind::Socket
        | InodeKind::CharacterDevice
        | InodeKind::BlockDevice
        | InodeKind::Unknown => Ok(()),
    }
}
