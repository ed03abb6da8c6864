//! The root that the guest builds for the command: which parts, in which order.

use super::OsText;
use crate::Access;
use serde::{Deserialize, Serialize};

/// What the root inside is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestRoot {
    /// As whoever started the guest made it.
    AsFound,
    /// Made by the guest from nothing. At the end it is read-only, and the one before is left for good. The content
    /// of all files, one after the other, is the last descriptor that comes with the spec.
    Built {
        /// What it is made on.
        ground: GuestGround,
        /// What is made, in this order.
        parts: Vec<GuestPart>,
        /// Who the command is inside, whoever it is outside.
        user: u32,
        /// Limits that hold from the start.
        bounds: GuestBounds,
    },
}

/// Limits that the guest sets while it builds the root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestBounds {
    /// Bytes of all file systems in memory together.
    pub tmpfs: Option<u64>,
    /// The largest number of a process in the guest's namespace. Never on a kernel where that number is the machine's.
    pub pid_max: Option<u32>,
}

/// What the guest finds when it begins to build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestGround {
    /// Namespaces in which it may mount.
    Namespaces,
    /// A container in which it has no power: it takes namespaces of its own within, and shows the processes as the
    /// container does.
    Container {
        /// Mounted before anything else, where changes are kept aside.
        overlays: Vec<GuestOverlay>,
    },
}

/// An overlay; each layer is this very directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestOverlay {
    /// What is not written.
    pub lower: GuestLayer,
    /// What is.
    pub upper: GuestLayer,
    /// For the kernel.
    pub work: GuestLayer,
    /// Where it appears.
    pub at: OsText,
}

/// A directory of an overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestLayer {
    /// Where it is.
    pub path: OsText,
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Its number there.
    pub inode: u64,
}

/// One part of the root. Directories above it are made where they are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestPart {
    /// What was found there when the guest began, read-only. Left out are the places of the other parts, and whatever
    /// is mounted on what was found.
    Found {
        /// Where.
        at: OsText,
    },
    /// An empty directory.
    Directory {
        /// Where.
        at: OsText,
        /// Its mode.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where.
        at: OsText,
        /// What it says.
        to: OsText,
    },
    /// A file.
    File {
        /// Where.
        at: OsText,
        /// How many bytes of the content are its own.
        length: u64,
    },
    /// An empty file system in memory.
    Memory {
        /// Where.
        at: OsText,
        /// The mode of its top.
        mode: u32,
    },
    /// The processes inside.
    Processes {
        /// Where.
        at: OsText,
    },
    /// Devices without a machine behind them, and terminals.
    Devices {
        /// Where.
        at: OsText,
    },
    /// Nothing can be read there, where there is something.
    Mask {
        /// Where.
        at: OsText,
    },
    /// A file or directory of the machine.
    Bind {
        /// Where it is outside.
        from: OsText,
        /// What it must be.
        is: GuestSource,
        /// Where it appears.
        at: OsText,
        /// Whether it can be written.
        access: Access,
    },
}

/// What the source of a bind is, and how its name is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestSource {
    /// A part of the system, whose own links are followed.
    System,
    /// Mounted where only the guest sees it; no part of its name may be a link.
    Mounted,
    /// This very file or directory; no part of its name may be a link.
    Exactly {
        /// Major and minor number of its device.
        device: (u32, u32),
        /// Its number there.
        inode: u64,
    },
}

impl GuestPart {
    /// Where it is inside.
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

    /// Whether its names begin at the root.
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
