//! A system that was found, shown without what others have mounted on it.
//!
//! What a container's image holds is bound piece by piece: a directory as a whole where nothing else has its place below
//! it, otherwise as an empty one with its entries bound in turn. Volumes, secrets and files that an engine mounts on an
//! image are left out like the places of other parts, so that nothing is shown but the image. A piece is shown without
//! what is mounted below it; the kernel refuses to show one that something was mounted on after all.

use super::{CWD, PLAIN, PointKind, Root, RootError, Writing, close, refused};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where the kernel lists the mounts of this process.
const MOUNTS: &str = "/proc/self/mountinfo";

impl Root {
    /// Shows what the old root has at a directory, read-only, without the places that are taken by others and without
    /// anything that is mounted on it.
    ///
    /// # Errors
    /// Fails if a piece of it cannot be shown.
    pub fn found(&self, at: &Path, taken: &[&Path]) -> Result<(), RootError> {
        let listed = fs::read(MOUNTS).map_err(|error| cannot("read", Path::new(MOUNTS), &error))?;
        let mut left_out = mount_points(&listed);
        left_out.extend(taken.iter().map(|path| path.to_path_buf()));
        self.entries(at, &left_out)
    }

    fn entries(&self, at: &Path, left_out: &BTreeSet<PathBuf>) -> Result<(), RootError> {
        let entries = match fs::read_dir(at) {
            // A directory that may not be listed could not be used from inside either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            answer => answer.map_err(|error| cannot("list", at, &error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| cannot("list", at, &error))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|error| cannot("look at", &path, &error))?;
            if left_out.contains(&path) {
                continue;
            }
            let divided = has_below(left_out, &path);
            if kind.is_dir() && divided {
                self.directory(&path, 0o755)?;
                self.entries(&path, left_out)?;
            } else if kind.is_dir() {
                self.piece(&path, PointKind::Directory)?;
            } else if kind.is_file() {
                self.piece(&path, PointKind::File)?;
            } else if kind.is_symlink() && !divided {
                let to = fs::read_link(&path).map_err(|error| cannot("read the link", &path, &error))?;
                self.link(&path, &to)?;
            }
            // A link where others have a place below gives way to a directory. Sockets, pipes and devices lead nowhere.
        }
        Ok(())
    }

    fn piece(&self, path: &Path, kind: PointKind) -> Result<(), RootError> {
        let shown = alone(path).map_err(refused("show", path))?;
        close(&shown, path, Writing::Refused, PLAIN)?;
        self.cover(&shown, path, kind)
    }
}

/// A copy of what is there, of this mount alone.
fn alone(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(&opened, "", flags)
}

fn cannot(act: &'static str, path: &Path, error: &io::Error) -> RootError {
    refused(act, path)(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// Whether one of the paths lies below this one.
fn has_below(paths: &BTreeSet<PathBuf>, path: &Path) -> bool {
    // Sorted by component, what lies below a path follows it directly.
    let mut after = paths.range::<Path, _>((std::ops::Bound::Excluded(path), std::ops::Bound::Unbounded));
    after.next().is_some_and(|next| next.starts_with(path))
}

/// Where something is mounted, by the kernel's list; the root itself does not count.
fn mount_points(listed: &[u8]) -> BTreeSet<PathBuf> {
    let point = |line: &[u8]| {
        let name = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(unescaped(name))))
    };
    listed
        .split(|byte| *byte == b'\n')
        .filter_map(point)
        .filter(|path| path.as_os_str() != OsStr::from_bytes(b"/"))
        .collect()
}

/// The kernel writes spaces and the like as a backslash and three octal digits.
fn unescaped(mut name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    while let Some((first, rest)) = name.split_first() {
        let octal = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, octal) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                name = rest.get(3..).unwrap_or_default();
            }
            (byte, _) => {
                out.push(*byte);
                name = rest;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_something_is_mounted() {
        let listed = b"1 0 0:1 / / ro - overlay overlay rw\n\
            2 1 0:2 / /proc rw - proc proc rw\n\
            3 1 0:3 /a /etc/my\\040hosts ro - ext4 /dev/x rw\n\
            4 1 0:3 /a /back\\134slash ro - ext4 /dev/x rw\n\n";
        let found: Vec<PathBuf> = mount_points(listed).into_iter().collect();
        assert_eq!(found, ["/back\\slash", "/etc/my hosts", "/proc"].map(PathBuf::from));
    }

    #[test]
    fn below_means_by_whole_names() {
        let paths: BTreeSet<PathBuf> = ["/etc/hosts", "/run", "/home.d/x"].map(PathBuf::from).into();
        for (path, expected) in [
            ("/etc", true),
            ("/etc/hosts", false),
            ("/run", false),
            ("/home", false),
            ("/", true),
            ("/e", false),
        ] {
            assert_eq!(has_below(&paths, Path::new(path)), expected, "{path}");
        }
    }
}
