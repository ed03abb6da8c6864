//! Archives as engines take them: the same bytes every time.

const BLOCK: usize = 512;

/// A file or directory of an archive.
#[derive(Debug, Clone, Copy)]
pub(super) enum TarEntry<'a> {
    Directory(&'a str),
    File(&'a str, &'a [u8]),
}

pub(super) fn archive(entries: &[TarEntry<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        match entry {
            TarEntry::Directory(name) => out.extend(header(&format!("{name}/"), b"0000755\0", b'5', 0)),
            TarEntry::File(name, bytes) => {
                out.extend(header(name, b"0000644\0", b'0', bytes.len()));
                out.extend_from_slice(bytes);
                out.resize(out.len().next_multiple_of(BLOCK), 0);
            }
        }
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

/// A header as POSIX has it.
fn header(name: &str, mode: &[u8; 8], kind: u8, length: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, mode);
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{length:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// What `tar` makes of an archive.
    fn read(archive: &[u8], arguments: &[&str]) -> String {
        let mut tar =
            Command::new("tar").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        tar.stdin.take().unwrap().write_all(archive).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn others_read_what_is_written() {
        let long = "x".repeat(2 * BLOCK);
        for text in ["", "one line\n", long.as_str()] {
            let archive = archive(&[TarEntry::Directory("etc"), TarEntry::File("file", text.as_bytes())]);
            let listed = read(&archive, &["-tvf", "-"]);
            let lines: Vec<&str> = listed.lines().collect();
            assert!(lines[0].starts_with("drwxr-xr-x 0/0") && lines[0].ends_with(" etc/"), "{listed}");
            assert!(lines[1].starts_with("-rw-r--r-- 0/0") && lines[1].ends_with(" file"), "{listed}");
            assert_eq!((lines.len(), read(&archive, &["-xOf", "-", "file"]).as_str()), (2, text));
        }
    }
}
