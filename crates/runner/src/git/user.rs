//! The user's own git configuration with its includes, parsed as data.
//!
//! Conditions are evaluated for one project, as git would there. Unknown conditions are reported, because git may then
//! find other settings.

use super::wildmatch::Pattern;
use super::{LARGEST_TEXT, UserFiles, bounded, in_git};
use crate::plan::project;
use belljar_contract::{AbsPath, visible_name, visible_start};
use belljar_sandbox::{GitSetting, git_settings};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// git's own limit on nested includes.
const DEEPEST: usize = 10;
/// More files than a real configuration has.
const MOST_FILES: usize = 100;
/// The system's configuration, which git reads besides the user's own files.
const OF_SYSTEM: &str = "/etc/gitconfig";

/// The facts about a project that conditions refer to.
#[derive(Debug, Default)]
pub(super) struct ProjectPlace {
    git_directory: Option<PathBuf>,
    branch: Option<Vec<u8>>,
    remotes: Vec<Vec<u8>>,
}

impl ProjectPlace {
    pub(super) fn of(project: &AbsPath) -> Self {
        let Some(found) = project::work_tree(project.as_path()) else { return Self::default() };
        // git ignores unreadable files as well.
        let read = |directory: &Path, name: &str| in_git(directory, name, LARGEST_TEXT).ok().flatten();
        let head = read(&found.own, "HEAD").unwrap_or_default();
        let branch = head.strip_prefix(b"ref: refs/heads/").map(|name| name.trim_ascii_end().to_vec());
        let settings = git_settings(&read(&found.common, "config").unwrap_or_default());
        let is_remote = |one: &GitSetting| one.section == b"remote" && one.key == b"url";
        let remotes = settings.into_iter().filter(is_remote).filter_map(|one| one.value).collect();
        Self { git_directory: Some(found.own), branch, remotes }
    }
}

/// The conditional includes that are read.
enum Conditions<'a> {
    Holding(&'a ProjectPlace),
    All,
}

/// The settings of the user.
#[derive(Debug, Default)]
pub(super) struct UserSettings {
    pub(super) settings: Vec<GitSetting>,
    /// Reasons why git may find other settings.
    pub(super) doubts: Vec<String>,
}

/// The settings that git would find in the user's files, in order.
pub(super) fn settings_at(user: &UserFiles, place: &ProjectPlace) -> UserSettings {
    let mut reader = Reader::new(user, Conditions::Holding(place));
    user.configurations().iter().for_each(|path| reader.read(path, 0));
    reader.out
}

/// A configuration file that git reads.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    /// Empty if the file does not exist or cannot be read.
    pub(crate) text: Vec<u8>,
}

/// All files that git may read before it reads a repository, whatever their conditions are.
pub(crate) fn files(user: &UserFiles) -> Vec<ConfigFile> {
    let mut reader = Reader::new(user, Conditions::All);
    reader.read(Path::new(OF_SYSTEM), 0);
    user.configurations().iter().for_each(|path| reader.read(path, 0));
    reader.files
}

struct Reader<'a> {
    home: PathBuf,
    conditions: Conditions<'a>,
    files: Vec<ConfigFile>,
    out: UserSettings,
}

impl<'a> Reader<'a> {
    fn new(user: &UserFiles, conditions: Conditions<'a>) -> Self {
        let home = user.home.as_path();
        let home = home.canonicalize().unwrap_or_else(|_gone| home.to_owned());
        Self { home, conditions, files: Vec::new(), out: UserSettings::default() }
    }

    fn doubt(&mut self, path: &Path, why: &str) {
        let path = visible_name(path);
        self.out.doubts.push(visible_start(&format!("the git configuration `{path}` {why}"), 300));
    }

    fn read(&mut self, path: &Path, depth: usize) {
        if depth > DEEPEST || self.files.len() >= MOST_FILES {
            return self.doubt(path, "is not read: too many files are included");
        }
        let text = match bounded(path, LARGEST_TEXT) {
            Ok(text) => text.unwrap_or_default(),
            Err(error) => {
                self.doubt(path, &format!("cannot be read: {error}"));
                Vec::new()
            }
        };
        let settings = git_settings(&text);
        self.files.push(ConfigFile { path: path.to_owned(), text });
        for setting in settings {
            let GitSetting { section, subsection, key, value } = &setting;
            let included = match (section.as_slice(), subsection, key.as_slice(), value) {
                (b"include", None, b"path", Some(value)) => Some((None, value)),
                (b"includeif", Some(condition), b"path", Some(value)) => Some((Some(condition), value)),
                _ => None,
            };
            match included {
                None => self.out.settings.push(setting),
                Some((condition, value)) => {
                    let holds = condition.map_or(Some(true), |condition| self.holds(condition, path));
                    match (holds, self.path(value, path)) {
                        (Some(true), Some(included)) => self.read(&included, depth + 1),
                        (Some(false), _) => {}
                        (Some(true), None) | (None, _) => {
                            let what = condition.unwrap_or(value);
                            let what = String::from_utf8_lossy(what).into_owned();
                            self.doubt(
                                path,
                                &format!(
                                    "includes a file by `{what}`, a condition that belljar does not support"
                                ),
                            );
                        }
                    }
                }
            }
        }
    }

    /// The path that a value refers to in this file.
    fn path(&self, value: &[u8], file: &Path) -> Option<PathBuf> {
        match value {
            [b'~', b'/', below @ ..] => Some(self.home.join(OsStr::from_bytes(below))),
            [b'~' | b'%', ..] => None,
            relative => Some(file.parent()?.join(OsStr::from_bytes(relative))),
        }
    }

    /// Whether a condition holds; `None` if it is not supported.
    fn holds(&self, condition: &[u8], file: &Path) -> Option<bool> {
        let Conditions::Holding(place) = &self.conditions else { return Some(true) };
        if let Some(pattern) = condition.strip_prefix(b"gitdir:") {
            return self.is_git_directory(place, pattern, file, <[u8]>::to_vec);
        }
        if let Some(pattern) = condition.strip_prefix(b"gitdir/i:") {
            return self.is_git_directory(place, pattern, file, <[u8]>::to_ascii_lowercase);
        }
        if let Some(pattern) = condition.strip_prefix(b"onbranch:") {
            let pattern = Pattern::new(&with_all_below(pattern.to_vec()));
            return Some(place.branch.as_ref().is_some_and(|branch| pattern.matches(branch)));
        }
        let pattern = Pattern::new(condition.strip_prefix(b"hasconfig:remote.*.url:")?);
        Some(place.remotes.iter().any(|remote| pattern.matches(remote)))
    }

    fn is_git_directory(
        &self,
        place: &ProjectPlace,
        pattern: &[u8],
        file: &Path,
        fold: fn(&[u8]) -> Vec<u8>,
    ) -> Option<bool> {
        let Some(directory) = &place.git_directory else { return Some(false) };
        let here = || file.parent()?.canonicalize().ok();
        // The replacement for `~` and `.` is compared literally.
        let (above, pattern) = match pattern {
            [b'~', b'/', rest @ ..] => (self.home.as_os_str().as_bytes().to_vec(), [b"/", rest].concat()),
            [b'.', b'/', rest @ ..] => (here()?.into_os_string().as_bytes().to_vec(), [b"/", rest].concat()),
            [b'~' | b'%', ..] => return None,
            [b'/', ..] => (Vec::new(), pattern.to_vec()),
            anywhere => (Vec::new(), [b"**/", anywhere].concat()),
        };
        let directory = fold(directory.as_os_str().as_bytes());
        let Some(below) = directory.strip_prefix(fold(&above).as_slice()) else { return Some(false) };
        Some(Pattern::new(&fold(&with_all_below(pattern))).matches(below))
    }
}

/// A pattern that ends with a slash matches everything below.
fn with_all_below(mut pattern: Vec<u8>) -> Vec<u8> {
    if pattern.ends_with(b"/") {
        pattern.extend(b"**");
    }
    pattern
}
