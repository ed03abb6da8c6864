//! Mounts and files: recursive read-only, identity, sharing copies, and whether overlays work.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountFlags};

use crate::process::{Ended, in_child};

/// Why an operation on mounts or files failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mounts below stay writable.
    #[error("cannot make everything below {} read-only", path.display())]
    ReadOnly {
        /// The top.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The file cannot be identified.
    #[error("cannot identify {}", path.display())]
    Identify {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The content was not copied.
    #[error("cannot copy a file")]
    Copy(#[source] std::io::Error),
    /// The path has a NUL in it or a directory for the probe cannot be made.
    #[error("cannot use {} for an overlay", path.display())]
    Probe {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
}

/// Identifies the file that a path pointed at, so that it can be compared again before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The number of the file on it.
    pub inode: u64,
}

/// The identity of the file itself; a link at the end is not followed.
///
/// # Errors
/// Fails if the file does not exist.
pub fn identity(path: &Path) -> Result<Identity, MountError> {
    try_identity(path).map_err(|cause| MountError::Identify { path: path.to_owned(), cause })
}

/// The same, with the kernel's error if the file has no identity.
///
/// # Errors
/// Fails if the file does not exist, or a directory above it may not be searched.
pub fn try_identity(path: &Path) -> Result<Identity, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::INO)?;
    Ok(Identity { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino })
}

/// The identity of what a descriptor, which may be one for its path only, points at.
///
/// # Errors
/// Fails if the kernel does not report it.
pub fn identity_of(file: BorrowedFd<'_>) -> Result<Identity, MountError> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(file, "", flags, StatxFlags::INO)
        .map_err(|cause| MountError::Identify { path: PathBuf::from("an open file"), cause })?;
    Ok(Identity { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino })
}

/// Makes the mount at `path` and all mounts below it read-only.
///
/// # Errors
/// Fails without `CAP_SYS_ADMIN` over the mount namespace, or if `path` is not a mount point.
pub fn read_only_recursive(path: &Path) -> Result<(), MountError> {
    let fault = |cause| MountError::ReadOnly { path: path.to_owned(), cause };
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_nul| fault(Errno::INVAL))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
    change_attributes(rustix::fs::CWD, &name, attributes, libc::AT_RECURSIVE).map_err(fault)
}

/// Adds attributes to the mount that a descriptor stands for, and to those below it where that is said.
pub(crate) fn set_attributes(
    mount: BorrowedFd<'_>,
    attributes: MountAttrFlags,
    below: Below,
) -> Result<(), Errno> {
    let flags = match below {
        Below::Left => libc::AT_EMPTY_PATH,
        Below::Too => libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
    };
    change_attributes(mount, c"", attributes, flags)
}

/// Whether the mounts below one are changed with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// They stay as they are.
    Left,
    /// They are.
    Too,
}

fn change_attributes(
    from: BorrowedFd<'_>,
    name: &CStr,
    attributes: MountAttrFlags,
    flags: libc::c_int,
) -> Result<(), Errno> {
    let attributes =
        libc::mount_attr { attr_set: attributes.bits().into(), attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is NUL-terminated and `attributes` is a whole `mount_attr` of the size given; the kernel
    // reads both and keeps neither.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            from.as_raw_fd(),
            name.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    crate::raw::check(answer).map(drop)
}

/// How a copy was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// Both files share their blocks until one is written.
    Shared,
    /// The bytes were copied.
    Bytes,
}

/// Copies the content, sharing blocks where the file system can. Holes stay holes: what is written is what takes room in
/// the source.
///
/// # Errors
/// Fails if neither way works.
pub fn share_or_copy(from: &File, to: &File) -> Result<Copied, MountError> {
    match rustix::fs::ioctl_ficlone(to, from) {
        Ok(()) => Ok(Copied::Shared),
        // The reasons why a file system cannot share are many (ENOTTY, EOPNOTSUPP, EXDEV, EINVAL); a real fault
        // shows again in the copy.
        Err(_cannot_share) => crate::sparse::copy(from, to).map(|()| Copied::Bytes).map_err(MountError::Copy),
    }
}

/// Whether an unprivileged overlay works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlaySupport {
    /// A mount was made.
    Works,
    /// The kernel said no.
    Refused(Errno),
    /// A user namespace to try it in could not be made.
    NoUserNamespace,
}

/// Mounts an overlay in a user namespace of a forked child, in `scratch` (an empty directory of the file system in
/// question), and returns whether the kernel accepted it.
///
/// # Errors
/// Fails if the directories for the probe cannot be made.
pub fn probe_overlay(scratch: &Path) -> Result<OverlaySupport, MountError> {
    let fault = |cause| MountError::Probe { path: scratch.to_owned(), cause };
    let [lower, upper, work, target] = ["lower", "upper", "work", "target"].map(|name| scratch.join(name));
    for directory in [&lower, &upper, &work, &target] {
        std::fs::create_dir_all(directory).map_err(fault)?;
    }
    let mut options = b"userxattr,lowerdir=".to_vec();
    for (option, directory) in [("", &lower), (",upperdir=", &upper), (",workdir=", &work)] {
        options.extend_from_slice(option.as_bytes());
        options.extend_from_slice(directory.as_os_str().as_bytes());
    }
    let options = CString::new(options).map_err(|nul| fault(nul.into()))?;
    let target = CString::new(target.as_os_str().as_bytes()).map_err(|nul| fault(nul.into()))?;
    let maps = crate::userns::Maps::own();
    let ended = in_child(move || {
        if crate::userns::enter(&maps, libc::CLONE_NEWNS).is_err() {
            return u8::MAX;
        }
        match rustix::mount::mount(c"overlay", &*target, c"overlay", MountFlags::empty(), Some(&*options)) {
            Ok(()) => 0,
            Err(cause) => u8::try_from(cause.raw_os_error()).unwrap_or(libc::EINVAL as u8),
        }
    })
    .map_err(|error| fault(std::io::Error::other(error)))?;
    Ok(match ended {
        Ended::Exited(0) => OverlaySupport::Works,
        Ended::Exited(255) | Ended::Killed(_) => OverlaySupport::NoUserNamespace,
        Ended::Exited(errno) => OverlaySupport::Refused(Errno::from_raw_os_error(errno)),
    })
}
