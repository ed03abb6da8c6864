//! A container as belljar needs it, independent of any engine's API.

use crate::{AbsPath, Access, BackendKind, ImageName};
use std::fmt;
use std::path::Path;

/// Where belljar mounts files of the host in a container that has a system of its own. The root that the guest builds
/// does not contain this directory.
const STAGE: &str = "/run/belljar.host";

/// The isolation that the command line asks for; it overrides the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxChoice {
    /// The backend that builds the sandbox.
    pub backend: Option<BackendKind>,
    /// The image for the backend `container`.
    pub image: Option<ImageName>,
}

/// What belljar asks an engine for. Everything else is the same for every plan: no network, a read-only root, no
/// capability that reaches beyond the container, and no privileges gained by executing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub image: ContainerImage,
    /// Files and directories of the host that are mounted into it, parents before children. The guest builds the root
    /// from these and then leaves them.
    pub mounts: Vec<ContainerMount>,
    /// What the command needs from an image with a system of its own.
    pub wanted: Vec<ImageWant>,
}

/// The image that a container is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerImage {
    /// An image of belljar's own with empty directories only: the system comes from the host.
    Empty(String),
    /// An image that the user names, with a system of its own. belljar never pulls it.
    Named(ImageName),
}

impl ContainerImage {
    /// Where a path of the host is mounted in the container.
    #[must_use]
    pub fn place(&self, path: &AbsPath) -> AbsPath {
        match self {
            ContainerImage::Empty(_) => path.clone(),
            ContainerImage::Named(_) => {
                let below = path.as_path().strip_prefix("/").unwrap_or(path.as_path());
                AbsPath::new(Path::new(STAGE).join(below)).unwrap_or_else(|_| path.clone())
            }
        }
    }
}

impl fmt::Display for ContainerImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContainerImage::Empty(name) => f.write_str(name),
            ContainerImage::Named(name) => name.fmt(f),
        }
    }
}

/// A file or directory of the host that is mounted into a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerMount {
    /// Its path on the host.
    pub path: AbsPath,
    /// Whether it can be written.
    pub access: Access,
}

/// Something that the command needs from an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageWant {
    /// A short description for messages.
    pub what: String,
    /// Candidate files; one of them is enough.
    pub any: Vec<AbsPath>,
    /// What does not work without it.
    pub loses: String,
    /// Whether the command can start without it.
    pub weight: WantWeight,
}

/// How much something is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantWeight {
    /// Nothing starts without it.
    Necessary,
    /// Something is lost without it.
    Useful,
}
