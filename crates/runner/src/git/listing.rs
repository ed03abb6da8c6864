//! The files in the index, and the walk for those that are not.

use super::ignore::{Is, Rules, Says, Steps};
use super::index::{self, HashLength, IndexEntry, IndexError};
use super::{LARGEST_TEXT, MOST_FILES, MOST_RULE_BYTES, MOST_STEPS, SharedError, abs, read_bounded};
use crate::plan::project;
use belljar_contract::AbsPath;
use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, InodeKind};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The most entries that are examined, including ignored ones.
const MOST_ENTRIES: usize = 400_000;
/// Deeper than any real tree.
const DEEPEST: usize = 128;

const IGNORE_FILE: &str = ".gitignore";

/// The state of a listing. Paths are relative to the work tree, without a slash at either end.
pub(super) struct Listing<'a> {
    directory: &'a AbsPath,
    top: &'a Path,
    /// The directory in the work tree; empty for its top.
    prefix: Vec<u8>,
    root: Directory,
    /// The rules that apply everywhere, the strongest last.
    general: Vec<Rules>,
    /// The files of the index below the directory; true for another repository.
    tracked: BTreeMap<Vec<u8>, bool>,
    /// Ignore files that the index has and a sparse work tree lacks.
    skipped: BTreeSet<Vec<u8>>,
    too_many: bool,
    entries: usize,
    /// Bytes of ignore files that may still be read.
    rule_bytes: Cell<usize>,
    steps: Steps,
}

/// The files below a directory, sorted by their paths in the work tree.
pub(super) struct Listed {
    pub(super) tracked: Vec<PathBuf>,
    /// Neither tracked nor ignored.
    pub(super) others: Vec<PathBuf>,
}

impl<'a> Listing<'a> {
    pub(super) fn new(
        directory: &'a AbsPath,
        top: &'a Path,
        general: Vec<Rules>,
    ) -> Result<Self, SharedError> {
        let prefix = directory.as_path().strip_prefix(top).unwrap_or(Path::new(""));
        let prefix = prefix.as_os_str().as_bytes().to_vec();
        let root = Directory::open(top).map_err(|cause| refused(abs(directory, top), cause))?;
        let (tracked, skipped) = (BTreeMap::new(), BTreeSet::new());
        let (rule_bytes, steps) = (Cell::new(MOST_RULE_BYTES), Steps::new(MOST_STEPS));
        let (too_many, entries) = (false, 0);
        Ok(Self {
            directory,
            top,
            prefix,
            root,
            general,
            tracked,
            skipped,
            too_many,
            entries,
            rule_bytes,
            steps,
        })
    }

    /// The files below the directory.
    pub(super) fn run(
        mut self,
        index: &[u8],
        hash: HashLength,
        broken: impl Fn(IndexError) -> SharedError,
    ) -> Result<Listed, SharedError> {
        if !index.is_empty() {
            self.read_index(index, hash).map_err(broken)?;
        }
        if self.too_many {
            return Err(SharedError::TooMany { path: self.directory.clone() });
        }
        let tracked: BTreeSet<Vec<u8>> =
            self.tracked.iter().filter(|(_, gitlink)| !**gitlink).map(|(path, _)| path.clone()).collect();
        let mut others = BTreeSet::new();
        if let Some(rules) = self.above()? {
            self.untracked(rules, &mut others)?;
        }
        let below = |path: Vec<u8>| {
            let skip = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
            path.get(skip..).map(|path| PathBuf::from(OsStr::from_bytes(path)))
        };
        let sorted = |paths: BTreeSet<Vec<u8>>| paths.into_iter().filter_map(below).collect();
        Ok(Listed { tracked: sorted(tracked), others: sorted(others) })
    }

    fn read_index(&mut self, bytes: &[u8], hash: HashLength) -> Result<(), IndexError> {
        let Self { prefix, tracked, skipped, too_many, .. } = self;
        index::read(bytes, hash, |IndexEntry { path, skip_worktree, intent_to_add, gitlink, .. }| {
            let is_ignore_file = path == IGNORE_FILE.as_bytes() || path.ends_with(b"/.gitignore");
            if skip_worktree && is_ignore_file {
                skipped.insert(path.to_vec());
            }
            // A commit would not hold it: others get no such file.
            if is_below(prefix, path) && !intent_to_add {
                tracked.insert(path.to_vec(), gitlink);
            }
            *too_many = tracked.len() > MOST_FILES || skipped.len() > MOST_FILES;
            if *too_many { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    /// The rules of the directories above; `None` if one of them, or the directory, is ignored.
    fn above(&self) -> Result<Option<Vec<Rc<Rules>>>, SharedError> {
        let mut rules = Vec::new();
        let mut end = 0;
        while end < self.prefix.len() {
            rules.extend(self.own_rules(&self.prefix[..end])?);
            let next = self.prefix[end + 1..].iter().position(|byte| *byte == b'/');
            end = next.map_or(self.prefix.len(), |next| end + 1 + next);
            if self.is_ignored(&rules, &self.prefix[..end], Is::Directory)? {
                return Ok(None);
            }
        }
        Ok(Some(rules))
    }

    /// The rules of the ignore file in a directory.
    fn own_rules(&self, directory: &[u8]) -> Result<Option<Rc<Rules>>, SharedError> {
        let path = join(directory, IGNORE_FILE.as_bytes());
        let named = || abs(self.directory, &self.top.join(OsStr::from_bytes(&path)));
        let wrong = |why: String| SharedError::Rules { path: named(), why };
        let opened = self.root.passage(Path::new(OsStr::from_bytes(directory)));
        let file = match opened.and_then(|directory| directory.file(OsStr::new(IGNORE_FILE))) {
            Ok(file) => file,
            Err(Errno::NOENT) if self.skipped.contains(&path) => {
                return Err(SharedError::Absent { path: named() });
            }
            // Like git, links are not followed, and only regular files have rules.
            Err(Errno::NOENT | Errno::LOOP | Errno::INVAL) => return Ok(None),
            Err(cause) => return Err(wrong(cause.to_string())),
        };
        let text = read_bounded(file, LARGEST_TEXT).map_err(|cause| wrong(cause.to_string()))?;
        let Some(left) = self.rule_bytes.get().checked_sub(text.len()) else {
            return Err(SharedError::TooManyRules { path: self.directory.clone() });
        };
        self.rule_bytes.set(left);
        Rules::parse(&text, directory)
            .map(|rules| Some(Rc::new(rules)))
            .map_err(|cause| wrong(cause.to_string()))
    }

    fn is_ignored(&self, rules: &[Rc<Rules>], path: &[u8], is: Is) -> Result<bool, SharedError> {
        for rules in rules.iter().rev().map(Rc::as_ref).chain(self.general.iter().rev()) {
            let said = rules.say(path, is, &self.steps);
            let said = said.map_err(|_used_up| SharedError::TooManyRules { path: self.directory.clone() })?;
            if let Some(said) = said {
                return Ok(said == Says::Ignored);
            }
        }
        Ok(false)
    }

    fn untracked(&mut self, rules: Vec<Rc<Rules>>, files: &mut BTreeSet<Vec<u8>>) -> Result<(), SharedError> {
        let mut pending = vec![(self.prefix.clone(), rules)];
        while let Some((directory, mut rules)) = pending.pop() {
            rules.extend(self.own_rules(&directory)?);
            for (name, kind) in self.names(&directory)? {
                let path = join(&directory, &name);
                let known =
                    self.tracked.get(&path).is_some_and(|gitlink| *gitlink || kind != InodeKind::Directory);
                if name == b".git" || known {
                    continue;
                }
                if kind != InodeKind::Directory {
                    if !self.is_ignored(&rules, &path, Is::Other)? {
                        files.insert(path);
                    }
                    continue;
                }
                if self.is_ignored(&rules, &path, Is::Directory)? || self.is_repository(&path) {
                    continue;
                }
                if path.iter().filter(|byte| **byte == b'/').count() > DEEPEST {
                    return Err(SharedError::TooMany { path: self.directory.clone() });
                }
                // Its own rules are read later, when it is listed.
                pending.push((path, rules.clone()));
            }
            if files.len() > MOST_FILES {
                return Err(SharedError::TooMany { path: self.directory.clone() });
            }
        }
        Ok(())
    }

    fn names(&mut self, directory: &[u8]) -> Result<Vec<(Vec<u8>, InodeKind)>, SharedError> {
        let path = Path::new(OsStr::from_bytes(directory));
        let cannot = |cause| refused(abs(self.directory, &self.top.join(path)), cause);
        let opened = self.root.directory(path).map_err(cannot)?;
        let mut names = Vec::new();
        opened.entries(|name, kind| names.push((name.as_bytes().to_vec(), kind))).map_err(cannot)?;
        self.entries += names.len();
        if self.entries > MOST_ENTRIES {
            return Err(SharedError::TooMany { path: self.directory.clone() });
        }
        Ok(names)
    }

    /// Whether a directory is a nested repository without files in the index.
    fn is_repository(&self, path: &[u8]) -> bool {
        let below = join(path, b"");
        let tracked =
            self.tracked.range(below.clone()..).next().is_some_and(|(path, _)| path.starts_with(&below));
        !tracked && project::is_work_tree(&self.top.join(OsStr::from_bytes(path)))
    }
}

fn is_below(prefix: &[u8], path: &[u8]) -> bool {
    prefix.is_empty() || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(b"/"))
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

fn refused(path: AbsPath, cause: Errno) -> SharedError {
    SharedError::Directory { path, cause: cause.into() }
}
