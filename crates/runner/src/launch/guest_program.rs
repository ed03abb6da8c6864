//! The guest: the program that finishes a sandbox from inside. It is embedded in belljar's own file and unpacked once.
//!
//! It is a file on disk rather than in memory: the kernel refuses to mount a file that no mount namespace contains, and
//! writing it for every run would cost a fraction of a millisecond.

use belljar_contract::AbsPath;
use belljar_sys::mounts::{self, Identity};
use std::fs::{DirBuilder, Metadata, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

/// Not even the owner may write.
const MODE: u32 = 0o555;

/// The program as it was built into belljar.
#[derive(Clone, Copy)]
pub struct GuestImage {
    pub bytes: &'static [u8],
    /// The digest of the bytes, which names the unpacked file.
    pub digest: &'static str,
}

impl std::fmt::Debug for GuestImage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "GuestImage({})", self.digest)
    }
}

/// The guest, and the path that it is unpacked to.
#[derive(Debug, Clone)]
pub struct GuestProgram {
    image: GuestImage,
    path: AbsPath,
}

/// The guest could not be unpacked.
#[derive(Debug, thiserror::Error)]
#[error("cannot unpack the guest to `{path}`")]
pub struct UnpackError {
    pub path: AbsPath,
    #[source]
    pub cause: std::io::Error,
}

impl GuestProgram {
    /// The path of this build below belljar's data directory. The file system is not accessed.
    #[must_use]
    pub fn new(data: &AbsPath, image: GuestImage) -> Self {
        Self { image, path: guests(data).child(image.digest) }
    }

    /// The same program below another directory, for commands that must leave no file behind.
    #[must_use]
    pub(crate) fn below(&self, data: &AbsPath) -> Self {
        Self::new(data, self.image)
    }

    /// The digest of its bytes.
    #[must_use]
    pub fn digest(&self) -> &'static str {
        self.image.digest
    }

    #[must_use]
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Makes sure that the file exists, and returns its identity, so that it cannot be replaced unnoticed afterwards.
    ///
    /// An existing file is accepted if it belongs to the user, has the right length and is not writable: a program that
    /// could forge it already acts as this user.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn unpack(&self) -> Result<Identity, UnpackError> {
        if !self.is_there() {
            self.write().map_err(|cause| UnpackError { path: self.path.clone(), cause })?;
        }
        mounts::identity(self.path.as_path())
            .map_err(|error| UnpackError { path: self.path.clone(), cause: std::io::Error::other(error) })
    }

    /// The identity of the file, if it was unpacked before. No file is written.
    pub(crate) fn found(&self) -> Option<Identity> {
        self.is_there().then(|| mounts::identity(self.path.as_path()).ok()).flatten()
    }

    fn is_there(&self) -> bool {
        self.path.as_path().symlink_metadata().is_ok_and(|found| self.is_whole(&found))
    }

    fn is_whole(&self, found: &Metadata) -> bool {
        found.is_file()
            && found.uid() == rustix::process::geteuid().as_raw()
            && found.permissions().mode() & 0o7777 == MODE
            && found.len() == self.image.bytes.len() as u64
    }

    /// Writes the file completely or not at all, even if the machine crashes: a partial file of the right length would
    /// be accepted later.
    fn write(&self) -> std::io::Result<()> {
        let directory = self.path.parent().unwrap_or_else(|| self.path.clone());
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let mut file =
            tempfile::Builder::new().permissions(Permissions::from_mode(MODE)).tempfile_in(&directory)?;
        file.write_all(self.image.bytes)?;
        // The user's umask may have removed bits.
        file.as_file().set_permissions(Permissions::from_mode(MODE))?;
        file.as_file().sync_all()?;
        let Err(refused) = file.persist_noclobber(&self.path) else { return Ok(()) };
        // Two first starts may race. The file of the winner may be about to be mounted by its path, so it is not
        // replaced.
        if self.is_there() {
            return Ok(());
        }
        refused.file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// The directory of guests, with one file for each build of belljar that was started.
pub(crate) fn guests(data: &AbsPath) -> AbsPath {
    data.child("guest")
}
