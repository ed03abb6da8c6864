//! Files of a tree that something outside of it names as programs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_class::{Leads, NamedPath, What, follow_noting};
use belljar_sys::beneath::InodeKind;

use super::scan::ScanError;
use super::tree::Tree;

/// What of a tree a git configuration names that lies elsewhere, as the one of a linked work tree or of the user does.
/// Hooks and programs that are not there may still be made. What it includes by a relative path lies beside it.
///
/// # Errors
/// As [`scan`](super::scan).
pub fn named_by_git(config: &[u8], root: &Path) -> Result<Vec<PathBuf>, ScanError> {
    let tree = open(root)?;
    let place = |named: &NamedPath| {
        let beside = named.path.is_relative() && !named.path.starts_with("~");
        if named.what == What::Config && beside {
            return None;
        }
        let places = inside(&tree, &named.path)?;
        let path = places.last()?;
        let found = tree.status(path).ok()?.map(|status| status.kind);
        let counts = match (named.what, found) {
            (What::Program, None) => path.components().count() > 1,
            (What::Program | What::Attributes | What::Config, found) => {
                found.is_some_and(|kind| kind != InodeKind::Directory)
            }
            (What::Hooks, _) => !path.as_os_str().is_empty(),
            (What::WorkTree, _) => false,
        };
        counts.then_some(places)
    };
    Ok(belljar_class::named(config).iter().filter_map(place).flatten().collect())
}

/// Returns the files of a tree that arguments of command lines name.
///
/// # Errors
/// As [`scan`](super::scan).
pub fn named_by_words(words: &[Vec<u8>], root: &Path) -> Result<Vec<PathBuf>, ScanError> {
    let tree = open(root)?;
    let file = |word: &Vec<u8>| {
        let places = inside(&tree, Path::new(OsStr::from_bytes(word)))?;
        let kind = tree.status(places.last()?).ok()??.kind;
        (kind == InodeKind::File).then_some(places)
    };
    Ok(words.iter().filter_map(file).flatten().collect())
}

fn open(root: &Path) -> Result<Tree, ScanError> {
    Tree::open(root).map_err(|cause| ScanError::Open { path: root.to_owned(), cause })
}

/// The links on the way to a path, and where it leads.
fn inside(tree: &Tree, path: &Path) -> Option<Vec<PathBuf>> {
    let mut places = Vec::new();
    match follow_noting(Path::new("x"), tree.relative(path)?, tree, &mut places) {
        Leads::Inside(path) => places.push(path),
        Leads::Out | Leads::Nowhere => return None,
    }
    Some(places)
}
