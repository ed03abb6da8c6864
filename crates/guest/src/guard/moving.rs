//! Renames. A directory moves with everything in it, so each entry is looked at where it is and where it would be.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use belljar_class::{GIT_POINTER, Making, Unless};
use belljar_contract::GuestAct;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, status_of};
use rustix::fs::RenameFlags;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::acts::{Alone, Attempt, Tried, attempt};
use super::caller::{Caller, HeldAct, Remedy, Spot, Stop};
use super::content;
use super::roots::Root;

/// Entries of a directory that are looked at before it is moved. With more it is not moved at once: programs copy it
/// then, and every copy is judged by itself.
pub(super) const MOST_ENTRIES: usize = 200_000;
/// No real tree is deeper.
const DEEPEST: usize = 256;

impl Caller<'_> {
    /// Moves an entry. Nothing else is done meanwhile: what is at the name when it is moved must be what was judged.
    pub(super) fn rename(&self, from: (i32, u64), to: (i32, u64), flags: u32) -> Attempt {
        attempt(self.rename_path(from, to, flags))
    }

    fn rename_path(&self, from: (i32, u64), to: (i32, u64), flags: u32) -> Result<(), Tried> {
        let flags = RenameFlags::from_bits_retain(flags);
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if !(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE).contains(flags) {
            return Err(Stop::Continue.into());
        }
        let (from_path, to_path) = (self.path(from.1)?, self.path(to.1)?);
        let from = self.spot(from.0, &from_path)?;
        let to = self.spot(to.0, &to_path)?;
        let (old, new) = (from.path(), to.path());
        // Moving a directory above a root would move the root away from its guard.
        if self.broker.roots.hold(&old) || self.broker.roots.hold(&new) {
            return Err(Stop::Fail(Errno::BUSY).into());
        }
        let (root, other) = (self.root_of(&old), self.root_of(&new));
        // Another root is another mount.
        if root.map(|root| &root.path) != other.map(|root| &root.path) {
            return Err(Stop::Fail(Errno::XDEV).into());
        }
        let Some(root) = root else {
            rustix::fs::renameat_with(&from.parent, from.called(), &to.parent, to.called(), flags)?;
            return Ok(());
        };
        let source = Pinned::open(&from)?;
        let made = source.making;
        let held = if made == Making::Directory { None } else { root.held(&new, made) };
        if let Some(held) = held.filter(|held| held.unless == Unless::HarmlessConfig && !exchange) {
            let is_lock = root.held(&old, made).is_some_and(|held| held.unless == Unless::ConfigLock);
            if !is_lock {
                self.refuse(&from, made, GuestAct::Move, || Remedy::Nothing)?;
            }
            let locks = is_lock.then_some(&self.broker.locks);
            if flags.contains(RenameFlags::NOREPLACE) && to.kind()?.is_some() {
                return Err(Stop::Fail(Errno::EXIST).into());
            }
            return Ok(content::land_config(self, root, locks, &from, &to, held.why)?);
        }
        self.same_mount(&from, &to)?;
        if self.broker.asks() && flags.contains(RenameFlags::NOREPLACE) && to.kind()?.is_some() {
            // `mv` tries this first; a yes to it would come to nothing.
            return Err(Stop::Fail(Errno::EXIST).into());
        }
        self.judge_move(root, &from, &to, made)?;
        self.before_sign(&to, made, Alone::Yes)?;
        let mut other = None;
        if exchange {
            let target = Pinned::open(&to)?;
            self.judge_move(root, &to, &from, target.making)?;
            self.before_sign(&from, target.making, Alone::Yes)?;
            other = Some(target);
        }
        rustix::fs::renameat_with(&from.parent, from.called(), &to.parent, to.called(), flags)?;
        // From inside nothing but a socket can have taken the place since; the host does as it likes.
        if !source.has_landed(&to) || other.is_some_and(|other| !other.has_landed(&from)) {
            let back = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
            rustix::fs::renameat_with(&to.parent, &to.name, &from.parent, &from.name, back)?;
            return Err(Stop::Fail(Errno::BUSY).into());
        }
        Ok(())
    }

    /// Whether what is at one place may be at another.
    fn judge_move(&self, root: &Root, from: &Spot, to: &Spot, made: Making) -> Result<(), Stop> {
        let (old, new) = (from.path(), to.path());
        let hold = |path: &Path, making: Making, why: &str| {
            let remedy = || match from.remedy_of_move() {
                Remedy::Yes => to.remedy_of_move(),
                other @ (Remedy::Mount | Remedy::Nothing) => other,
            };
            self.hold_as(HeldAct::new(path.to_owned(), GuestAct::Move, why), making, remedy)
        };
        for place in [&old, &new] {
            if let Some(found) = root.held(place, made) {
                hold(place, made, found.why)?;
            }
        }
        if made != Making::Directory {
            return Ok(());
        }
        let is_git = |name: &OsStr| name.as_bytes().eq_ignore_ascii_case(b".git");
        let repository = is_git(&from.name) || is_git(&to.name);
        let mut walk = Walk { left: MOST_ENTRIES, pending: vec![PathBuf::new()] };
        let top = from.parent.directory(Path::new(&from.name))?;
        while let Some(below) = walk.pending.pop() {
            let Some((directory, entries)) = walk.entries(&top, &below)? else { continue };
            for (name, kind) in entries {
                let below = below.join(&name);
                let (here, there) = (old.join(&below), new.join(&below));
                let making = making_in(&directory, &name, kind);
                let before = root.held(&here, making);
                let after = root.held_after(&there, making, (&old, &new));
                let found = before.or(after);
                if is_left_behind(&directory, &below, found.is_some()) {
                    hold(&here, making, found.map_or(GIT_POINTER, |found| found.why))?;
                }
                match (before, after) {
                    (None, None) => {}
                    // The file is guarded at both places, so the command could not have written it.
                    (Some(_), Some(_)) if !repository => {}
                    (Some(found), _) => hold(&here, making, found.why)?,
                    (None, Some(found)) => hold(&there, making, found.why)?,
                }
                if kind == InodeKind::Directory {
                    walk.pending.push(below);
                }
            }
        }
        Ok(())
    }
}

/// Whether a file of a moved directory would lead elsewhere afterwards: a `commondir` that says `../..` where the moved directory
/// does not hold what that is, or one that says something else.
fn is_left_behind(directory: &Directory, below: &Path, is_held: bool) -> bool {
    let names: Vec<&OsStr> = below.iter().collect();
    let Some((name, above)) = names.split_last() else { return false };
    if !name.eq_ignore_ascii_case("commondir") {
        return false;
    }
    match above {
        [.., trees, _] if *trees == "worktrees" => {
            is_held && !content::says(directory, name, content::OWN_REPOSITORY)
        }
        [_, _, ..] => is_held,
        [] | [_] => true,
    }
}

/// An entry before it is moved, held open so that no other gets its number.
struct Pinned {
    entry: OwnedFd,
    making: Making,
}

impl Pinned {
    fn open(spot: &Spot) -> Result<Self, Errno> {
        let entry = spot.pin()?;
        let making = making_of(entry.as_fd())?;
        Ok(Pinned { entry, making })
    }

    /// Whether what is at a place was judged: the same kind of entry, and the same directory if it is one. What is gone again
    /// has done nothing.
    fn has_landed(&self, spot: &Spot) -> bool {
        let now = match spot.parent.status_if_present(&spot.name) {
            Ok(Some(now)) => now,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let is_same = || status_of(self.entry.as_fd()).is_ok_and(|before| before.identity == now.identity);
        making_in(&spot.parent, &spot.name, now.kind) == self.making
            && (self.making != Making::Directory || is_same())
    }
}

/// The kind of an open entry, as the class distinguishes them.
pub(super) fn making_of(entry: BorrowedFd<'_>) -> Result<Making, Errno> {
    let kind = status_of(entry)?.kind;
    Ok(making(kind, || rustix::fs::readlinkat(entry, "", Vec::new()).map(CString::into_bytes)))
}

fn making_in(parent: &Directory, name: &OsStr, kind: InodeKind) -> Making {
    making(kind, || parent.link_target(name).map(|text| text.into_os_string().into_vec()))
}

fn making(kind: InodeKind, text: impl FnOnce() -> Result<Vec<u8>, Errno>) -> Making {
    match kind {
        InodeKind::Directory => Making::Directory,
        // One whose text cannot be read may say anything.
        InodeKind::Symlink => text().map_or(Making::Link, |text| Making::link(&text)),
        InodeKind::File
        | InodeKind::Fifo
        | InodeKind::Socket
        | InodeKind::CharacterDevice
        | InodeKind::BlockDevice
        | InodeKind::Unknown => Making::File,
    }
}

struct Walk {
    left: usize,
    pending: Vec<PathBuf>,
}

/// A directory and its entries.
type Listed = (Directory, Vec<(OsString, InodeKind)>);

impl Walk {
    fn entries(&mut self, top: &Directory, below: &Path) -> Result<Option<Listed>, Stop> {
        if below.iter().count() > DEEPEST {
            return Err(Stop::Fail(Errno::XDEV));
        }
        let directory = match top.directory(below) {
            // It was removed meanwhile.
            Err(Errno::NOENT) => return Ok(None),
            answer => answer?,
        };
        let mut out = Vec::new();
        directory.entries(|name, kind| {
            if out.len() <= self.left {
                out.push((name.to_owned(), kind));
            }
        })?;
        self.left = self.left.checked_sub(out.len()).ok_or(Stop::Fail(Errno::XDEV))?;
        Ok(Some((directory, out)))
    }
}
