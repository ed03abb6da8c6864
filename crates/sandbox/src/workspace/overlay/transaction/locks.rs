//! The locks of git that are held while a group is written.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use belljar_sys::Errno;
use belljar_sys::beneath::Onto;

use crate::workspace::overlay::apply::{RefusedBecause, failed, place_failed};
use crate::workspace::overlay::layers::Layers;
use crate::workspace::place::Placing;
use crate::workspace::removal::{absent_is_fine, opened};

/// The content of our locks, which distinguishes them from git's.
const SIGNATURE: &[u8] = b"belljar apply\n";

pub(super) fn take_lock(layers: &Layers, path: &Path) -> Result<(), RefusedBecause> {
    let (parent, name) = match layers.lower.parent(path) {
        // Without the directory there is nothing to lock.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        answer => answer.map_err(failed)?,
    };
    // Whole before it has its name, so that one that is left behind is known for ours.
    let fresh = Placing::fresh_name().map_err(place_failed)?;
    let mut file = opened(&parent, || parent.create(&fresh, 0o600)).map_err(failed)?;
    let written = file.write_all(SIGNATURE).map_err(|error| belljar_sys::fds::errno_of(&error));
    let named =
        written.and_then(|()| opened(&parent, || parent.rename(&fresh, &parent, name, Onto::Nothing)));
    match named {
        Ok(()) => Ok(()),
        Err(cause) => {
            opened(&parent, || absent_is_fine(parent.remove(&fresh))).map_err(failed)?;
            Err(if cause == Errno::EXIST { RefusedBecause::Locked } else { failed(cause) })
        }
    }
}

/// Removes a lock, if it is ours.
pub(super) fn release_lock(layers: &Layers, path: &Path) -> Result<(), Errno> {
    let (parent, name) = match layers.lower.parent(path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        answer => answer?,
    };
    let file = match parent.file(name) {
        Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => return Ok(()),
        answer => answer?,
    };
    let mut found = Vec::new();
    let read = io::Read::read_to_end(&mut io::Read::take(file, 64), &mut found);
    read.map_err(|error| belljar_sys::fds::errno_of(&error))?;
    if found == SIGNATURE {
        opened(&parent, || absent_is_fine(parent.remove(name)))?;
    }
    Ok(())
}

/// Removes our locks in a directory that is about to be removed: without the directory git cannot lock there either.
pub(super) fn release_locks_in(layers: &Layers, directory: &Path) -> Result<(), Errno> {
    let mut names = Vec::new();
    match layers.lower.root().directory(directory) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(()),
        answer => answer?.entries(|name, _kind| names.push(name.to_owned()))?,
    }
    let locks = names.iter().filter(|name| name.as_bytes().ends_with(b".lock"));
    locks.map(|name| directory.join(name)).try_for_each(|path| release_lock(layers, &path))
}
