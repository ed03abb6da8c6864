//! Changes that mounts prevent, whatever the user allows.
//!
//! Existing files and directories of the class are mounted read-only over themselves, and the directories on the way to
//! them are mounted on themselves so that they stay in place. The kernel says which of these mounts still stand.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};

use belljar_sys::Errno;
use belljar_sys::beneath::Directory;
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags};

use super::caller::{Remedy, Spot};

impl Spot {
    /// Whether a yes lets something be made or written here.
    pub(super) fn remedy(&self) -> Remedy {
        let parent = self.parent.as_fd();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // An entry that does not exist is on the mount of its directory.
        let own = rustix::fs::openat(parent, &self.name, flags, Mode::empty());
        let own = own.as_ref().map_or(parent, AsFd::as_fd);
        if is_read_only(parent) || is_read_only(own) { Remedy::Mount } else { Remedy::Yes }
    }

    /// Whether a yes lets this entry be moved, or be replaced by another. One that is mounted stays where it is.
    pub(super) fn remedy_of_move(&self) -> Remedy {
        if is_mounted(&self.parent, &self.name) { Remedy::Mount } else { self.remedy() }
    }
}

/// Whether nothing can be written through the mount that a descriptor leads through.
pub(super) fn is_read_only(descriptor: BorrowedFd<'_>) -> bool {
    let found = rustix::fs::fstatvfs(descriptor);
    found.is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn is_mounted(parent: &Directory, name: &OsStr) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(parent, name, flags, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Whether two directories are on one mount. Nothing is moved or linked from one mount to another.
pub(super) fn share_mount(one: &Directory, other: &Directory) -> Result<bool, Errno> {
    let mount = |directory: &Directory| {
        let found = rustix::fs::statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        Ok(found.stx_mnt_id)
    };
    Ok(mount(one)? == mount(other)?)
}
