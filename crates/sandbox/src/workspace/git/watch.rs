//! A repository that a run writes to: what it did to it is told when it is over.

use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::Directory;

use super::{Known, PlainFiles, Refs, RepositoryChanges, Staged, compare, hash_length, objects, staged};
use crate::workspace::Scan;
use crate::workspace::overlay::Place;

/// The names and the index of a repository, as they were.
#[derive(Debug)]
pub struct RepositoryWatch {
    shared: PathBuf,
    own: PathBuf,
    refs: Refs,
    index: Result<Staged, String>,
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
        let index = match hash_length(&files) {
            Ok(hash) => staged(&files, &place.own, hash),
            Err(cause) => Err(format!("the configuration of the repository cannot be read: {cause}")),
        };
        Some(RepositoryWatch { shared, own: place.own, refs, index })
    }

    /// What happened to it since. The scan is that of the project, from the same time.
    ///
    /// # Errors
    /// When it cannot be opened any more.
    pub fn end(&self, scan: &Scan) -> Result<RepositoryChanges, Errno> {
        let Self { shared, own, refs, index } = self;
        let directory = Directory::open(shared)?;
        let files = PlainFiles(&directory);
        let hash = hash_length(&files)?;
        let (after, after_index) = (Refs::read(&files, own), staged(&files, own, hash));
        let known = Known { aliases: &scan.aliases, named: &scan.named };
        let objects = objects(&directory, None, hash);
        Ok(compare((refs, &after), (index, &after_index), &objects, &known))
    }
}
