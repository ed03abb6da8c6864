//! Files below an open directory: no name leads out of it and no link is followed.
//!
//! A path that somebody else can write to is not resolved twice. The top is opened once; everything below is reached
//! from its descriptor, with `openat2` and `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS` (Linux
//! 5.6) for directories and with single names for what lies in them. A directory that was swapped for a link in
//! between is an error (`ELOOP`) and cannot lead outside.
//!
//! The errors are the kernel's: the caller knows the path and names it.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags, Uid};
use rustix::fs::{Statx, StatxTimestamp, Timespec, Timestamps};
use rustix::io::Errno;

use crate::mounts::Identity;

/// The kernel takes no longer path in one call; longer ones are walked in pieces.
const PIECE: usize = 4000;

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// The file system does not report the type.
    Unknown,
}

impl From<FileType> for InodeKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => InodeKind::File,
            FileType::Directory => InodeKind::Directory,
            FileType::Symlink => InodeKind::Symlink,
            FileType::Fifo => InodeKind::Fifo,
            FileType::Socket => InodeKind::Socket,
            FileType::CharacterDevice => InodeKind::CharacterDevice,
            FileType::BlockDevice => InodeKind::BlockDevice,
            FileType::Unknown => InodeKind::Unknown,
        }
    }
}

/// A time of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Since 1970.
    pub seconds: i64,
    /// Of the second.
    pub nanoseconds: u32,
}

impl From<StatxTimestamp> for Time {
    fn from(time: StatxTimestamp) -> Self {
        Time { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
    }
}

/// An entry as it was looked at; a link is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Which file it is.
    pub identity: Identity,
    /// Its type.
    pub kind: InodeKind,
    /// The permissions, set-id and sticky bits included.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// How many names it has.
    pub links: u32,
    /// The user.
    pub owner: u32,
    /// The group.
    pub group: u32,
    /// The device number, if it is a device node.
    pub stands_for: (u32, u32),
    /// When the content changed; anyone who may write to it can set this time.
    pub modified: Time,
    /// When anything of it changed; the kernel sets it, and programs cannot.
    pub changed: Time,
    /// When it came into being, where the file system knows.
    pub born: Option<Time>,
}

impl From<Statx> for Status {
    fn from(stat: Statx) -> Self {
        let born = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        Status {
            identity: Identity { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino },
            kind: FileType::from_raw_mode(stat.stx_mode.into()).into(),
            mode: u32::from(stat.stx_mode) & 0o7777,
            size: stat.stx_size,
            links: stat.stx_nlink,
            owner: stat.stx_uid,
            group: stat.stx_gid,
            stands_for: (stat.stx_rdev_major, stat.stx_rdev_minor),
            modified: stat.stx_mtime.into(),
            changed: stat.stx_ctime.into(),
            born: born.then(|| stat.stx_btime.into()),
        }
    }
}

/// What a rename does with a file that is already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto {
    /// There must be none.
    Nothing,
    /// It is replaced.
    Anything,
    /// Both change places.
    Exchange,
}

/// A directory and what lies below it.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl From<OwnedFd> for Directory {
    /// A directory that is open already.
    fn from(descriptor: OwnedFd) -> Self {
        Directory { descriptor }
    }
}

impl Directory {
    /// Opens the top. Links in this path are followed: it is the caller's own.
    ///
    /// # Errors
    /// Fails if it is not a directory or may not be read.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Directory { descriptor: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Opens a directory below, to read its entries. An empty path is this directory itself.
    ///
    /// # Errors
    /// `ELOOP` where a component is a link, `EXDEV` where the path leads out, `EINVAL` where it is not made of plain
    /// names.
    pub fn directory(&self, path: &Path) -> Result<Self, Errno> {
        self.below(path, OFlags::RDONLY)
    }

    /// Opens a directory below, to reach what is in it; it need not be readable.
    ///
    /// # Errors
    /// As [`Directory::directory`].
    pub fn passage(&self, path: &Path) -> Result<Self, Errno> {
        self.below(path, OFlags::PATH)
    }

    fn below(&self, path: &Path, access: OFlags) -> Result<Self, Errno> {
        let mut rest = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => rest.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::INVAL),
            }
        }
        let mut reached: Option<OwnedFd> = None;
        let mut rest = rest.into_iter().peekable();
        loop {
            let mut piece = PathBuf::new();
            while let Some(name) = rest.next_if(|name| piece.as_os_str().len() + name.len() < PIECE) {
                piece.push(name);
            }
            if piece.as_os_str().is_empty() {
                piece.push(rest.next().unwrap_or(OsStr::new(".")));
            }
            let flags = if rest.peek().is_some() { OFlags::PATH } else { access };
            let from = reached.as_ref().map_or(self.as_fd(), AsFd::as_fd);
            let next = open_beneath(from, &piece, flags | OFlags::DIRECTORY)?;
            if rest.peek().is_none() {
                return Ok(Directory { descriptor: next });
            }
            reached = Some(next);
        }
    }

    /// Opens a regular file to read it. Does not wait for a pipe and does not follow a link.
    ///
    /// # Errors
    /// `ELOOP` for a link, `EINVAL` for anything else that is not a regular file.
    pub fn file(&self, name: &OsStr) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        // Looked at first: opening a device can do something by itself.
        match self.status(name)?.kind {
            InodeKind::File => {}
            InodeKind::Symlink => return Err(Errno::LOOP),
            InodeKind::Directory
            | InodeKind::Fifo
            | InodeKind::Socket
            | InodeKind::CharacterDevice
            | InodeKind::BlockDevice
            | InodeKind::Unknown => return Err(Errno::INVAL),
        }
        let file = File::from(open_beneath(self.as_fd(), Path::new(plain(name)?), flags)?);
        if status_of(file.as_fd())?.kind == InodeKind::File { Ok(file) } else { Err(Errno::INVAL) }
    }

    /// Makes a file that was not there, for reading and writing.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken, also by a link.
    pub fn create(&self, name: &OsStr, mode: u32) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::openat(self, plain(name)?, flags, mode).map(File::from)
    }

    /// Looks at an entry.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub fn status(&self, name: &OsStr) -> Result<Status, Errno> {
        statx(self.as_fd(), plain(name)?, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Looks at an entry that may be absent.
    ///
    /// # Errors
    /// The kernel's answer, except `ENOENT`.
    pub fn status_if_present(&self, name: &OsStr) -> Result<Option<Status>, Errno> {
        match self.status(name) {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    /// Looks at the directory itself.
    ///
    /// # Errors
    /// Never for an open directory on a local file system.
    pub fn own_status(&self) -> Result<Status, Errno> {
        status_of(self.as_fd())
    }

    /// Calls `visit` with the name and the kind of each entry, in the order of the file system.
    ///
    /// # Errors
    /// The kernel's answer to reading the directory.
    pub fn entries(&self, mut visit: impl FnMut(&OsStr, InodeKind)) -> Result<(), Errno> {
        rustix::fs::seek(self, rustix::fs::SeekFrom::Start(0))?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = rustix::fs::RawDir::new(self.as_fd(), buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let mut kind = InodeKind::from(entry.file_type());
            // Some file systems do not report the type; a name that is gone meanwhile is left out.
            if kind == InodeKind::Unknown {
                let Some(status) = self.status_if_present(name)? else { continue };
                kind = status.kind;
            }
            visit(name, kind);
        }
        Ok(())
    }

    /// The text of a link.
    ///
    /// # Errors
    /// `EINVAL` if the entry is not a link.
    pub fn link_target(&self, name: &OsStr) -> Result<PathBuf, Errno> {
        let target = rustix::fs::readlinkat(self, plain(name)?, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken.
    pub fn make_directory(&self, name: &OsStr, mode: u32) -> Result<(), Errno> {
        rustix::fs::mkdirat(self, plain(name)?, Mode::from_raw_mode(mode))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken.
    pub fn make_symlink(&self, target: &Path, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::symlinkat(target, self, plain(name)?)
    }

    /// Gives the file `from` of `directory` a second name here; a link is linked itself.
    ///
    /// # Errors
    /// `EXDEV` across file systems, `EEXIST` where the name is taken.
    pub fn make_hard_link(&self, directory: &Directory, from: &OsStr, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::linkat(directory, plain(from)?, self, plain(name)?, AtFlags::empty())
    }

    /// Makes an overlay's mark for "deleted", which needs no privilege (Linux 5.8).
    ///
    /// # Errors
    /// `EEXIST` where the name is taken.
    pub fn make_whiteout(&self, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::mknodat(self, plain(name)?, FileType::CharacterDevice, Mode::empty(), 0)
    }

    /// Makes a named pipe.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken.
    pub fn make_pipe(&self, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::mknodat(self, plain(name)?, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
    }

    /// Renames an entry of this directory to a name in `directory`.
    ///
    /// # Errors
    /// `EEXIST` where nothing may be there and something is.
    pub fn rename(&self, name: &OsStr, directory: &Directory, to: &OsStr, onto: Onto) -> Result<(), Errno> {
        let flags = match onto {
            Onto::Nothing => RenameFlags::NOREPLACE,
            Onto::Anything => RenameFlags::empty(),
            Onto::Exchange => RenameFlags::EXCHANGE,
        };
        rustix::fs::renameat_with(self, plain(name)?, directory, plain(to)?, flags)
    }

    /// Removes an entry that is not a directory.
    ///
    /// # Errors
    /// `EISDIR` for a directory.
    pub fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::unlinkat(self, plain(name)?, AtFlags::empty())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY` where it is not empty.
    pub fn remove_directory(&self, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::unlinkat(self, plain(name)?, AtFlags::REMOVEDIR)
    }

    /// Sets the permissions of a file or directory; never of what a link points to. Needs no right to read it.
    ///
    /// # Errors
    /// `ELOOP` for a link, `EPERM` where the file is somebody else's.
    pub fn set_mode(&self, name: &OsStr, mode: u32) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let entry = rustix::fs::openat(self, plain(name)?, flags | OFlags::CLOEXEC, Mode::empty())?;
        if status_of(entry.as_fd())?.kind == InodeKind::Symlink {
            return Err(Errno::LOOP);
        }
        // An O_PATH descriptor takes no `fchmod` (and `fchmodat2` came with Linux 6.6); its name in /proc leads to
        // this very file, wherever its path leads by now.
        rustix::fs::chmod(own_name(entry.as_fd()), Mode::from_raw_mode(mode))
    }

    /// Sets the permissions of the directory itself.
    ///
    /// # Errors
    /// `EPERM` where it is somebody else's.
    pub fn set_own_mode(&self, mode: u32) -> Result<(), Errno> {
        rustix::fs::chmod(own_name(self.as_fd()), Mode::from_raw_mode(mode))
    }

    /// Waits until everything that was written to the file system of this directory is on the disk. The directory must be
    /// open to be read, not as a passage.
    ///
    /// # Errors
    /// The kernel's answer; also one to an earlier write that failed since the directory was opened (Linux 5.8).
    pub fn sync_file_system(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(self)
    }

    /// Sets when the entries of the directory itself changed to now.
    ///
    /// # Errors
    /// `EPERM` where it is somebody else's.
    pub fn touch(&self) -> Result<(), Errno> {
        let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let follow = AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, own_name(self.as_fd()), &times, follow)
    }

    /// Sets owner and group of an entry; of a link itself.
    ///
    /// # Errors
    /// `EPERM` without the privilege.
    pub fn set_owner(&self, name: &OsStr, owner: u32, group: u32) -> Result<(), Errno> {
        let (owner, group) = (Uid::from_raw(owner), Gid::from_raw(group));
        rustix::fs::chownat(self, plain(name)?, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Sets when the content of an entry changed; of a link itself. `None` is now.
    ///
    /// # Errors
    /// `EPERM` where the file is somebody else's.
    pub fn set_modified(&self, name: &OsStr, time: Option<Time>) -> Result<(), Errno> {
        let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
        let modified =
            time.map_or(now, |time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() });
        let times = Timestamps { last_access: modified, last_modification: modified };
        rustix::fs::utimensat(self, plain(name)?, &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The start of an extended attribute of this directory; `None` where it has none of this name.
    ///
    /// # Errors
    /// The kernel's answer, unless the attribute does not exist.
    pub fn attribute(&self, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
        let mut value = vec![0; 64];
        match rustix::fs::getxattr(own_name(self.as_fd()), name, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                Ok(Some(value))
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
            // Longer than any that is asked for here.
            Err(Errno::RANGE) => Ok(Some(value)),
            Err(cause) => Err(cause),
        }
    }

    /// Sets an extended attribute of this directory.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(own_name(self.as_fd()), name, value, flags)
    }

    /// Removes an extended attribute of this directory, if it has it.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn remove_attribute(&self, name: &CStr) -> Result<(), Errno> {
        match rustix::fs::removexattr(own_name(self.as_fd()), name) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(cause) => Err(cause),
        }
    }
}

/// The largest list of attributes, and the largest value, of Linux.
const LARGEST_ATTRIBUTES: usize = 64 << 10;

/// Gives a file the `user.` attributes of another, but for those of an overlay.
///
/// # Errors
/// The kernel's answer, unless a file system does not support attributes.
pub fn copy_user_attributes(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut list = vec![0; LARGEST_ATTRIBUTES];
    let length = match rustix::fs::flistxattr(from, &mut list[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        answer => answer?,
    };
    let names = list[..length].split_inclusive(|byte| *byte == 0);
    for name in names.filter_map(|name| CStr::from_bytes_with_nul(name).ok()) {
        let bytes = name.to_bytes();
        if !bytes.starts_with(b"user.") || bytes.starts_with(b"user.overlay.") {
            continue;
        }
        let mut value = vec![0; LARGEST_ATTRIBUTES];
        let length = match rustix::fs::fgetxattr(from, name, &mut value[..]) {
            // Gone since it was listed.
            Err(Errno::NODATA) => continue,
            answer => answer?,
        };
        match rustix::fs::fsetxattr(to, name, &value[..length], rustix::fs::XattrFlags::empty()) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Looks at what a descriptor is open on.
///
/// # Errors
/// Never for an open descriptor on a local file system.
pub fn status_of(descriptor: BorrowedFd<'_>) -> Result<Status, Errno> {
    statx(descriptor, OsStr::new(""), AtFlags::EMPTY_PATH)
}

/// Whether this process is the superuser's, as the file system sees it.
#[must_use]
pub fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

fn statx(from: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Result<Status, Errno> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(from, name, flags | AtFlags::NO_AUTOMOUNT, wanted).map(Status::from)
}

fn open_beneath(from: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut attempts = 0;
    loop {
        match rustix::fs::openat2(from, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // A rename elsewhere made the kernel unsure; it asks for another try.
            Err(Errno::AGAIN | Errno::INTR) if attempts < 64 => attempts += 1,
            answer => return answer,
        }
    }
}

/// A single name: with a slash in it, or `..`, it would be a path.
fn plain(name: &OsStr) -> Result<&OsStr, Errno> {
    let bytes = name.as_bytes();
    let is_path = bytes.is_empty() || bytes.contains(&b'/') || bytes == b"." || bytes == b"..";
    if is_path { Err(Errno::INVAL) } else { Ok(name) }
}

fn own_name(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}
