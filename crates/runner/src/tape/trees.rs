//! Digests of files and directories. Whatever cannot be read is an error, so that it never equals anything.

use belljar_contract::Digest;
use belljar_sys::regular::open_regular;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// More entries than a skill, a plugin or an input of a test has.
const MOST: usize = 200_000;
/// More bytes than they have together.
const MOST_BYTES: u64 = 8 << 30;

/// The digest of a directory: names, contents, and executable bits. With `only`, other files are left out.
///
/// # Errors
/// If a part of it cannot be read, or it is too large.
pub(crate) fn tree(root: &Path, only: Option<&BTreeSet<String>>) -> io::Result<Digest> {
    let mut walk = Walk { only, lines: Vec::new(), left: MOST_BYTES };
    walk.directory(root, "")?;
    walk.lines.sort();
    Ok(Digest::of(walk.lines.concat().as_bytes()))
}

/// The digest of a file like that of a directory. The file is already open, so its name does not count.
///
/// # Errors
/// If it cannot be read, or is too large.
pub(crate) fn lone_file(path: &Path) -> io::Result<Digest> {
    let mut file = open_regular(path)?;
    let found = file.metadata()?;
    let digest = Digest::of_reader(&mut bounded(&mut file, &found, MOST_BYTES)?)?;
    Ok(Digest::of(format!("{} {digest}\n", mode(&found)).as_bytes()))
}

/// The digest of a file's content.
pub(super) fn content(path: &Path) -> io::Result<Digest> {
    Digest::of_reader(&mut open_regular(path)?)
}

struct Walk<'a> {
    only: Option<&'a BTreeSet<String>>,
    lines: Vec<String>,
    /// The bytes that may still be read.
    left: u64,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Path, below: &str) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = if below.is_empty() { name } else { format!("{below}/{name}") };
            let found = entry.metadata()?;
            if found.is_dir() {
                self.directory(&entry.path(), &name)?;
            } else if self.only.is_none_or(|only| only.contains(&name)) {
                self.file(&entry.path(), &name, &found)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: &str, found: &Metadata) -> io::Result<()> {
        if self.lines.len() >= MOST {
            return Err(io::Error::other(format!("there are more than {MOST} files")));
        }
        if found.is_symlink() {
            let target = fs::read_link(path)?;
            self.lines.push(format!("link {name} {}\n", target.display()));
        } else if found.is_file() {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
            let digest = Digest::of_reader(&mut bounded(&mut file, found, self.left)?)?;
            self.left = self.left.saturating_sub(found.len());
            self.lines.push(format!("{} {name} {digest}\n", mode(found)));
        }
        Ok(())
    }
}

/// A file that grows while it is read is not read on.
fn bounded<'a>(file: &'a mut File, found: &Metadata, most: u64) -> io::Result<io::Take<&'a mut File>> {
    match found.len() > most {
        true => Err(io::Error::other(format!("there are more than {MOST_BYTES} bytes"))),
        false => Ok(file.take(found.len())),
    }
}

fn mode(found: &Metadata) -> &'static str {
    if found.permissions().mode() & 0o111 != 0 { "run" } else { "file" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType};

    #[test]
    fn what_cannot_be_read_has_no_digest() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "a").unwrap();
        let before = tree(directory.path(), None).unwrap();
        assert_eq!(tree(directory.path(), None).unwrap(), before);
        fs::write(directory.path().join("a"), "b").unwrap();
        assert_ne!(tree(directory.path(), None).unwrap(), before);
        tree(&directory.path().join("absent"), None).unwrap_err();
        tree(&directory.path().join("a"), None).unwrap_err();
        lone_file(directory.path()).unwrap_err();
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        lone_file(&pipe).unwrap_err();
        content(&pipe).unwrap_err();
    }
}
