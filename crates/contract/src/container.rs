//! A container, in no engine's own words.

use crate::{AbsPath, Access};

/// What an engine is asked for. Beyond this it is the same for every plan: no network, a read-only root, no capability
/// that reaches anything, nothing to be gained by executing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The image; empty directories, where the system comes from the host.
    pub image: String,
    /// What of the host can be seen in it, each at its own path, what is above before what is below. The guest builds the
    /// root from these, and leaves them.
    pub mounts: Vec<ContainerMount>,
}

/// A file or directory of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerMount {
    /// Where it is, outside and in the container.
    pub path: AbsPath,
    /// Whether it can be written.
    pub access: Access,
}
