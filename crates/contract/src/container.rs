//! A container, in no engine's own words.

use crate::{AbsPath, Access, BackendKind, ImageName};
use std::fmt;
use std::path::Path;

/// Where what is shown of the host lies in a container that has a system of its own: below a directory of which the root
/// that the guest builds shows nothing.
const STAGE: &str = "/run/belljar.host";

/// What the command line asks the walls to be made of, whatever is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedWalls {
    /// What builds them.
    pub backend: Option<BackendKind>,
    /// The image of the container.
    pub image: Option<ImageName>,
}

/// What an engine is asked for. Beyond this it is the same for every plan: no network, a read-only root, no capability
/// that reaches anything, nothing to be gained by executing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// What it is made from.
    pub image: ContainerImage,
    /// What of the host can be seen in it, what is above before what is below. The guest builds the root from these, and
    /// leaves them.
    pub mounts: Vec<ContainerMount>,
    /// What the errand needs of an image with a system of its own.
    pub wanted: Vec<ImageWant>,
}

/// What a container is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerImage {
    /// Empty directories of belljar's own: the system comes from the host.
    Empty(String),
    /// An image of the user's, with a system of its own. It is never fetched.
    Named(ImageName),
}

impl ContainerImage {
    /// Where a path of the host is in the container.
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

/// A file or directory of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerMount {
    /// Where it is.
    pub path: AbsPath,
    /// Whether it can be written.
    pub access: Access,
}

/// Something that an errand needs of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageWant {
    /// What it is, for people.
    pub what: String,
    /// One of these files will do.
    pub any: Vec<AbsPath>,
    /// What does not work without it.
    pub loses: String,
    /// Whether the errand can do without.
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
