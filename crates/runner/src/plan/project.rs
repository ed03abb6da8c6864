//! The project around a directory, and its repository, read from git's own files.
//!
//! git itself is not run: it refuses a repository of another owner and costs milliseconds, and the rules for finding a
//! repository are few. A test compares the result with the real git.

use belljar_contract::{AbsPath, PathError};
use belljar_plan::ProjectFacts;
use belljar_sys::regular::read_regular;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longer than the one-line files that git writes.
const LINE_LIMIT: u64 = 16 << 10;
/// Larger than any configuration that git writes for a submodule.
const CONFIG_LIMIT: u64 = 1 << 20;

struct Repository {
    /// The top of the work tree.
    top: PathBuf,
    /// The git directory of this work tree.
    own: PathBuf,
    /// The directory that all work trees share.
    common: PathBuf,
}

/// The project that `directory`, which must be canonical, is in.
///
/// # Errors
/// Only when a path has a NUL byte, which the system's own paths do not have.
pub fn find(directory: &AbsPath) -> Result<ProjectFacts, PathError> {
    let Some(repository) = discover(directory.as_path(), Bare::Taken) else {
        return Ok(ProjectFacts {
            directory: directory.clone(),
            root: directory.clone(),
            canonical_root: directory.clone(),
            outside_repository: None,
        });
    };
    let Repository { top, own: _, common } = &repository;
    let root = AbsPath::new(top)?;
    let inside = common.starts_with(top);
    // Without this confirmation, a `.git` file could expose another repository and the state that is kept for it.
    let confirmed = inside || points_back(&repository);
    let canonical_root =
        if confirmed { AbsPath::new(common.parent().unwrap_or(common))? } else { root.clone() };
    let outside_repository = if confirmed && !inside { Some(AbsPath::new(common)?) } else { None };
    Ok(ProjectFacts { directory: directory.clone(), root, canonical_root, outside_repository })
}

/// The work tree around a directory, and its repository.
pub(crate) struct WorkTree {
    /// The top of the work tree.
    pub top: PathBuf,
    /// The git directory of this work tree.
    pub own: PathBuf,
    /// The directory that all work trees share.
    pub common: PathBuf,
    /// Whether the repository lies in the work tree, or names it as its own.
    pub confirmed: bool,
}

/// The work tree that `directory`, which must be canonical, is in. A directory that only looks like a git directory has
/// no work tree: it may have been checked out as files of the repository around it.
pub(crate) fn work_tree(directory: &Path) -> Option<WorkTree> {
    let repository = discover(directory, Bare::PassedOver)?;
    let confirmed = repository.common.starts_with(&repository.top) || points_back(&repository);
    let Repository { top, own, common } = repository;
    Some(WorkTree { top, own, common, confirmed })
}

/// Whether a directory is the top of a work tree.
pub(crate) fn is_work_tree(directory: &Path) -> bool {
    let dot = directory.join(".git");
    match fs::symlink_metadata(&dot) {
        Ok(found) if found.is_file() => linked(directory, &dot).is_some_and(|own| is_git_directory(&own)),
        Ok(_) => is_git_directory(&dot),
        Err(_absent) => false,
    }
}

/// How a git directory without a work tree is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bare {
    /// It is the repository, as git has it.
    Taken,
    /// It is an ordinary directory.
    PassedOver,
}

fn discover(directory: &Path, bare: Bare) -> Option<Repository> {
    let start = fs::metadata(directory).ok()?;
    let (device, owners) = (start.dev(), [start.uid(), 0, own_user()]);
    for top in directory.ancestors() {
        // Like git, the search does not cross a file system boundary.
        if fs::metadata(top).ok()?.dev() != device {
            return None;
        }
        let dot = top.join(".git");
        let own = match fs::metadata(&dot) {
            // In a directory that others can write to, such as the one for temporary files, another user could create a
            // repository around the project.
            Ok(found) if !owners.contains(&found.uid()) => None,
            Ok(found) if found.is_dir() && is_git_directory(&dot) => Some(dot),
            Ok(found) if found.is_file() => linked(top, &dot).filter(|own| is_git_directory(own)),
            _ => None,
        };
        if let Some(own) = own {
            let own = own.canonicalize().ok()?;
            let common = common(&own)?;
            return Some(Repository { top: top.to_path_buf(), own, common });
        }
        // The directory may belong to root while another user created the files that make it a repository.
        let head = top.join("HEAD");
        let is_own = || fs::symlink_metadata(&head).is_ok_and(|found| owners.contains(&found.uid()));
        if bare == Bare::Taken && is_git_directory(top) && is_own() {
            let common = common(top)?;
            return Some(Repository { top: top.to_path_buf(), own: top.to_path_buf(), common });
        }
    }
    None
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A git directory has a HEAD, and objects and refs or a pointer to them.
fn is_git_directory(path: &Path) -> bool {
    let shared = common(path);
    path.join("HEAD").symlink_metadata().is_ok()
        && shared.is_some_and(|common| common.join("objects").is_dir() && common.join("refs").is_dir())
}

/// The git directory that a `.git` file points to.
fn linked(top: &Path, file: &Path) -> Option<PathBuf> {
    let text = one_line(file)?;
    Some(top.join(text.strip_prefix("gitdir:")?.trim_start()))
}

fn common(own: &Path) -> Option<PathBuf> {
    match one_line(&own.join("commondir")) {
        Some(relative) => own.join(relative).canonicalize().ok(),
        None => own.canonicalize().ok(),
    }
}

fn one_line(file: &Path) -> Option<String> {
    let text = String::from_utf8(read_regular(file, LINE_LIMIT).ok()?).ok()?;
    Some(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Whether the repository names this work tree as its own.
///
/// A `.git` file may come with untrusted code. Without this check it could name any repository of the user, and the
/// sandbox would expose it.
fn points_back(repository: &Repository) -> bool {
    let Repository { top, own, common } = repository;
    if own != common {
        // The reference back must be in the repository itself: any code could write one beside a `.git` file.
        if own.parent() != Some(common.join("worktrees").as_path()) {
            return false;
        }
        let back = one_line(&own.join("gitdir")).map(|back| own.join(back));
        return back.and_then(|back| back.parent()?.canonicalize().ok()).is_some_and(|back| back == *top);
    }
    worktree_setting(&own.join("config"))
        .and_then(|relative| own.join(relative).canonicalize().ok())
        .is_some_and(|back| back == *top)
}

/// `core.worktree` of a submodule's configuration. git writes it in this one form.
fn worktree_setting(config: &Path) -> Option<String> {
    let text = String::from_utf8(read_regular(config, CONFIG_LIMIT).ok()?).ok()?;
    let mut in_core = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_core = line == "[core]";
        } else if in_core
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "worktree"
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}
