//! Removes changes from the upper layer. The project is never touched.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Onto};
use belljar_sys::overlay::{OPAQUE, OPAQUE_TRUSTED, OPAQUE_VALUE};

use super::apply::{ChangeSelection, RefusedBecause, RefusedChange};
use super::changes::{Change, ChangeKind, compare, same_content};
use super::layers::{Layers, is_opaque, is_whiteout};
use super::{LayersError, Overlay, make_private};
use crate::workspace::removal::{absent_is_fine, empty, opened};
use crate::workspace::tree::Tree;
use belljar_class::TreeFacts;

/// The outcome of a discard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discarded {
    /// Changes that were removed.
    pub discarded: Vec<PathBuf>,
    /// Changes that could not be removed.
    pub refused: Vec<RefusedChange>,
}

impl Overlay {
    /// Drops changes. A directory that was added or took the place of something else goes with all that is in it.
    ///
    /// # Errors
    /// Fails if a layer cannot be opened, or, when all is dropped, emptied.
    pub fn discard(&self, selection: &ChangeSelection) -> Result<Discarded, LayersError> {
        self.make_directories()?;
        let layers = self.open()?;
        let all = compare(&layers);
        let trash_path = self.trash();
        let trash = Directory::open(&trash_path)
            .map_err(|cause| LayersError::Open { path: trash_path.clone(), cause })?;
        if *selection == ChangeSelection::All {
            // At once, so that a part of the changes is never taken for all of them.
            let path = self.upper();
            // A discard that was killed may have left its directory.
            clear(&trash_path)?;
            // The kernel asks for write permission on a directory that gets another parent.
            let own = Directory::open(&self.directory);
            own.and_then(|own| own.set_mode(OsStr::new("upper"), 0o700))
                .map_err(|cause| LayersError::Open { path: path.clone(), cause })?;
            let named = std::fs::rename(&path, trash_path.join("discarded"));
            named.map_err(|cause| LayersError::Make { path: path.clone(), cause })?;
            make_private(&path)?;
            for path in [self.work(), trash_path] {
                clear(&path)?;
            }
            if self.originals().exists() {
                clear(&self.originals())?;
            }
            let discarded = all.changes.into_iter().map(|change| change.path).collect();
            return Ok(Discarded { discarded, refused: Vec::new() });
        }
        let mut out = Discarded::default();
        // A directory that cannot be read is removed as a whole; the project's own shows again.
        let listed: BTreeSet<&Path> = all.changes.iter().map(|change| change.path.as_path()).collect();
        for path in all.unseen.into_iter().map(|one| one.path).filter(|path| selection.includes(path)) {
            match remove(&layers.upper, &trash, &path) {
                Ok(()) if listed.contains(path.as_path()) => {}
                Ok(()) => out.discarded.push(path),
                Err(cause) => {
                    let why = RefusedBecause::Failed { errno: cause.raw_os_error() };
                    out.refused.push(RefusedChange { path, why });
                }
            }
        }
        for change in all.changes.into_iter().filter(|change| selection.includes(&change.path)) {
            match discard_one(&layers, &trash, &change) {
                Ok(()) => out.discarded.push(change.path),
                Err(cause) => {
                    let why = RefusedBecause::Failed { errno: cause.raw_os_error() };
                    out.refused.push(RefusedChange { path: change.path, why });
                }
            }
        }
        clear(&trash_path)?;
        Ok(out)
    }
}

pub(super) fn clear(path: &Path) -> Result<(), LayersError> {
    let directory =
        Directory::open(path).map_err(|cause| LayersError::Open { path: path.to_owned(), cause })?;
    empty(&directory).map_err(|(entry, cause)| LayersError::Remove {
        path: path.to_owned(),
        entry: entry.into(),
        cause,
    })
}

fn discard_one(layers: &Layers, trash: &Directory, change: &Change) -> Result<(), Errno> {
    let path = &change.path;
    let directory_mode = match layers.lower.status(path)? {
        Some(below) if below.kind == InodeKind::Directory => Some(below.mode),
        Some(_) | None => None,
    };
    match (change.kind, directory_mode) {
        (ChangeKind::ModeChanged, Some(mode)) => {
            let (parent, name) = layers.upper.parent(path)?;
            return parent.set_mode(name, mode);
        }
        (ChangeKind::Added, _) => {}
        (
            ChangeKind::Modified | ChangeKind::Deleted | ChangeKind::TypeChanged | ChangeKind::ModeChanged,
            _,
        ) => show_below(layers, path.parent().unwrap_or(Path::new("")))?,
    }
    remove(&layers.upper, trash, path)
}

/// The directory that an entry of the upper layer is in, and its name there; `None` if the directory does not exist.
fn present<'path>(upper: &Tree, path: &'path Path) -> Result<Option<(Directory, &'path OsStr)>, Errno> {
    match upper.parent(path) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Removes these names below a directory from the upper layer, so that the project's own entries show again.
pub(super) fn uncover(
    overlay: &Overlay,
    layers: &Layers,
    directory: &Path,
    names: &[&Path],
) -> Result<(), LayersError> {
    let failed = |cause| LayersError::Open { path: overlay.upper().join(directory), cause };
    let trash = Directory::open(&overlay.trash())
        .map_err(|cause| LayersError::Open { path: overlay.trash(), cause })?;
    let uncover = || {
        if layers.upper.status(directory)?.is_none_or(|found| is_whiteout(&found)) {
            return Ok(());
        }
        show_below(layers, directory)?;
        names.iter().try_for_each(|name| remove(&layers.upper, &trash, &directory.join(name)))
    };
    uncover().map_err(failed)?;
    clear(&overlay.trash())
}

/// Takes the refs of a git directory out of the upper layer. First what hides those of the project: without the packed ones a
/// ref that the agent only packed would be one that it deleted. Last the files that are newer than the packed ones.
pub(super) fn uncover_refs(
    overlay: &Overlay,
    layers: &Layers,
    git: &Path,
    trees: &[PathBuf],
) -> Result<(), LayersError> {
    let failed = |cause| LayersError::Open { path: overlay.upper().join(git), cause };
    for refs in trees.iter().map(|own| git.join(own).join("refs")) {
        uncover_deleted(layers, &refs).map_err(failed)?;
    }
    uncover(overlay, layers, git, &[Path::new("packed-refs")])?;
    let rest: Vec<PathBuf> =
        trees.iter().flat_map(|own| ["refs", "HEAD"].map(|name| own.join(name))).collect();
    uncover(overlay, layers, git, &rest.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// Removes all marks of deletions below a directory.
fn uncover_deleted(layers: &Layers, directory: &Path) -> Result<(), Errno> {
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        let Some((parent, name)) = present(&layers.upper, &path)? else { continue };
        match parent.status_if_present(name)? {
            Some(status) if status.kind == InodeKind::Directory => {}
            Some(status) if is_whiteout(&status) => {
                show_below(layers, path.parent().unwrap_or(Path::new("")))?;
                opened(&parent, || absent_is_fine(parent.remove(name)))?;
                continue;
            }
            Some(_) | None => continue,
        }
        show_below(layers, &path)?;
        let found = layers.upper.root().directory(&path)?;
        found.entries(|name, _kind| pending.push(path.join(name)))?;
    }
    Ok(())
}

/// Takes an entry out of the upper layer, with all that is in it.
fn remove(upper: &Tree, trash: &Directory, path: &Path) -> Result<(), Errno> {
    // It may have gone with a directory above it.
    let Some((parent, name)) = present(upper, path)? else { return Ok(()) };
    let Some(status) = parent.status_if_present(name)? else { return Ok(()) };
    if status.kind != InodeKind::Directory {
        return opened(&parent, || absent_is_fine(parent.remove(name)));
    }
    // Only a directory that its owner may write can change its parent.
    opened(&parent, || parent.set_mode(name, status.mode | 0o700))?;
    let mut number = 0;
    loop {
        number += 1;
        let to = format!("discarded-{number}");
        match opened(&parent, || parent.rename(name, trash, OsStr::new(&to), Onto::Nothing)) {
            Err(Errno::EXIST) => {}
            answer => return answer,
        }
    }
}

/// Removes an applied change from the upper layer, and directories above it that change nothing any more.
pub(super) fn forget(layers: &Layers, path: &Path) -> Result<(), Errno> {
    show_below(layers, path.parent().unwrap_or(Path::new("")))?;
    let Some((parent, name)) = present(&layers.upper, path)? else { return Ok(()) };
    match parent.status_if_present(name)? {
        None => Ok(()),
        Some(status) if status.kind == InodeKind::Directory => {
            show_below(layers, path)?;
            // A directory that is not empty has changes left to apply or discard.
            match opened(&parent, || parent.remove_directory(name)) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
                answer => answer,
            }
        }
        Some(_) => opened(&parent, || absent_is_fine(parent.remove(name))),
    }
}

/// Removes entries from the upper layer that change nothing: files that are the same in the project, and empty
/// directories that the project has as well. The kernel creates them on the way to a change, or when only a time is set.
pub(super) fn prune(layers: &Layers) -> Result<(), Errno> {
    let mut pending = vec![PathBuf::new()];
    let (mut directories, mut files, mut left) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(path) = pending.pop() {
        // A directory that cannot be opened may hold changes.
        let Ok(directory) = layers.upper.root().directory(&path) else { continue };
        directory.entries(|name, kind| match kind {
            InodeKind::Directory => pending.push(path.join(name)),
            InodeKind::File => files.push(path.join(name)),
            InodeKind::Symlink
            | InodeKind::Fifo
            | InodeKind::Socket
            | InodeKind::CharacterDevice
            | InodeKind::BlockDevice
            | InodeKind::Unknown => left.push(path.join(name)),
        })?;
        // Where the project's own does not show, every file says something.
        if layers.is_hidden(&path) {
            left.extend(files.extract_if(.., |file| file.parent() == Some(&path)));
        }
        directories.push(path);
    }
    let (objects, files): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|path| git_of_object(layers, path).is_some());
    for path in files {
        // Refs are compared by what they say, all of a repository at once.
        if is_ref(layers, &path) || !prune_file(layers, &path)? {
            left.push(path);
        }
    }
    prune_deletions(layers, &left)?;
    // An object that was written is the agent's alone until a ref leads to it: the user's git may delete it.
    let mut awaited: HashMap<&Path, bool> = HashMap::new();
    for path in &objects {
        let Some(git) = git_of_object(layers, path) else { continue };
        let is_awaited = awaited.entry(git).or_insert_with(|| {
            let mut below = left.iter().filter_map(|left| left.strip_prefix(git).ok());
            below.any(|below| NAMES.iter().any(|name| below.starts_with(name)))
        });
        if !*is_awaited {
            prune_file(layers, path)?;
        }
    }
    // The deepest first.
    directories.sort_by(|one, other| other.cmp(one));
    for path in directories.iter().filter(|path| !path.as_os_str().is_empty()) {
        let (parent, name) = layers.upper.parent(path)?;
        let (above, below) = (parent.status(name)?, layers.lower.status(path)?);
        let says_nothing = below
            .is_some_and(|below| below.kind == InodeKind::Directory && below.mode == above.mode)
            && !is_opaque(&layers.upper.root().passage(path)?)?;
        if says_nothing {
            match opened(&parent, || parent.remove_directory(name)) {
                Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(cause) => return Err(cause),
            }
        }
    }
    Ok(())
}

/// Removes whiteouts for files that the project does not have any more. Those of refs stay: the project may have packed
/// the ref.
fn prune_deletions(layers: &Layers, left: &[PathBuf]) -> Result<(), Errno> {
    for path in left {
        let (parent, name) = layers.upper.parent(path)?;
        let is_deletion = parent.status_if_present(name)?.is_some_and(|found| is_whiteout(&found));
        let is_ref = || path.ancestors().any(|above| layers.lower.is_git_directory(above));
        if is_deletion && layers.lower.status(path)?.is_none() && !is_ref() {
            opened(&parent, || absent_is_fine(parent.remove(name)))?;
        }
    }
    Ok(())
}

/// Whether a file holds refs of a repository.
fn is_ref(layers: &Layers, path: &Path) -> bool {
    path.ancestors().skip(1).any(|git| {
        let below = path.strip_prefix(git).unwrap_or(path);
        let holds = below == Path::new("packed-refs") || below.starts_with("refs");
        holds && layers.is_repository(git)
    })
}

/// Files of git that lead to objects, or come with those that do.
const NAMES: [&str; 6] = ["HEAD", "refs", "packed-refs", "index", "logs", "worktrees"];

/// The git directory that a file is an object of.
fn git_of_object<'path>(layers: &Layers, path: &'path Path) -> Option<&'path Path> {
    path.ancestors().filter(|above| above.file_name() == Some(OsStr::new("objects"))).find_map(|objects| {
        let git = objects.parent()?;
        let refs = layers.lower.status(&git.join("refs")).ok()??;
        (refs.kind == InodeKind::Directory).then_some(git)
    })
}

/// Removes a file that is the same in the project.
fn prune_file(layers: &Layers, path: &Path) -> Result<bool, Errno> {
    let ((above, name), Ok((below, _))) = (layers.upper.parent(path)?, layers.lower.parent(path)) else {
        return Ok(false);
    };
    let (new, Some(old)) = (above.status(name)?, below.status_if_present(name)?) else { return Ok(false) };
    let alike = (new.kind, new.mode, new.size) == (old.kind, old.mode, old.size);
    if alike
        && let (Ok(new), Ok(old)) = (above.file(name), below.file(name))
        && same_content(new, old)
    {
        opened(&above, || absent_is_fine(above.remove(name)))?;
        return Ok(true);
    }
    Ok(false)
}

/// Removes the whiteout for a file that the project has deleted as well. A deletion implied by an opaque directory stays:
/// nothing of the project shows there anyway.
pub(super) fn forget_deletion(layers: &Layers, path: &Path) -> Result<(), Errno> {
    let Some((parent, name)) = present(&layers.upper, path)? else { return Ok(()) };
    match parent.status_if_present(name)? {
        Some(status) if is_whiteout(&status) => opened(&parent, || absent_is_fine(parent.remove(name))),
        Some(_) | None => Ok(()),
    }
}

/// Replaces opaque marks down to `directory` by a whiteout for each name. After that an entry can be removed from the
/// upper layer, and the project's own shows.
fn show_below(layers: &Layers, directory: &Path) -> Result<(), Errno> {
    let depth = directory.iter().count();
    for count in 1..=depth {
        let path: PathBuf = directory.iter().take(count).collect();
        let (parent, name) = layers.upper.parent(&path)?;
        let Some(above) = parent.status_if_present(name)? else { return Ok(()) };
        if is_whiteout(&above) {
            let Some(below) = layers.lower.status(&path)? else { return Ok(()) };
            opened(&parent, || parent.remove(name))?;
            opened(&parent, || parent.make_directory(name, 0o700))?;
            let made = parent.passage(Path::new(name))?;
            made.set_attribute(OPAQUE, OPAQUE_VALUE)?;
            made.set_own_mode(below.mode)?;
        } else if above.kind != InodeKind::Directory {
            return Err(Errno::NOTDIR);
        }
        name_by_name(layers, &path)?;
    }
    Ok(())
}

fn name_by_name(layers: &Layers, path: &Path) -> Result<(), Errno> {
    let above = layers.upper.root().passage(path)?;
    if !is_opaque(&above)? {
        return Ok(());
    }
    let below = match layers.lower.root().directory(path) {
        Ok(below) => Some(below),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
        Err(cause) => return Err(cause),
    };
    let mut entries = Vec::new();
    if let Some(below) = below {
        below.entries(|name, kind| entries.push((name.to_owned(), kind)))?;
    }
    for (name, kind) in entries {
        match above.status_if_present(&name)? {
            None => opened(&above, || above.make_whiteout(&name))?,
            Some(status) if status.kind == InodeKind::Directory && kind == InodeKind::Directory => {
                let child = above.passage(Path::new(&name))?;
                opened(&child, || child.set_attribute(OPAQUE, OPAQUE_VALUE))?;
            }
            Some(_) => {}
        }
    }
    opened(&above, || above.remove_attribute(OPAQUE))?;
    match above.remove_attribute(OPAQUE_TRUSTED) {
        // Only the superuser can set or remove it, so that there is none.
        Err(Errno::PERM) => Ok(()),
        answer => answer,
    }
}
