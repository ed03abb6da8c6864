//! Copies a file without writing its holes.

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

/// The unit of `st_blocks`, whatever the file system counts in.
const BLOCK: u64 = 512;
/// A file system that cannot name its holes may keep this much more than it has blocks for: names, small files in inodes.
const SLACK: u64 = 1 << 20;

/// Copies the content of an empty file. The length is the source's, and only data is written.
///
/// # Errors
/// Fails if a file cannot be read or written; with `EFBIG` for a file that is mostly holes on a file system that cannot
/// name them: written in full it could fill the disk.
pub(crate) fn copy(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut at = 0;
    while at < length {
        let start = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Behind the last data there is a hole up to the end.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) if at == 0 => return plain(from, to, length),
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(start))?;
        part(from, to, start, end.min(length))?;
        at = end;
    }
    Ok(())
}

fn plain(from: &File, to: &File, length: u64) -> io::Result<()> {
    if length > from.metadata()?.blocks().saturating_mul(BLOCK).saturating_add(SLACK) {
        return Err(Errno::FBIG.into());
    }
    part(from, to, 0, length)
}

/// Copies the bytes from `start` up to `end`.
fn part(mut from: &File, mut to: &File, start: u64, end: u64) -> io::Result<()> {
    rustix::fs::seek(from, SeekFrom::Start(start))?;
    rustix::fs::seek(to, SeekFrom::Start(start))?;
    io::copy(&mut from.by_ref().take(end.saturating_sub(start)), &mut to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_stay_holes_and_data_stays_where_it_is() {
        let mut from = tempfile::tempfile().unwrap();
        from.write_all(b"head").unwrap();
        from.write_all_at(b"middle", 5 << 30).unwrap();
        from.set_len(1 << 40).unwrap();
        from.rewind().unwrap();
        let to = tempfile::tempfile().unwrap();
        copy(&from, &to).unwrap();
        let metadata = to.metadata().unwrap();
        assert_eq!(metadata.len(), 1 << 40);
        assert!(metadata.blocks() * BLOCK < 1 << 20, "{} blocks", metadata.blocks());
        let mut found = [0; 6];
        to.read_exact_at(&mut found, 5 << 30).unwrap();
        assert_eq!(&found, b"middle");
        to.read_exact_at(&mut found[..4], 0).unwrap();
        assert_eq!(&found[..4], b"head");
    }

    #[test]
    fn an_empty_file_and_one_without_holes() {
        for content in [&b""[..], b"x", &[7; 300_000]] {
            let mut from = tempfile::tempfile().unwrap();
            from.write_all(content).unwrap();
            let mut to = tempfile::tempfile().unwrap();
            copy(&from, &to).unwrap();
            let mut found = Vec::new();
            to.rewind().unwrap();
            to.read_to_end(&mut found).unwrap();
            assert_eq!(found, content);
        }
    }
}
