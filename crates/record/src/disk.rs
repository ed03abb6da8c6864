//! Atomic file writes, the size of a tree, and its removal.

use belljar_contract::AbsPath;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The maximum number of counted entries, so that a listing ends in time whatever an agent left behind.
const COUNTED_MAX: usize = 200_000;

/// The disk usage of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub bytes: u64,
    /// Whether everything was counted. Some directories may be unreadable, or there may be too many entries.
    pub whole: bool,
}

/// The disk usage of the tree below `directory`. Symbolic links are not followed, other file systems are not entered.
#[must_use]
pub fn measure(directory: &Path) -> Size {
    let mut size = Size { bytes: 0, whole: true };
    let Ok(top) = fs::symlink_metadata(directory) else { return Size { whole: false, ..size } };
    let mut left = COUNTED_MAX;
    let mut open = vec![directory.to_path_buf()];
    while let Some(path) = open.pop() {
        let Ok(entries) = fs::read_dir(&path) else {
            size.whole = false;
            continue;
        };
        for entry in entries {
            let Some(found) = entry.ok().and_then(|entry| Some((entry.path(), entry.metadata().ok()?)))
            else {
                size.whole = false;
                continue;
            };
            let (path, metadata) = found;
            if left == 0 {
                return Size { whole: false, ..size };
            }
            left -= 1;
            size.bytes = size.bytes.saturating_add(metadata.blocks().saturating_mul(512));
            if metadata.is_dir() && metadata.dev() == top.dev() {
                open.push(path);
            }
        }
    }
    size
}

/// Removes a tree; symbolic links are removed, not followed.
///
/// The tree may be an agent's. Directories without permissions are opened first. Directories that are nested deeper
/// than a path, the descriptors or the stack allow are moved to the top first.
///
/// # Errors
/// When something of it remains.
pub fn remove_tree(directory: &Path) -> io::Result<()> {
    flatten(directory)?;
    fs::remove_dir_all(directory)
}

/// A directory whose path below the top has more bytes than this is moved to the top; that is at most half as many
/// levels.
const DEEPEST: usize = 512;

fn flatten(top: &Path) -> io::Result<()> {
    let length = |path: &Path| path.as_os_str().len();
    let mut brought = (0_u64..).map(|number| top.join(format!(".deep-{number}")));
    let mut bring_up = |path: &Path| loop {
        let Some(to) = brought.next() else { return Err(io::Error::other("too many directories")) };
        match fs::rename(path, &to) {
            Ok(()) => return Ok(to),
            // The tree already has an entry of this name.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(error),
        }
    };
    let mut open = vec![top.to_path_buf()];
    while let Some(path) = open.pop() {
        let mode = fs::symlink_metadata(&path)?.permissions().mode();
        if mode & 0o700 != 0o700 {
            fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        }
        let path = if length(&path) > length(top) + DEEPEST { bring_up(&path)? } else { path };
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Replaces a file atomically: a reader, now or after a crash, finds the old content or the new. Only the user can
/// read it. There must be one writer at a time.
///
/// # Errors
/// When it cannot be written; the old content remains.
pub fn write_atomically(path: &AbsPath, content: &[u8]) -> io::Result<()> {
    replace(path, &[content], File::sync_all)?;
    // The directory entry must survive a power failure, too.
    match path.as_path().parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// The same without a sync, for a file that is verified by a digest elsewhere: after a power failure its content may
/// be missing.
///
/// # Errors
/// When it cannot be written; the old content remains.
pub(crate) fn write_whole(path: &AbsPath, parts: &[&[u8]]) -> io::Result<()> {
    replace(path, parts, |_file| Ok(()))
}

fn replace(path: &AbsPath, parts: &[&[u8]], sync: fn(&File) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.as_path().as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        sync(&file)?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| {
        // The file may not exist.
        fs::remove_file(&new).ok();
    })
}

/// Creates a directory and its parents, accessible to the user only.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The bytes of a regular file, at most one more than `limit`; `None` if it does not exist.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let Some((file, length)) = open_regular(path)? else { return Ok(None) };
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(limit)).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Opens a regular file, links not followed, and gives its length. The open file is looked at: a pipe in its place would
/// keep a reader waiting for ever.
pub(crate) fn open_regular(path: &Path) -> io::Result<Option<(File, u64)>> {
    let special = || io::Error::other("it is not a regular file");
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => return Ok(None),
            // A symbolic link, or a socket.
            Some(Errno::LOOP | Errno::NXIO) => return Err(special()),
            _ => return Err(error),
        },
    };
    let found = file.metadata()?;
    if found.is_file() { Ok(Some((file, found.len()))) } else { Err(special()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode};

    #[test]
    fn links_are_neither_counted_through_nor_removed_through() {
        let base = tempfile::tempdir().unwrap();
        let (tree, other) = (base.path().join("tree"), base.path().join("other"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(&other, tree.join("a/link")).unwrap();
        fs::write(tree.join("a/b/file"), vec![1; 8192]).unwrap();
        let size = measure(&tree);
        assert!(size.whole && size.bytes >= 8192 && size.bytes < 1 << 20, "{size:?}");
        fs::set_permissions(tree.join("a"), Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && other.join("kept").exists());
    }

    #[test]
    fn a_tree_too_deep_for_any_path_is_removed() {
        let base = tempfile::tempdir().unwrap();
        let (tree, next) = (base.path().join("tree"), base.path().join("next"));
        fs::create_dir_all(tree.join(".deep-0/in the way")).unwrap();
        fs::write(tree.join(".deep-1"), "in the way").unwrap();
        for long in ["a/".repeat(700), format!("{}/", "n".repeat(255)).repeat(12)].iter().cycle().take(3) {
            fs::create_dir_all(next.join(long)).unwrap();
            fs::write(next.join("file"), "").unwrap();
            fs::rename(&tree, next.join(long).join("tree")).unwrap();
            fs::rename(&next, &tree).unwrap();
        }
        assert!(!measure(&tree).whole, "deeper than a path allows");
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn only_a_regular_file_is_opened() {
        let base = tempfile::tempdir().unwrap();
        let [file, link, pipe, socket] =
            ["file", "link", "pipe", "socket"].map(|name| base.path().join(name));
        fs::write(&file, "12345").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(read_bounded(&file, 3).unwrap().unwrap(), b"1234");
        assert!(read_bounded(&base.path().join("absent"), 3).unwrap().is_none());
        for path in [link.as_path(), &pipe, &socket, base.path()] {
            let error = open_regular(path).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{}", path.display());
        }
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let base = tempfile::tempdir().unwrap();
        let path = AbsPath::new(base.path().join("file")).unwrap();
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1);
        assert!(write_atomically(&path.child("below"), b"x").is_err());
    }
}
