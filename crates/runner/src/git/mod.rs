//! Finds the files of a directory that git would share, without running git.
//!
//! git obeys the configuration and the index of a repository, which may not be trusted: it fetches missing objects with
//! a program that the configuration names. This code only reads the index and the ignore files.

mod identity;
mod ignore;
mod listing;
#[cfg(test)]
mod tests;
mod user;
mod wildmatch;

use crate::plan::project;
use belljar_contract::AbsPath;
use belljar_sandbox::git_index as index;
use belljar_sandbox::git_settings;
use belljar_sys::Errno;
use belljar_sys::beneath::Directory;
use belljar_sys::regular::read_regular;
pub(crate) use identity::identity_files;
use ignore::{LineTooLong, Rules};
use index::HashLength;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
pub(crate) use user::{ConfigFile, files as user_configurations};

/// More files than a skill or a plugin has.
const MOST_FILES: usize = 20_000;
/// Enough for an index of about 600,000 files.
const LARGEST_INDEX: u64 = 64 << 20;
/// The largest configuration or ignore file.
const LARGEST_TEXT: u64 = 1 << 20;

/// The most bytes of all ignore files of a directory; those of the largest projects have a tenth of it.
const MOST_RULE_BYTES: usize = 4 << 20;
/// The most steps of comparing names with rules: a rule without a wildcard takes one, other rules take one for each of
/// their parts and each byte of the name.
const MOST_STEPS: u64 = 200_000_000;

/// Why the files that git would share cannot be listed. Each error names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The directory refers to a repository that does not refer back to it.
    #[error(
        "`{path}` names a repository that does not name this directory as its work tree: run `git worktree repair` there, or remove `{path}`"
    )]
    Unconfirmed {
        /// The file or directory that refers to it.
        path: AbsPath,
    },
    /// The configuration sets another work tree.
    #[error(
        "`{path}` sets `core.worktree` to another directory: run `git config --unset core.worktree` in this repository"
    )]
    Elsewhere { path: AbsPath },
    /// The index is damaged or has an unsupported format.
    #[error(
        "cannot read the git index `{path}`: {why}; write it anew with `git update-index --no-split-index --force-write-index`, after `git sparse-checkout disable` where that is in use"
    )]
    Index { path: AbsPath, why: String },
    /// An ignore file or a configuration cannot be read.
    #[error("cannot read `{path}`, which decides what git ignores: {why}")]
    Rules { path: AbsPath, why: String },
    /// The index has an ignore file that a sparse work tree lacks.
    #[error(
        "`{path}` decides what git ignores, but is not in the sparse work tree: restore it with `git sparse-checkout disable`"
    )]
    Absent { path: AbsPath },
    #[error("cannot read `{path}`")]
    Directory {
        path: AbsPath,
        #[source]
        cause: io::Error,
    },
    /// More files than a skill or a plugin has.
    #[error(
        "`{path}` has more than {MOST_FILES} files that git would share: name a smaller directory, or list what does not belong to it in `.gitignore`"
    )]
    TooMany { path: AbsPath },
    /// Not one of its files was added to git.
    #[error("no file of `{path}` is tracked by git: add them with `git add`, or pass `--include-untracked`")]
    NothingTracked { path: AbsPath },
    /// More rules than real ignore files have, or rules that take too long to apply.
    #[error(
        "the ignore files of `{path}` have too many rules to apply: name a smaller directory, or shorten its `.gitignore` files"
    )]
    TooManyRules { path: AbsPath },
}

/// The shared files of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shared {
    /// There is no repository, or it ignores the directory: all files are shared.
    Everything,
    /// Files below the directory, sorted.
    Files {
        /// Those that are shared. Some may not exist.
        files: Vec<PathBuf>,
        /// Untracked files that are not ignored, and not shared.
        left_out: Vec<PathBuf>,
    },
}

/// Whether files that are neither tracked nor ignored are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Untracked {
    /// Others do not have them.
    #[default]
    LeftOut,
    /// They are about to be added.
    Included,
}

/// The user's own files that git reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFiles {
    pub home: AbsPath,
    /// `XDG_CONFIG_HOME`, or its default.
    pub config: PathBuf,
}

impl UserFiles {
    /// The later file takes precedence.
    fn configurations(&self) -> [PathBuf; 2] {
        [self.config.join("git/config"), self.home.as_path().join(".gitconfig")]
    }

    /// The file that the user set as `core.excludesFile`. Includes are not followed.
    fn ignore_file(&self) -> Result<PathBuf, SharedError> {
        let mut named = None;
        for path in self.configurations() {
            let text = bounded(&path, LARGEST_TEXT).map_err(|cause| SharedError::Rules {
                path: abs(&self.home, &path),
                why: cause.to_string(),
            })?;
            let settings = git_settings(&text.unwrap_or_default());
            let last = settings.into_iter().rfind(|setting| setting.is("core", "excludesfile"));
            named = last.and_then(|setting| setting.value).or(named);
        }
        let Some(named) = named else { return Ok(self.config.join("git/ignore")) };
        Ok(match named.strip_prefix(b"~/") {
            Some(below) => self.home.as_path().join(OsStr::from_bytes(below)),
            None => PathBuf::from(std::ffi::OsString::from_vec(named)),
        })
    }
}

/// The files of a directory, which must be canonical, that git would share: those in the index, and with
/// [`Untracked::Included`] also those that are not ignored.
///
/// # Errors
/// If they cannot be listed, or nothing is tracked. No file is shared then.
pub fn shared_files(
    directory: &AbsPath,
    user: &UserFiles,
    untracked: Untracked,
) -> Result<Shared, SharedError> {
    let Some(found) = project::work_tree(directory.as_path()) else { return Ok(Shared::Everything) };
    let project::WorkTree { top, own, common, confirmed } = found;
    if !confirmed {
        return Err(SharedError::Unconfirmed { path: abs(directory, &top.join(".git")) });
    }
    let hash = settings(directory, &common, &top)?;
    let index = match in_git(&own, "index", LARGEST_INDEX) {
        Ok(Some(index)) => index,
        // A missing index means that no file was ever added.
        Ok(None) => Vec::new(),
        Err(cause) => {
            let path = abs(directory, &own.join("index"));
            return Err(SharedError::Index { path, why: cause.to_string() });
        }
    };
    let user_path = user.ignore_file()?;
    let own_path = common.join("info/exclude");
    // The later file takes precedence.
    let general = [
        rules(directory, &user_path, bounded(&user_path, LARGEST_TEXT))?,
        rules(directory, &own_path, in_git(&common, "info/exclude", LARGEST_TEXT))?,
    ];
    let general = general.into_iter().flatten().collect();
    let index_path = own.join("index");
    let listing = listing::Listing::new(directory, &top, general)?;
    let listing::Listed { tracked, others } = listing.run(&index, hash, |cause| SharedError::Index {
        path: abs(directory, &index_path),
        why: cause.to_string(),
    })?;
    match (untracked, tracked.is_empty(), others.is_empty()) {
        (_, true, true) => Ok(Shared::Everything),
        (Untracked::LeftOut, true, false) => Err(SharedError::NothingTracked { path: directory.clone() }),
        (Untracked::LeftOut, false, _) => Ok(Shared::Files { files: tracked, left_out: others }),
        (Untracked::Included, _, _) => {
            let mut files = tracked;
            files.extend(others);
            files.sort();
            Ok(Shared::Files { files, left_out: Vec::new() })
        }
    }
}

/// The length of object names, after checking where the configuration puts the work tree.
fn settings(directory: &AbsPath, common: &Path, top: &Path) -> Result<HashLength, SharedError> {
    let path = common.join("config");
    let text = in_git(common, "config", LARGEST_TEXT);
    let text =
        text.map_err(|cause| SharedError::Rules { path: abs(directory, &path), why: cause.to_string() })?;
    let settings = git_settings(&text.unwrap_or_default());
    let last = |section, key| settings.iter().rfind(|setting| setting.is(section, key));
    if let Some(stated) = last("core", "worktree").and_then(|setting| setting.value.as_deref()) {
        let stated = common.join(OsStr::from_bytes(stated)).canonicalize().ok();
        // In a linked work tree the setting is about the main one.
        let is_main = top.join(".git").is_dir() || common.starts_with(top);
        if is_main && stated.as_deref() != Some(top) {
            return Err(SharedError::Elsewhere { path: abs(directory, &path) });
        }
    }
    let format = last("extensions", "objectformat").and_then(|setting| setting.value.as_deref());
    Ok(match format {
        Some(format) if format.eq_ignore_ascii_case(b"sha256") => HashLength::ThirtyTwo,
        _ => HashLength::Twenty,
    })
}

/// The rules of a file that is not part of a work tree, if it exists.
fn rules(
    directory: &AbsPath,
    path: &Path,
    read: io::Result<Option<Vec<u8>>>,
) -> Result<Option<Rules>, SharedError> {
    let wrong = |why: String| SharedError::Rules { path: abs(directory, path), why };
    let Some(text) = read.map_err(|cause| wrong(cause.to_string()))? else { return Ok(None) };
    Rules::parse(&text, b"").map(Some).map_err(|cause: LineTooLong| wrong(cause.to_string()))
}

/// Reads a regular file of the git directory that may be missing, up to a limit. A link below that directory is
/// refused: the repository may not be trusted, and the link may lead to any file of the user.
fn in_git(directory: &Path, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let (parent, file) = name.rsplit_once('/').unwrap_or(("", name));
    let top = Directory::open(directory)?;
    let opened = top.passage(Path::new(parent)).and_then(|parent| parent.file(OsStr::new(file)));
    match opened {
        Ok(file) => read_bounded(file, limit).map(Some),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(Errno::LOOP) => {
            Err(io::Error::other("it is not a regular file but a symbolic link, or lies behind one"))
        }
        Err(Errno::INVAL) => Err(io::Error::other("it is not a regular file")),
        Err(cause) => Err(cause.into()),
    }
}

/// Reads a regular file of the user that may be missing, up to a limit. Does not block on a pipe.
fn bounded(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let absent =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    match read_regular(path, limit) {
        Err(error) if absent(&error) => Ok(None),
        read => read.map(Some),
    }
}

fn read_bounded(file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {} MiB", limit >> 20)));
    }
    Ok(bytes)
}

/// An absolute path for an error; the directory itself if that fails.
fn abs(directory: &AbsPath, path: &Path) -> AbsPath {
    AbsPath::new(path).unwrap_or_else(|_never| directory.clone())
}
