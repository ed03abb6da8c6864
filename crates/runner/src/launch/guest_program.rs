//! The program that finishes a sandbox from inside. It travels in belljar's own file and is unpacked once.
//!
//! A file on disk rather than one in memory: the kernel refuses to mount what no namespace shows, and copying it
//! anew would cost every start a fraction of a millisecond.

use belljar_contract::AbsPath;
use belljar_sys::mounts::{self, Identity};
use std::fs::{DirBuilder, Metadata, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

/// Nobody writes to it, not even its owner.
const MODE: u32 = 0o555;

/// The program as it was built.
#[derive(Clone, Copy)]
pub struct GuestImage {
    /// Its bytes.
    pub bytes: &'static [u8],
    /// Their digest, which names the file.
    pub digest: &'static str,
}

impl std::fmt::Debug for GuestImage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "GuestImage({})", self.digest)
    }
}

/// The program and where it lies once it is unpacked.
#[derive(Debug, Clone)]
pub struct GuestProgram {
    image: GuestImage,
    path: AbsPath,
}

/// Why the program is not there.
#[derive(Debug, thiserror::Error)]
#[error("cannot unpack the guest to `{path}`")]
pub struct UnpackError {
    /// Where it belongs.
    pub path: AbsPath,
    /// Why.
    #[source]
    pub cause: std::io::Error,
}

impl GuestProgram {
    /// The place of this very build of the program below belljar's data. Nothing is looked at.
    #[must_use]
    pub fn new(data: &AbsPath, image: GuestImage) -> Self {
        Self { image, path: folder(data).child(image.digest) }
    }

    /// The same program in another place, for who must leave nothing behind.
    #[must_use]
    pub(crate) fn below(&self, data: &AbsPath) -> Self {
        Self::new(data, self.image)
    }

    /// The digest of its bytes.
    #[must_use]
    pub fn digest(&self) -> &'static str {
        self.image.digest
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        &self.path
    }

    /// Makes sure that it is there, and says which file it is, so that no other can be put in its place afterwards.
    ///
    /// A file of that name that is the user's own, whole and writable for nobody is taken as it is: whoever could
    /// forge one acts as this user already.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn unpack(&self) -> Result<Identity, UnpackError> {
        if !self.is_there() {
            self.write().map_err(|cause| UnpackError { path: self.path.clone(), cause })?;
        }
        mounts::identity(self.path.as_path())
            .map_err(|error| UnpackError { path: self.path.clone(), cause: std::io::Error::other(error) })
    }

    /// Which file it is, where it has been unpacked before. Nothing is written.
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

    /// Whole or not at all, also when the machine goes down: a torn file of the right length would be believed.
    fn write(&self) -> std::io::Result<()> {
        let folder = self.path.parent().unwrap_or_else(|| self.path.clone());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut file =
            tempfile::Builder::new().permissions(Permissions::from_mode(MODE)).tempfile_in(&folder)?;
        file.write_all(self.image.bytes)?;
        // The user's mask may have taken something away.
        file.as_file().set_permissions(Permissions::from_mode(MODE))?;
        file.as_file().sync_all()?;
        let Err(refused) = file.persist_noclobber(&self.path) else { return Ok(()) };
        // Of two first starts one is first. Its file may be about to be mounted, by its name, and is left alone.
        if self.is_there() {
            return Ok(());
        }
        refused.file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Where guests lie, one for each build of belljar that has started something.
pub(crate) fn folder(data: &AbsPath) -> AbsPath {
    data.child("guest")
}
