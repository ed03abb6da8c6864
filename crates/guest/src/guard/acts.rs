//! Performs calls on behalf of the caller: opening, creating, linking, truncating.
//!
//! Everything is done by the name in a directory that is held open, and never through a link: between the decision and the
//! act the caller can change what its path means, but not what this name in this directory means to the class.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use belljar_class::{Held, Making, Unless, is_git_sign, is_in_git_by_name};
use belljar_contract::GuestAct;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, status_of};
use belljar_sys::fds::OnExec;
use belljar_sys::mounts::Identity;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::os::unix::ffi::OsStrExt;

use super::caller::{Caller, HeldAct, Opened, Remedy, Spot, Stop, is_gone};
use super::content;
use super::mounted::{is_read_only, share_mount};
use super::moving::making_of;

/// How often something is tried again that another thread was quicker with.
const TRIES: usize = 100;

/// The result of a call that the guard performed.
pub(super) enum Done {
    /// The call succeeds and returns nothing.
    Nothing,
    /// The caller gets this descriptor.
    Descriptor {
        descriptor: OwnedFd,
        on_exec: OnExec,
        /// The file created for it, which is removed if the caller cannot take the descriptor.
        made: Option<Made>,
    },
}

/// A file that was created for a caller.
pub(super) struct Made {
    parent: Directory,
    name: OsString,
    identity: Identity,
}

impl Made {
    /// Remembers a file that was just created.
    pub(super) fn note(parent: &Directory, name: &OsStr, identity: Identity) -> Option<Self> {
        // Out of descriptors: the file cannot be cleaned up later and stays.
        let parent = parent.as_fd().try_clone_to_owned().ok()?;
        Some(Made { parent: Directory::from(parent), name: name.to_owned(), identity })
    }

    /// Removes the file, unless its name belongs to another file by now. Call it with exclusive access only.
    pub(super) fn remove(&self) {
        if self.parent.status(&self.name).is_ok_and(|now| now.identity == self.identity) {
            // The caller is gone or gets an error already; at worst an empty file stays.
            self.parent.remove(&self.name).ok();
        }
    }
}

pub(super) type Acted = Result<Done, Stop>;

/// Whether other acts may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alone {
    No,
    Yes,
}

/// The act needs exclusive access and has to be repeated with it.
pub(super) struct NeedsToBeAlone;

/// The result of an act that may run beside others: performed, or to be repeated with exclusive access.
pub(super) type Attempt = Result<Acted, NeedsToBeAlone>;

/// Opens as the caller asked to.
pub(super) struct Open {
    pub(super) directory: i32,
    pub(super) path: u64,
    pub(super) flags: OFlags,
    pub(super) mode: Mode,
}

impl Caller<'_> {
    pub(super) fn open(&self, open: &Open, alone: Alone) -> Attempt {
        match self.open_path(open, alone) {
            Err(Tried::NeedsToBeAlone) => Err(NeedsToBeAlone),
            Err(Tried::Stop(stop)) => Ok(Err(stop)),
            Ok(done) => Ok(Ok(done)),
        }
    }

    fn open_path(&self, open: &Open, alone: Alone) -> Result<Done, Tried> {
        if open.flags.contains(OFlags::PATH) {
            return Err(Stop::Continue.into());
        }
        let path = self.path(open.path)?;
        if open.flags.contains(OFlags::TMPFILE) {
            return Ok(self.open_unnamed(open, &path)?);
        }
        if let Some(number) = self.own_descriptor(&path) {
            return Ok(self.reopen(number, open.flags)?);
        }
        let exclusive = open.flags.contains(OFlags::CREATE | OFlags::EXCL);
        for _ in 0..TRIES {
            let spot = if exclusive || open.flags.contains(OFlags::NOFOLLOW) {
                self.spot(open.directory, &path)?
            } else {
                self.followed(open.directory, &path)?
            };
            // With a slash it must be a directory, which is neither made nor written by opening it.
            if spot.slash {
                return Err(Stop::Continue.into());
            }
            let done = match spot.kind()? {
                None if open.flags.contains(OFlags::CREATE) => self.create(open, &spot, alone),
                None => return Err(Stop::Fail(Errno::NOENT).into()),
                Some(_) if exclusive => return Err(Stop::Fail(Errno::EXIST).into()),
                Some(kind) => self.open_existing(open, &spot, kind, alone),
            };
            match done {
                // The entry appeared, vanished, or became a link meanwhile.
                Err(Tried::Stop(Stop::Fail(Errno::EXIST))) if !exclusive => {}
                Err(Tried::Stop(Stop::Fail(Errno::NOENT))) if open.flags.contains(OFlags::CREATE) => {
                    // Unless the directory itself is gone.
                    if spot.parent.own_status()?.links == 0 {
                        return Err(Stop::Fail(Errno::NOENT).into());
                    }
                }
                Err(Tried::Stop(Stop::Fail(Errno::LOOP))) if !open.flags.contains(OFlags::NOFOLLOW) => {}
                done => return done,
            }
        }
        Err(Stop::Fail(Errno::AGAIN).into())
    }

    fn open_existing(&self, open: &Open, spot: &Spot, kind: InodeKind, alone: Alone) -> Result<Done, Tried> {
        let writes = !(open.flags & OFlags::ACCMODE).is_empty() || open.flags.contains(OFlags::TRUNC);
        match kind {
            InodeKind::File => {}
            InodeKind::Directory => return Err(Stop::Fail(Errno::ISDIR).into()),
            // The link itself was asked for.
            InodeKind::Symlink => return Err(Stop::Fail(Errno::LOOP).into()),
            InodeKind::Socket => return Err(Stop::Fail(Errno::NXIO).into()),
            InodeKind::Fifo if writes => return Ok(self.open_pipe(open.flags, &spot.parent, spot)?),
            InodeKind::Fifo | InodeKind::CharacterDevice | InodeKind::BlockDevice | InodeKind::Unknown => {
                return Err(Stop::Continue.into());
            }
        }
        let place = spot.path();
        if writes
            && let Some(held) = self.held(&place, Making::File)
            && let Some(done) = self.instead(open, spot, held, alone)?
        {
            return Ok(done);
        }
        let flags = open.flags - OFlags::CREATE - OFlags::EXCL;
        // It may be a pipe by now, and this thread must not block on one.
        let careful = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let descriptor = rustix::fs::openat(&spot.parent, &spot.name, careful, Mode::empty())?;
        if !flags.contains(OFlags::NONBLOCK) {
            let now = rustix::fs::fcntl_getfl(&descriptor)?;
            rustix::fs::fcntl_setfl(&descriptor, now - OFlags::NONBLOCK)?;
        }
        Ok(Done::Descriptor { descriptor, on_exec: on_exec(open.flags), made: None })
    }

    fn create(&self, open: &Open, spot: &Spot, alone: Alone) -> Result<Done, Tried> {
        let place = spot.path();
        if let Some(held) = self.held(&place, Making::File)
            && let Some(done) = self.instead(open, spot, held, alone)?
        {
            return Ok(done);
        }
        let points = |root| content::points_to_own_repository(root, &place);
        if self.root_of(&place).is_some_and(points) {
            let held = Held { why: belljar_class::GIT_POINTER, unless: Unless::OwnRepository };
            if let Some(done) = self.instead(open, spot, held, alone)? {
                return Ok(done);
            }
        }
        self.before_sign(spot, Making::File, alone)?;
        let mask = self.umask()?;
        let flags = open.flags | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::process::umask(mask);
        let descriptor = rustix::fs::openat(&spot.parent, &spot.name, flags, open.mode)?;
        let made = Made::note(&spot.parent, &spot.name, status_of(descriptor.as_fd())?.identity);
        Ok(Done::Descriptor { descriptor, on_exec: on_exec(open.flags), made })
    }

    /// Handles a guarded file whose content is known in advance: the guard writes that content itself and gives the caller
    /// a memory file to write to. Returns `None` where the user allowed the caller to write the file.
    fn instead(&self, open: &Open, spot: &Spot, held: Held, alone: Alone) -> Result<Option<Done>, Tried> {
        if held.unless == Unless::ConfigLock {
            return self.open_lock(open, spot, held.why, alone).map(Some);
        }
        let place = spot.path();
        let writes_anew = open.flags.contains(OFlags::CREATE) || open.flags.contains(OFlags::TRUNC);
        let exists = spot.kind()?.is_some();
        let said = match held.unless {
            // git writes the `.git` file of a submodule twice.
            Unless::KnownRepository if writes_anew && exists => {
                let says = |said: &Vec<u8>| content::says(&spot.parent, &spot.name, said);
                content::submodule_at(&self.broker.roots, &place).filter(says)
            }
            Unless::KnownRepository if writes_anew => content::known_repository(&self.broker.roots, &place),
            Unless::OwnRepository if writes_anew && !exists => {
                let points = |root: &&_| content::points_to_own_repository(root, &place);
                self.root_of(&place).filter(points).map(|_| content::OWN_REPOSITORY.to_vec())
            }
            Unless::KnownRepository
            | Unless::OwnRepository
            | Unless::HarmlessConfig
            | Unless::ConfigLock
            | Unless::Never => None,
        };
        let Some(said) = said else {
            let (act, errno) =
                if exists { (GuestAct::Write, Errno::ROFS) } else { (GuestAct::Make, Errno::ACCESS) };
            self.hold(HeldAct::new(place, act, held.why), errno, || spot.remedy())?;
            return Ok(None);
        };
        if !exists {
            if alone == Alone::No {
                return Err(Tried::NeedsToBeAlone);
            }
            content::write_fresh(&spot.parent, &spot.name, &said, 0o644)?;
        }
        let descriptor =
            rustix::fs::memfd_create("belljar-held", rustix::fs::MemfdFlags::CLOEXEC).map_err(Stop::Fail)?;
        Ok(Some(Done::Descriptor { descriptor, on_exec: on_exec(open.flags), made: None }))
    }

    /// A file without a name yet; one is given to it by a link, which is judged.
    fn open_unnamed(&self, open: &Open, path: &[u8]) -> Acted {
        let Opened { descriptor, .. } = self.directory_at(open.directory, path)?;
        rustix::process::umask(self.umask()?);
        let descriptor = rustix::fs::openat(&descriptor, ".", open.flags | OFlags::CLOEXEC, open.mode)?;
        Ok(Done::Descriptor { descriptor, on_exec: on_exec(open.flags), made: None })
    }

    /// Opens again what the caller has open.
    fn reopen(&self, number: i32, flags: OFlags) -> Acted {
        let opened = self.opened(number)?;
        let kind = status_of(opened.descriptor.as_fd())?.kind;
        if kind != InodeKind::File {
            return Err(Stop::Continue);
        }
        if !is_gone(opened.descriptor.as_fd(), &opened.real)? {
            self.hold_opened(&opened, Making::File, GuestAct::Write, || {
                if is_read_only(opened.descriptor.as_fd()) { Remedy::Mount } else { Remedy::Yes }
            })?;
        }
        let flags = flags - OFlags::CREATE - OFlags::EXCL - OFlags::NOFOLLOW;
        let descriptor = rustix::fs::open(
            format!("/proc/self/fd/{}", opened.descriptor.as_raw_fd()),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Done::Descriptor { descriptor, on_exec: on_exec(flags), made: None })
    }

    fn hold_opened(
        &self,
        opened: &Opened,
        making: Making,
        act: GuestAct,
        remedy: impl FnOnce() -> Remedy,
    ) -> Result<(), Stop> {
        match self.held(&opened.real, making) {
            None => Ok(()),
            Some(held) => {
                let errno = if act == GuestAct::Write { Errno::ROFS } else { Errno::ACCESS };
                self.hold(HeldAct::new(opened.real.clone(), act, held.why), errno, remedy)
            }
        }
    }

    fn open_pipe(&self, flags: OFlags, parent: &Directory, spot: &Spot) -> Acted {
        let flags = flags - OFlags::CREATE - OFlags::EXCL - OFlags::TRUNC;
        let careful = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let on_exec = on_exec(flags);
        let opened = rustix::fs::openat(parent, &spot.name, careful, Mode::empty());
        let waits = !flags.contains(OFlags::NONBLOCK);
        match opened {
            Ok(descriptor) => {
                if waits {
                    let now = rustix::fs::fcntl_getfl(&descriptor)?;
                    rustix::fs::fcntl_setfl(&descriptor, now - OFlags::NONBLOCK)?;
                }
                Ok(Done::Descriptor { descriptor, on_exec, made: None })
            }
            // The pipe has no reader yet.
            Err(Errno::NXIO) if waits => {
                let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let pipe = rustix::fs::openat(parent, &spot.name, path, Mode::empty())?;
                super::pipes::wait_for_reader(self, pipe, flags)?;
                Err(Stop::Gone)
            }
            Err(cause) => Err(Stop::Fail(cause)),
        }
    }

    pub(super) fn make_directory(&self, directory: i32, path: u64, mode: Mode, alone: Alone) -> Attempt {
        self.make(directory, path, alone, Making::Directory, |spot| {
            rustix::process::umask(self.umask()?);
            Ok(rustix::fs::mkdirat(&spot.parent, &spot.name, mode)?)
        })
    }

    pub(super) fn make_symlink(&self, target: u64, directory: i32, path: u64, alone: Alone) -> Attempt {
        let target = match self.path(target) {
            Ok(target) => target,
            Err(stop) => return Ok(Err(stop)),
        };
        self.make(directory, path, alone, Making::link(&target), |spot| {
            let target = std::ffi::OsStr::from_bytes(&target);
            Ok(rustix::fs::symlinkat(target, &spot.parent, &spot.name)?)
        })
    }

    pub(super) fn make_node(&self, directory: i32, path: u64, mode: u32, alone: Alone) -> Attempt {
        let kind = match mode & 0o170_000 {
            0 => FileType::RegularFile,
            bits => FileType::from_raw_mode(bits),
        };
        if !matches!(kind, FileType::RegularFile | FileType::Fifo | FileType::Socket) {
            return Ok(Err(Stop::Continue));
        }
        self.make(directory, path, alone, Making::File, |spot| {
            rustix::process::umask(self.umask()?);
            Ok(rustix::fs::mknodat(&spot.parent, &spot.name, kind, Mode::from_raw_mode(mode & 0o7777), 0)?)
        })
    }

    /// Creates an entry that must not exist yet.
    fn make(
        &self,
        directory: i32,
        path: u64,
        alone: Alone,
        making: Making,
        act: impl Fn(&Spot) -> Result<(), Stop>,
    ) -> Attempt {
        let made = || -> Result<(), Tried> {
            let spot = self.spot(directory, &self.path(path)?)?;
            if spot.slash && making != Making::Directory {
                return Err(Stop::Continue.into());
            }
            if spot.kind()?.is_some() {
                return Err(Stop::Fail(Errno::EXIST).into());
            }
            self.refuse(&spot, making, GuestAct::Make, || spot.remedy())?;
            self.before_sign(&spot, making, alone)?;
            Ok(act(&spot)?)
        };
        attempt(made())
    }

    /// Creates a hard link, with exclusive access.
    pub(super) fn link(&self, from: (i32, u64), to: (i32, u64), flags: u32) -> Attempt {
        attempt(self.link_path(from, to, flags))
    }

    fn link_path(&self, from: (i32, u64), to: (i32, u64), flags: u32) -> Result<(), Tried> {
        let flags = AtFlags::from_bits_retain(flags);
        let source = self.text(from.1)?;
        let target = self.spot(to.0, &self.path(to.1)?)?;
        if target.slash {
            return Err(Stop::Continue.into());
        }
        let of_descriptor = match (flags.contains(AtFlags::EMPTY_PATH), source.is_empty()) {
            (true, true) => Some(from.0),
            (false, true) => return Err(Stop::Fail(Errno::NOENT).into()),
            (_, false) => self.own_descriptor(&source).filter(|_| flags.contains(AtFlags::SYMLINK_FOLLOW)),
        };
        let named = |spot: Spot| Ok::<_, Stop>(Source::Named(spot.pin()?, spot));
        // Link the entry that was judged, whatever its name refers to by then.
        let source = match of_descriptor {
            Some(number) => Source::Open(self.opened(number)?),
            None if flags.contains(AtFlags::SYMLINK_FOLLOW) => named(self.followed(from.0, &source)?)?,
            None => named(self.spot(from.0, &source)?)?,
        };
        let made = making_of(source.descriptor())?;
        match &source {
            Source::Open(opened) if is_gone(opened.descriptor.as_fd(), &opened.real)? => {}
            Source::Open(opened) => self.hold_opened(opened, made, GuestAct::Link, || Remedy::Nothing)?,
            Source::Named(_, spot) => self.refuse(spot, made, GuestAct::Link, || Remedy::Nothing)?,
        }
        if target.kind()?.is_some() {
            return Err(Stop::Fail(Errno::EXIST).into());
        }
        if let Source::Named(_, spot) = &source {
            self.same_mount(spot, &target)?;
        }
        self.refuse(&target, made, GuestAct::Link, || target.remedy())?;
        self.before_sign(&target, made, Alone::Yes)?;
        let path = format!("/proc/self/fd/{}", source.descriptor().as_raw_fd());
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, path, &target.parent, &target.name, follow)?;
        Ok(())
    }

    pub(super) fn truncate(&self, path: u64, length: i64) -> Acted {
        let length = u64::try_from(length).map_err(|_negative| Stop::Fail(Errno::INVAL))?;
        let path = self.path(path)?;
        if self.own_descriptor(&path).is_some() {
            return Err(Stop::Continue);
        }
        let spot = self.followed(rustix::fs::CWD.as_raw_fd(), &path)?;
        if spot.slash {
            return Err(Stop::Continue);
        }
        match spot.kind()? {
            None => return Err(Stop::Fail(Errno::NOENT)),
            Some(InodeKind::File) => {}
            Some(InodeKind::Directory) => return Err(Stop::Fail(Errno::ISDIR)),
            Some(_) => return Err(Stop::Fail(Errno::INVAL)),
        }
        let place = spot.path();
        if let Some(held) = self.held(&place, Making::File) {
            let what = HeldAct::new(place, GuestAct::Write, held.why);
            self.hold(what, Errno::ROFS, || spot.remedy())?;
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&spot.parent, &spot.name, flags, Mode::empty())?;
        rustix::fs::ftruncate(file, length)?;
        Ok(Done::Nothing)
    }

    /// Answers as the kernel would where nothing can be moved or linked, before the user is asked about it.
    pub(super) fn same_mount(&self, from: &Spot, to: &Spot) -> Result<(), Stop> {
        if self.broker.asks() && !share_mount(&from.parent, &to.parent)? {
            return Err(Stop::Fail(Errno::XDEV));
        }
        Ok(())
    }

    pub(super) fn refuse(
        &self,
        spot: &Spot,
        making: Making,
        act: GuestAct,
        remedy: impl FnOnce() -> Remedy,
    ) -> Result<(), Stop> {
        let place = spot.path();
        match self.held(&place, making) {
            None => Ok(()),
            Some(held) => self.hold_as(HeldAct::new(place, act, held.why), making, remedy),
        }
    }

    /// As [`Caller::hold`], depending on the kind of entry that would be created. A link's target can change later without
    /// another question to the user.
    pub(super) fn hold_as(
        &self,
        what: HeldAct,
        making: Making,
        remedy: impl FnOnce() -> Remedy,
    ) -> Result<(), Stop> {
        let errno = Errno::ACCESS;
        match making {
            Making::File | Making::Directory => self.hold(what, errno, remedy),
            Making::Link | Making::Probe => Err(Stop::Held { what, errno, remedy: Remedy::Nothing }),
        }
    }

    /// The last name that makes a git directory of a directory: what is there already becomes a part of the class.
    pub(super) fn before_sign(&self, spot: &Spot, making: Making, alone: Alone) -> Result<(), Tried> {
        let place = spot.path();
        let Some(root) = self.root_of(&place) else { return Ok(()) };
        if !is_git_sign(spot.name.as_bytes()) || is_in_git_by_name(&root.relative(&place)) {
            return Ok(());
        }
        match alone {
            Alone::No => Err(Tried::NeedsToBeAlone),
            Alone::Yes => Ok(content::complete(root, spot, making)?),
        }
    }
}

/// The source of a hard link.
enum Source {
    /// An entry, held open so that it stays the same.
    Named(OwnedFd, Spot),
    /// What the caller has open.
    Open(Opened),
}

impl Source {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Source::Named(pinned, _) => pinned.as_fd(),
            Source::Open(opened) => opened.descriptor.as_fd(),
        }
    }
}

/// Why an act was not performed yet.
pub(super) enum Tried {
    NeedsToBeAlone,
    Stop(Stop),
}

impl From<Stop> for Tried {
    fn from(stop: Stop) -> Self {
        Tried::Stop(stop)
    }
}

impl From<Errno> for Tried {
    fn from(errno: Errno) -> Self {
        Tried::Stop(Stop::Fail(errno))
    }
}

pub(super) fn attempt(tried: Result<(), Tried>) -> Attempt {
    match tried {
        Ok(()) => Ok(Ok(Done::Nothing)),
        Err(Tried::Stop(stop)) => Ok(Err(stop)),
        Err(Tried::NeedsToBeAlone) => Err(NeedsToBeAlone),
    }
}

pub(super) fn on_exec(flags: OFlags) -> OnExec {
    if flags.contains(OFlags::CLOEXEC) { OnExec::Close } else { OnExec::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_took_the_name_of_one_that_was_made_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (parent, name) = (Directory::open(directory.path()).unwrap(), OsStr::new("file"));
        let path = directory.path().join(name);
        let make = || status_of(parent.create(name, 0o600).unwrap().as_fd()).unwrap().identity;
        let made = Made::note(&parent, name, make()).unwrap();
        std::fs::rename(&path, directory.path().join("kept")).unwrap();
        make();
        made.remove();
        assert!(path.exists());
        std::fs::rename(directory.path().join("kept"), &path).unwrap();
        made.remove();
        assert!(!path.exists());
    }
}
