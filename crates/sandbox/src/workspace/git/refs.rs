//! The names of a repository: branches, tags, HEAD.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use belljar_class::{LARGEST_CONFIG, git_settings};
use belljar_sys::Errno;
use belljar_sys::beneath::InodeKind;

use super::object::ObjectId;

/// More refs than a repository has that people work in.
pub(super) const MOST_REFS: usize = 200_000;
const DEEPEST: usize = 32;
pub(crate) const LARGEST_PACKED: u64 = 64 << 20;
const LONGEST_REF: u64 = 4096;
const MOST_WORKTREES: usize = 1000;
/// A stash of some thousand entries.
const LARGEST_STATE: u64 = 1 << 20;
/// Files that hold names.
const LARGEST_STORAGE: u64 = 256 << 20;

/// Files that hold what `git rebase` or `git cherry-pick` check out or apply in the end, or when they are aborted. What they
/// do in between is of the class.
const STATE: [&str; 4] =
    ["rebase-merge/autostash", "rebase-merge/orig-head", "rebase-merge/update-refs", "sequencer/head"];

/// The files of a git directory, of the project or as the agent saw them.
pub(crate) trait GitFiles {
    /// A regular file, up to a limit; `None` where there is none. Anything else in its place is an error.
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Errno>;
    /// The entries of a directory; none if it does not exist. Anything else in its place is an error.
    fn list(&self, path: &Path) -> Result<Vec<(PathBuf, InodeKind)>, Errno>;
}

/// The value of a ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefValue {
    /// This object.
    Object(ObjectId),
    /// The value of this other ref.
    Symbolic(Vec<u8>),
}

impl RefValue {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        match text.strip_prefix(b"ref:") {
            Some(target) => Some(Self::Symbolic(target.trim_ascii().to_vec())),
            None => ObjectId::parse(text.trim_ascii_end()).map(Self::Object),
        }
    }

    /// The content that git writes to the file of a ref.
    pub(crate) fn line(&self) -> Vec<u8> {
        match self {
            Self::Object(id) => format!("{}\n", id.hex()).into_bytes(),
            Self::Symbolic(target) => [b"ref: ", target.as_slice(), b"\n"].concat(),
        }
    }

    /// Whether git reads the other name from where no names are read. One below `refs` that is not there is a branch that
    /// has no commit yet.
    fn leads_astray(&self) -> bool {
        let own = [&b"refs/bisect/"[..], b"refs/rewritten/", b"refs/worktree/"];
        match self {
            Self::Object(_) => false,
            Self::Symbolic(target) => {
                !target.starts_with(b"refs/") || own.iter().any(|own| target.starts_with(own))
            }
        }
    }
}

/// Every name, HEAD included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Refs {
    /// HEADs of other work trees have the names that git gives them: `main-worktree/HEAD`, `worktrees/NAME/HEAD`.
    pub values: BTreeMap<Vec<u8>, RefValue>,
    /// Objects that git goes on with though no name stands for them, by the file that holds them: the other side of a
    /// merge, entries of the stash. `None` where that file cannot be read.
    pub others: BTreeMap<Vec<u8>, Option<Vec<ObjectId>>>,
    /// The git directories of all work trees.
    pub tops: Vec<PathBuf>,
    /// Why not all could be read.
    pub unread: Option<String>,
    /// The digest of the files that hold names, where not all could be read; `None` where these cannot be read either.
    pub storage: Option<Vec<u8>>,
}

impl Refs {
    /// Reads them; `own` is the directory of the work tree below the shared one.
    pub(crate) fn read(files: &dyn GitFiles, own: &Path) -> Self {
        let mut out = Refs::default();
        if !is_in_files(files) {
            out.miss(b"extensions.refStorage");
        }
        match files.read(Path::new("packed-refs"), LARGEST_PACKED) {
            Ok(Some(text)) => out.packed(&text),
            Ok(None) => {}
            Err(_cause) => out.miss(b"packed-refs"),
        }
        out.below(files, Path::new("refs"));
        let mut tops = out.tops(files);
        if !tops.iter().any(|top| top == own) {
            tops.push(own.to_owned());
        }
        for top in &tops {
            if !files.list(&top.join("reftable")).is_ok_and(|found| found.is_empty()) {
                out.miss(b"reftable");
            }
            if !top.as_os_str().is_empty() {
                out.below(files, &top.join("refs"));
            }
            let head = top.join("HEAD");
            let name = match top {
                top if top == own => b"HEAD",
                top if top.as_os_str().is_empty() => &b"main-worktree/HEAD"[..],
                _ => head.as_os_str().as_bytes(),
            };
            out.one(files, &head, name);
            out.goes_on(files, top);
        }
        for name in ["info/grafts", "logs/refs/stash"] {
            out.other(files, Path::new(name));
        }
        let astray = out.values.iter().find(|(_, value)| value.leads_astray()).map(|(name, _)| name.clone());
        if let Some(name) = astray {
            out.miss(&name);
        }
        if out.unread.is_some() {
            out.storage = storage(files, &tops);
        }
        tops.sort();
        out.tops = tops;
        out
    }

    /// Notes that a name, or the file of many, could not be read.
    fn miss(&mut self, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        self.unread.get_or_insert_with(|| format!("not all refs can be read: {name}"));
    }

    /// The shared git directory, and those of the work trees.
    fn tops(&mut self, files: &dyn GitFiles) -> Vec<PathBuf> {
        let mut tops = vec![PathBuf::new()];
        let Ok(entries) = files.list(Path::new("worktrees")) else {
            self.miss(b"worktrees");
            return tops;
        };
        for (path, kind) in entries.into_iter().take(MOST_WORKTREES + 1) {
            match kind {
                InodeKind::Directory if tops.len() <= MOST_WORKTREES => tops.push(path),
                InodeKind::File => {}
                InodeKind::Directory
                | InodeKind::Symlink
                | InodeKind::Fifo
                | InodeKind::Socket
                | InodeKind::CharacterDevice
                | InodeKind::BlockDevice
                | InodeKind::Unknown => self.miss(path.as_os_str().as_bytes()),
            }
        }
        tops
    }

    /// The names below a directory, which have its path.
    fn below(&mut self, files: &dyn GitFiles, directory: &Path) {
        let mut pending = vec![directory.to_owned()];
        while let Some(directory) = pending.pop() {
            let deep = directory.iter().count() > DEEPEST || self.values.len() > MOST_REFS;
            let entries = match files.list(&directory) {
                Ok(entries) if !deep => entries,
                Ok(_) | Err(_) => {
                    self.miss(directory.as_os_str().as_bytes());
                    continue;
                }
            };
            for (path, kind) in entries {
                if kind == InodeKind::Directory {
                    pending.push(path);
                } else if !is_lock(&path) {
                    self.one(files, &path, path.as_os_str().as_bytes());
                }
            }
        }
    }

    fn one(&mut self, files: &dyn GitFiles, path: &Path, name: &[u8]) {
        match files.read(path, LONGEST_REF).map(|text| text.map(|text| RefValue::parse(&text))) {
            Ok(None) => {}
            Ok(Some(Some(value))) => {
                self.values.insert(name.to_vec(), value);
            }
            Ok(Some(None)) | Err(_) => self.miss(name),
        }
    }

    fn packed(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            if line.is_empty() || matches!(line[0], b'#' | b'^') {
                continue;
            }
            let space = line.iter().position(|byte| *byte == b' ');
            let value = space.and_then(|space| Some((ObjectId::parse(&line[..space])?, &line[space + 1..])));
            match value {
                // git looks for one line of a name, and which one is not known.
                Some((_, name)) if self.values.contains_key(name) => self.miss(name),
                Some((id, name)) if self.values.len() < MOST_REFS => {
                    self.values.insert(name.to_vec(), RefValue::Object(id));
                }
                Some(_) | None => return self.miss(b"packed-refs"),
            }
        }
    }

    /// Reads the objects that git would use to continue or abort an unfinished operation of a work tree.
    fn goes_on(&mut self, files: &dyn GitFiles, top: &Path) {
        let Ok(entries) = files.list(top) else { return self.miss(top.as_os_str().as_bytes()) };
        for (path, _kind) in entries {
            if path.file_name().is_some_and(|name| is_pseudo_ref(name.as_bytes())) {
                self.other(files, &path);
            }
        }
        for name in STATE {
            self.other(files, &top.join(name));
        }
    }

    fn other(&mut self, files: &dyn GitFiles, path: &Path) {
        let ids = match files.read(path, LARGEST_STATE) {
            Ok(None) => return,
            Ok(Some(text)) if path.starts_with("logs") => logged(&text),
            Ok(Some(text)) => named(&text),
            Err(_cause) => None,
        };
        self.others.insert(path.as_os_str().as_bytes().to_vec(), ids);
    }

    /// The objects that names stand for, or that git goes on with.
    pub(super) fn tips(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let named = self.values.values().filter_map(|value| match value {
            RefValue::Object(id) => Some(*id),
            RefValue::Symbolic(_) => None,
        });
        named.chain(self.others.values().flatten().flatten().copied())
    }

    /// The object that a name leads to.
    pub(crate) fn resolve(&self, name: &[u8]) -> Option<ObjectId> {
        let mut name = name;
        for _ in 0..5 {
            match self.values.get(name)? {
                RefValue::Object(id) => return Some(*id),
                RefValue::Symbolic(target) => name = target,
            }
        }
        None
    }

    /// For keeping: a line for each name. What was begun is not kept; it is compared with what the project has.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"belljar refs 1\n".to_vec();
        out.extend(if self.unread.is_some() { &b"unread\n"[..] } else { b"whole\n" });
        for (name, value) in &self.values {
            match value {
                RefValue::Object(id) => out.extend(id.hex().as_bytes()),
                RefValue::Symbolic(target) => out.extend([b"ref:", target.as_slice()].concat()),
            }
            out.push(b'\t');
            out.extend(name);
            out.push(0);
        }
        out
    }

    /// Reads what [`Refs::bytes`] wrote.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(b"belljar refs 1\n")?;
        let (unread, rest) = match rest.strip_prefix(b"whole\n") {
            Some(rest) => (None, rest),
            None => (Some("not all refs could be read".to_owned()), rest.strip_prefix(b"unread\n")?),
        };
        let mut values = BTreeMap::new();
        for line in rest.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let tab = line.iter().position(|byte| *byte == b'\t')?;
            values.insert(line[tab + 1..].to_vec(), RefValue::parse(&line[..tab])?);
        }
        Some(Refs { values, unread, ..Refs::default() })
    }
}

/// Whether git keeps names in files.
fn is_in_files(files: &dyn GitFiles) -> bool {
    let Ok(text) = files.read(Path::new("config"), LARGEST_CONFIG) else { return false };
    let settings = git_settings(&text.unwrap_or_default());
    let kept = settings.iter().rfind(|setting| setting.is("extensions", "refstorage"));
    kept.is_none_or(|kept| kept.value.as_deref() == Some(b"files"))
}

fn is_lock(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b".lock")
}

/// Names that git has beside HEAD. What it only notes is never applied.
fn is_pseudo_ref(name: &[u8]) -> bool {
    (name.ends_with(b"_HEAD") && !matches!(name, b"ORIG_HEAD" | b"FETCH_HEAD")) || name == b"MERGE_AUTOSTASH"
}

/// The objects of a file that holds objects, and names that were read elsewhere.
fn named(text: &[u8]) -> Option<Vec<ObjectId>> {
    let parts = text.split(u8::is_ascii_whitespace);
    let parts = parts.filter(|part| !part.is_empty() && !part.starts_with(b"refs/"));
    parts.filter(|part| !is_nothing(part)).map(ObjectId::parse).collect()
}

/// The objects that a reflog names.
fn logged(text: &[u8]) -> Option<Vec<ObjectId>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let after = lines.map(|line| line.split(|byte| *byte == b' ').nth(1));
    after.filter(|word| !word.is_some_and(is_nothing)).map(|word| ObjectId::parse(word?)).collect()
}

/// Zeros stand for no object.
fn is_nothing(word: &[u8]) -> bool {
    matches!(word.len(), 40 | 64) && word.iter().all(|byte| *byte == b'0')
}

/// The digest of every file that holds names.
fn storage(files: &dyn GitFiles, tops: &[PathBuf]) -> Option<Vec<u8>> {
    let mut paths = BTreeSet::from([PathBuf::from("packed-refs")]);
    for top in tops {
        paths.insert(top.join("HEAD"));
        let mut pending = vec![top.join("refs"), top.join("reftable")];
        while let Some(directory) = pending.pop() {
            for (path, kind) in files.list(&directory).ok()? {
                match kind {
                    InodeKind::Directory if path.iter().count() <= DEEPEST => pending.push(path),
                    InodeKind::Directory => return None,
                    InodeKind::File
                    | InodeKind::Symlink
                    | InodeKind::Fifo
                    | InodeKind::Socket
                    | InodeKind::CharacterDevice
                    | InodeKind::BlockDevice
                    | InodeKind::Unknown => {
                        if !is_lock(&path) {
                            paths.insert(path);
                        }
                    }
                }
            }
            if paths.len() > MOST_REFS {
                return None;
            }
        }
    }
    let (mut context, mut left) = (Context::new(&SHA256), LARGEST_STORAGE);
    for path in paths {
        let Some(content) = files.read(&path, left).ok()? else { continue };
        left -= content.len() as u64;
        context.update(path.as_os_str().as_bytes());
        context.update(&[0]);
        context.update(&(content.len() as u64).to_be_bytes());
        context.update(&content);
    }
    Some(context.finish().as_ref().to_vec())
}

/// A name for people: branches without their beginning.
#[must_use]
pub fn short_ref(name: &[u8]) -> &OsStr {
    let short = name.strip_prefix(b"refs/heads/").or_else(|| name.strip_prefix(b"refs/")).unwrap_or(name);
    OsStr::from_bytes(short)
}
