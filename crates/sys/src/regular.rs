//! Reads regular files with a largest size. The open file is checked, so a path that is replaced between a check and
//! the opening makes belljar neither wait for a pipe nor read a device.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const ENXIO: i32 = 6;

/// Opens a regular file for reading, links followed, without waiting.
///
/// # Errors
/// When it cannot be opened, or is something else.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let special = || io::Error::other("it is not a regular file");
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Err(error) if error.raw_os_error() == Some(ENXIO) => return Err(special()),
        opened => opened?,
    };
    let kind = file.metadata()?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(file),
        (_, true) => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory")),
        _ => Err(special()),
    }
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// When it cannot be opened or read, is not a regular file, or is larger ([`io::ErrorKind::FileTooLarge`]).
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large(limit)) } else { Ok(bytes) }
}

/// The error of a file that is larger than a limit.
#[must_use]
pub fn too_large(limit: u64) -> io::Error {
    let size = match limit >> 20 {
        0 => format!("{limit} bytes"),
        mebibytes => format!("{mebibytes} MiB"),
    };
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {size}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::net::UnixListener;

    #[test]
    fn reads_a_regular_file_up_to_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        assert_eq!(read_regular(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read_regular(&link, 5).unwrap(), b"12345");
    }

    #[test]
    fn does_not_wait_for_a_pipe_and_reads_no_device() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, socket) = (directory.path().join("pipe"), directory.path().join("socket"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _held = UnixListener::bind(&socket).unwrap();
        for path in [pipe.as_path(), &socket, Path::new("/dev/zero")] {
            let error = read_regular(path, 10).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{}", path.display());
        }
        let error = read_regular(directory.path(), 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
