//! Reads both sides of a change, to show them.

use std::io::Read;
use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::InodeKind;

use super::layers::is_whiteout;
use super::{LayersError, Overlay};
use crate::workspace::tree::Tree;

/// A side of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The project.
    Before,
    /// The upper layer.
    After,
}

/// What a side has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SideContent {
    /// Nothing.
    Absent,
    /// A file, as far as the limit goes.
    File {
        /// Its first bytes.
        bytes: Vec<u8>,
        /// How many it has.
        size: u64,
    },
    /// A link with this text.
    Symlink(PathBuf),
    /// A directory.
    Directory,
    /// A device, a pipe or a socket.
    Special,
}

impl Overlay {
    /// Reads one side of a change, at most `limit` bytes of a file. No link is followed.
    ///
    /// # Errors
    /// Fails if the layer, or the entry in it, cannot be read.
    pub fn side(&self, path: &Path, side: Side, limit: u64) -> Result<SideContent, LayersError> {
        let top = match side {
            Side::Before => self.lower.clone(),
            Side::After => self.upper(),
        };
        let fault = |cause| LayersError::Open { path: top.join(path), cause };
        read(&Tree::open(&top).map_err(fault)?, path, limit).map_err(fault)
    }
}

fn read(tree: &Tree, path: &Path, limit: u64) -> Result<SideContent, Errno> {
    let Some(status) = tree.status(path)? else { return Ok(SideContent::Absent) };
    Ok(match status.kind {
        _ if is_whiteout(&status) => SideContent::Absent,
        InodeKind::Directory => SideContent::Directory,
        InodeKind::Symlink => SideContent::Symlink(tree.read_link(path)?),
        InodeKind::File => {
            let (directory, name) = tree.parent(path)?;
            let mut bytes = Vec::new();
            let read = directory.file(name)?.take(limit).read_to_end(&mut bytes);
            read.map_err(|error| belljar_sys::fds::errno_of(&error))?;
            SideContent::File { bytes, size: status.size }
        }
        InodeKind::Fifo
        | InodeKind::Socket
        | InodeKind::CharacterDevice
        | InodeKind::BlockDevice
        | InodeKind::Unknown => SideContent::Special,
    })
}
