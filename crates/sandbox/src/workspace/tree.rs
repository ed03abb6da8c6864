//! A directory tree as the class asks about it, read from its descriptor and remembered.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use belljar_class::{GitSigns, TreeFacts};
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, Status};

/// A tree that does not change while it is looked at, or whose changes do not matter.
pub(super) struct Tree {
    root: Directory,
    /// Where it is, links followed; for absolute paths that name a place in it.
    place: PathBuf,
    /// Git directories of an earlier time, which count as such without their signs.
    known: BTreeSet<PathBuf>,
    git: RefCell<HashMap<PathBuf, bool>>,
    links: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
}

impl Tree {
    pub(super) fn open(path: &Path) -> Result<Self, Errno> {
        let root = Directory::open(path)?;
        let place = path.canonicalize().unwrap_or_else(|_gone| path.to_owned());
        Ok(Tree { place, ..Self::new(root) })
    }

    /// A tree of which only what lies below matters.
    pub(super) fn new(root: Directory) -> Self {
        Tree {
            root,
            place: PathBuf::new(),
            known: BTreeSet::new(),
            git: RefCell::default(),
            links: RefCell::default(),
        }
    }

    /// The same tree with git directories that are known from an earlier time.
    pub(super) fn knowing(self, known: BTreeSet<PathBuf>) -> Self {
        Tree { known, ..self }
    }

    /// Whether a directory is known to have been a git directory.
    pub(super) fn knows(&self, directory: &Path) -> bool {
        self.known.contains(directory)
    }

    /// A path that a file names, as one of the tree: an absolute one must begin where the tree is, and `~` may be any
    /// directory above it.
    pub(super) fn relative<'path>(&self, path: &'path Path) -> Option<&'path Path> {
        if path.is_absolute() {
            return path.strip_prefix(&self.place).ok();
        }
        match path.strip_prefix("~") {
            Ok(below) => self.place.ancestors().skip(1).find_map(|home| {
                let rest = self.place.strip_prefix(home).ok()?;
                below.strip_prefix(rest).ok()
            }),
            Err(_plain) => Some(path),
        }
    }

    pub(super) fn root(&self) -> &Directory {
        &self.root
    }

    /// The directory that an entry is in, and its name there.
    pub(super) fn parent<'path>(&self, path: &'path Path) -> Result<(Directory, &'path OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        Ok((self.root.passage(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Looks at an entry; `None` if it does not exist, or a name on the way is not a directory.
    pub(super) fn status(&self, path: &Path) -> Result<Option<Status>, Errno> {
        if path.as_os_str().is_empty() {
            return self.root.own_status().map(Some);
        }
        match self.parent(path) {
            Ok((parent, name)) => parent.status_if_present(name),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    pub(super) fn read_link(&self, path: &Path) -> Result<PathBuf, Errno> {
        let (parent, name) = self.parent(path)?;
        parent.link_target(name)
    }

    /// What of the marks of a git directory is here.
    pub(super) fn git_signs(&self, directory: &Path, signs: &mut GitSigns) {
        // A directory that cannot be entered shows nothing; the walk that meets it says so.
        let Ok(directory) = self.root.passage(directory) else { return };
        for name in GitSigns::NAMES {
            if directory.status(OsStr::new(name)).is_ok() {
                signs.see(OsStr::new(name));
            }
        }
    }
}

impl TreeFacts for Tree {
    fn is_git_directory(&self, directory: &Path) -> bool {
        if self.knows(directory) {
            return true;
        }
        if let Some(known) = self.git.borrow().get(directory) {
            return *known;
        }
        let mut signs = GitSigns::default();
        self.git_signs(directory, &mut signs);
        self.git.borrow_mut().insert(directory.to_owned(), signs.is_git_directory());
        signs.is_git_directory()
    }

    fn link_target(&self, path: &Path) -> Option<PathBuf> {
        if let Some(known) = self.links.borrow().get(path) {
            return known.clone();
        }
        // An entry that is missing or not a link has no target, and no decision rests on it.
        let target = self.read_link(path).ok();
        self.links.borrow_mut().insert(path.to_owned(), target.clone());
        target
    }
}
