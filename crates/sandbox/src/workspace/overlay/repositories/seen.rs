//! A git directory of the layers: as the agent saw it, and as the project has it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::InodeKind;

use crate::workspace::git::{GitFiles, Packed, list_in, read_in};
use crate::workspace::overlay::layers::{Layers, is_opaque, is_whiteout};

/// As the agent saw it.
pub(in crate::workspace::overlay) struct InSandbox<'layers> {
    pub layers: &'layers Layers,
    pub shared: &'layers Path,
}

impl GitFiles for InSandbox<'_> {
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Errno> {
        let at = self.shared.join(path);
        let text = self.layers.read(&at, limit)?;
        let of_project = || self.layers.upper.status(&at).is_ok_and(|found| found.is_none());
        match text {
            Some(text) if path == Path::new("packed-refs") && of_project() => {
                Ok(Some(self.without_deleted(text)))
            }
            text => Ok(text),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<(PathBuf, InodeKind)>, Errno> {
        let (layers, at) = (self.layers, self.shared.join(path));
        let hides = match layers.upper.status(&at)? {
            Some(status) if status.kind == InodeKind::Directory => {
                is_opaque(&layers.upper.root().passage(&at)?)? || layers.is_hidden(&at)
            }
            Some(status) if is_whiteout(&status) => return Ok(Vec::new()),
            Some(_) => return Err(Errno::NOTDIR),
            None => {
                layers.no_link_above(&at)?;
                !layers.shows(&at)
            }
        };
        let upper = list_in(layers.upper.root(), &at)?;
        let lower = match list_in(layers.lower.root(), &at) {
            _ if hides => Vec::new(),
            // The agent made a directory where the project has something else.
            Err(Errno::NOTDIR | Errno::LOOP) if !upper.is_empty() => Vec::new(),
            answer => answer?,
        };
        let mut out = Vec::new();
        for (full, kind) in upper {
            // A whiteout is a device, and devices are not refs.
            if kind != InodeKind::CharacterDevice {
                out.push((full, kind));
            }
        }
        for (full, kind) in lower {
            if layers.upper.status(&full)?.is_none() {
                out.push((full, kind));
            }
        }
        Ok(out.into_iter().map(|(full, kind)| (below(self.shared, full), kind)).collect())
    }
}

impl InSandbox<'_> {
    /// The project's packed refs without those that the agent deleted: packing them in the project later does not bring them
    /// back.
    fn without_deleted(&self, text: Vec<u8>) -> Vec<u8> {
        let Some(mut packed) = Packed::parse(&text) else { return text };
        let upper = &self.layers.upper;
        packed.retain(|name| {
            let at = self.shared.join(OsStr::from_bytes(name));
            !matches!(upper.status(&at), Ok(Some(status)) if is_whiteout(&status))
        });
        packed.bytes()
    }
}

/// As the project has it; where it has none, nothing is there.
pub(in crate::workspace::overlay) struct InProject<'layers> {
    pub layers: &'layers Layers,
    pub shared: &'layers Path,
}

impl GitFiles for InProject<'_> {
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Errno> {
        read_in(self.layers.lower.root(), &self.shared.join(path), limit)
    }

    fn list(&self, path: &Path) -> Result<Vec<(PathBuf, InodeKind)>, Errno> {
        let found = list_in(self.layers.lower.root(), &self.shared.join(path))?;
        Ok(found.into_iter().map(|(full, kind)| (below(self.shared, full), kind)).collect())
    }
}

fn below(shared: &Path, full: PathBuf) -> PathBuf {
    full.strip_prefix(shared).map(Path::to_owned).unwrap_or(full)
}
