//! Which files of a folder git would share, found without git.
//!
//! git obeys the configuration and the index that it finds, and both may be a stranger's: it fetches what is missing,
//! with the program that the configuration names. Here the index and the ignore files are only read.

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
/// An index of some 600,000 files.
const LARGEST_INDEX: u64 = 64 << 20;
/// No configuration and no ignore file is larger.
const LARGEST_TEXT: u64 = 1 << 20;

/// The ignore files of a folder together; those of the largest projects have a tenth of it.
const MOST_RULE_BYTES: usize = 4 << 20;
/// Steps of comparing names with rules: a rule without a wildcard takes one, another one for each of its parts and each
/// byte of the name.
const MOST_STEPS: u64 = 200_000_000;

/// Why it cannot be told which files git would share. Each names the file and the way out.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The folder says that it belongs to a repository that does not know it.
    #[error(
        "`{path}` names a repository that does not name this directory as its work tree: run `git worktree repair` there, or remove `{path}`"
    )]
    Unconfirmed {
        /// The file or directory that says so.
        path: AbsPath,
    },
    /// The configuration puts the work tree elsewhere.
    #[error(
        "`{path}` sets `core.worktree` to another directory: run `git config --unset core.worktree` in this repository"
    )]
    Elsewhere {
        /// The configuration.
        path: AbsPath,
    },
    /// The index cannot be used.
    #[error(
        "cannot read the git index `{path}`: {why}; write it anew with `git update-index --no-split-index --force-write-index`, after `git sparse-checkout disable` where that is in use"
    )]
    Index {
        /// The file.
        path: AbsPath,
        /// What is wrong.
        why: String,
    },
    /// An ignore file or a configuration cannot be used.
    #[error("cannot read `{path}`, which says what git ignores: {why}")]
    Rules {
        /// The file.
        path: AbsPath,
        /// What is wrong.
        why: String,
    },
    /// The index has an ignore file that the work tree lacks on purpose.
    #[error(
        "`{path}` says what git ignores, and is left out of the work tree: bring it back with `git sparse-checkout disable`"
    )]
    Absent {
        /// The file.
        path: AbsPath,
    },
    /// A folder cannot be read.
    #[error("cannot read `{path}`")]
    Folder {
        /// The folder.
        path: AbsPath,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// More files than a skill or a plugin has.
    #[error(
        "`{path}` has more than {MOST_FILES} files that git would share: name a smaller directory, or list what does not belong to it in `.gitignore`"
    )]
    TooMany {
        /// The folder.
        path: AbsPath,
    },
    /// More rules than real ignore files have, or rules that take too long to apply.
    #[error(
        "the ignore files of `{path}` have too many rules to apply: name a smaller folder, or shorten its `.gitignore` files"
    )]
    TooManyRules {
        /// The folder.
        path: AbsPath,
    },
}

/// What of a folder is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shared {
    /// There is no repository, or the repository ignores the folder: all of it.
    Everything,
    /// These, below the folder, sorted. Some may not be there.
    Files(Vec<PathBuf>),
}

/// The user's own files that git reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserFiles {
    /// The home.
    pub home: AbsPath,
    /// `XDG_CONFIG_HOME`, or what stands in for it.
    pub config: PathBuf,
}

impl UserFiles {
    /// The later one wins.
    fn configurations(&self) -> [PathBuf; 2] {
        [self.config.join("git/config"), self.home.as_path().join(".gitconfig")]
    }

    /// What the user has set git to ignore everywhere. Includes are not followed.
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

/// The files of a folder, which must be canonical, that git would share: those in the index, and those that are neither
/// in it nor ignored.
///
/// # Errors
/// When that cannot be told. Nothing is shared then.
pub fn shared_files(folder: &AbsPath, user: &UserFiles) -> Result<Shared, SharedError> {
    let Some(found) = project::work_tree(folder.as_path()) else { return Ok(Shared::Everything) };
    let project::WorkTree { top, own, common, confirmed } = found;
    if !confirmed {
        return Err(SharedError::Unconfirmed { path: abs(folder, &top.join(".git")) });
    }
    let hash = settings(folder, &common, &top)?;
    let index = match in_git(&own, "index", LARGEST_INDEX) {
        Ok(Some(index)) => index,
        // Nothing was ever added.
        Ok(None) => Vec::new(),
        Err(cause) => {
            let path = abs(folder, &own.join("index"));
            return Err(SharedError::Index { path, why: cause.to_string() });
        }
    };
    let user_path = user.ignore_file()?;
    let own_path = common.join("info/exclude");
    // The later file wins.
    let general = [
        rules(folder, &user_path, bounded(&user_path, LARGEST_TEXT))?,
        rules(folder, &own_path, in_git(&common, "info/exclude", LARGEST_TEXT))?,
    ];
    let general = general.into_iter().flatten().collect();
    let index_path = own.join("index");
    let listing = listing::Listing::new(folder, &top, general)?;
    let files = listing.run(&index, hash, |cause| SharedError::Index {
        path: abs(folder, &index_path),
        why: cause.to_string(),
    })?;
    Ok(if files.is_empty() { Shared::Everything } else { Shared::Files(files) })
}

/// How long the names of objects are, after a look at where the configuration puts the work tree.
fn settings(folder: &AbsPath, common: &Path, top: &Path) -> Result<HashLength, SharedError> {
    let path = common.join("config");
    let text = in_git(common, "config", LARGEST_TEXT);
    let text =
        text.map_err(|cause| SharedError::Rules { path: abs(folder, &path), why: cause.to_string() })?;
    let settings = git_settings(&text.unwrap_or_default());
    let last = |section, key| settings.iter().rfind(|setting| setting.is(section, key));
    if let Some(stated) = last("core", "worktree").and_then(|setting| setting.value.as_deref()) {
        let stated = common.join(OsStr::from_bytes(stated)).canonicalize().ok();
        // In a linked work tree the setting is about the main one.
        let is_main = top.join(".git").is_dir() || common.starts_with(top);
        if is_main && stated.as_deref() != Some(top) {
            return Err(SharedError::Elsewhere { path: abs(folder, &path) });
        }
    }
    let format = last("extensions", "objectformat").and_then(|setting| setting.value.as_deref());
    Ok(match format {
        Some(format) if format.eq_ignore_ascii_case(b"sha256") => HashLength::ThirtyTwo,
        _ => HashLength::Twenty,
    })
}

/// The rules of a file that is not part of a work tree, if there is one.
fn rules(
    folder: &AbsPath,
    path: &Path,
    read: io::Result<Option<Vec<u8>>>,
) -> Result<Option<Rules>, SharedError> {
    let wrong = |why: String| SharedError::Rules { path: abs(folder, path), why };
    let Some(text) = read.map_err(|cause| wrong(cause.to_string()))? else { return Ok(None) };
    Rules::parse(&text, b"").map(Some).map_err(|cause: LineTooLong| wrong(cause.to_string()))
}

/// Reads a regular file of the git directory that may be absent, up to a limit. A link below that directory is refused: a
/// repository may be a stranger's, and the link may lead to any file of the user's.
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

/// Reads a regular file of the user's that may be absent, up to a limit. Does not wait for a pipe.
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

/// For an error: a path that was made from the folder's own.
fn abs(folder: &AbsPath, path: &Path) -> AbsPath {
    AbsPath::new(path).unwrap_or_else(|_never| folder.clone())
}
