//! A repository that a run writes to: what it did to it is told when it is over.

use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::Directory;

use super::{
    Elsewhere, Known, PlainFiles, Refs, RepositoryChanges, Staged, compare, compare_elsewhere, hash_length,
    objects, staged, staged_elsewhere,
};
use crate::workspace::Scan;
use crate::workspace::overlay::Place;

/// The names and the index of a repository, as they were.
#[derive(Debug)]
pub struct RepositoryWatch {
    shared: PathBuf,
    own: PathBuf,
    refs: Refs,
    index: Result<Staged, String>,
    elsewhere: Elsewhere,
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
        let (index, elsewhere) = match hash_length(&files) {
            Ok(hash) => (staged(&files, &place.own, hash), staged_elsewhere(&files, &refs, &place.own, hash)),
            Err(cause) => {
                let why = format!("the configuration of the repository cannot be read: {cause}");
                (Err(why), Elsewhere::new())
            }
        };
        Some(RepositoryWatch { shared, own: place.own, refs, index, elsewhere })
    }

    /// What happened to it since. The scan is that of the project, from the same time.
    ///
    /// # Errors
    /// When it cannot be opened any more.
    pub fn end(&self, scan: &Scan) -> Result<RepositoryChanges, Errno> {
        let Self { shared, own, refs, index, elsewhere } = self;
        let directory = Directory::open(shared)?;
        let files = PlainFiles(&directory);
        let hash = hash_length(&files)?;
        let (after, after_index) = (Refs::read(&files, own), staged(&files, own, hash));
        let known = Known { aliases: &scan.aliases, named: &scan.named };
        let objects = objects(&directory, None, hash);
        let mut changes = compare((refs, &after), (index, &after_index), &objects, &known);
        let after_elsewhere = staged_elsewhere(&files, &after, own, hash);
        compare_elsewhere((elsewhere, &after_elsewhere), &objects, &known, &mut changes);
        Ok(changes)
    }
}
