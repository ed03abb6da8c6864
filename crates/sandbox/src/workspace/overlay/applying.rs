//! The note that an apply leaves beside the layers for as long as it lasts: where it writes, so that the traces of one that
//! was interrupted are found without looking through the project.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use belljar_sys::Errno;
use belljar_sys::birth::Birth;

use super::{LayersError, Overlay};
use crate::workspace::tree::Tree;
use crate::workspace::unfinished::{Recovered, Recovery, recover};

/// The form of the file, and its version.
const HEAD: &[u8] = b"belljar applying 1";

/// The content of the note.
struct Note {
    maker: Birth,
    lower: PathBuf,
    directories: BTreeSet<PathBuf>,
}

impl Note {
    fn parse(bytes: &[u8]) -> Option<Self> {
        // An incomplete note was written by an apply that had not begun to change the project.
        let text = bytes.strip_suffix(b"\0\0")?;
        let mut parts = text.split(|byte| *byte == 0);
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        (parts.next()? == HEAD).then_some(())?;
        let maker = Birth::parse(std::str::from_utf8(parts.next()?).ok()?)?;
        let lower = path(parts.next()?);
        // The top is written as a point: an empty part would end the note.
        let directories = parts.map(|part| if part == b"." { PathBuf::new() } else { path(part) }).collect();
        Some(Self { maker, lower, directories })
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { maker, lower, directories } = self;
        let maker = maker.to_string();
        let below = directories.iter().map(|path| path.as_os_str().as_bytes());
        let below = below.map(|bytes| if bytes.is_empty() { b"." } else { bytes });
        let parts = [HEAD, maker.as_bytes(), lower.as_os_str().as_bytes()].into_iter().chain(below);
        let mut out = parts.collect::<Vec<_>>().join(&0);
        out.extend(b"\0\0");
        out
    }
}

impl Overlay {
    /// Whether an apply of it was interrupted.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        fs::read(self.note()).is_ok_and(|bytes| Note::parse(&bytes).is_some())
    }

    fn note(&self) -> PathBuf {
        self.directory.join("applying")
    }

    /// The note; `None` where there is none, or where its apply had not begun.
    fn read_note(&self) -> Result<Option<Note>, LayersError> {
        let failed = |cause| LayersError::Applying { path: self.note(), cause };
        let bytes = match fs::read(self.note()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            answer => answer.map_err(failed)?,
        };
        let is_ours = bytes.starts_with(HEAD) || HEAD.starts_with(&bytes);
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "written by another version");
        if is_ours { Ok(Note::parse(&bytes)) } else { Err(failed(strange())) }
    }

    /// Removes what an interrupted apply left in the project, or only looks for it. The caller holds the lock.
    ///
    /// # Errors
    /// When the project cannot be opened.
    pub fn recover(&self, mode: Recovery) -> Result<Recovered, LayersError> {
        let mut out = Recovered::default();
        let Some(note) = self.read_note()? else {
            if mode == Recovery::Remove {
                fs::remove_file(self.note()).ok();
            }
            return Ok(out);
        };
        let failed = |cause| LayersError::Open { path: self.lower.clone(), cause };
        let lower = Tree::open(&self.lower).map_err(failed)?;
        for path in &note.directories {
            match lower.root().directory(path) {
                Ok(directory) => recover(&directory, path, &note.maker, mode, &mut out).map_err(failed)?,
                // It is gone or a link now, and what was in it with it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
                Err(cause) => return Err(failed(cause)),
            }
        }
        if mode == Recovery::Remove && out.kept.is_empty() {
            fs::remove_file(self.note()).ok();
        }
        Ok(out)
    }

    /// Notes where an apply is going to write. Directories in which an earlier apply left files that must not be removed
    /// stay noted.
    pub(super) fn begin_apply(&self, directories: BTreeSet<PathBuf>) -> Result<(), LayersError> {
        let failed = |cause| LayersError::Applying { path: self.note(), cause };
        let earlier = self.read_note()?.map(|note| note.directories).unwrap_or_default();
        let note = Note {
            maker: Birth::own().map_err(failed)?,
            lower: self.lower.clone(),
            directories: directories.into_iter().chain(earlier).collect(),
        };
        super::replace(&self.note(), &note.bytes()).map_err(failed)
    }

    /// Takes the note away: nothing is left under an unfinished name.
    pub(super) fn end_apply(&self) -> Result<(), LayersError> {
        match fs::remove_file(self.note()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LayersError::Applying { path: self.note(), cause: error })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_whole_or_not_at_all() {
        let maker = Birth::own().unwrap();
        let directories = BTreeSet::from([PathBuf::new(), PathBuf::from("a/b\n c"), PathBuf::from("ü")]);
        let note = Note { maker, lower: PathBuf::from("/project"), directories };
        let bytes = note.bytes();
        let read = Note::parse(&bytes).unwrap();
        assert_eq!((read.maker, &read.lower, &read.directories), (maker, &note.lower, &note.directories));
        for end in 0..bytes.len() {
            assert!(Note::parse(&bytes[..end]).is_none(), "{end}");
        }
    }

    /// It is not known then which files are traces, and one of them may be the user's.
    #[test]
    fn a_note_of_another_version_stops_a_recovery() {
        let place = tempfile::tempdir().unwrap();
        let overlay = Overlay::new(place.path(), place.path());
        for strange in ["belljar applying 2\0x\0\0", "something else"] {
            fs::write(overlay.note(), strange).unwrap();
            assert!(matches!(overlay.recover(Recovery::Remove), Err(LayersError::Applying { .. })));
            assert!(overlay.begin_apply(BTreeSet::new()).is_err());
            assert_eq!(fs::read_to_string(overlay.note()).unwrap(), strange);
        }
        // One that was cut off is of an apply that had not begun.
        fs::write(overlay.note(), &HEAD[..5]).unwrap();
        assert_eq!(overlay.recover(Recovery::Remove).unwrap(), Recovered::default());
        assert!(!overlay.note().exists());
    }
}
