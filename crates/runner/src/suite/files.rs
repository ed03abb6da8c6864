//! The files of a workspace, before the agent began and after it ended.

use super::Stage;
use belljar_contract::{AbsPath, Digest, FileKind, FileSeen, FilesSeen};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// More entries than the workspace of a test has; a larger tree is not listed completely.
const MOST: usize = 200_000;
/// Only the length of a larger file is recorded.
const LONGEST: u64 = 1 << 30;
/// The most bytes of a file that are kept, so that its content can be judged.
const KEPT: u64 = 10 << 20;
/// The most bytes of all files that are kept.
const KEPT_IN_ALL: u64 = 256 << 20;

/// Whether a new or changed file of this length is kept, if not too many are.
pub(crate) const fn kept_of_a_file(bytes: u64) -> bool {
    bytes <= KEPT
}

/// A workspace whose files are compared at the end of a run.
#[derive(Debug, Clone)]
pub struct FilesWatch {
    root: AbsPath,
    visible: Vec<String>,
    read_only: Vec<String>,
    lasting: Vec<String>,
    before: Tree,
}

#[derive(Debug, Clone, Default)]
struct Tree {
    files: BTreeMap<String, FileSeen>,
    unread: Vec<String>,
}

impl FilesWatch {
    /// Lists the workspace as it is now.
    #[must_use]
    pub fn begin(stage: &Stage) -> Self {
        let root = stage.workspace().clone();
        let before = tree(root.as_path(), &mut |_, _| KeepContent::No);
        let (visible, read_only) = (stage.visible.clone(), stage.read_only.clone());
        Self { root, visible, read_only, lasting: stage.lasting.clone(), before }
    }

    /// Lists it again. Contents of new or changed files are kept, within the limits.
    pub(crate) fn end(self) -> FilesSeen {
        let Self { root, visible, read_only, lasting, before } = self;
        let mut left = KEPT_IN_ALL;
        let after = tree(root.as_path(), &mut |_, bytes| {
            if bytes > KEPT || bytes > left {
                return KeepContent::No;
            }
            left -= bytes;
            KeepContent::Yes
        });
        let mut unread = before.unread;
        unread.extend(after.unread);
        FilesSeen { before: before.files, after: after.files, visible, read_only, lasting, unread }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepContent {
    Yes,
    No,
}

fn tree(root: &Path, keep: &mut dyn FnMut(&str, u64) -> KeepContent) -> Tree {
    let mut out = Tree::default();
    walk(root, "", keep, &mut out);
    out
}

fn walk(directory: &Path, below: &str, keep: &mut dyn FnMut(&str, u64) -> KeepContent, out: &mut Tree) {
    let shown = if below.is_empty() { "." } else { below };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(cause) => return out.unread.push(format!("{shown}: {cause}")),
    };
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|entry| entry.as_ref().map(fs::DirEntry::file_name).unwrap_or_default());
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(cause) => return out.unread.push(format!("{shown}: {cause}")),
        };
        let Ok(name) = entry.file_name().into_string() else {
            out.unread.push(format!("{shown}: the name is not UTF-8"));
            continue;
        };
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if out.files.len() >= MOST {
            return out.unread.push(format!("{path}: there are more than {MOST} files"));
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), &path, keep, out),
            Ok(_) => match seen(&entry.path(), &path, keep) {
                Ok(file) => {
                    out.files.insert(path, file);
                }
                Err(cause) => out.unread.push(format!("{path}: {cause}")),
            },
            Err(cause) => out.unread.push(format!("{path}: {cause}")),
        }
    }
}

fn seen(path: &Path, below: &str, keep: &mut dyn FnMut(&str, u64) -> KeepContent) -> io::Result<FileSeen> {
    let found = path.symlink_metadata()?;
    if found.is_symlink() {
        let target = path.read_link()?.to_string_lossy().into_owned();
        let digest = Some(Digest::of(target.as_bytes()));
        return Ok(FileSeen { kind: FileKind::Link { target }, bytes: 0, digest, kept: None, body: None });
    }
    if !found.is_file() {
        return Ok(FileSeen { kind: FileKind::Special, bytes: 0, digest: None, kept: None, body: None });
    }
    let bytes = found.len();
    if bytes > LONGEST {
        return Ok(FileSeen { kind: FileKind::File, bytes, digest: None, kept: None, body: None });
    }
    let file = rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK,
        rustix::fs::Mode::empty(),
    )?;
    let mut file = File::from(file).take(LONGEST);
    if keep(below, bytes) == KeepContent::Yes {
        let mut body = Vec::new();
        file.read_to_end(&mut body)?;
        let digest = Some(Digest::of(&body));
        return Ok(FileSeen { kind: FileKind::File, bytes, digest, kept: None, body: Some(body) });
    }
    let digest = Some(Digest::of_reader(&mut file)?);
    Ok(FileSeen { kind: FileKind::File, bytes, digest, kept: None, body: None })
}
