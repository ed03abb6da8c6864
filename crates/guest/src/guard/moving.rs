//! Renames. A directory moves with everything in it, so each entry is looked at where it is and where it would be.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use belljar_class::{Making, Unless, is_git_sign};
use belljar_contract::GuestAct;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, Kind};
use rustix::fs::RenameFlags;
use std::os::unix::ffi::OsStrExt;

use super::acts::{Alone, Attempt, Tried, attempt};
use super::caller::{Caller, HeldAct, Remedy, Spot, Stop};
use super::content;
use super::roots::Root;

/// Entries of a directory that are looked at before it is moved. With more it is not moved at once: programs copy it
/// then, and every copy is judged by itself.
const MOST_ENTRIES: usize = 200_000;
/// No real tree is deeper.
const DEEPEST: usize = 256;

impl Caller<'_> {
    pub(super) fn rename(&self, from: (i32, u64), to: (i32, u64), flags: u32, alone: Alone) -> Attempt {
        attempt(self.rename_path(from, to, flags, alone))
    }

    fn rename_path(&self, from: (i32, u64), to: (i32, u64), flags: u32, alone: Alone) -> Result<(), Tried> {
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
        let Some(kind) = from.kind()? else { return Err(Stop::Fail(Errno::NOENT).into()) };
        let held = if kind == Kind::Directory { None } else { root.held(&new, making(&from, kind)) };
        let content = held.filter(|held| held.unless == Unless::HarmlessConfig && !exchange);
        let sign = is_git_sign(to.name.as_bytes()) || (exchange && is_git_sign(from.name.as_bytes()));
        if alone == Alone::No && (kind == Kind::Directory || exchange || content.is_some() || sign) {
            return Err(Tried::NeedsToBeAlone);
        }
        if let Some(held) = content {
            let made = making(&from, kind);
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
        self.judge_move(root, &from, &to, kind)?;
        self.before_sign(&to, alone)?;
        if exchange {
            let Some(kind) = to.kind()? else { return Err(Stop::Fail(Errno::NOENT).into()) };
            self.judge_move(root, &to, &from, kind)?;
            self.before_sign(&from, alone)?;
        }
        rustix::fs::renameat_with(&from.parent, from.called(), &to.parent, to.called(), flags)?;
        Ok(())
    }

    /// Whether what is at one place may be at another.
    fn judge_move(&self, root: &Root, from: &Spot, to: &Spot, kind: Kind) -> Result<(), Stop> {
        let (old, new) = (from.path(), to.path());
        let hold = |path: &Path, making: Making, why: &str| {
            let remedy = || match from.remedy_of_move() {
                Remedy::Yes => to.remedy_of_move(),
                other => other,
            };
            self.hold_as(HeldAct::new(path.to_owned(), GuestAct::Move, why), making, remedy)
        };
        let made = making(from, kind);
        for place in [&old, &new] {
            if let Some(found) = root.held(place, made) {
                hold(place, made, found.why)?;
            }
        }
        if kind != Kind::Directory {
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
                match (before, after) {
                    (None, None) => {}
                    // It is of the class wherever the directory is, and nobody could write it.
                    (Some(_), Some(_)) if !repository => {}
                    (Some(found), _) => hold(&here, making, found.why)?,
                    (None, Some(found)) => hold(&there, making, found.why)?,
                }
                if kind == Kind::Directory {
                    walk.pending.push(below);
                }
            }
        }
        Ok(())
    }
}

/// What an entry is to the class.
pub(super) fn making(spot: &Spot, kind: Kind) -> Making {
    making_in(&spot.parent, &spot.name, kind)
}

fn making_in(parent: &Directory, name: &OsStr, kind: Kind) -> Making {
    match kind {
        Kind::Directory => Making::Directory,
        // One whose text cannot be read may say anything.
        Kind::Symlink => {
            let text = parent.link_target(name);
            text.map_or(Making::Link, |text| Making::link(text.as_os_str().as_bytes()))
        }
        Kind::File
        | Kind::Fifo
        | Kind::Socket
        | Kind::CharacterDevice
        | Kind::BlockDevice
        | Kind::Unknown => Making::File,
    }
}

struct Walk {
    left: usize,
    pending: Vec<PathBuf>,
}

/// A directory and its entries.
type Listed = (Directory, Vec<(OsString, Kind)>);

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
