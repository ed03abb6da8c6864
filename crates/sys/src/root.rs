//! A root built from nothing with the mount calls that take descriptors, then entered for good.
//!
//! The caller is the first process of a fresh mount namespace that still shows the machine. The new root is
//! memory; each part is opened once in the old root and put in its place by descriptor. Names in the new root are
//! resolved below it and never through a symbolic link, so that nothing a project holds can lead a mount elsewhere.
//! [`Root::enter`] makes the root read-only and leaves the old one, which nothing can reach any more.

mod found;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::mounts::{Below, Identity, MountError, identity_of, set_attributes};

/// Attributes of every mount of a sandbox: no set-user-ID programs and no devices.
const PLAIN: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
/// The same for mounts that nothing is executed from.
const DATA: MountAttrFlags = PLAIN.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);
/// For device nodes themselves.
const DEVICE: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);
/// The devices that programs expect; none of them leads to anything of the machine.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Names below `/dev` that lead elsewhere.
const DEVICE_LINKS: [(&str, &str); 6] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("core", "/proc/kcore"),
    ("ptmx", "pts/ptmx"),
];
/// Switches of the whole machine below `/proc`, which the superuser's sandboxes could otherwise turn.
const MACHINE_SWITCHES: [&str; 7] = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"];

/// The least that a limited file system in memory holds: the files that belljar itself puts there.
const SMALLEST_MEMORY: u64 = 1 << 20;
/// A name takes memory of the kernel that its size does not count, so names are limited with the bytes.
const BYTES_PER_NAME: u64 = 8 << 10;
const FEWEST_NAMES: u64 = 1024;

/// Why a part of the root could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The kernel refused.
    #[error("cannot {act} `{}`", path.display())]
    Refused {
        /// The operation.
        act: &'static str,
        /// The path it was for.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The kernel is too old.
    #[error("this kernel cannot {act}; Linux 5.12 or newer can")]
    Kernel {
        /// The operation that the kernel lacks.
        act: &'static str,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// A source is another file or directory than the one that was meant.
    #[error("`{}` is not what it was when the sandbox was planned", path.display())]
    Changed {
        /// The path of the source.
        path: PathBuf,
    },
}

/// Whether what is bound can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// No, and neither can anything mounted below it.
    Refused,
    /// As far as the modes of the files allow.
    Allowed,
}

/// The kind of a source, and how its path is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A part of the system, whose own symbolic links are followed.
    System,
    /// What a mount of this namespace shows there; no part of the name may be a link.
    Shown,
    /// Exactly this file or directory; no part of the name may be a link.
    Exactly(Identity),
}

/// A root on its way.
#[derive(Debug)]
pub struct Root {
    top: Rc<OwnedFd>,
    /// Directories in memory that only this process has, by path: names in them need not be looked for. What is mounted
    /// over one hides it, and those below it.
    own: RefCell<BTreeMap<PathBuf, Rc<OwnedFd>>>,
    /// The bytes left for all file systems in memory; `None` if they are not limited.
    left: Cell<Option<u64>>,
}

fn refused<'a>(act: &'static str, path: &'a Path) -> impl Fn(Errno) -> RootError + 'a {
    move |cause| match cause {
        Errno::NOSYS => RootError::Kernel { act, cause },
        _ => RootError::Refused { act, path: path.to_owned(), cause },
    }
}

impl Root {
    /// Begins with an empty root, mounted over the old one, which stays in use until [`Root::enter`]. All file systems in
    /// memory together hold at most `bytes`: the root has three quarters, each further one half of what is left.
    ///
    /// # Errors
    /// Fails without `CAP_SYS_ADMIN` over the mount namespace, and on a kernel without these calls.
    pub fn begin(bytes: Option<u64>) -> Result<Self, RootError> {
        let path = Path::new("/");
        let size = bytes.map(|bytes| bytes / 4 * 3);
        let left = Cell::new(bytes.map(|bytes| bytes / 4));
        let top = memory(0o755, size).map_err(refused("make a root at", path))?;
        attach(&top, CWD, path.as_os_str()).map_err(refused("mount over", path))?;
        let top = Rc::new(top);
        Ok(Root { own: RefCell::new(BTreeMap::from([(path.to_owned(), Rc::clone(&top))])), left, top })
    }

    /// A directory; those above it are made where they are missing.
    ///
    /// # Errors
    /// Fails if there is something else, or the place cannot be written.
    pub fn directory(&self, path: &Path, mode: u32) -> Result<(), RootError> {
        let fault = refused("make the directory", path);
        let (parent, name) = self.parent(path)?;
        match rustix::fs::mkdirat(parent.as_fd(), name, Mode::from_raw_mode(mode)) {
            Ok(()) => directory_in(parent.as_fd(), name, mode).map(drop).map_err(fault),
            Err(Errno::EXIST) => self.reach(path).map(drop),
            Err(cause) => Err(fault(cause)),
        }
    }

    /// A symbolic link.
    ///
    /// # Errors
    /// Fails if something is there.
    pub fn link(&self, path: &Path, to: &Path) -> Result<(), RootError> {
        let (parent, name) = self.parent(path)?;
        rustix::fs::symlinkat(to, parent.as_fd(), name).map_err(refused("make the link", path))
    }

    /// A file with this content, readable by all.
    ///
    /// # Errors
    /// Fails if the place cannot be written.
    pub fn file(&self, path: &Path, content: &[u8]) -> Result<(), RootError> {
        let fault = refused("write the file", path);
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let file = rustix::fs::openat(parent.as_fd(), name, flags, mode).map_err(&fault)?;
        let mut left = content;
        while !left.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::write(&file, left)).map_err(&fault)?;
            left = left.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// An empty directory that can be written, in memory.
    ///
    /// # Errors
    /// Fails if the kernel refuses it.
    pub fn memory(&self, path: &Path, mode: u32) -> Result<(), RootError> {
        let fault = refused("make memory for", path);
        let (parent, name) = self.parent(path)?;
        let own = path.parent().is_some_and(|parent| self.is_own(parent));
        let made = if own && make(parent.as_fd(), name, PointKind::Directory).map_err(&fault)? {
            // The root is memory already, of which this part stays writable: a file system of its own would have to be
            // set up and taken down at every start.
            let part = directory_in(parent.as_fd(), name, mode).map_err(&fault)?;
            let shown = open_tree(part.as_fd(), Path::new("")).map_err(&fault)?;
            attach(&shown, parent.as_fd(), name).map_err(&fault)?;
            shown
        } else {
            return self.own_file_system(path, mode);
        };
        self.own.borrow_mut().insert(path.to_owned(), Rc::new(made));
        Ok(())
    }

    /// The same, as a file system of its own.
    fn own_file_system(&self, path: &Path, mode: u32) -> Result<(), RootError> {
        let size = self.left.get().map(|left| left / 2);
        self.left.set(size);
        let made = memory(mode, size).map_err(refused("make memory for", path))?;
        self.cover(&made, path, PointKind::Directory)?;
        self.own.borrow_mut().insert(path.to_owned(), Rc::new(made));
        Ok(())
    }

    /// The processes of this namespace, with numbers up to `pid_max` where one is given: then the caller knows that the
    /// number is the namespace's (Linux 6.14), not the machine's. Switches of the whole machine cannot be written.
    ///
    /// # Errors
    /// Fails where the old root does not show all of its own `/proc`.
    pub fn processes(&self, path: &Path, pid_max: Option<u32>) -> Result<(), RootError> {
        let made = file_system("proc", &[], DATA).map_err(refused("show processes at", path))?;
        if let Some(most) = pid_max {
            let switch = Path::new("sys/kernel/pid_max");
            let fault = refused("limit processes through", switch);
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&made, switch, flags, Mode::empty()).map_err(&fault)?;
            rustix::io::write(&file, most.to_string().as_bytes()).map_err(&fault)?;
        }
        self.cover(&made, path, PointKind::Directory)?;
        lock_switches(&made, path)
    }

    /// Shows the processes as the old root does, with everything that is masked there: this process does not own the
    /// process namespace and therefore cannot mount it anew.
    ///
    /// # Errors
    /// Fails where the old root shows another namespace than this process's.
    pub fn shown_processes(&self, path: &Path) -> Result<(), RootError> {
        let from = Path::new("/proc");
        let own = rustix::fs::readlink(from.join("self"), Vec::new()).map_err(refused("look at", from))?;
        if own.to_bytes() != rustix::process::getpid().as_raw_pid().to_string().as_bytes() {
            return Err(refused("recognise the processes at", from)(Errno::SRCH));
        }
        let shown = open_tree(CWD, from).map_err(refused("show", from))?;
        close(&shown, path, Writing::Allowed, DATA)?;
        self.cover(&shown, path, PointKind::Directory)?;
        lock_switches(&shown, path)
    }

    /// A few devices without a machine behind them, and a place for terminals of the sandbox's own.
    ///
    /// # Errors
    /// Fails if one of them is missing, or if user 0 is not mapped: terminals need an owner.
    pub fn devices(&self, path: &Path) -> Result<(), RootError> {
        // A file system of its own, so that programs that stay on one file system, as `find -xdev` does, do not meet devices.
        self.own_file_system(path, 0o755)?;
        for name in DEVICES {
            let from = Path::new("/dev").join(name);
            let node = open_tree(CWD, &from).map_err(refused("open", &from))?;
            let at = path.join(name);
            close(&node, &at, Writing::Allowed, DEVICE)?;
            self.cover(&node, &at, PointKind::File)?;
        }
        self.directory(&path.join("shm"), 0o755)?;
        let terminals = path.join("pts");
        let options = [("ptmxmode", "0666"), ("mode", "0620")];
        let made = file_system("devpts", &options, DEVICE).map_err(refused("show terminals at", path))?;
        self.cover(&made, &terminals, PointKind::Directory)?;
        DEVICE_LINKS.iter().try_for_each(|(name, to)| self.link(&path.join(name), Path::new(to)))
    }

    /// Shows a file or directory of the old root, with everything mounted below it.
    ///
    /// # Errors
    /// Fails if it is gone, is another than was meant, or cannot be put in its place.
    pub fn bind(&self, from: &Path, source: Source, at: &Path, writing: Writing) -> Result<(), RootError> {
        let shown = show(from, source)?;
        let kind = rustix::fs::fstat(&shown).map_err(refused("look at", from))?;
        close(&shown, at, writing, PLAIN)?;
        let is_directory = FileType::from_raw_mode(kind.st_mode) == FileType::Directory;
        let kind = if is_directory { PointKind::Directory } else { PointKind::File };
        self.cover(&shown, at, kind)
    }

    /// Puts a device that cannot be opened over a file that is not to be read. What is not there needs no mask.
    ///
    /// # Errors
    /// Fails if it stays visible.
    pub fn mask(&self, at: &Path) -> Result<(), RootError> {
        let Some(place) = self.find(at)? else { return Ok(()) };
        let mask = open_tree(CWD, Path::new("/dev/null")).map_err(refused("mask", at))?;
        close(&mask, at, Writing::Refused, DATA)?;
        self.put(&mask, place.as_fd(), at)
    }

    /// Makes the root itself read-only, goes there and leaves the old one.
    ///
    /// # Errors
    /// Fails if the old root stays.
    pub fn enter(self) -> Result<(), RootError> {
        let path = Path::new("/");
        set_attributes(self.top.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, Below::Left)
            .map_err(refused("make read-only", path))?;
        rustix::process::fchdir(&self.top).map_err(refused("enter", path))?;
        // The old root ends up on top of the new one, from where it is taken off.
        rustix::process::pivot_root(".", ".").map_err(refused("turn to", path))?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(refused("leave the old", path))?;
        rustix::process::chdir("/").map_err(refused("enter", path))
    }

    /// Mounts on an existing file or directory, or on a new one.
    fn cover(&self, mount: &OwnedFd, path: &Path, kind: PointKind) -> Result<(), RootError> {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            let within = self.reach(parent)?;
            if self.is_own(parent) && make(within.as_fd(), name, kind).map_err(refused("make", path))? {
                // Only this process writes to this directory, so the name still refers to what was just made.
                attach(mount, within.as_fd(), name).map_err(refused("mount at", path))?;
                self.forget(path);
                return Ok(());
            }
        }
        match kind {
            PointKind::Directory => self.put(mount, self.reach(path)?.as_fd(), path),
            PointKind::File => self.put(mount, self.reach_file(path)?.as_fd(), path),
        }
    }

    fn put(&self, mount: &OwnedFd, place: BorrowedFd<'_>, path: &Path) -> Result<(), RootError> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(mount, "", place, "", flags).map_err(refused("mount at", path))?;
        self.forget(path);
        Ok(())
    }

    /// Forgets directories at and below `path`, which a new mount hides.
    fn forget(&self, path: &Path) {
        self.own.borrow_mut().retain(|known, _| !known.starts_with(path));
    }

    /// Opens an entry, if it exists.
    fn find(&self, path: &Path) -> Result<Option<OwnedFd>, RootError> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::openat2(self.top.as_fd(), below, flags, Mode::empty(), resolve) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(refused("reach", path)(cause)),
        }
    }

    /// The directory there, made where it is missing, like those above it.
    fn reach(&self, path: &Path) -> Result<Rc<OwnedFd>, RootError> {
        if let Some(own) = self.own.borrow().get(path) {
            return Ok(Rc::clone(own));
        }
        if let Some(made) = self.make_below_own(path)? {
            return Ok(made);
        }
        if let Some(found) = self.find(path)? {
            return Ok(Rc::new(found));
        }
        let fault = refused("make the directory", path);
        let (parent, name) = self.parent(path)?;
        rustix::fs::mkdirat(parent.as_fd(), name, Mode::from_raw_mode(0o755)).map_err(&fault)?;
        Ok(Rc::new(opened(parent.as_fd(), name).map_err(fault)?))
    }

    /// Makes the directory and those above it, up to one that only this process has: there, what is missing is found out by
    /// making it. Nothing where something else is in the way.
    fn make_below_own(&self, path: &Path) -> Result<Option<Rc<OwnedFd>>, RootError> {
        let mut own = self.own.borrow_mut();
        let above = path.ancestors().find_map(|above| Some((above, Rc::clone(own.get(above)?))));
        let Some((above, mut within)) = above else { return Ok(None) };
        let mut at = above.to_owned();
        for name in path.strip_prefix(above).unwrap_or(path) {
            at.push(name);
            let fault = refused("make the directory", &at);
            if !make(within.as_fd(), name, PointKind::Directory).map_err(&fault)? {
                return Ok(None);
            }
            within = Rc::new(opened(within.as_fd(), name).map_err(&fault)?);
            own.insert(at.clone(), Rc::clone(&within));
        }
        Ok(Some(within))
    }

    /// The file there, made empty where it is missing.
    fn reach_file(&self, path: &Path) -> Result<OwnedFd, RootError> {
        if let Some(found) = self.find(path)? {
            return Ok(found);
        }
        let fault = refused("make the file", path);
        let (parent, name) = self.parent(path)?;
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent.as_fd(), name, flags, Mode::from_raw_mode(0o444)).map_err(fault)
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own.borrow().contains_key(path)
    }

    fn parent<'path>(&self, path: &'path Path) -> Result<(Rc<OwnedFd>, &'path OsStr), RootError> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok((self.reach(parent)?, name)),
            _ => Err(refused("use", path)(Errno::INVAL)),
        }
    }
}

/// Switches of the whole machine cannot be written, from this mount of the processes.
fn lock_switches(processes: &OwnedFd, path: &Path) -> Result<(), RootError> {
    for name in MACHINE_SWITCHES {
        let path = path.join(name);
        let shown = match open_tree(processes.as_fd(), Path::new(name)) {
            Err(Errno::NOENT) => continue,
            answer => answer.map_err(refused("show", &path))?,
        };
        close(&shown, &path, Writing::Refused, DATA)?;
        // The kernel's own names, of which none is a link.
        attach(&shown, processes.as_fd(), OsStr::new(name)).map_err(refused("mount at", &path))?;
    }
    Ok(())
}

/// The type of a mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PointKind {
    Directory,
    File,
}

/// A directory that was just made.
fn opened(within: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(within, name, flags, Mode::empty())
}

/// Opens a directory that was just made, with exactly this mode: the mask may have taken something away.
fn directory_in(within: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(within, name, flags, Mode::empty())?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
    Ok(made)
}

/// Makes it, empty; says whether it did, and leaves what is there as it is.
fn make(within: BorrowedFd<'_>, name: &OsStr, kind: PointKind) -> Result<bool, Errno> {
    let made = match kind {
        PointKind::Directory => rustix::fs::mkdirat(within, name, Mode::from_raw_mode(0o755)),
        PointKind::File => {
            rustix::fs::mknodat(within, name, FileType::RegularFile, Mode::from_raw_mode(0o444), 0)
        }
    };
    match made {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(cause) => Err(cause),
    }
}

fn close(
    mount: &OwnedFd,
    path: &Path,
    writing: Writing,
    attributes: MountAttrFlags,
) -> Result<(), RootError> {
    let attributes = match writing {
        Writing::Refused => attributes | MountAttrFlags::MOUNT_ATTR_RDONLY,
        Writing::Allowed => attributes,
    };
    set_attributes(mount.as_fd(), attributes, Below::Too).map_err(refused("restrict", path))
}

/// A copy of what a source shows, with everything mounted below it.
fn show(path: &Path, source: Source) -> Result<OwnedFd, RootError> {
    let fault = refused("open", path);
    let expected = match source {
        Source::System => return open_tree(CWD, path).map_err(fault),
        Source::Shown => None,
        Source::Exactly(expected) => Some(expected),
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let opened = opened.map_err(&fault)?;
    if let Some(expected) = expected {
        let found = identity_of(opened.as_fd()).map_err(|error| match error {
            MountError::Identify { cause, .. } => fault(cause),
            MountError::ReadOnly { .. } | MountError::Copy(_) | MountError::Probe { .. } => fault(Errno::IO),
        })?;
        if found != expected {
            return Err(RootError::Changed { path: path.to_owned() });
        }
    }
    open_tree(opened.as_fd(), Path::new("")).map_err(refused("show", path))
}

/// With an empty path, of what the descriptor stands for.
fn open_tree(from: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(from, path, flags)
}

fn attach(mount: &OwnedFd, below: BorrowedFd<'_>, path: &OsStr) -> Result<(), Errno> {
    rustix::mount::move_mount(mount, "", below, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A file system in memory; without a size it may grow to half of the machine's.
fn memory(mode: u32, size: Option<u64>) -> Result<OwnedFd, Errno> {
    // Neither number may be 0, which would mean no limit.
    let bounds = size.map(|size| {
        let bytes = size.max(SMALLEST_MEMORY);
        (bytes.to_string(), (bytes / BYTES_PER_NAME).max(FEWEST_NAMES).to_string())
    });
    let mode = format!("{mode:04o}");
    let mut options = vec![("mode", mode.as_str())];
    if let Some((bytes, names)) = &bounds {
        options.extend([("size", bytes.as_str()), ("nr_inodes", names.as_str())]);
    }
    file_system("tmpfs", &options, PLAIN)
}

fn file_system(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
