//! Locks of git's configurations.
//!
//! git writes a configuration to `config.lock` and renames that over `config`. The git of the host does so while the command
//! runs, so a file of the command under that name could replace the host's in the last moment. The command's lock is
//! therefore a copy of the present configuration that is never written to; the caller writes to memory, which is judged
//! when the lock is to become the configuration.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use belljar_class::LARGEST_CONFIG;
use belljar_contract::GuestAct;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, Status};
use rustix::fs::{MemfdFlags, Mode, OFlags};

use super::acts::{Alone, Done, Made, Open, Tried, on_exec};
use super::caller::{Caller, HeldAct, Remedy, Spot, Stop};
use super::content::{self, Found};

/// The most locks at a time.
const MOST: usize = 64;
/// The suffix of a configuration's lock file.
const SUFFIX: &[u8] = b".lock";

struct Lock {
    parent: Directory,
    name: OsString,
    status: Status,
    /// The memory file that the caller writes to.
    written: OwnedFd,
}

impl Lock {
    /// Compares more than the inode number, which the next file gets once this one is removed.
    fn is(&self, status: &Status) -> bool {
        self.status.identity == status.identity && self.status.born == status.born
    }

    fn is_there(&self) -> bool {
        self.parent.status(&self.name).is_ok_and(|now| self.is(&now))
    }

    fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/self/fd/{}", self.written.as_raw_fd());
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
    }
}

/// The locks that the command has made.
#[derive(Default)]
pub(super) struct Locks(Mutex<Vec<Lock>>);

impl Locks {
    /// Opens what was written to a lock of the command; `None` for any other file.
    pub(super) fn written(&self, status: &Status) -> Option<Result<File, Errno>> {
        self.open(status, OFlags::RDONLY).map(|opened| opened.map(File::from))
    }

    fn open(&self, status: &Status, flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
        let locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.iter().find(|lock| lock.is(status)).map(|lock| lock.open(flags))
    }

    /// Keeps a lock for as long as its file is there.
    fn keep(&self, lock: Lock) -> Result<(), Errno> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|known| known.is_there() && !known.is(&lock.status));
        if locks.len() >= MOST {
            return Err(Errno::AGAIN);
        }
        locks.push(lock);
        Ok(())
    }
}

impl Caller<'_> {
    /// Opens the lock of a configuration for writing, or makes it.
    pub(super) fn open_lock(&self, open: &Open, spot: &Spot, why: &str, alone: Alone) -> Result<Done, Tried> {
        let flags = open.flags - OFlags::CREATE - OFlags::EXCL - OFlags::NOFOLLOW;
        let on_exec = on_exec(open.flags);
        if let Some(status) = spot.parent.status_if_present(&spot.name)? {
            let Some(opened) = self.broker.locks.open(&status, flags) else {
                let what = HeldAct::new(spot.path(), GuestAct::Write, why);
                return Err(Stop::Held { what, errno: Errno::ROFS, remedy: Remedy::Nothing }.into());
            };
            return Ok(Done::Descriptor { descriptor: opened?, on_exec, made: None });
        }
        if alone == Alone::No {
            return Err(Tried::NeedsToBeAlone);
        }
        let mode = open.mode.as_raw_mode() & !self.umask()?.as_raw_mode();
        let lock = lock_file(spot, mode)?;
        let made = Made::note(&lock.parent, &lock.name, lock.status.identity);
        let kept = lock.open(flags).and_then(|opened| self.broker.locks.keep(lock).map(|()| opened));
        match kept {
            Ok(descriptor) => Ok(Done::Descriptor { descriptor, on_exec, made }),
            Err(cause) => {
                // The caller gets this error; if the lock stays, git names it in its own error.
                spot.parent.remove(&spot.name).ok();
                Err(cause.into())
            }
        }
    }
}

/// Makes the file of a lock, with what the configuration says now.
fn lock_file(spot: &Spot, mode: u32) -> Result<Lock, Errno> {
    let name = spot.name.as_bytes();
    let config = OsStr::from_bytes(name.strip_suffix(SUFFIX).unwrap_or(name));
    let text = match content::read(&spot.parent, config, LARGEST_CONFIG)? {
        Found::Text(text, _) => text,
        Found::Absent | Found::Odd => Vec::new(),
    };
    let written = rustix::fs::memfd_create("belljar-lock", MemfdFlags::CLOEXEC)?;
    let parent = Directory::from(
        spot.parent.as_fd().try_clone_to_owned().map_err(|error| belljar_sys::fds::errno_of(&error))?,
    );
    content::write_new(&parent, &spot.name, &text, mode)?;
    let status = parent.status(&spot.name)?;
    Ok(Lock { parent, name: spot.name.clone(), status, written })
}
