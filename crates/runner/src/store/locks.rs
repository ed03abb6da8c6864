//! Locks on files. The kernel releases them when their holder ends, for any reason, so no lock is ever stale.
//!
//! A lock belongs to an open file, not to a name: after waiting for a file that was removed meanwhile, the lock would
//! be invisible to all others. So after locking, the name is checked again.

use belljar_contract::{AbsPath, Digest, RunName};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Longer than the line of any holder.
const HOLDER_MAX: u64 = 4096;

/// A lock that is held for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Sets the file's time to now, as the time of the last use.
    pub(crate) fn touch(&self) -> io::Result<()> {
        self.0.set_modified(std::time::SystemTime::now())
    }
}

/// Waits for a shared lock. The file is created if it is missing, its directory is not.
pub(crate) fn wait_shared(path: &AbsPath) -> io::Result<Lock> {
    loop {
        let file = open(path)?;
        file.lock_shared()?;
        if is_at(&file, path)? {
            return Ok(Lock(file));
        }
    }
}

/// Waits for an exclusive lock.
pub(crate) fn wait_exclusive(path: &AbsPath) -> io::Result<Lock> {
    loop {
        let file = open(path)?;
        file.lock()?;
        if is_at(&file, path)? {
            return Ok(Lock(file));
        }
    }
}

/// Takes an exclusive lock; `None` if the file is locked already.
pub(crate) fn try_exclusive(path: &AbsPath) -> io::Result<Option<Lock>> {
    loop {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) if is_at(&file, path)? => return Ok(Some(Lock(file))),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn open(path: &AbsPath) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether the name still refers to the open file.
fn is_at(file: &File, path: &AbsPath) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The run that holds a lock or a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub run: RunName,
    pub pid: u32,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the run `{}`, process {}", self.run, self.pid)
    }
}

/// A locked file that names its holder. It is removed when it is released.
#[derive(Debug)]
pub(crate) struct Claim {
    path: AbsPath,
    _lock: Lock,
}

/// The result of a claim.
#[derive(Debug)]
pub(crate) enum Claimed {
    Ours(Claim),
    /// Another process has it. The holder is unknown for a moment, between locking and writing the file.
    Taken(Option<Holder>),
}

impl Claim {
    /// Claims `path` for `holder`, unless it is taken.
    pub(crate) fn take(path: &AbsPath, holder: &Holder) -> io::Result<Claimed> {
        let Some(mut lock) = try_exclusive(path)? else { return Ok(Claimed::Taken(read_holder(path))) };
        let Holder { run, pid } = holder;
        lock.0.set_len(0)?;
        lock.0.rewind()?;
        lock.0.write_all(format!("{}\n", json!({"run": run, "pid": pid})).as_bytes())?;
        Ok(Claimed::Ours(Claim { path: path.clone(), _lock: lock }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // It is still locked. If it cannot be removed, the next claim takes it over.
        fs::remove_file(&self.path).ok();
    }
}

/// The holder that a file names, if it still holds the lock. For display only: no lock is taken.
pub(crate) fn holder_of(path: &AbsPath) -> Option<Holder> {
    let holder = read_holder(path)?;
    let runs = std::path::Path::new("/proc").join(holder.pid.to_string()).exists();
    runs.then_some(holder)
}

fn read_holder(path: &AbsPath) -> Option<Holder> {
    let mut text = String::new();
    File::open(path).ok()?.take(HOLDER_MAX).read_to_string(&mut text).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let run = RunName::new(value.get("run")?.as_str()?).ok()?;
    Some(Holder { run, pid: u32::try_from(value.get("pid")?.as_u64()?).ok()? })
}

/// Why a session cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum SessionLockError {
    #[error("the session {session:?} is in use by {}", who(.holder.as_ref()))]
    Taken { session: String, holder: Option<Holder> },
    /// The lock cannot be made.
    #[error("cannot lock `{path}`")]
    Lock {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
}

pub(crate) fn who(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "another run".to_owned(), ToString::to_string)
}

/// A lock on a conversation, so that one run at a time continues it: two would write to the same history.
#[derive(Debug)]
pub struct SessionLock(#[expect(dead_code, reason = "held, not looked at")] Claim);

impl SessionLock {
    /// Locks a session of an instance.
    ///
    /// # Errors
    /// If another run has it; the error names that run.
    pub fn take(
        instance: &crate::HeldInstance,
        session: &str,
        holder: &Holder,
    ) -> Result<Self, SessionLockError> {
        Self::take_in(instance.directory(), session, holder)
    }

    /// Like [`SessionLock::take`], for the directory of an instance.
    pub(crate) fn take_in(
        instance: &AbsPath,
        session: &str,
        holder: &Holder,
    ) -> Result<Self, SessionLockError> {
        // The id may come from a command line; its digest is always a valid file name.
        let directory = instance.child("sessions");
        let path = directory.child(&format!("{}.lock", &Digest::of(session.as_bytes()).hex()[..32]));
        let taken = crate::store::runtime::make_private(&directory).and_then(|()| Claim::take(&path, holder));
        match taken {
            Ok(Claimed::Ours(claim)) => Ok(Self(claim)),
            Ok(Claimed::Taken(holder)) => {
                Err(SessionLockError::Taken { session: session.to_owned(), holder })
            }
            Err(cause) => Err(SessionLockError::Lock { path, cause }),
        }
    }
}
