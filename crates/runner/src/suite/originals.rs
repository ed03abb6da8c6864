//! Files that are copied onto a stage. Each is resolved once, so that a link that changes afterwards has no effect.

use super::scope::of_descriptor;
use super::stage::StageError;
use belljar_contract::AbsPath;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// Decides whether a real path may be copied.
pub type Permitted<'a> = &'a dyn Fn(&AbsPath) -> bool;

/// A file or directory that was found and is not opened for reading yet.
#[derive(Debug)]
pub(super) struct Original {
    /// The expected kind, such as `the upload`.
    pub(super) what: &'static str,
    /// The path as the files name it.
    pub(super) path: AbsPath,
    pub(super) real: AbsPath,
    found: File,
}

impl Original {
    /// Resolves a path, if the result is permitted.
    ///
    /// # Errors
    /// If it does not exist, or is not permitted.
    pub(super) fn open(
        what: &'static str,
        (path, permitted): (&AbsPath, Permitted<'_>),
    ) -> Result<Self, StageError> {
        let wrong = |why| StageError::Source { what, path: path.clone(), why };
        let failed = |cause| StageError::Make { path: path.clone(), cause };
        let found = rustix::fs::open(path.as_path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let found = File::from(found.map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => wrong("does not exist"),
            other => failed(other.into()),
        })?);
        let real = fs::read_link(of_descriptor(&found))
            .and_then(|real| AbsPath::new(real).map_err(io::Error::other));
        let real = real.map_err(failed)?;
        if !permitted(&real) {
            return Err(wrong("leads elsewhere than when you agreed"));
        }
        Ok(Self { what, path: path.clone(), real, found })
    }

    pub(super) fn metadata(&self) -> io::Result<fs::Metadata> {
        self.found.metadata()
    }

    /// A path to exactly the file that was found.
    pub(super) fn place(&self) -> PathBuf {
        of_descriptor(&self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::DirectoryAccess;
    use super::super::stage::Stage;
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_was_found_is_copied_wherever_the_link_leads_by_then() {
        let directory = tempfile::tempdir().unwrap();
        let top = AbsPath::new(directory.path().canonicalize().unwrap()).unwrap();
        for name in ["agreed", "key"] {
            fs::create_dir_all(top.child(name)).unwrap();
            fs::write(top.child(name).child("file"), name).unwrap();
        }
        let link = top.child("link");
        symlink("agreed", &link).unwrap();
        let permitted: Permitted<'_> = &|real| real.is_within(&top.child("agreed"));
        let mut stage = Stage::new(&top.child("state"), &crate::store::names::fresh_run_id()).unwrap();
        stage.upload((&link, permitted)).unwrap();
        let found = Original::open("the directory", (&link, permitted)).unwrap();
        fs::remove_file(&link).unwrap();
        symlink("key", &link).unwrap();
        assert_eq!(fs::read_to_string(found.place().join("file")).unwrap(), "agreed");
        let directory = stage.add_directory((&link, permitted), DirectoryAccess::ReadWrite).unwrap_err();
        let upload = stage.upload((&top.child("key/file"), permitted)).unwrap_err();
        for refused in [directory, upload] {
            assert!(refused.to_string().contains("leads elsewhere"), "{refused}");
        }
        assert!(!stage.workspace().child("link").as_path().exists());
    }
}
