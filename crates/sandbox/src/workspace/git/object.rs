//! The objects of a repository: commits, trees and tags as data. Blobs are only measured and compared by name.
//!
//! Every byte may be a stranger's. Sizes and counts are bounded, nothing is followed or fetched, and what an object holds
//! must be what its name says.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use super::index::HashLength;

/// The name of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    length: u8,
    bytes: [u8; 32],
}

impl ObjectId {
    /// From its bytes; there must be 20 or 32.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        matches!(bytes.len(), 20 | 32).then(|| {
            let mut own = [0; 32];
            own[..bytes.len()].copy_from_slice(bytes);
            ObjectId { length: bytes.len() as u8, bytes: own }
        })
    }

    /// From hexadecimal digits in lower case, as git writes them.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if !matches!(text.len(), 40 | 64) {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        for (at, pair) in text.chunks(2).enumerate() {
            bytes[at] = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Self::new(&bytes[..text.len() / 2])
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        self.hex()[..10].to_owned()
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// The type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Commit,
    Tree,
    Blob,
    Tag,
}

impl ObjectKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
            Self::Tag => "tag",
        }
    }

    pub(super) fn of_name(name: &[u8]) -> Option<Self> {
        [Self::Commit, Self::Tree, Self::Blob, Self::Tag]
            .into_iter()
            .find(|kind| kind.name().as_bytes() == name)
    }
}

/// An object.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub kind: ObjectKind,
    pub content: Vec<u8>,
}

/// Why an object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ObjectError {
    #[error("it is not there")]
    Missing,
    #[error("it is damaged, or holds something else than its name says")]
    Damaged,
    #[error("it is larger than belljar reads")]
    TooLarge,
    #[error("there is more than belljar reads")]
    TooMuch,
    #[error("it is kept in a form that belljar does not read")]
    Unsupported,
    #[error("it cannot be read")]
    Unreadable,
}

/// The digest by which objects are named.
pub(super) struct Naming(Context);

impl Naming {
    pub(super) fn new(hash: HashLength, kind: ObjectKind, size: u64) -> Self {
        let algorithm = match hash {
            HashLength::Twenty => &SHA1_FOR_LEGACY_USE_ONLY,
            HashLength::ThirtyTwo => &SHA256,
        };
        let mut context = Context::new(algorithm);
        context.update(format!("{} {size}\0", kind.name()).as_bytes());
        Naming(context)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> Option<ObjectId> {
        ObjectId::new(self.0.finish().as_ref())
    }
}

impl Object {
    /// Whether it is what its name says.
    pub(super) fn is(&self, id: &ObjectId, hash: HashLength) -> bool {
        let mut naming = Naming::new(hash, self.kind, self.content.len() as u64);
        naming.update(&self.content);
        naming.finish().as_ref() == Some(id)
    }
}

/// A commit, as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub tree: ObjectId,
    pub parents: Vec<ObjectId>,
    /// Seconds, as the commit states them.
    pub time: i64,
    /// The first line of its message, cut.
    pub subject: Vec<u8>,
}

/// More parents than git itself takes.
const MOST_PARENTS: usize = 64;
const LONGEST_SUBJECT: usize = 200;

impl Commit {
    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let mut rest = content;
        let mut line = || {
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let line = &rest[..end];
            rest = &rest[end + 1..];
            Some(line)
        };
        let tree = ObjectId::parse(line()?.strip_prefix(b"tree ")?)?;
        let (mut parents, mut time) = (Vec::new(), 0);
        loop {
            let line = line()?;
            if line.is_empty() {
                break;
            }
            if let Some(parent) = line.strip_prefix(b"parent ") {
                parents.push(ObjectId::parse(parent)?);
                (parents.len() <= MOST_PARENTS).then_some(())?;
            } else if line.starts_with(b"committer ") {
                let mut parts = line.rsplit(|byte| *byte == b' ').skip(1);
                let seconds = parts.next().and_then(|part| std::str::from_utf8(part).ok());
                time = seconds.and_then(|text| text.parse().ok()).unwrap_or(0);
            }
        }
        let subject = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let subject = subject[..subject.len().min(LONGEST_SUBJECT)].to_vec();
        Some(Commit { tree, parents, time, subject })
    }
}

/// Returns the object that a tag points at.
pub(super) fn tagged(content: &[u8]) -> Option<ObjectId> {
    let line = content.split(|byte| *byte == b'\n').next()?;
    ObjectId::parse(line.strip_prefix(b"object ")?)
}

/// The type of a tree entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeMode {
    File,
    Tree,
    Symlink,
    /// Another repository.
    Gitlink,
}

/// An entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeEntry<'tree> {
    pub mode: TreeMode,
    /// The permissions as they are written.
    pub bits: u32,
    pub name: &'tree [u8],
    pub id: ObjectId,
}

/// The entries of a tree.
pub(crate) fn tree_entries(content: &[u8], hash: HashLength) -> Option<Vec<TreeEntry<'_>>> {
    let mut rest = content;
    let mut out = Vec::new();
    while !rest.is_empty() {
        let space = rest.iter().take(8).position(|byte| *byte == b' ')?;
        let bits = u32::from_str_radix(std::str::from_utf8(&rest[..space]).ok()?, 8).ok()?;
        rest = &rest[space + 1..];
        let end = rest.iter().take(4097).position(|byte| *byte == 0)?;
        let name = &rest[..end];
        let (id, further) = rest[end + 1..].split_at_checked(hash.bytes())?;
        rest = further;
        let mode = match bits & 0o170_000 {
            0o040_000 => TreeMode::Tree,
            0o120_000 => TreeMode::Symlink,
            0o160_000 => TreeMode::Gitlink,
            _ => TreeMode::File,
        };
        if name.is_empty() {
            return None;
        }
        out.push(TreeEntry { mode, bits, name, id: ObjectId::new(id)? });
    }
    Some(out)
}
