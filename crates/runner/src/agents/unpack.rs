//! Takes the program out of a package's archive. Nothing else of the archive is written, and nothing of it is run.

use flate2::read::GzDecoder;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, EntryType};

/// Bounds on an archive.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnpackLimits {
    /// The largest size of a file.
    pub file: u64,
    /// The largest size of everything together.
    pub total: u64,
    pub entries: usize,
}

impl UnpackLimits {
    /// Four times as much as an agent takes in 2026.
    pub const USUAL: Self = Self { file: 1 << 30, total: 2 << 30, entries: 10_000 };
}

/// The largest extended header, which holds no more than a few attributes.
const EXTENDED_MAX: u64 = 64 << 10;

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("the archive cannot be read")]
    Read(#[source] io::Error),
    #[error("the archive contains `{}`, which leads out of it", .0.display())]
    Outside(PathBuf),
    #[error("the archive contains `{path}`, which is {what}", path = .path.display())]
    Kind { path: PathBuf, what: &'static str },
    #[error("the archive contains `{}` twice", .0.display())]
    Twice(PathBuf),
    #[error("the archive contains `{path}` with {bytes} bytes, more than belljar accepts", path = .path.display())]
    Large { path: PathBuf, bytes: u64 },
    #[error("the archive is larger than {0} bytes when it is unpacked")]
    TotalTooLarge(u64),
    #[error("the archive has more than {0} entries")]
    Entries(usize),
    #[error("the archive does not contain `{0}`")]
    NoProgram(String),
    #[error("cannot write the program")]
    Write(#[source] io::Error),
}

/// Copies the file `program` of a compressed archive to `to`. The whole archive is examined, also behind that file.
pub(super) fn take_program(
    archive: impl Read,
    program: &str,
    to: &mut impl Write,
    limits: UnpackLimits,
) -> Result<u64, ArchiveError> {
    // One more byte than the limit is readable, so that an archive of the limit is told from a larger one.
    let mut plain = GzDecoder::new(archive).take(limits.total.saturating_add(1));
    let mut seen = BTreeSet::new();
    let mut found = None;
    let mut archive = Archive::new(&mut plain);
    // Raw: extended headers are entries, so that none of them is read whole or changes a name unseen.
    for entry in archive.entries().map_err(ArchiveError::Read)?.raw(true) {
        let mut entry = entry.map_err(ArchiveError::Read)?;
        let size = entry.size();
        let path = inside(&entry.path().map_err(ArchiveError::Read)?)?;
        let kind = entry.header().entry_type();
        if is_extended(kind) {
            extended(&path, size, &mut entry)?;
            continue;
        }
        let is_file = is_file(&path, kind)?;
        if size > limits.file {
            return Err(ArchiveError::Large { path, bytes: size });
        }
        if seen.len() == limits.entries {
            return Err(ArchiveError::Entries(limits.entries));
        }
        if is_file && path == Path::new(program) {
            found = Some(copied(&mut entry, to, size)?);
        }
        if !seen.insert(path.clone()) && is_file {
            return Err(ArchiveError::Twice(path));
        }
    }
    if plain.limit() == 0 {
        return Err(ArchiveError::TotalTooLarge(limits.total));
    }
    found.filter(|size| *size > 0).ok_or_else(|| ArchiveError::NoProgram(program.to_owned()))
}

fn copied(entry: &mut impl Read, to: &mut impl Write, size: u64) -> Result<u64, ArchiveError> {
    let mut buffer = vec![0; 64 << 10];
    let mut left = size;
    while left > 0 {
        let count = match entry.read(&mut buffer) {
            Ok(0) => return Err(ArchiveError::Read(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ArchiveError::Read(error)),
        };
        to.write_all(&buffer[..count]).map_err(ArchiveError::Write)?;
        left = left.saturating_sub(count as u64);
    }
    Ok(size)
}

/// The path of an entry in normal form.
fn inside(path: &Path) -> Result<PathBuf, ArchiveError> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => out.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(ArchiveError::Outside(path.to_owned()));
            }
        }
    }
    Ok(out)
}

fn is_extended(kind: EntryType) -> bool {
    kind.is_pax_local_extensions() || kind.is_pax_global_extensions()
}

/// An extended header with times and the like is skipped. One that changes a name or a size is refused: packages of
/// agents have none.
fn extended(path: &Path, size: u64, entry: &mut impl Read) -> Result<(), ArchiveError> {
    const CHANGES: [&[u8]; 3] = [b" path=", b" size=", b" linkpath="];
    if size > EXTENDED_MAX {
        return Err(ArchiveError::Large { path: path.to_owned(), bytes: size });
    }
    let mut text = Vec::new();
    entry.take(EXTENDED_MAX).read_to_end(&mut text).map_err(ArchiveError::Read)?;
    let changes = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    if CHANGES.into_iter().any(changes) {
        return Err(ArchiveError::Kind { path: path.to_owned(), what: "a header that renames another file" });
    }
    Ok(())
}

/// Whether an entry is a file; a directory is not, and anything else is refused.
fn is_file(path: &Path, kind: EntryType) -> Result<bool, ArchiveError> {
    if kind.is_file() || kind.is_dir() {
        return Ok(kind.is_file());
    }
    let kinds = [
        (kind.is_symlink(), "a symbolic link"),
        (kind.is_hard_link(), "a hard link"),
        (kind.is_character_special() || kind.is_block_special(), "a device"),
        (kind.is_fifo(), "a pipe"),
    ];
    let what = kinds
        .into_iter()
        .find(|(is_it, _)| *is_it)
        .map_or("neither a file nor a directory", |(_, what)| what);
    Err(ArchiveError::Kind { path: path.to_owned(), what })
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
