//! Digests of files and directories. Whatever cannot be read is an error, so that it never equals anything.

use belljar_contract::{Digest, TapeTrees};
use belljar_sys::regular::open_regular;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// More entries than a skill, a plugin or an input of a test has.
const MOST: usize = 200_000;
/// More bytes than they have together.
const MOST_BYTES: u64 = 8 << 30;

/// The digest of a directory: names, contents, and executable bits. With `only`, other files are left out, and so are
/// directories without a file, which nothing shares then.
///
/// # Errors
/// If a part of it cannot be read, or it is too large.
pub(crate) fn tree(
    (root, only): (&Path, Option<&BTreeSet<String>>),
    covered: TapeTrees,
) -> io::Result<Digest> {
    let mut walk = Walk { only, covered, lines: Vec::new(), left: MOST_BYTES };
    walk.directory(root, &[])?;
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
    covered: TapeTrees,
    lines: Vec<String>,
    /// The bytes that may still be read.
    left: u64,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Path, below: &[u8]) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().into_vec();
            let name = if below.is_empty() { name } else { [below, b"/", &name].concat() };
            let found = entry.metadata()?;
            if found.is_dir() {
                let before = self.lines.len();
                self.directory(&entry.path(), &name)?;
                if self.lines.len() == before {
                    self.without_files(&name)?;
                }
            } else if self.only.is_none_or(|only| only.contains(&*String::from_utf8_lossy(&name))) {
                self.file(&entry.path(), &name, &found)?;
            }
        }
        Ok(())
    }

    /// A directory that no line mentions yet.
    fn without_files(&mut self, name: &[u8]) -> io::Result<()> {
        match (self.covered, self.only) {
            (TapeTrees::Directories, None) => {
                self.bounded()?;
                self.lines.push(format!("directory {}\n", self.shown(name)));
                Ok(())
            }
            (TapeTrees::Files, _) | (TapeTrees::Directories, Some(_)) => Ok(()),
        }
    }

    /// A name or a target in a line. Without ambiguity, it has neither a space nor the end of a line.
    fn shown(&self, name: &[u8]) -> String {
        match self.covered {
            TapeTrees::Files => String::from_utf8_lossy(name).into_owned(),
            TapeTrees::Directories => name.escape_ascii().to_string().replace(' ', "\\x20"),
        }
    }

    fn bounded(&self) -> io::Result<()> {
        match self.lines.len() >= MOST {
            true => Err(io::Error::other(format!("there are more than {MOST} files"))),
            false => Ok(()),
        }
    }

    fn file(&mut self, path: &Path, name: &[u8], found: &Metadata) -> io::Result<()> {
        self.bounded()?;
        let name = self.shown(name);
        if found.is_symlink() {
            let target = fs::read_link(path)?.into_os_string().into_vec();
            self.lines.push(format!("link {name} {}\n", self.shown(&target)));
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

    fn of(root: &Path) -> io::Result<Digest> {
        tree((root, None), TapeTrees::Directories)
    }

    #[test]
    fn what_cannot_be_read_has_no_digest() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "a").unwrap();
        let before = of(directory.path()).unwrap();
        assert_eq!(of(directory.path()).unwrap(), before);
        fs::write(directory.path().join("a"), "b").unwrap();
        assert_ne!(of(directory.path()).unwrap(), before);
        of(&directory.path().join("absent")).unwrap_err();
        of(&directory.path().join("a")).unwrap_err();
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

    #[test]
    fn a_directory_without_files_counts_unless_a_tape_is_older() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("kept/below")).unwrap();
        fs::write(root.join("kept/file"), "a").unwrap();
        let only = BTreeSet::from(["kept/file".to_owned()]);
        let shared = || tree((root, Some(&only)), TapeTrees::Directories).unwrap();
        let (before, older, listed) =
            (of(root).unwrap(), tree((root, None), TapeTrees::Files).unwrap(), shared());
        fs::remove_dir(root.join("kept/below")).unwrap();
        assert_eq!(of(root).unwrap(), listed, "git shares no such directory");
        for name in ["kept/other", "kept/below/deeper", "new"] {
            fs::create_dir_all(root.join(name)).unwrap();
            assert_ne!(of(root).unwrap(), before, "{name}");
            assert_eq!(tree((root, None), TapeTrees::Files).unwrap(), older, "{name}");
            assert_eq!(shared(), listed, "{name}");
            fs::remove_dir_all(root.join("kept/below")).ok();
            fs::remove_dir(root.join(name)).ok();
        }
    }

    #[test]
    fn a_name_cannot_look_like_another_line() {
        let directory = tempfile::tempdir().unwrap();
        let link = |name: &str, target: &str| {
            let path = directory.path().join(name);
            std::os::unix::fs::symlink(target, &path).unwrap();
            let found = of(directory.path()).unwrap();
            fs::remove_file(path).unwrap();
            found
        };
        assert_ne!(link("a b", "c"), link("a", "b c"));
        assert_ne!(link("a\\x20b", "c"), link("a b", "c"));
    }
}
