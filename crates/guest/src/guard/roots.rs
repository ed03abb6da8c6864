//! The trees that are guarded, and what is held back in them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_class::{Alias, GitSigns, Held, Making, TreeFacts, held};
use belljar_contract::{GuestAlias, GuestGuard, GuestGuardRoot, OsText};
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind};
use belljar_sys::landlock;

use super::GuardError;

/// The name by which the class knows a root that is a git directory.
const GIT: &str = ".git";

pub(super) struct Root {
    pub(super) path: PathBuf,
    pub(super) top: Directory,
    pub(super) is_git: bool,
    aliases: Vec<Alias>,
    named: Vec<PathBuf>,
}

pub(super) struct Roots {
    roots: Vec<Root>,
    /// Directories where the command acts without the guard.
    granted: Vec<PathBuf>,
}

/// How the guard treats a path.
#[derive(Clone, Copy)]
pub(super) enum Area<'roots> {
    /// The command acts there without the guard.
    Granted,
    /// The command can do nothing there by itself, and everything is done for it: the directories above a root, and what
    /// was made in them since.
    Above,
    /// A guarded tree.
    Guarded(&'roots Root),
}

pub(super) fn path(text: &OsText) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.as_bytes()))
}

impl Roots {
    pub(super) fn open(guard: &GuestGuard) -> Result<Self, GuardError> {
        let GuestGuard { roots, apart, allowed: _, on_held: _ } = guard;
        let mut roots =
            roots.iter().map(Root::open).collect::<Result<Vec<_>, _>>().map_err(GuardError::Open)?;
        // The innermost first: it decides.
        roots.sort_by_key(|root| std::cmp::Reverse(root.path.as_os_str().len()));
        let paths: Vec<PathBuf> = roots.iter().map(|root| root.path.clone()).collect();
        let mut granted = landlock::beside(&paths).map_err(GuardError::Landlock)?;
        granted.extend(apart.iter().map(path));
        Ok(Roots { roots, granted })
    }

    pub(super) fn granted(&self) -> &[PathBuf] {
        &self.granted
    }

    /// Whether a root lies at or below a place.
    pub(super) fn hold(&self, place: &Path) -> bool {
        self.roots.iter().any(|root| root.path.starts_with(place))
    }

    pub(super) fn all(&self) -> &[Root] {
        &self.roots
    }

    pub(super) fn of(&self, place: &Path) -> Area<'_> {
        if self.granted.iter().any(|granted| place.starts_with(granted)) {
            return Area::Granted;
        }
        self.roots.iter().find(|root| place.starts_with(&root.path)).map_or(Area::Above, Area::Guarded)
    }
}

impl Root {
    fn open(root: &GuestGuardRoot) -> Result<Self, Errno> {
        let GuestGuardRoot { path: place, is_git, aliases, named } = root;
        let place = path(place);
        let top = Directory::open(&place)?;
        let mut root = Root { path: place, top, is_git: *is_git, aliases: Vec::new(), named: Vec::new() };
        let called = |text: &OsText| root.called(&path(text));
        let alias = |GuestAlias { place, leads_to }: &GuestAlias| Alias {
            place: called(place),
            leads_to: called(leads_to),
        };
        let aliases = aliases.iter().map(alias).collect();
        let named = named.iter().map(called).collect();
        root.aliases = aliases;
        root.named = named;
        Ok(root)
    }

    /// The name by which the class knows a path of the tree.
    fn called(&self, below: &Path) -> PathBuf {
        if !self.is_git {
            return below.to_owned();
        }
        Path::new(GIT).iter().chain(below.iter()).collect()
    }

    /// The path in the tree that the class knows by this name.
    fn meant<'path>(&self, called: &'path Path) -> Option<&'path Path> {
        if self.is_git { called.strip_prefix(GIT).ok() } else { Some(called) }
    }

    /// The name by which the class knows a path in this root.
    pub(super) fn relative(&self, place: &Path) -> PathBuf {
        self.called(place.strip_prefix(&self.path).unwrap_or(place))
    }

    pub(super) fn held(&self, place: &Path, making: Making) -> Option<Held> {
        held(&self.relative(place), making, self)
    }

    /// Whether a directory has the signs of a git directory, so that what is in it has been judged. What cannot be looked at
    /// has not been.
    pub(super) fn is_certainly_git(&self, directory: &Path) -> bool {
        matches!(self.looks_like_git(directory), Ok(true))
    }

    fn looks_like_git(&self, directory: &Path) -> Result<bool, Errno> {
        let Some(directory) = self.meant(directory) else { return Ok(false) };
        match self.top.passage(directory) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            directory => looks_like_git(&directory?),
        }
    }

    /// Judges a path as if the entry at `from` had been moved to `to`.
    pub(super) fn held_after(&self, place: &Path, making: Making, moved: (&Path, &Path)) -> Option<Held> {
        let (from, to) = (self.relative(moved.0), self.relative(moved.1));
        held(&self.relative(place), making, &Moved { root: self, from, to })
    }
}

/// The signs of a git directory in one that is open.
pub(super) fn signs_in(directory: &Directory) -> Result<GitSigns, Errno> {
    let mut signs = GitSigns::default();
    for name in GitSigns::NAMES {
        if is_sign(directory, name)? {
            signs.see(OsStr::new(name));
        }
    }
    Ok(signs)
}

/// Whether something lies here that only the guard can have made. Sockets are made without it, so that one proves nothing about
/// what else is in the directory.
fn is_sign(directory: &Directory, name: &str) -> Result<bool, Errno> {
    let found = directory.status_if_present(OsStr::new(name))?;
    Ok(found.is_some_and(|found| found.kind != InodeKind::Socket))
}

/// Whether git obeys a directory, or would with a socket in the place of what is missing. Of the repository of a linked work
/// tree it asks for `objects` and `refs` alone, and takes sockets for both, so the work tree is the sign.
pub(super) fn looks_like_git(directory: &Directory) -> Result<bool, Errno> {
    Ok(is_sign(directory, "HEAD")?
        || (is_sign(directory, "objects")? && is_sign(directory, "refs")?)
        || has_work_tree(directory)?)
}

fn has_work_tree(git: &Directory) -> Result<bool, Errno> {
    let is_absent = |cause: &Errno| matches!(*cause, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
    let trees = match git.directory(Path::new("worktrees")) {
        Err(cause) if is_absent(&cause) => return Ok(false),
        trees => trees?,
    };
    let mut names = Vec::new();
    trees.entries(|name, kind| {
        if kind == InodeKind::Directory {
            names.push(name.to_owned());
        }
    })?;
    for name in names {
        let tree = match trees.passage(Path::new(&name)) {
            Err(cause) if is_absent(&cause) => continue,
            tree => tree?,
        };
        if is_sign(&tree, "HEAD")? && is_sign(&tree, "commondir")? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl TreeFacts for Root {
    /// A directory that cannot be read may be a git directory: a caller that is inside already can act there, even after the
    /// permission to enter was removed.
    fn is_git_directory(&self, directory: &Path) -> bool {
        self.looks_like_git(directory).unwrap_or(true)
    }

    /// Links are judged by their names alone.
    fn link_target(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    fn aliases(&self) -> &[Alias] {
        &self.aliases
    }

    fn named(&self) -> &[PathBuf] {
        &self.named
    }
}

/// A root in which a directory has been moved, before it has.
struct Moved<'root> {
    root: &'root Root,
    from: PathBuf,
    to: PathBuf,
}

impl TreeFacts for Moved<'_> {
    fn is_git_directory(&self, directory: &Path) -> bool {
        match directory.strip_prefix(&self.to) {
            Ok(below) => {
                self.root.is_git_directory(&self.from.iter().chain(below.iter()).collect::<PathBuf>())
            }
            Err(_elsewhere) => self.root.is_git_directory(directory),
        }
    }

    fn link_target(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    fn aliases(&self) -> &[Alias] {
        self.root.aliases()
    }

    fn named(&self) -> &[PathBuf] {
        self.root.named()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::net::UnixListener;

    fn looks(at: &Path) -> Result<bool, Errno> {
        looks_like_git(&Directory::open(at).unwrap())
    }

    #[test]
    fn no_socket_makes_a_git_directory() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in GitSigns::NAMES {
            UnixListener::bind(at(name)).unwrap();
        }
        assert_eq!(looks(directory.path()), Ok(false));
        assert!(!signs_in(&Directory::open(directory.path()).unwrap()).unwrap().may_become_git_directory());
        fs::remove_file(at("HEAD")).unwrap();
        fs::write(at("HEAD"), "").unwrap();
        assert_eq!(looks(directory.path()), Ok(true));
        fs::remove_file(at("HEAD")).unwrap();
        fs::remove_file(at("objects")).unwrap();
        fs::create_dir(at("objects")).unwrap();
        assert_eq!(looks(directory.path()), Ok(false));
        fs::remove_file(at("refs")).unwrap();
        fs::create_dir(at("refs")).unwrap();
        assert_eq!(looks(directory.path()), Ok(true));
    }

    #[test]
    fn a_linked_work_tree_makes_a_git_directory() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("worktrees/tree");
        fs::create_dir_all(&tree).unwrap();
        fs::write(directory.path().join("worktrees/file"), "").unwrap();
        fs::write(tree.join("commondir"), "").unwrap();
        assert_eq!(looks(directory.path()), Ok(false));
        let socket = UnixListener::bind(tree.join("HEAD"));
        assert_eq!((socket.is_ok(), looks(directory.path())), (true, Ok(false)));
        fs::remove_file(tree.join("HEAD")).unwrap();
        fs::write(tree.join("HEAD"), "").unwrap();
        assert_eq!(looks(directory.path()), Ok(true));
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_guarded_but_not_certainly_git() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        fs::create_dir(path.join("git")).unwrap();
        // Permissions would do the same, but not to the superuser.
        std::os::unix::fs::symlink("git", path.join("link")).unwrap();
        let text = OsText::new(path.as_os_str().as_bytes()).unwrap();
        let root = GuestGuardRoot { path: text, is_git: false, aliases: Vec::new(), named: Vec::new() };
        let root = Root::open(&root).unwrap();
        let judge = |at: &str| (root.is_git_directory(Path::new(at)), root.is_certainly_git(Path::new(at)));
        assert_eq!((judge("git"), judge("link")), ((false, false), (true, false)));
        fs::write(path.join("git/HEAD"), "").unwrap();
        assert_eq!((judge("git"), judge("link")), ((true, true), (true, false)));
    }
}
