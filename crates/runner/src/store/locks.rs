//! Locks on files. The kernel lets them go when their holder dies, however it dies, so none is ever stale.
//!
//! A lock belongs to an open file, not to a name: whoever waited for a file that was removed meanwhile holds a lock
//! that nobody else will ever see. So after locking, the name is looked at again.

use belljar_contract::{AbsPath, Digest, RunName};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Longer than any holder's line.
const HOLDER_MAX: u64 = 4096;

/// A lock that is held for as long as this lives.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Makes the time of the file that of this use.
    pub(crate) fn touch(&self) -> io::Result<()> {
        self.0.set_modified(std::time::SystemTime::now())
    }
}

/// Waits until nobody has the file for themselves. The file is made when absent, its directory is not.
pub(crate) fn wait_shared(path: &AbsPath) -> io::Result<Lock> {
    loop {
        let file = open(path)?;
        file.lock_shared()?;
        if is_at(&file, path)? {
            return Ok(Lock(file));
        }
    }
}

/// Waits until nobody else has the file.
pub(crate) fn wait_exclusive(path: &AbsPath) -> io::Result<Lock> {
    loop {
        let file = open(path)?;
        file.lock()?;
        if is_at(&file, path)? {
            return Ok(Lock(file));
        }
    }
}

/// Takes the file for ourselves; `None` when somebody has it.
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

/// Whether the open file is still the one of that name.
fn is_at(file: &File, path: &AbsPath) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Who holds something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The run.
    pub run: RunName,
    /// Its supervisor.
    pub pid: u32,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the run `{}`, process {}", self.run, self.pid)
    }
}

/// A file that says who holds it, removed when it is let go.
#[derive(Debug)]
pub(crate) struct Claim {
    path: AbsPath,
    _lock: Lock,
}

/// What came of a claim.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// It is ours.
    Ours(Claim),
    /// Somebody has it. Who is not known in the moment between taking it and saying so.
    Taken(Option<Holder>),
}

impl Claim {
    /// Takes `path` for `holder`, unless somebody has it.
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
        // Still locked, so it is ours. What cannot be removed is taken over by the next claim.
        fs::remove_file(&self.path).ok();
    }
}

/// Who says that he has a file, if he is still there. For showing: nothing is locked.
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

/// Why a session cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum SessionLockError {
    /// Another run has it.
    #[error("the session {session:?} is in use by {}", who(.holder.as_ref()))]
    Taken {
        /// The session.
        session: String,
        /// Who has it.
        holder: Option<Holder>,
    },
    /// The lock cannot be made.
    #[error("cannot lock `{path}`")]
    Lock {
        /// The file.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

pub(crate) fn who(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "another run".to_owned(), ToString::to_string)
}

/// A conversation that one run at a time may go on with: two that resume it would write one history.
#[derive(Debug)]
pub struct SessionLock(#[expect(dead_code, reason = "held, not looked at")] Claim);

impl SessionLock {
    /// Takes a session of an instance.
    ///
    /// # Errors
    /// When another run has it; the error says which.
    pub fn take(
        instance: &crate::HeldInstance,
        session: &str,
        holder: &Holder,
    ) -> Result<Self, SessionLockError> {
        Self::take_in(instance.directory(), session, holder)
    }

    /// The same in the directory of an instance.
    pub(crate) fn take_in(
        instance: &AbsPath,
        session: &str,
        holder: &Holder,
    ) -> Result<Self, SessionLockError> {
        // The id may come from a command line; its digest is a file name whatever it holds.
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
