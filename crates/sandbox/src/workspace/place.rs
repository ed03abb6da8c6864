//! Puts an entry in its place in a directory that other programs write to as well.
//!
//! The new entry is made whole under a name of its own and then changes places with the old one in one step. What came
//! out is compared with what was expected; if it is something else, both change back. So nothing is ever overwritten
//! unseen, however late it came.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Onto, Status, copy_user_attributes, is_superuser};
use belljar_sys::birth::Birth;
use belljar_sys::fds::errno_of;
use belljar_sys::mounts::{MountError, share_or_copy};

use super::removal::{absent_is_fine, opened};
use super::unfinished::{Places, Unfinished};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// What is in the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Nothing,
    Same(Status),
    Anything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceError {
    /// Something else is in the place.
    NotAsExpected,
    Refused(Errno),
}

impl From<Errno> for PlaceError {
    fn from(cause: Errno) -> Self {
        PlaceError::Refused(cause)
    }
}

/// The content of a new file.
pub(super) enum Filling<'content> {
    /// That of another file, with its time.
    Like(&'content File),
    /// These bytes, with the present time.
    New(&'content [u8]),
}

/// The entry to make.
pub(super) enum Content<'content> {
    File(Filling<'content>),
    Link(&'content Path),
}

/// A place in a directory.
pub(super) struct Placing<'path> {
    parent: Directory,
    name: &'path OsStr,
}

impl<'path> Placing<'path> {
    pub(super) fn new(parent: Directory, name: &'path OsStr) -> Self {
        Placing { parent, name }
    }

    /// A file with this content, and with the permissions, owner and time of `like`.
    pub(super) fn file(&self, content: &File, like: &Status, expected: &Expected) -> Result<(), PlaceError> {
        self.make_file(&Filling::Like(content), like, expected)
    }

    /// A file with these bytes, written now, with the permissions and owner of `like`.
    pub(super) fn bytes(&self, content: &[u8], like: &Status, expected: &Expected) -> Result<(), PlaceError> {
        self.make_file(&Filling::New(content), like, expected)
    }

    fn make_file(&self, filling: &Filling<'_>, like: &Status, expected: &Expected) -> Result<(), PlaceError> {
        let (made, unfinished) = self.fresh(None, |name| self.parent.create(name, 0o600))?;
        let old = (*expected != Expected::Nothing).then_some(self.name);
        let finish =
            || self.fill(&made, &unfinished, filling, like).and_then(|()| self.keep_attributes(old, &made));
        let finished = opened(&self.parent, finish).map_err(PlaceError::from);
        self.put(&unfinished, finished, expected)
    }

    fn fill(&self, made: &File, name: &OsStr, filling: &Filling<'_>, like: &Status) -> Result<(), Errno> {
        let modified = match filling {
            Filling::Like(content) => {
                share_or_copy(content, made).map_err(copy_errno)?;
                Some(like.modified)
            }
            Filling::New(content) => {
                // From the start: it may be the second try, in a directory that had to be opened first.
                made.write_all_at(content, 0).map_err(|cause| errno_of(&cause))?;
                None
            }
        };
        if is_superuser() {
            self.parent.set_owner(name, like.owner, like.group)?;
        }
        // After the owner, which takes set-id bits away.
        self.parent.set_mode(name, like.mode)?;
        self.parent.set_modified(name, modified)
    }

    /// Gives a file the attributes that the user gave to the one in its place.
    fn keep_attributes(&self, old: Option<&OsStr>, made: &File) -> Result<(), Errno> {
        // Where it cannot be read there is nothing to keep.
        let Some(old) = old.and_then(|name| self.parent.file(name).ok()) else { return Ok(()) };
        copy_user_attributes(old.as_fd(), made.as_fd())
    }

    pub(super) fn symlink(
        &self,
        target: &Path,
        like: &Status,
        expected: &Expected,
    ) -> Result<(), PlaceError> {
        let ((), unfinished) = self.fresh(None, |name| self.parent.make_symlink(target, name))?;
        let finish = || {
            if is_superuser() { self.parent.set_owner(&unfinished, like.owner, like.group) } else { Ok(()) }
        };
        self.put(&unfinished, finish().map_err(PlaceError::from), expected)
    }

    /// Open to its owner only; [`Placing::finish_directory`] gives it its permissions.
    pub(super) fn make_directory(&self) -> Result<(), PlaceError> {
        match opened(&self.parent, || self.parent.make_directory(self.name, 0o700)) {
            Err(Errno::EXIST) => Err(PlaceError::NotAsExpected),
            answer => Ok(answer?),
        }
    }

    pub(super) fn finish_directory(&self, like: &Status) -> Result<(), PlaceError> {
        let finish = || {
            let directory = self.parent.passage(Path::new(self.name))?;
            if is_superuser() {
                self.parent.set_owner(self.name, like.owner, like.group)?;
            }
            directory.set_own_mode(like.mode)?;
            // So that another apply does not take it for moved: see `changed_after`.
            directory.touch()
        };
        Ok(opened(&self.parent, finish)?)
    }

    pub(super) fn set_mode(&self, like: &Status, expected: &Expected) -> Result<(), PlaceError> {
        if let Expected::Same(before) = expected {
            let now = opened(&self.parent, || self.parent.status_if_present(self.name))?;
            if !now.is_some_and(|now| same(&now, before)) {
                return Err(PlaceError::NotAsExpected);
            }
        }
        Ok(opened(&self.parent, || self.parent.set_mode(self.name, like.mode))?)
    }

    pub(super) fn remove_directory(&self) -> Result<(), PlaceError> {
        match opened(&self.parent, || absent_is_fine(self.parent.remove_directory(self.name))) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Err(PlaceError::NotAsExpected),
            answer => Ok(answer?),
        }
    }

    /// Removes a file or a link. It is renamed to a temporary name and compared first, so that a file that changed meanwhile
    /// is not removed.
    pub(super) fn remove(&self, expected: &Expected) -> Result<(), PlaceError> {
        let places = match expected {
            Expected::Same(before) => Some(Places { made: 0, before: before.into() }),
            Expected::Nothing | Expected::Anything => None,
        };
        let moved = self
            .fresh(places, |temporary| self.parent.rename(self.name, &self.parent, temporary, Onto::Nothing));
        let temporary = match moved {
            Err(PlaceError::Refused(Errno::NOENT)) => return Ok(()),
            answer => answer?.1,
        };
        let found = self.parent.status(&temporary)?;
        if is_expected(expected, &found) && found.kind != InodeKind::Directory {
            return Ok(opened(&self.parent, || absent_is_fine(self.parent.remove(&temporary)))?);
        }
        opened(&self.parent, || self.parent.rename(&temporary, &self.parent, self.name, Onto::Nothing))?;
        Err(PlaceError::NotAsExpected)
    }

    /// Makes a file or a link beside its place, whole, for [`Placing::exchange`]. Nothing shows yet.
    pub(super) fn stage(
        &self,
        content: &Content<'_>,
        like: &Status,
        before: Option<&Status>,
    ) -> Result<(OsString, Status), PlaceError> {
        let name = match content {
            Content::File(filling) => {
                let (made, name) = self.fresh(None, |name| self.parent.create(name, 0o600))?;
                let old = before.map(|_| self.name);
                let fill =
                    || self.fill(&made, &name, filling, like).and_then(|()| self.keep_attributes(old, &made));
                let filled = opened(&self.parent, fill);
                if let Err(cause) = filled {
                    opened(&self.parent, || absent_is_fine(self.parent.remove(&name)))?;
                    return Err(cause.into());
                }
                name
            }
            Content::Link(target) => self.fresh(None, |name| self.parent.make_symlink(target, name))?.1,
        };
        let made = opened(&self.parent, || self.parent.status(&name))?;
        match before {
            Some(before) => Ok((self.announce(&name, before)?, made)),
            None => Ok((name, made)),
        }
    }

    /// A name that is free.
    pub(super) fn fresh_name() -> Result<OsString, PlaceError> {
        Ok(unfinished(None)?)
    }

    /// The temporary name for the entry in the place.
    pub(super) fn temporary_name(before: &Status) -> Result<OsString, PlaceError> {
        Ok(unfinished(Some(Places { made: 0, before: before.into() }))?)
    }

    /// Lets what was staged and what is in the place change places, or puts it where nothing is.
    pub(super) fn exchange(&self, staged: &OsStr, before: Option<&Status>) -> Result<(), PlaceError> {
        let rename =
            |onto| opened(&self.parent, || self.parent.rename(staged, &self.parent, self.name, onto));
        let Some(before) = before else {
            return match rename(Onto::Nothing) {
                Err(Errno::EXIST) => Err(PlaceError::NotAsExpected),
                answer => Ok(answer?),
            };
        };
        match rename(Onto::Exchange) {
            Err(Errno::NOENT) => return Err(PlaceError::NotAsExpected),
            answer => answer?,
        }
        if same(&self.parent.status(staged)?, before) {
            return Ok(());
        }
        rename(Onto::Exchange)?;
        Err(PlaceError::NotAsExpected)
    }

    /// Moves the entry in the place to a temporary name in this directory, and back if it is not the expected one.
    pub(super) fn move_away(
        &self,
        to: &Directory,
        temporary: &OsStr,
        before: &Status,
    ) -> Result<(), PlaceError> {
        let away = || self.parent.rename(self.name, to, temporary, Onto::Nothing);
        match opened(&self.parent, || opened(to, away)) {
            Err(Errno::NOENT) => return Err(PlaceError::NotAsExpected),
            answer => answer?,
        }
        if same(&to.status(temporary)?, before) {
            return Ok(());
        }
        let back = || to.rename(temporary, &self.parent, self.name, Onto::Nothing);
        opened(&self.parent, || opened(to, back))?;
        Err(PlaceError::NotAsExpected)
    }

    /// Does `make` with a name that is free.
    fn fresh<T>(
        &self,
        places: Option<Places>,
        make: impl Fn(&OsStr) -> Result<T, Errno>,
    ) -> Result<(T, OsString), PlaceError> {
        loop {
            let name = unfinished(places)?;
            match opened(&self.parent, || make(&name)) {
                Err(Errno::EXIST) => {}
                answer => return Ok((answer?, name)),
            }
        }
    }

    /// Gives what was made the name that tells it from what it changes places with.
    fn announce(&self, made: &OsStr, before: &Status) -> Result<OsString, PlaceError> {
        let made_now = opened(&self.parent, || self.parent.status(made))?;
        let places = Places { made: made_now.identity.inode, before: before.into() };
        let rename = |name: &OsStr| self.parent.rename(made, &self.parent, name, Onto::Nothing);
        Ok(self.fresh(Some(places), rename)?.1)
    }

    /// Brings what was made to its place, or removes it.
    fn put(
        &self,
        unfinished: &OsStr,
        finished: Result<(), PlaceError>,
        expected: &Expected,
    ) -> Result<(), PlaceError> {
        let mut unfinished = unfinished.to_owned();
        let announced = finished.and_then(|()| match expected {
            Expected::Same(before) => self.announce(&unfinished, before).map(Some),
            Expected::Nothing | Expected::Anything => Ok(None),
        });
        let outcome = announced.and_then(|announced| {
            unfinished = announced.unwrap_or_else(|| unfinished.clone());
            self.swap(&unfinished, expected)
        });
        if outcome.is_err() {
            opened(&self.parent, || absent_is_fine(self.parent.remove(&unfinished)))?;
        }
        outcome
    }

    fn swap(&self, unfinished: &OsStr, expected: &Expected) -> Result<(), PlaceError> {
        let rename =
            |onto| opened(&self.parent, || self.parent.rename(unfinished, &self.parent, self.name, onto));
        match expected {
            Expected::Anything => return Ok(rename(Onto::Anything)?),
            Expected::Nothing => {
                return match rename(Onto::Nothing) {
                    Err(Errno::EXIST) => Err(PlaceError::NotAsExpected),
                    answer => Ok(answer?),
                };
            }
            Expected::Same(_) => {}
        }
        match rename(Onto::Exchange) {
            Err(Errno::NOENT) => return Err(PlaceError::NotAsExpected),
            // A file system that cannot exchange: what is there is looked at right before it is replaced.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let now = self.parent.status_if_present(self.name)?;
                return match now {
                    Some(now) if is_expected(expected, &now) => Ok(rename(Onto::Anything)?),
                    Some(_) | None => Err(PlaceError::NotAsExpected),
                };
            }
            answer => answer?,
        }
        if is_expected(expected, &self.parent.status(unfinished)?) {
            return Ok(opened(&self.parent, || self.parent.remove(unfinished))?);
        }
        rename(Onto::Exchange)?;
        Err(PlaceError::NotAsExpected)
    }
}

/// A name that this process has not given yet.
fn unfinished(places: Option<Places>) -> Result<OsString, Errno> {
    static OWN: OnceLock<Birth> = OnceLock::new();
    let own = match OWN.get() {
        Some(own) => *own,
        None => {
            let own = Birth::own().map_err(|cause| errno_of(&cause))?;
            *OWN.get_or_init(|| own)
        }
    };
    Ok(Unfinished { maker: own, number: NEXT.fetch_add(1, Ordering::Relaxed), places }.name())
}

fn is_expected(expected: &Expected, found: &Status) -> bool {
    match expected {
        Expected::Nothing => false,
        Expected::Same(before) => same(found, before),
        Expected::Anything => true,
    }
}

/// The ctime is left out: being renamed changes it.
fn same(now: &Status, before: &Status) -> bool {
    let mark = |status: &Status| (status.identity, status.kind, status.size, status.modified, status.mode);
    mark(now) == mark(before)
}

/// The errno inside an error of a copy.
pub(super) fn copy_errno(error: MountError) -> Errno {
    match error {
        MountError::Copy(cause) => errno_of(&cause),
        MountError::ReadOnly { cause, .. } | MountError::Identify { cause, .. } => cause,
        MountError::Probe { cause, .. } => errno_of(&cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody replaces the file after it was looked at and before it changes places: theirs is what stays.
    #[test]
    fn what_came_late_is_put_back() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("new"), "new").unwrap();
        std::fs::write(at("file"), "looked at").unwrap();
        let content = || File::open(at("new")).unwrap();
        let placing = Placing::new(Directory::open(place.path()).unwrap(), OsStr::new("file"));
        let like = placing.parent.status(OsStr::new("new")).unwrap();
        let expected = Expected::Same(placing.parent.status(OsStr::new("file")).unwrap());

        std::fs::write(at("theirs"), "came late").unwrap();
        std::fs::rename(at("theirs"), at("file")).unwrap();
        assert_eq!(placing.file(&content(), &like, &expected), Err(PlaceError::NotAsExpected));
        assert_eq!(placing.remove(&expected), Err(PlaceError::NotAsExpected));
        assert_eq!(placing.set_mode(&like, &expected), Err(PlaceError::NotAsExpected));
        assert_eq!(placing.file(&content(), &like, &Expected::Nothing), Err(PlaceError::NotAsExpected));
        assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "came late");

        let expected = Expected::Same(placing.parent.status(OsStr::new("file")).unwrap());
        assert_eq!(placing.file(&content(), &like, &expected), Ok(()));
        assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "new");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "nothing unfinished is left");
    }
}
