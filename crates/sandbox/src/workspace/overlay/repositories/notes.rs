//! The refs and the indexes of a repository, noted when a run begins: what is kept later is a change to them.
//!
//! There is a note for each repository, named by a digest of its path. It is made anew by each run that finds nothing of the
//! repository kept from before. One that is missing is not made up: nothing counts as unchanged then.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use belljar_sys::beneath::{Directory, InodeKind};

use super::Place;
use crate::workspace::git::index::HashLength;
use crate::workspace::git::{GitFiles, Index, LARGEST_INDEX, LARGEST_PACKED, Packed, PlainFiles, Refs};
use crate::workspace::overlay::layers::is_opaque;
use crate::workspace::overlay::{Kept, LayersError, Overlay, make_private, replace};

/// The notes of the project's own repository as they were before others had any.
const REFS_1: &str = "git-refs";
const INDEX_1: &str = "git-index";
const LARGEST: u64 = 256 << 20;
/// Entries of a git directory that change with refs and indexes.
const CHANGING: [&str; 7] = ["HEAD", "refs", "packed-refs", "reftable", "index", "logs", "worktrees"];

fn name_of(path: &Path) -> String {
    let digest = digest(&SHA256, path.as_os_str().as_bytes());
    digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What was noted of a repository.
pub(in crate::workspace::overlay) struct Base {
    pub refs: Refs,
    from: NotedIn,
}

enum NotedIn {
    /// That there was none.
    Nothing,
    /// In this directory, under names that begin so.
    In(PathBuf, String),
    /// By an earlier version: the file with the index, and the work tree that it is of.
    Earlier(PathBuf, PathBuf),
}

impl Base {
    pub(super) fn nothing() -> Self {
        Base { refs: Refs::default(), from: NotedIn::Nothing }
    }

    /// The packed refs; `None` where there were none, or they were not noted.
    pub(in crate::workspace::overlay) fn packed(&self) -> Option<Packed> {
        match &self.from {
            NotedIn::Nothing | NotedIn::Earlier(..) => None,
            NotedIn::In(directory, name) => {
                Packed::parse(&read(&directory.join(format!("{name}.packed"))).ok()?)
            }
        }
    }

    /// The index of a work tree; `None` where it was not noted.
    pub(in crate::workspace::overlay) fn index(&self, own: &Path, hash: HashLength) -> Option<Index> {
        let file = match &self.from {
            NotedIn::Nothing => return Some(Index::absent()),
            NotedIn::In(directory, name) => directory.join(format!("{name}.{}.index", name_of(own))),
            NotedIn::Earlier(file, known) if known == own => file.clone(),
            NotedIn::Earlier(..) => return None,
        };
        match read(&file) {
            Ok(bytes) if bytes.is_empty() => Some(Index::absent()),
            Ok(bytes) => Some(Index::parse(&bytes, hash)),
            // A work tree that was not there had none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Index::absent()),
            Err(_unread) => None,
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let known = fs::symlink_metadata(path)?;
    if known.is_file() && known.len() <= LARGEST { fs::read(path) } else { Err(io::Error::other("no note")) }
}

impl Overlay {
    fn notes(&self) -> PathBuf {
        self.directory.join("repositories")
    }

    /// What was noted of a repository of this layer; `main` is the work tree of the project's own.
    pub(in crate::workspace::overlay) fn base(&self, git: &Path, main: Option<&Path>) -> Option<Base> {
        let (directory, name) = (self.notes(), name_of(git));
        match read(&directory.join(format!("{name}.refs"))) {
            Ok(bytes) => Some(Base { refs: Refs::parse(&bytes)?, from: NotedIn::In(directory, name) }),
            Err(_none) => {
                let (own, index) = (main?.to_owned(), self.directory.join(INDEX_1));
                let refs = Refs::parse(&read(&self.directory.join(REFS_1)).ok()?)?;
                Some(Base { refs, from: NotedIn::Earlier(index, own) })
            }
        }
    }

    /// Whether something is kept of what a note would say.
    fn keeps_names_of(&self, git: &Path) -> bool {
        let Ok(upper) = Directory::open(&self.upper()) else { return false };
        let mut at = PathBuf::new();
        for name in git.iter() {
            let Ok(above) = upper.passage(&at) else { return true };
            at.push(name);
            match above.status_if_present(name) {
                Ok(None) => return false,
                Ok(Some(status)) if status.kind == InodeKind::Directory => {}
                // Deleted, or something else now.
                Ok(Some(_)) | Err(_) => return true,
            }
            if upper.passage(&at).and_then(|directory| is_opaque(&directory)).unwrap_or(true) {
                return true;
            }
        }
        let Ok(upper) = upper.passage(git) else { return true };
        CHANGING.iter().any(|name| !matches!(upper.status_if_present(name.as_ref()), Ok(None)))
    }

    /// Notes what a repository is when a run begins, unless changes to it are kept: these are changes to what was noted then.
    fn note_state(&self, git: &Path, own: &Path) -> Result<(), LayersError> {
        if self.keeps_names_of(git) {
            return Ok(());
        }
        let notes = self.notes();
        make_private(&self.directory)?;
        make_private(&notes)?;
        let top = self.lower.join(git);
        let lower = Directory::open(&top).map_err(|cause| LayersError::Open { path: top, cause })?;
        let files = PlainFiles(&lower);
        let (name, refs) = (name_of(git), Refs::read(&files, own));
        let path = notes.join(format!("{name}.refs"));
        let failed = |cause| LayersError::Starts { path: path.clone(), cause };
        remove_if(&notes, |file| file.starts_with(&name)).map_err(failed)?;
        for top in &refs.tops {
            // An index that cannot be read is reported when it is compared.
            let index = files.read(&top.join("index"), LARGEST_INDEX).ok().flatten().unwrap_or_default();
            let file = notes.join(format!("{name}.{}.index", name_of(top)));
            replace(&file, &index).map_err(failed)?;
        }
        if let Ok(Some(packed)) = files.read(Path::new("packed-refs"), LARGEST_PACKED) {
            replace(&notes.join(format!("{name}.packed")), &packed).map_err(failed)?;
        }
        replace(&path, &refs.bytes()).map_err(failed)?;
        for earlier in [REFS_1, INDEX_1].iter().filter(|_| is_main(git)) {
            remove(&self.directory.join(earlier)).map_err(failed)?;
        }
        Ok(())
    }

    /// Drops the note of a repository that is not there, so that one which the agent makes there is new.
    fn forget_note(&self, git: &Path) -> Result<(), LayersError> {
        let (notes, name) = (self.notes(), name_of(git));
        if self.keeps_names_of(git) || !notes.exists() {
            return Ok(());
        }
        remove_if(&notes, |file| file.starts_with(&name))
            .map_err(|cause| LayersError::Starts { path: notes.clone(), cause })
    }

    /// Notes the repositories that lie below the project's own directory. Notes of what is neither there nor kept go.
    pub(in crate::workspace::overlay) fn note_nested(&self, found: &[PathBuf]) -> Result<(), LayersError> {
        let nested: Vec<&PathBuf> = found.iter().filter(|git| !is_main(git)).collect();
        for git in &nested {
            match self.note_state(git, Path::new("")) {
                // It went meanwhile.
                Ok(()) | Err(LayersError::Open { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let main = [Path::new(""), Path::new(".git")];
        let named: BTreeSet<String> =
            main.into_iter().chain(nested.iter().map(|git| git.as_path())).map(name_of).collect();
        let is_known = |file: &str| file.split('.').next().is_some_and(|name| named.contains(name));
        // Kept changes to a repository that the user removed refer to its note.
        let keeps_some = fs::read_dir(self.upper()).is_ok_and(|mut entries| entries.next().is_some());
        if keeps_some || !self.notes().exists() {
            return Ok(());
        }
        remove_if(&self.notes(), |file| !is_known(file))
            .map_err(|cause| LayersError::Starts { path: self.notes(), cause })
    }
}

/// Whether it is the project's own, which is noted apart.
fn is_main(git: &Path) -> bool {
    git.as_os_str().is_empty() || git == Path::new(".git")
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn remove_if(directory: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(&wanted) {
            remove(&directory.join(name))?;
        }
    }
    Ok(())
}

/// Notes the project's own repository when a run begins; those below it are noted with the start.
///
/// # Errors
/// When the note cannot be written.
pub fn note_repository(overlays: &[Overlay]) -> Result<(), LayersError> {
    let Some(place) = Place::find(overlays) else {
        overlays.iter().try_for_each(Overlay::prune)?;
        return overlays.first().map_or(Ok(()), |project| project.forget_note(Path::new(".git")));
    };
    Kept::new(overlays.to_vec()).drop_same()?;
    let overlay = &overlays[place.tree];
    overlay.note_state(&place.shared, &place.own)
}
