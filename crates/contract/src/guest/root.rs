//! The root file system that the guest builds for the command: its parts and their order.

use super::OsText;
use crate::Access;
use serde::{Deserialize, Serialize};

/// What the root inside is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestRoot {
    /// The root that the guest was started in.
    AsFound,
    /// Built by the guest from nothing. When it is complete it is read-only, and the previous root is unmounted. The
    /// contents of all files, concatenated, are in the last descriptor that is sent with the spec.
    Built {
        /// The environment that the guest starts from.
        ground: GuestGround,
        /// The parts, in the order in which they are made.
        parts: Vec<GuestPart>,
        /// The user id of the command inside.
        user: u32,
        /// Limits that the guest sets itself.
        bounds: GuestBounds,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestBounds {
    /// The maximum size in bytes of all file systems in memory together.
    pub tmpfs: Option<u64>,
    /// The largest process id in the guest's namespace. Not used on a kernel where this setting is global.
    pub pid_max: Option<u32>,
}

/// The environment that the guest builds the root in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestGround {
    /// Namespaces in which the guest may mount.
    Namespaces,
    /// A container in which the guest has no privileges: it creates its own namespaces inside and uses the
    /// container's view of the processes.
    Container {
        /// Overlays that keep changes, mounted before anything else.
        overlays: Vec<GuestOverlay>,
    },
}

/// An overlay. Each layer is identified by device and inode, so that it cannot be replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestOverlay {
    /// The directory that is not written.
    pub lower: GuestLayer,
    /// The directory that receives the changes.
    pub upper: GuestLayer,
    /// The kernel's work directory.
    pub work: GuestLayer,
    /// The mount point.
    pub at: OsText,
}

/// A directory of an overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestLayer {
    pub path: OsText,
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Its inode number.
    pub inode: u64,
}

/// One part of the root. Missing parent directories are created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestPart {
    /// The existing directory at this path, read-only. The places of other parts and anything mounted below are left
    /// out.
    Found {
        at: OsText,
    },
    Directory {
        at: OsText,
        mode: u32,
    },
    Link {
        at: OsText,
        /// The target as written.
        to: OsText,
    },
    File {
        at: OsText,
        /// How many bytes of the contents belong to it.
        length: u64,
    },
    /// An empty file system in memory.
    Memory {
        at: OsText,
        /// The mode of its top directory.
        mode: u32,
    },
    /// A `/proc` for the processes inside.
    Processes {
        at: OsText,
    },
    /// Pseudo devices without hardware behind them, and terminals.
    Devices {
        at: OsText,
    },
    /// Hides whatever exists at this path.
    Mask {
        at: OsText,
    },
    /// A file or directory of the host.
    Bind {
        /// Its path outside.
        from: OsText,
        /// How the source is opened and what it must be.
        is: GuestSource,
        /// The mount point.
        at: OsText,
        /// Whether it can be written.
        access: Access,
    },
}

/// What the source of a bind is, and how its path is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestSource {
    /// A part of the system. Symbolic links are followed.
    System,
    /// A mount that only the guest sees. No part of the path may be a symbolic link.
    Mounted,
    /// Exactly this file or directory. No part of the path may be a symbolic link.
    Exactly {
        /// Major and minor number of its device.
        device: (u32, u32),
        /// Its inode number.
        inode: u64,
    },
}

impl GuestPart {
    /// Its path inside.
    #[must_use]
    pub fn at(&self) -> &OsText {
        match self {
            GuestPart::Found { at }
            | GuestPart::Directory { at, mode: _ }
            | GuestPart::Link { at, to: _ }
            | GuestPart::File { at, length: _ }
            | GuestPart::Memory { at, mode: _ }
            | GuestPart::Processes { at }
            | GuestPart::Devices { at }
            | GuestPart::Mask { at }
            | GuestPart::Bind { from: _, is: _, at, access: _ } => at,
        }
    }

    /// Whether its paths are absolute.
    pub(super) fn is_absolute(&self) -> bool {
        let from = match self {
            GuestPart::Bind { from, .. } => from.is_absolute(),
            GuestPart::Found { .. }
            | GuestPart::Directory { .. }
            | GuestPart::Link { .. }
            | GuestPart::File { .. }
            | GuestPart::Memory { .. }
            | GuestPart::Processes { .. }
            | GuestPart::Devices { .. }
            | GuestPart::Mask { .. } => true,
        };
        from && self.at().is_absolute()
    }
}
