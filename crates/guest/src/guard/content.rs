//! Files of the class whose content decides: git's configuration, and the files that point to git directories.
//!
//! The file that was judged must be the file in place. The caller may still have the file open that it wrote, or have
//! another name for it, so its bytes are read once, judged, and written to a new file of the guard, which replaces it.
//! No other act runs meanwhile, and opening the new file for writing is held back like any other guarded file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_class::{LARGEST_CONFIG, LINK_IN_GIT, Making, may_replace};
use belljar_contract::{Digest, GuestAct};
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Onto};
use rustix::fs::Mode;

use super::caller::{Caller, HeldAct, Remedy, Spot, Stop};
use super::locks::Locks;
use super::moving::MOST_ENTRIES;
use super::roots::{Area, Root, Roots, looks_like_git, signs_in};

/// The content of `commondir` in the part of a linked work tree.
pub(super) const OWN_REPOSITORY: &[u8] = b"../..\n";
/// Longer than any path.
const LONGEST_POINTER: u64 = 4200;
/// Work trees of a repository that are looked at.
const MOST_WORK_TREES: usize = 1000;
/// Directories beside a new work tree, or above it, that are looked at for its repository.
const MOST_NEIGHBOURS: usize = 1000;

/// Puts a judged copy of a configuration in the place of another, and takes the original away.
pub(super) fn land_config(
    caller: &Caller<'_>,
    root: &Root,
    locks: Option<&Locks>,
    from: &Spot,
    to: &Spot,
    why: &str,
) -> Result<(), Stop> {
    let what = HeldAct::new(to.path(), GuestAct::Write, why);
    let odd = || Stop::Held { what: what.clone(), errno: Errno::ACCESS, remedy: Remedy::Nothing };
    let (new, mode) = match read_written(locks, from)? {
        Found::Text(text, mode) => (text, mode),
        Found::Absent => return Err(Stop::Fail(Errno::NOENT)),
        Found::Odd => return Err(odd()),
    };
    let current = match read(&to.parent, &to.name, LARGEST_CONFIG)? {
        Found::Text(text, _) => Some(text),
        Found::Absent => None,
        Found::Odd => return Err(odd()),
    };
    let git = root.relative(&to.real);
    if let Err(unfit) = may_replace(current.as_deref(), &new, &git) {
        // A yes is for these bytes.
        let judged = Some(Digest::of(&new));
        let what = HeldAct { why: format!("{why}; {unfit}"), judged, ..what };
        caller.hold(what, Errno::ACCESS, || to.remedy())?;
    }
    write_fresh(&to.parent, &to.name, &new, mode)?;
    Ok(from.parent.remove(&from.name)?)
}

/// Whether a file has exactly this content.
pub(super) fn says(parent: &Directory, name: &OsStr, text: &[u8]) -> bool {
    matches!(read(parent, name, LONGEST_POINTER), Ok(Found::Text(found, _)) if found == text)
}

/// Reads a file, or what was written to it if it is a lock of the command.
fn read_written(locks: Option<&Locks>, spot: &Spot) -> Result<Found, Errno> {
    let Some(status) = spot.parent.status_if_present(&spot.name)? else { return Ok(Found::Absent) };
    match locks.and_then(|locks| locks.written(&status)) {
        Some(written) => read_all(written?, status.mode, LARGEST_CONFIG),
        None => read(&spot.parent, &spot.name, LARGEST_CONFIG),
    }
}

pub(super) enum Found {
    Text(Vec<u8>, u32),
    Absent,
    /// Not a regular file, or too large.
    Odd,
}

pub(super) fn read(parent: &Directory, name: &OsStr, limit: u64) -> Result<Found, Errno> {
    let file = match parent.file(name) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Found::Absent),
        Err(Errno::LOOP | Errno::INVAL) => return Ok(Found::Odd),
        Err(cause) => return Err(cause),
    };
    let mode = rustix::fs::fstat(&file)?.st_mode;
    read_all(file, mode, limit)
}

fn read_all(file: File, mode: u32, limit: u64) -> Result<Found, Errno> {
    let mut text = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut text);
    read.map_err(|error| belljar_sys::fds::errno_of(&error))?;
    Ok(if text.len() as u64 > limit { Found::Odd } else { Found::Text(text, mode & 0o777) })
}

/// Puts a new file in the place of whatever is there. To be called when nothing else is done: the new file has another name
/// for a moment.
pub(super) fn write_fresh(parent: &Directory, name: &OsStr, text: &[u8], mode: u32) -> Result<(), Errno> {
    write_onto(parent, name, text, mode, Onto::Anything)
}

/// The same where nothing may be yet: `EEXIST` otherwise.
pub(super) fn write_new(parent: &Directory, name: &OsStr, text: &[u8], mode: u32) -> Result<(), Errno> {
    write_onto(parent, name, text, mode, Onto::Nothing)
}

fn write_onto(parent: &Directory, name: &OsStr, text: &[u8], mode: u32, onto: Onto) -> Result<(), Errno> {
    let mut beside = OsString::from(name);
    beside.push(".belljar");
    let mut file = match parent.create(&beside, 0o600) {
        Err(Errno::EXIST) => {
            parent.remove(&beside)?;
            parent.create(&beside, 0o600)?
        }
        made => made?,
    };
    let placed = fill(&mut file, text, mode).and_then(|()| parent.rename(&beside, parent, name, onto));
    if placed.is_err() {
        // The error is returned; a temporary file that cannot be removed stays.
        parent.remove(&beside).ok();
    }
    placed
}

fn fill(file: &mut File, text: &[u8], mode: u32) -> Result<(), Errno> {
    file.write_all(text).map_err(|error| belljar_sys::fds::errno_of(&error))?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o777))
}

/// Whether a place is the pointer of a work tree's part to its repository, `<git>/worktrees/<name>/commondir`.
pub(super) fn points_to_own_repository(root: &Root, place: &Path) -> bool {
    let relative = root.relative(place);
    let names: Vec<&OsStr> = relative.iter().collect();
    let [git @ .., worktrees, _, file] = names.as_slice() else { return false };
    if *worktrees != OsStr::new("worktrees") || *file != OsStr::new("commondir") {
        return false;
    }
    let git: PathBuf = git.iter().collect();
    git.file_name() == Some(OsStr::new(".git")) || root.is_certainly_git(&git)
}

/// The content that `.git` must have at this place, if a guarded repository knows it as a work tree or a submodule.
pub(super) fn known_repository(roots: &Roots, place: &Path) -> Option<Vec<u8>> {
    let Area::Guarded(root) = roots.of(place) else { return None };
    let tree = place.parent()?;
    let within = tree.strip_prefix(&root.path).ok()?;
    let own = |root: &Root| {
        let git = if root.is_git { PathBuf::new() } else { PathBuf::from(".git") };
        Some((root.path.join(&git), root.top.passage(&git).ok()?))
    };
    let nearer = within.ancestors().filter_map(|above| {
        let git = above.join(".git");
        Some((root.path.join(&git), root.top.passage(&git).ok()?))
    });
    let said = |(path, git): (PathBuf, Directory)| {
        let name = work_tree_at(&git, place)?;
        let way = path.join("worktrees").join(name);
        Some([b"gitdir: ", way.as_os_str().as_bytes(), b"\n"].concat())
    };
    let known = nearer.chain(roots.all().iter().filter_map(own)).find_map(said);
    let bare = || within.ancestors().flat_map(|above| bare_in(root, above)).find_map(said);
    known.or_else(bare).or_else(|| submodule(root, within))
}

/// The git directories of other names in a directory, as `.bare` beside its work trees.
fn bare_in(root: &Root, directory: &Path) -> Vec<(PathBuf, Directory)> {
    let mut names = Vec::new();
    let keep = |name: &OsStr, kind| {
        if kind == InodeKind::Directory && names.len() < MOST_NEIGHBOURS {
            names.push(name.to_owned());
        }
    };
    // A directory that cannot be read is treated as one without work trees.
    root.top.directory(directory).and_then(|directory| directory.entries(keep)).ok();
    let git = |name: OsString| {
        let path = directory.join(name);
        let git = root.top.passage(&path).ok()?;
        matches!(looks_like_git(&git), Ok(true)).then(|| (root.path.join(path), git))
    };
    names.into_iter().filter_map(git).collect()
}

/// The content that `.git` must have at this place if it belongs to a submodule.
pub(super) fn submodule_at(roots: &Roots, place: &Path) -> Option<Vec<u8>> {
    let Area::Guarded(root) = roots.of(place) else { return None };
    submodule(root, place.parent()?.strip_prefix(&root.path).ok()?)
}

/// The content of a submodule's `.git`: the path to its git directory, which lies in that of the innermost repository above.
/// git writes it before that directory exists, which is guarded from its first entry on.
fn submodule(root: &Root, within: &Path) -> Option<Vec<u8>> {
    let above = within.ancestors().skip(1).find(|above| root.top.passage(&above.join(".git")).is_ok())?;
    let below = within.strip_prefix(above).ok()?;
    let way = Path::new(".git/modules").join(below);
    root.top.passage(&above.join(way.parent()?)).ok()?;
    let up = below.iter().map(|_| "../").collect::<String>();
    Some([b"gitdir: ", up.as_bytes(), way.as_os_str().as_bytes(), b"\n"].concat())
}

/// The work tree of a repository that says it is at this place.
fn work_tree_at(git: &Directory, place: &Path) -> Option<OsString> {
    let trees = git.directory(Path::new("worktrees")).ok()?;
    let mut names = Vec::new();
    let mut keep = |name: &OsStr, kind| {
        if kind == InodeKind::Directory && names.len() < MOST_WORK_TREES {
            names.push(name.to_owned());
        }
    };
    trees.entries(&mut keep).ok()?;
    names.into_iter().find(|name| {
        let said = trees
            .passage(Path::new(name))
            .and_then(|tree| read(&tree, OsStr::new("gitdir"), LONGEST_POINTER));
        match said {
            Ok(Found::Text(text, _)) => text.trim_ascii_end() == place.as_os_str().as_bytes(),
            Ok(Found::Absent | Found::Odd) | Err(_) => false,
        }
    })
}

/// Looks at a directory before it gets the name that makes a git directory of it. What of the class is there already was
/// an ordinary file so far, and may be open for writing: a configuration is judged and put there anew, anything else is
/// in the way. So is every link: git writes to where it leads.
///
/// `HEAD` is the name that counts. The others are looked at again when it comes, whatever was judged when they came.
pub(super) fn complete(root: &Root, spot: &Spot, making: Making) -> Result<(), Stop> {
    let called = root.relative(&spot.real);
    let mut signs = signs_in(&spot.parent)?;
    let is_judged = signs.has_head() || (signs.may_become_git_directory() && spot.name != "HEAD");
    signs.see(&spot.name);
    if is_judged || !signs.may_become_git_directory() {
        return Ok(());
    }
    let hold = |name: &Path, why: &str| {
        let what = HeldAct::new(spot.real.join(name), GuestAct::Make, why);
        Err(Stop::Held { what, errno: Errno::ACCESS, remedy: Remedy::Nothing })
    };
    let held = |name: &str, why: &str| hold(Path::new(name), why);
    if making.is_link() {
        return hold(Path::new(&spot.name), LINK_IN_GIT);
    }
    if let Some(link) = link_in(&spot.parent)? {
        return hold(&link, LINK_IN_GIT);
    }
    const WHY: &str = "git would obey it, because the directory becomes a repository";
    let is_there = |name: &str| {
        spot.parent.status_if_present(OsStr::new(name)).map(|found| found.map(|found| found.kind))
    };
    if spot.name == "commondir" || is_there("commondir")?.is_some() {
        let own = spot.real.join("commondir");
        if !points_to_own_repository(root, &own) {
            return held("commondir", WHY);
        }
        write_fresh(&spot.parent, OsStr::new("commondir"), OWN_REPOSITORY, 0o644)?;
    }
    // The locks of an ordinary directory are files that the caller may have open.
    for name in ["config.worktree", "config.lock", "config.worktree.lock"] {
        if is_there(name)?.is_some() {
            return held(name, WHY);
        }
    }
    if !hooks_are_examples(&spot.parent)? {
        return held("hooks", WHY);
    }
    for name in ["remotes", "branches"] {
        if !is_empty_directory(&spot.parent, name)? {
            return held(name, WHY);
        }
    }
    match is_there("info")? {
        None => {}
        Some(InodeKind::Directory) => {
            let info = spot.parent.passage(Path::new("info"))?;
            if info.status_if_present(OsStr::new("attributes"))?.is_some() {
                return held("info/attributes", WHY);
            }
        }
        Some(_) => return held("info", WHY),
    }
    match read(&spot.parent, OsStr::new("config"), LARGEST_CONFIG)? {
        Found::Absent => Ok(()),
        Found::Odd => held("config", WHY),
        Found::Text(text, mode) => match may_replace(None, &text, &called) {
            Err(unfit) => held("config", &format!("{WHY}; {unfit}")),
            Ok(()) => Ok(write_fresh(&spot.parent, OsStr::new("config"), &text, mode)?),
        },
    }
}

/// Whether nothing is there, or a directory without entries.
fn is_empty_directory(parent: &Directory, name: &str) -> Result<bool, Errno> {
    match parent.status_if_present(OsStr::new(name))?.map(|found| found.kind) {
        None => return Ok(true),
        Some(InodeKind::Directory) => {}
        Some(_) => return Ok(false),
    }
    let mut empty = true;
    parent.directory(Path::new(name))?.entries(|_, _| empty = false)?;
    Ok(empty)
}

/// A link in a directory or below it.
fn link_in(top: &Directory) -> Result<Option<PathBuf>, Errno> {
    let (mut pending, mut count, mut link) = (vec![PathBuf::new()], 0, None);
    while let Some(below) = pending.pop() {
        let directory = match top.directory(&below) {
            // It was removed meanwhile.
            Err(Errno::NOENT) => continue,
            answer => answer?,
        };
        directory.entries(|name, kind| {
            count += 1;
            match kind {
                InodeKind::Symlink => link = Some(below.join(name)),
                InodeKind::Directory => pending.push(below.join(name)),
                InodeKind::File
                | InodeKind::Fifo
                | InodeKind::Socket
                | InodeKind::CharacterDevice
                | InodeKind::BlockDevice
                | InodeKind::Unknown => {}
            }
        })?;
        if count > MOST_ENTRIES {
            return Err(Errno::ACCESS);
        }
        if link.is_some() {
            return Ok(link);
        }
    }
    Ok(None)
}

/// Whether git would run none of the existing hooks.
fn hooks_are_examples(git: &Directory) -> Result<bool, Errno> {
    match git.status_if_present(OsStr::new("hooks"))?.map(|found| found.kind) {
        None => return Ok(true),
        Some(InodeKind::Directory) => {}
        Some(_) => return Ok(false),
    }
    let hooks = git.directory(Path::new("hooks"))?;
    let mut examples = true;
    hooks.entries(|name, kind| {
        examples &= kind == InodeKind::File && name.as_bytes().ends_with(b".sample");
    })?;
    Ok(examples)
}
