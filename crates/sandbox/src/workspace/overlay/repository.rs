//! The repository of a project whose changes are kept: what the agent did to it, told in commits and names.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, Kind};

use super::layers::{Layers, is_opaque, is_whiteout};
use super::{LayersError, Overlay};
use crate::workspace::git::index::HashLength;
use crate::workspace::git::{
    self, GitFiles, Known, LARGEST_INDEX, PlainFiles, RefChange, RefValue, Refs, RepositoryChanges, Staged,
    list_in, read_in,
};

/// Names as they were when the run began.
const BASE_REFS: &str = "git-refs";
/// The index of that time.
const BASE_INDEX: &str = "git-index";
const LARGEST_BASE: u64 = 256 << 20;

/// Where the repository is in the kept changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::workspace) struct Place {
    /// Which of the layers: that of the project, or that of the repository elsewhere.
    pub tree: usize,
    /// The shared git directory there.
    pub shared: PathBuf,
    /// The git directory of the work tree, below the shared one.
    pub own: PathBuf,
}

impl Place {
    /// Finds it in the project, by what the user has there: the agent's word does not count.
    pub(super) fn find(overlays: &[Overlay]) -> Option<Self> {
        let repository = overlays.get(1).map(|repository| repository.lower.as_path());
        Self::of(&overlays.first()?.lower, repository)
    }

    /// The same without layers.
    pub(in crate::workspace) fn of(project_path: &Path, repository: Option<&Path>) -> Option<Self> {
        let project = Directory::open(project_path).ok()?;
        let kind = project.status(".git".as_ref()).ok()?.kind;
        match (repository, kind) {
            (None, Kind::Directory) => {
                Some(Place { tree: 0, shared: PathBuf::from(".git"), own: PathBuf::new() })
            }
            (Some(repository), Kind::File) => {
                let text = read_in(&project, Path::new(".git"), 16 << 10).ok()??;
                let line = text.strip_prefix(b"gitdir:")?.trim_ascii();
                let stated = project_path.join(std::ffi::OsStr::from_bytes(line));
                let own = stated.canonicalize().ok()?;
                let own = own.strip_prefix(repository).ok()?.to_owned();
                Some(Place { tree: 1, shared: PathBuf::new(), own })
            }
            (None | Some(_), _) => None,
        }
    }
}

impl Place {
    /// Whether the index of the layer says what it said when the run began, or what the project's says.
    pub(super) fn says_the_same(&self, overlay: &Overlay, layers: &Layers) -> bool {
        let Ok(lower) = layers.lower.root().directory(&self.shared) else { return false };
        let plain = PlainFiles(&lower);
        let Ok(hash) = git::hash_length(&plain) else { return false };
        let Ok(after) = git::staged(&Seen { layers, shared: &self.shared }, &self.own, hash) else {
            return false;
        };
        let base = overlay.base(hash).and_then(|(_, index)| index.ok());
        Some(&after) == base.as_ref() || Ok(after) == git::staged(&plain, &self.own, hash)
    }
}

/// A git directory of the layers, as the agent saw it.
struct Seen<'layers> {
    layers: &'layers Layers,
    shared: &'layers Path,
}

impl Seen<'_> {
    /// Fails where git would follow a link of the agent's and find something that is not looked at.
    fn no_link_above(&self, path: &Path) -> Result<(), Errno> {
        for above in path.ancestors().skip(1) {
            if self.layers.upper.status(above)?.is_some_and(|status| status.kind == Kind::Symlink) {
                return Err(Errno::LOOP);
            }
        }
        Ok(())
    }
}

impl GitFiles for Seen<'_> {
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Errno> {
        let path = self.shared.join(path);
        match self.layers.upper.status(&path)? {
            Some(status) if is_whiteout(&status) => Ok(None),
            Some(status) if status.kind == Kind::File => read_in(self.layers.upper.root(), &path, limit),
            Some(_) => Err(Errno::INVAL),
            None if self.layers.shows(&path) => read_in(self.layers.lower.root(), &path, limit),
            None => self.no_link_above(&path).map(|()| None),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<(PathBuf, Kind)>, Errno> {
        let at = self.shared.join(path);
        let hides = match self.layers.upper.status(&at)? {
            Some(status) if status.kind == Kind::Directory => {
                is_opaque(&self.layers.upper.root().passage(&at)?)? || self.layers.is_hidden(&at)
            }
            Some(status) if is_whiteout(&status) => return Ok(Vec::new()),
            Some(_) => return Err(Errno::NOTDIR),
            None => {
                self.no_link_above(&at)?;
                !self.layers.shows(&at)
            }
        };
        let upper = list_in(self.layers.upper.root(), &at)?;
        let lower = if hides { Vec::new() } else { list_in(self.layers.lower.root(), &at)? };
        let mut out = Vec::new();
        for (full, kind) in upper {
            // A whiteout is a device, and devices are no refs.
            if kind != Kind::CharacterDevice {
                out.push((full, kind));
            }
        }
        for (full, kind) in lower {
            if self.layers.upper.status(&full)?.is_none() {
                out.push((full, kind));
            }
        }
        let strip = |(full, kind): (PathBuf, Kind)| {
            let path = full.strip_prefix(self.shared).map(Path::to_owned).unwrap_or(full);
            (path, kind)
        };
        Ok(out.into_iter().map(strip).collect())
    }
}

/// A repository in three states: as it was, as it is in the project, as the agent left it.
pub(super) struct States {
    /// The names and the index as they were; `None` where there is no note of them, so that nothing counts as unchanged.
    pub base: Option<(Refs, Result<Staged, String>)>,
    pub now: Refs,
    /// What the project has once everything is written.
    pub after: Refs,
    pub now_index: Result<Staged, String>,
    pub hash: HashLength,
    pub changes: RepositoryChanges,
    /// An object that new commits lead to, and that is nowhere.
    pub missing: Option<String>,
    /// Paths that a checkout of the new HEAD writes; `None` where that cannot be told.
    pub checked_out: Option<BTreeSet<PathBuf>>,
}

impl States {
    /// Reads them.
    pub(super) fn read(
        place: &Place,
        overlay: &Overlay,
        layers: &Layers,
        known: &Known<'_>,
    ) -> Result<Self, LayersError> {
        let failed = |cause| LayersError::Open { path: overlay.lower.join(&place.shared), cause };
        let lower = layers.lower.root().directory(&place.shared).map_err(failed)?;
        let objects_path = place.shared.join("objects");
        let upper = layers.upper.root().directory(&objects_path).ok();
        let seen = Seen { layers, shared: &place.shared };
        let plain = PlainFiles(&lower);
        let config = || overlay.lower.join(&place.shared).join("config");
        let hash = git::hash_length(&plain).map_err(|cause| LayersError::Open { path: config(), cause })?;
        let objects = git::objects(&lower, upper, hash);
        let now = Refs::read(&plain, &place.own);
        let after = Refs::read(&seen, &place.own);
        let now_index = git::staged(&plain, &place.own, hash);
        let after_index = git::staged(&seen, &place.own, hash);
        let base = overlay.base(hash);
        let mut changes = git::compare((&now, &after), (&now_index, &after_index), &objects, known);
        let elsewhere = git::staged_elsewhere(&plain, &now, &place.own, hash);
        let after_elsewhere = git::staged_elsewhere(&seen, &after, &place.own, hash);
        git::compare_elsewhere((&elsewhere, &after_elsewhere), &objects, known, &mut changes);
        // What the user alone changed is not the agent's, unless it would be taken back.
        if let Some((base, _)) = &base {
            let is_name = |change: &RefChange| !after.others.contains_key(&change.name);
            changes.refs.retain(|change| {
                let base = base.values.get(&change.name);
                !is_name(change) || base != change.after.as_ref() || base != change.before.as_ref()
            });
        }
        let checked_out = base.as_ref().and_then(|(base, _)| git::checked_out(base, &after, &objects));
        let missing = git::missing(&now, &after, &objects);
        Ok(States { base, now, after, now_index, hash, changes, missing, checked_out })
    }
}

impl States {
    fn base_refs(&self) -> Option<&Refs> {
        self.base.as_ref().map(|(refs, _)| refs)
    }

    /// Refs that the user moved since the run began, and that are going to be written. Without a note of the start nobody
    /// knows, and the files of refs are compared.
    pub(super) fn moved(&self) -> impl Iterator<Item = &Vec<u8>> {
        let States { now, after, .. } = self;
        let base = self.base_refs().unwrap_or(now);
        let names: BTreeSet<&Vec<u8>> =
            base.values.keys().chain(now.values.keys()).chain(after.values.keys()).collect();
        names.into_iter().filter(move |name| {
            let [base, now, after] = [base, now, after].map(|refs| refs.values.get(*name));
            base != now && after != now
        })
    }

    /// What was checked out when the run began and the agent left so, where the user has something else checked out now.
    pub(super) fn left_behind(&self) -> Option<&RefValue> {
        let head = |refs: &'_ Refs| refs.values.get(&b"HEAD"[..]).cloned();
        let (now, after) = (head(&self.now), head(&self.after));
        let base = self.base_refs()?.values.get(&b"HEAD"[..])?;
        (Some(base) != now.as_ref() && after == now).then_some(base)
    }

    /// Whether all refs are known, so that files of refs need not be compared.
    pub(super) fn knows_refs(&self) -> bool {
        let known = |refs: &Refs| refs.unread.is_none();
        self.base_refs().is_some_and(known) && known(&self.now) && known(&self.after)
    }
}

impl Overlay {
    fn base(&self, hash: HashLength) -> Option<(Refs, Result<Staged, String>)> {
        let read = |name: &str| -> Option<Vec<u8>> {
            let path = self.directory.join(name);
            let known = fs::symlink_metadata(&path).ok()?;
            (known.is_file() && known.len() <= LARGEST_BASE).then(|| fs::read(path).ok())?
        };
        let refs = Refs::parse(&read(BASE_REFS)?)?;
        let index = match read(BASE_INDEX)?.as_slice() {
            [] => Ok(Staged::new()),
            bytes => git::parse_staged(bytes, hash),
        };
        Some((refs, index))
    }
}

/// Notes the names and the index of the repository when a run begins, unless changes to it are kept from before: these are
/// changes to what was noted then.
///
/// # Errors
/// When the note cannot be written.
pub fn note_repository(overlays: &[Overlay]) -> Result<(), LayersError> {
    let Some(place) = Place::find(overlays) else { return Ok(()) };
    let overlay = &overlays[place.tree];
    overlay.prune()?;
    let changed = ["HEAD", "refs", "packed-refs", "reftable", "index", "logs"].iter().any(|name| {
        let kept = |below: &Path| overlay.upper().join(below).join(name).symlink_metadata().is_ok();
        kept(&place.shared) || kept(&place.shared.join(&place.own))
    });
    // A note that is missing is not made up: what the project has now is not what those changes began with.
    if changed {
        return Ok(());
    }
    super::make_private(&overlay.directory)?;
    let failed = |cause| LayersError::Starts { path: overlay.directory.join(BASE_REFS), cause };
    let top = overlay.lower.join(&place.shared);
    let lower = Directory::open(&top).map_err(|cause| LayersError::Open { path: top, cause })?;
    let files = PlainFiles(&lower);
    let refs = Refs::read(&files, &place.own);
    // One that cannot be read is told when it is compared.
    let index = files.read(&place.own.join("index"), LARGEST_INDEX).ok().flatten().unwrap_or_default();
    super::replace(&overlay.directory.join(BASE_INDEX), &index).map_err(failed)?;
    super::replace(&overlay.directory.join(BASE_REFS), &refs.bytes()).map_err(failed)
}
