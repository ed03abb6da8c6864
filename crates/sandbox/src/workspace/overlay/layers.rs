//! Both layers, and the view that the agent had of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use belljar_class::{Alias, GitSigns, TreeFacts};
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind, Status};
use belljar_sys::overlay::{OPAQUE, OPAQUE_TRUSTED, OPAQUE_VALUE};

use super::LayersError;
use crate::workspace::git::{RefValue, read_in};
use crate::workspace::scan::{Scan, scan_tree};
use crate::workspace::tree::Tree;

pub(super) struct Layers {
    pub(super) lower: Tree,
    pub(super) upper: Tree,
    pub(super) aliases: Vec<Alias>,
    pub(super) named: Vec<PathBuf>,
    hidden: RefCell<HashMap<PathBuf, bool>>,
    git: RefCell<HashMap<PathBuf, bool>>,
    repositories: RefCell<HashMap<PathBuf, bool>>,
}

/// What git asks of a directory that is a repository by itself.
const REPOSITORY: [&str; 3] = ["HEAD", "objects", "refs"];
const LONGEST_HEAD: u64 = 4096;

/// Whether git takes it for a HEAD. What cannot be read may be one.
fn is_head(content: Result<Option<Vec<u8>>, Errno>) -> bool {
    content.map_or(true, |text| text.is_some_and(|text| RefValue::parse(&text).is_some()))
}

impl Layers {
    pub(super) fn open(lower: &Path, upper: &Path, named: &[PathBuf]) -> Result<Self, LayersError> {
        let tree = |path: &Path| {
            Tree::open(path).map_err(|cause| LayersError::Open { path: path.to_owned(), cause })
        };
        let (lower, upper) = (tree(lower)?, tree(upper)?);
        let Scan { aliases, named, .. } = scan_tree(&lower, named);
        Ok(Layers {
            lower,
            upper,
            aliases,
            named,
            hidden: RefCell::default(),
            git: RefCell::default(),
            repositories: RefCell::default(),
        })
    }

    /// A regular file as the agent saw it; `None` where there was none. Anything else in its place is an error.
    pub(super) fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Errno> {
        match self.upper.status(path)? {
            Some(status) if is_whiteout(&status) => Ok(None),
            Some(status) if status.kind == InodeKind::File => read_in(self.upper.root(), path, limit),
            Some(_) => Err(Errno::INVAL),
            None if self.shows(path) => read_in(self.lower.root(), path, limit),
            None => self.no_link_above(path).map(|()| None),
        }
    }

    /// Fails where git would follow a link of the agent's and find something that is not looked at.
    pub(super) fn no_link_above(&self, path: &Path) -> Result<(), Errno> {
        for above in path.ancestors().skip(1) {
            if self.upper.status(above)?.is_some_and(|status| status.kind == InodeKind::Symlink) {
                return Err(Errno::LOOP);
            }
        }
        Ok(())
    }

    /// Whether a directory is a repository of the project.
    pub(super) fn had_repository(&self, directory: &Path) -> bool {
        let there = |name: &str| matches!(self.lower.status(&directory.join(name)), Ok(Some(_)));
        let head = || read_in(self.lower.root(), &directory.join("HEAD"), LONGEST_HEAD);
        REPOSITORY.into_iter().all(there) && is_head(head())
    }

    /// Whether the agent saw a repository here.
    pub(super) fn shows_repository(&self, directory: &Path) -> bool {
        let head = || self.read(&directory.join("HEAD"), LONGEST_HEAD);
        REPOSITORY.into_iter().all(|name| self.shows(&directory.join(name))) && is_head(head())
    }

    /// Whether it is one on either side.
    pub(super) fn is_repository(&self, directory: &Path) -> bool {
        if let Some(known) = self.repositories.borrow().get(directory) {
            return *known;
        }
        let is_one = self.had_repository(directory) || self.shows_repository(directory);
        self.repositories.borrow_mut().insert(directory.to_owned(), is_one);
        is_one
    }

    /// Whether what the project has in this directory does not show.
    pub(super) fn is_hidden(&self, directory: &Path) -> bool {
        if let Some(known) = self.hidden.borrow().get(directory) {
            return *known;
        }
        let above = directory.parent().is_some_and(|parent| self.is_hidden(parent));
        let hidden = above
            || match self.upper.status(directory) {
                Ok(Some(status)) if status.kind == InodeKind::Directory => {
                    let opened = self.upper.root().passage(directory);
                    opened.and_then(|directory| is_opaque(&directory)).unwrap_or(false)
                }
                Ok(Some(_)) => true,
                Ok(None) | Err(_) => false,
            };
        self.hidden.borrow_mut().insert(directory.to_owned(), hidden);
        hidden
    }

    /// Whether the agent saw an entry here.
    pub(super) fn shows(&self, path: &Path) -> bool {
        match self.upper.status(path) {
            Ok(Some(status)) => !is_whiteout(&status),
            Ok(None) | Err(_) => {
                !path.parent().is_some_and(|parent| self.is_hidden(parent))
                    && matches!(self.lower.status(path), Ok(Some(_)))
            }
        }
    }
}

impl TreeFacts for Layers {
    fn is_git_directory(&self, directory: &Path) -> bool {
        if let Some(known) = self.git.borrow().get(directory) {
            return *known;
        }
        let mut signs = GitSigns::default();
        for name in GitSigns::NAMES {
            if self.shows(&directory.join(name)) {
                signs.see(name.as_ref());
            }
        }
        // The project's own count as well: what makes a directory less than a repository may not be applied.
        let is_git = signs.is_git_directory() || self.lower.is_git_directory(directory);
        self.git.borrow_mut().insert(directory.to_owned(), is_git);
        is_git
    }

    fn link_target(&self, path: &Path) -> Option<PathBuf> {
        match self.upper.status(path) {
            Ok(Some(status)) if status.kind == InodeKind::Symlink => self.upper.link_target(path),
            Ok(Some(_)) => None,
            Ok(None) | Err(_) if path.parent().is_some_and(|parent| self.is_hidden(parent)) => None,
            Ok(None) | Err(_) => self.lower.link_target(path),
        }
    }

    fn aliases(&self) -> &[Alias] {
        &self.aliases
    }

    fn named(&self) -> &[PathBuf] {
        &self.named
    }
}

/// The mark for "deleted".
pub(super) fn is_whiteout(status: &Status) -> bool {
    status.kind == InodeKind::CharacterDevice && status.stands_for == (0, 0)
}

/// Whether a directory of the upper layer hides what the project has there.
pub(super) fn is_opaque(directory: &Directory) -> Result<bool, Errno> {
    for name in [OPAQUE, OPAQUE_TRUSTED] {
        if directory.attribute(name)?.as_deref() == Some(OPAQUE_VALUE) {
            return Ok(true);
        }
    }
    Ok(false)
}
