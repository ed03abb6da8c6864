//! The names of a repository: branches, tags, HEAD.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::Kind;

use super::object::ObjectId;

/// More refs than a repository has that people work in.
const MOST_REFS: usize = 200_000;
const DEEPEST: usize = 32;
const LARGEST_PACKED: u64 = 64 << 20;
const LONGEST_REF: u64 = 4096;

/// The files of a git directory, of the project or as the agent saw them.
pub(crate) trait GitFiles {
    /// A regular file, up to a limit; `None` where there is none.
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Errno>;
    /// What a directory holds; nothing where there is none.
    fn list(&self, path: &Path) -> Result<Vec<(PathBuf, Kind)>, Errno>;
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefValue {
    /// This object.
    Object(ObjectId),
    /// Whatever this other name stands for.
    Symbolic(Vec<u8>),
}

impl RefValue {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        match text.strip_prefix(b"ref:") {
            Some(target) => Some(Self::Symbolic(target.trim_ascii().to_vec())),
            None => ObjectId::parse(text.trim_ascii_end()).map(Self::Object),
        }
    }
}

/// Every name, HEAD included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Refs {
    pub values: BTreeMap<Vec<u8>, RefValue>,
    /// Not all could be read.
    pub unread: bool,
}

impl Refs {
    /// Reads them; `own` is the directory of the work tree below the shared one.
    pub(crate) fn read(files: &dyn GitFiles, own: &Path) -> Self {
        let mut out = Refs::default();
        if files.list(Path::new("reftable")).is_ok_and(|found| !found.is_empty()) {
            out.unread = true;
            return out;
        }
        match files.read(Path::new("packed-refs"), LARGEST_PACKED) {
            Ok(Some(text)) => out.packed(&text),
            Ok(None) => {}
            Err(_cause) => out.unread = true,
        }
        let mut pending = vec![PathBuf::from("refs")];
        while let Some(directory) = pending.pop() {
            let deep = directory.iter().count() > DEEPEST || out.values.len() > MOST_REFS;
            let Ok(entries) = files.list(&directory) else {
                out.unread = true;
                continue;
            };
            if deep {
                out.unread = true;
                break;
            }
            for (path, kind) in entries {
                match kind {
                    Kind::Directory => pending.push(path),
                    _ if path.as_os_str().as_bytes().ends_with(b".lock") => {}
                    _ => out.one(files, &path, path.as_os_str().as_bytes()),
                }
            }
        }
        out.one(files, &own.join("HEAD"), b"HEAD");
        out
    }

    fn one(&mut self, files: &dyn GitFiles, path: &Path, name: &[u8]) {
        let value = files.read(path, LONGEST_REF).ok().flatten().as_deref().and_then(RefValue::parse);
        match value {
            Some(value) => {
                self.values.insert(name.to_vec(), value);
            }
            // git leaves empty ones behind when the machine stops; they are nobody's tip.
            None => self.unread |= name != b"HEAD",
        }
    }

    fn packed(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n').take(MOST_REFS) {
            if line.is_empty() || matches!(line[0], b'#' | b'^') {
                continue;
            }
            let Some(space) = line.iter().position(|byte| *byte == b' ') else {
                self.unread = true;
                continue;
            };
            match ObjectId::parse(&line[..space]) {
                Some(id) => {
                    self.values.insert(line[space + 1..].to_vec(), RefValue::Object(id));
                }
                None => self.unread = true,
            }
        }
    }

    /// The objects that names stand for.
    pub(super) fn tips(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.values.values().filter_map(|value| match value {
            RefValue::Object(id) => Some(*id),
            RefValue::Symbolic(_) => None,
        })
    }

    /// The object that HEAD leads to.
    pub(super) fn head(&self) -> Option<ObjectId> {
        let mut name: &[u8] = b"HEAD";
        for _ in 0..5 {
            match self.values.get(name)? {
                RefValue::Object(id) => return Some(*id),
                RefValue::Symbolic(target) => name = target,
            }
        }
        None
    }

    /// For keeping: a line for each name.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"belljar refs 1\n".to_vec();
        out.extend(if self.unread { &b"unread\n"[..] } else { b"whole\n" });
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
            Some(rest) => (false, rest),
            None => (true, rest.strip_prefix(b"unread\n")?),
        };
        let mut values = BTreeMap::new();
        for line in rest.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let tab = line.iter().position(|byte| *byte == b'\t')?;
            values.insert(line[tab + 1..].to_vec(), RefValue::parse(&line[..tab])?);
        }
        Some(Refs { values, unread })
    }
}

/// A name for people: branches without their beginning.
#[must_use]
pub fn short_ref(name: &[u8]) -> &OsStr {
    let short = name.strip_prefix(b"refs/heads/").or_else(|| name.strip_prefix(b"refs/")).unwrap_or(name);
    OsStr::from_bytes(short)
}
