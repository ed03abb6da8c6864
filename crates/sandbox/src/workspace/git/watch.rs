//! Watches a repository that a run writes to directly, and reports what changed when the run is over.

use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::Directory;

use super::{
    ClassContext, Indexes, PlainFiles, Refs, RepositoryChanges, compare, hash_length, indexes, objects,
};
use crate::workspace::Scan;
use crate::workspace::overlay::Place;

/// The names and the index of a repository, as they were.
#[derive(Debug)]
pub struct RepositoryWatch {
    shared: PathBuf,
    own: PathBuf,
    refs: Refs,
    /// `None` where it is not known how they are written.
    indexes: Option<Indexes>,
}

impl RepositoryWatch {
    /// Looks at the repository of a project, which may lie elsewhere; `None` where there is none.
    #[must_use]
    pub fn begin(project: &Path, repository: Option<&Path>) -> Option<Self> {
        let place = Place::of(project, repository)?;
        let top = if place.tree == 0 { project } else { repository? };
        let shared = top.join(&place.shared);
        let directory = Directory::open(&shared).ok()?;
        let files = PlainFiles(&directory);
        let refs = Refs::read(&files, &place.own);
        let indexes = hash_length(&files).ok().map(|hash| indexes(&files, &refs.tops, hash));
        Some(RepositoryWatch { shared, own: place.own, refs, indexes })
    }

    /// Returns what changed since. `scan` is the scan of the project at the same time.
    ///
    /// # Errors
    /// When it cannot be opened any more.
    pub fn end(&self, scan: &Scan) -> Result<RepositoryChanges, Errno> {
        let Self { shared, own, refs, indexes: before } = self;
        let directory = Directory::open(shared)?;
        let files = PlainFiles(&directory);
        let hash = hash_length(&files)?;
        let after = Refs::read(&files, own);
        let known = ClassContext { aliases: &scan.aliases, named: &scan.named, at: Path::new("") };
        let objects = objects(Some(&directory), None, hash);
        let (none, now) = (Indexes::new(), indexes(&files, &after.tops, hash));
        let before = before.as_ref().unwrap_or(&none);
        Ok(compare((refs, &after), (before, &now), own, &objects, &known))
    }
}
