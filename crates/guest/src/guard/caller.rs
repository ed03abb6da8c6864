//! The caller of a system call and its arguments: paths read from the caller's memory, resolved once and held open.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_class::{Held, Making};
use belljar_contract::{Digest, GuestAct, GuestYes};
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, status_of};
use belljar_sys::seccomp::notify::{Call, NotifyListener, read_path};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::Broker;
use super::roots::{Area, Root};

/// As many links as the kernel follows.
const LINKS: usize = 40;
/// Tries to look something up while a rename elsewhere makes the kernel unsure.
const TRIES: usize = 64;

/// Why the guard did not perform a call.
#[derive(Debug)]
pub(super) enum Stop {
    /// The call can do nothing to the roots, whatever it asks for; the kernel carries it out, or refuses it.
    Continue,
    /// It fails as it would have without the guard.
    Fail(Errno),
    /// The caller is gone.
    Gone,
    /// The call is held back.
    Held { what: HeldAct, errno: Errno, remedy: Remedy },
}

/// A call that is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldAct {
    /// The path, with all links resolved.
    pub(super) path: PathBuf,
    pub(super) act: GuestAct,
    /// The program of the host that would execute the file.
    pub(super) why: String,
    /// The digest of the content, where the decision depends on it.
    pub(super) judged: Option<Digest>,
}

impl HeldAct {
    pub(super) fn new(path: PathBuf, act: GuestAct, why: &str) -> Self {
        HeldAct { path, act, why: why.to_owned(), judged: None }
    }

    /// What an answer of yes applies to.
    pub(super) fn yes(&self) -> GuestYes {
        if self.judged.is_some() { GuestYes::Content } else { GuestYes::File }
    }
}

/// Whether the user can allow a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The user can allow it.
    Yes,
    /// A read-only mount prevents it as well.
    Mount,
    /// The user is not asked: a yes would allow more than the path in the question.
    Nothing,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Stop::Fail(errno)
    }
}

/// An entry that the caller cannot reach by itself, by its directory and its name there.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) parent: Directory,
    /// The path of the directory, with all links resolved.
    pub(super) real: PathBuf,
    pub(super) name: OsString,
    /// Whether the path ended with a slash.
    pub(super) slash: bool,
}

impl Spot {
    pub(super) fn path(&self) -> PathBuf {
        self.real.join(&self.name)
    }

    pub(super) fn kind(&self) -> Result<Option<InodeKind>, Errno> {
        Ok(self.parent.status_if_present(&self.name)?.map(|status| status.kind))
    }

    /// Holds the entry itself open, also if it is a link.
    pub(super) fn pin(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.parent, &self.name, flags, Mode::empty())
    }

    /// The name, with the slash that it was called with.
    pub(super) fn called(&self) -> OsString {
        let mut name = self.name.clone();
        if self.slash {
            name.push("/");
        }
        name
    }
}

/// An open file or directory, in a place where the caller can do nothing by itself.
pub(super) struct Opened {
    pub(super) descriptor: OwnedFd,
    pub(super) real: PathBuf,
}

pub(super) struct Caller<'call> {
    pub(super) broker: &'call Broker,
    pub(super) listener: &'call Arc<NotifyListener>,
    pub(super) call: &'call Call,
    /// What the user allowed for this call.
    pub(super) once: &'call [HeldAct],
}

impl Caller<'_> {
    /// A path that is not empty.
    pub(super) fn path(&self, address: u64) -> Result<Vec<u8>, Stop> {
        match self.text(address)? {
            path if path.is_empty() => Err(Stop::Fail(Errno::NOENT)),
            path => Ok(path),
        }
    }

    pub(super) fn text(&self, address: u64) -> Result<Vec<u8>, Stop> {
        match read_path(self.call.thread, address) {
            Ok(text) => Ok(text),
            // If the caller's memory cannot be read, the guard does nothing for it.
            Err(Errno::PERM | Errno::ACCESS | Errno::SRCH) => Err(Stop::Continue),
            Err(cause) => Err(Stop::Fail(cause)),
        }
    }

    /// Where paths of the caller begin. Checked to be the caller's own, and not of another thread with its number.
    pub(super) fn base(&self, directory: i32) -> Result<OwnedFd, Stop> {
        let thread = self.call.thread;
        let (place, absent) = match directory {
            rustix_cwd if rustix_cwd == rustix::fs::CWD.as_raw_fd() => {
                (format!("/proc/{thread}/cwd"), Stop::Continue)
            }
            number if number < 0 => return Err(Stop::Fail(Errno::BADF)),
            number => (format!("/proc/{thread}/fd/{number}"), Stop::Fail(Errno::BADF)),
        };
        let opened = rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        if !self.listener.is_waiting(self.call) {
            return Err(Stop::Gone);
        }
        match opened {
            Ok(opened) => Ok(opened),
            Err(Errno::NOENT) => Err(absent),
            Err(Errno::PERM | Errno::ACCESS) => Err(Stop::Continue),
            Err(cause) => Err(Stop::Fail(cause)),
        }
    }

    /// The same for a descriptor that a path names: to a path an absent one is an absent directory.
    fn named_base(&self, number: i32) -> Result<OwnedFd, Stop> {
        match self.base(number) {
            Err(Stop::Fail(Errno::BADF)) => Err(Stop::Fail(Errno::NOENT)),
            answer => answer,
        }
    }

    /// The entry that a path names, without following it if it is a link.
    pub(super) fn spot(&self, directory: i32, path: &[u8]) -> Result<Spot, Stop> {
        if path.starts_with(b"/") {
            self.spot_from(self.broker.root.as_fd(), path)
        } else {
            self.spot_from(self.base(directory)?.as_fd(), path)
        }
    }

    fn spot_from(&self, base: BorrowedFd<'_>, path: &[u8]) -> Result<Spot, Stop> {
        if let Some((number, below)) = below_own_descriptor(path).filter(|(_, below)| !below.is_empty()) {
            return self.spot_from(self.named_base(number)?.as_fd(), below);
        }
        if of_the_kernel(path) {
            return Err(Stop::Continue);
        }
        let base = if path.starts_with(b"/") { self.broker.root.as_fd() } else { base };
        let stripped = path.len() - path.iter().rev().take_while(|byte| **byte == b'/').count();
        let (path, slash) = (&path[..stripped], stripped < path.len());
        let split = path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = split.map_or((&b"."[..], path), |at| (&path[..=at], &path[at + 1..]));
        // Such a path names an existing directory: nothing can be created or written under that name.
        if matches!(name, b"" | b"." | b"..") {
            return Err(Stop::Continue);
        }
        if name.len() > 255 {
            return Err(Stop::Fail(Errno::NAMETOOLONG));
        }
        let parent = self.directory(base, above)?;
        let real = self.inside(parent.as_fd())?;
        let name = OsStr::from_bytes(name).to_owned();
        Ok(Spot { parent: Directory::from(parent), real, name, slash })
    }

    /// The entry that a path leads to; links are followed.
    pub(super) fn followed(&self, directory: i32, path: &[u8]) -> Result<Spot, Stop> {
        let mut spot = self.spot(directory, path)?;
        for _ in 0..LINKS {
            match spot.parent.link_target(&spot.name) {
                Ok(target) => {
                    let parent = spot.parent;
                    spot = self.spot_from(parent.as_fd(), target.as_os_str().as_bytes())?;
                }
                Err(Errno::INVAL | Errno::NOENT) => return Ok(spot),
                Err(cause) => return Err(Stop::Fail(cause)),
            }
        }
        Err(Stop::Fail(Errno::LOOP))
    }

    /// The directory that a path names.
    pub(super) fn directory_at(&self, directory: i32, path: &[u8]) -> Result<Opened, Stop> {
        let descriptor = match below_own_descriptor(path) {
            Some((number, b"")) => self.directory(self.named_base(number)?.as_fd(), b".")?,
            Some((number, below)) => self.directory(self.named_base(number)?.as_fd(), below)?,
            None if of_the_kernel(path) => return Err(Stop::Continue),
            None if path.starts_with(b"/") => self.directory(self.broker.root.as_fd(), path)?,
            None => self.directory(self.base(directory)?.as_fd(), path)?,
        };
        let real = self.inside(descriptor.as_fd())?;
        Ok(Opened { descriptor, real })
    }

    /// A lookup that fails is answered as it is. If the call went on instead, the directory might be there by then, and the
    /// caller be refused what it may have.
    fn directory(&self, base: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Stop> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = OsStr::from_bytes(path);
        for _ in 0..TRIES {
            match rustix::fs::openat2(base, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Links of the kernel's own mean another thing to the caller.
                Err(Errno::LOOP) => return Err(Stop::Continue),
                answer => return answer.map_err(Stop::Fail),
            }
        }
        Err(Stop::Fail(Errno::AGAIN))
    }

    /// Where an open directory is, if the caller can do nothing there by itself.
    fn inside(&self, directory: BorrowedFd<'_>) -> Result<PathBuf, Stop> {
        let real = self.real(directory)?;
        if matches!(self.broker.roots.of(&real), Area::Granted) {
            return Err(Stop::Continue);
        }
        if is_gone(directory, &real)? {
            return Err(Stop::Fail(Errno::NOENT));
        }
        self.refuse_lost(directory, &real)?;
        Ok(real)
    }

    /// Refuses an entry that is not at the path that the kernel reports for it. The host can move a directory out of the
    /// mounted tree: then the kernel reports `/` (Linux 6.18), and the entry could not be judged.
    fn refuse_lost(&self, opened: BorrowedFd<'_>, real: &Path) -> Result<(), Stop> {
        if !matches!(self.broker.roots.of(real), Area::Above) {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let plain = ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let there = rustix::fs::openat2(&self.broker.root, real, flags, Mode::empty(), plain);
        let there = there.and_then(|there| status_of(there.as_fd()));
        match there {
            Ok(there) if there.identity == status_of(opened)?.identity => Ok(()),
            Ok(_) | Err(_) => Err(Stop::Fail(Errno::ACCESS)),
        }
    }

    pub(super) fn real(&self, descriptor: BorrowedFd<'_>) -> Result<PathBuf, Stop> {
        let number = descriptor.as_raw_fd().to_string();
        let text = rustix::fs::readlinkat(&self.broker.descriptors, number, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
    }

    /// One of the caller's own descriptors, if that is what a path of the kernel's names.
    pub(super) fn own_descriptor(&self, path: &[u8]) -> Option<i32> {
        match path {
            b"/dev/stdin" => Some(0),
            b"/dev/stdout" => Some(1),
            b"/dev/stderr" => Some(2),
            path => numbered(path).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number),
        }
    }

    /// Opens the target of a descriptor of the caller, if the caller cannot act there by itself.
    pub(super) fn opened(&self, number: i32) -> Result<Opened, Stop> {
        let descriptor = self.base(number)?;
        let real = self.real(descriptor.as_fd())?;
        // A pipe, a socket or memory has no place.
        if !real.is_absolute() || matches!(self.broker.roots.of(&real), Area::Granted) {
            return Err(Stop::Continue);
        }
        if !is_gone(descriptor.as_fd(), &real)? {
            self.refuse_lost(descriptor.as_fd(), &real)?;
        }
        Ok(Opened { descriptor, real })
    }

    /// The root that a place lies in, if it is guarded.
    pub(super) fn root_of(&self, place: &Path) -> Option<&Root> {
        match self.broker.roots.of(place) {
            Area::Guarded(root) => Some(root),
            Area::Granted | Area::Above => None,
        }
    }

    pub(super) fn held(&self, place: &Path, making: Making) -> Option<Held> {
        self.root_of(place)?.held(place, making)
    }

    /// Holds an act back, unless the user allowed it. What the remedy is matters only where the user can be asked.
    pub(super) fn hold(
        &self,
        what: HeldAct,
        errno: Errno,
        remedy: impl FnOnce() -> Remedy,
    ) -> Result<(), Stop> {
        // A second name would stay writable when the first is guarded again.
        let by_path = what.act != GuestAct::Link && self.broker.asking.allows(&what.path);
        if !by_path && !self.once.contains(&what) {
            let remedy = if self.broker.asks() { remedy() } else { Remedy::Nothing };
            return Err(Stop::Held { what, errno, remedy });
        }
        // The call may have waited for long, and the memory that was read may be that of a new thread with the same id.
        if self.listener.is_waiting(self.call) { Ok(()) } else { Err(Stop::Gone) }
    }

    /// The mask for new files.
    pub(super) fn umask(&self) -> Result<Mode, Stop> {
        let status = rustix::fs::open(
            format!("/proc/{}/status", self.call.thread),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let mut text = [0; 256];
        let count = status.and_then(|status| rustix::io::read(status, &mut text));
        if !self.listener.is_waiting(self.call) {
            return Err(Stop::Gone);
        }
        let text = text.get(..count?).unwrap_or_default();
        let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:\t"));
        let mask = line.and_then(|mask| u32::from_str_radix(std::str::from_utf8(mask).ok()?, 8).ok());
        mask.map(Mode::from_raw_mode).ok_or(Stop::Fail(Errno::IO))
    }
}

/// Whether a file that is open has no name any more.
pub(super) fn is_gone(descriptor: BorrowedFd<'_>, real: &Path) -> Result<bool, Errno> {
    if !real.as_os_str().as_bytes().ends_with(b" (deleted)") {
        return Ok(false);
    }
    Ok(rustix::fs::fstat(descriptor)?.st_nlink == 0)
}

/// The number of one of the caller's own descriptors that a path begins with, and what follows.
fn numbered(path: &[u8]) -> Option<(i32, &[u8])> {
    let mut prefixes = [b"/proc/self/fd/".as_slice(), b"/proc/thread-self/fd/", b"/dev/fd/"].into_iter();
    let named = prefixes.find_map(|prefix| path.strip_prefix(prefix))?;
    let digits = named.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = named.split_at(digits);
    // The kernel knows each descriptor by one name.
    let is_its_name = number == b"0" || !number.starts_with(b"0");
    let number = std::str::from_utf8(number).ok()?.parse().ok().filter(|_| is_its_name)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some((number, rest))
}

/// The same, and the path below that descriptor. An agent writes files by such paths (2.1.327, 2026-11-19).
fn below_own_descriptor(path: &[u8]) -> Option<(i32, &[u8])> {
    let (number, rest) = numbered(path)?;
    let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
    Some((number, &rest[slashes..]))
}

/// Whether a path leads to file systems of the kernel, where names mean something else to every process.
fn of_the_kernel(path: &[u8]) -> bool {
    let climbs = || path.split(|byte| *byte == b'/').any(|name| name == b"..");
    (path.starts_with(b"/proc/") || path.starts_with(b"/dev/")) && !climbs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_named_in_one_way() {
        for (path, found) in [
            ("/proc/self/fd/3", Some((3, ""))),
            ("/proc/thread-self/fd/10/", Some((10, ""))),
            ("/dev/fd/0//a/../b", Some((0, "a/../b"))),
            ("/proc/self/fd/03/a", None),
            ("/proc/self/fd/+3/a", None),
            ("/proc/self/fd/3a", None),
            ("/proc/self/fd/99999999999/a", None),
            ("/proc/self/fd//3/a", None),
            ("/proc/self/fd/", None),
            ("proc/self/fd/3/a", None),
        ] {
            assert_eq!(
                below_own_descriptor(path.as_bytes()),
                found.map(|(number, below)| (number, below.as_bytes())),
                "{path}"
            );
        }
    }
}
