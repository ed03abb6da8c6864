//! The agent's changes beside the project.
//!
//! An [`Overlay`] keeps them in a directory of the instance: `upper` and `work` are the kernel's, `merged` is where
//! the mount appears in the run's own mount namespace, `starts` tells when runs began. [`Overlay::changes`] compares
//! the layers, [`Overlay::apply`] writes changes to the project one by one, [`Overlay::discard`] drops them. None of
//! these may happen while a run has the overlay mounted; the caller holds a lock.

mod apply;
mod applying;
mod changes;
mod discard;
mod layers;
mod sides;
mod starts;

use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, is_superuser};
use belljar_sys::overlay::{OverlayError, OverlaySpec};

pub use apply::{Applied, ApplyRequest, Consent, OnConflict, Refused, RefusedBecause, Selection};
pub use changes::{Change, ChangeKind, Changes};
pub use discard::Discarded;
pub use sides::{Side, SideContent};

use layers::Layers;
use starts::Starts;

/// Why the layers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// A directory cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// A directory cannot be made.
    #[error("cannot make {}", path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The times of the runs cannot be read or written.
    #[error("cannot keep the start of the run in {}", path.display())]
    Starts {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// Where an apply writes cannot be noted.
    #[error("cannot note an apply in {}", path.display())]
    Applying {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The directories do not make an overlay.
    #[error("cannot prepare the overlay")]
    Spec(#[source] OverlayError),
    /// Something in the layers cannot be removed.
    #[error("cannot remove {} in {}", entry.display(), path.display())]
    Remove {
        /// The layer.
        path: PathBuf,
        /// The entry.
        entry: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
}

/// A project and the changes beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    lower: PathBuf,
    directory: PathBuf,
    named: Vec<PathBuf>,
}

impl Overlay {
    /// The overlay of the project `lower` whose layers are, or will be, in `directory`.
    #[must_use]
    pub fn new(lower: &Path, directory: &Path) -> Self {
        Overlay { lower: lower.to_owned(), directory: directory.to_owned(), named: Vec::new() }
    }

    /// The same with files of the project that are used outside because somebody named them.
    #[must_use]
    pub fn with_named(mut self, named: Vec<PathBuf>) -> Self {
        self.named = named;
        self
    }

    /// Where the changes are.
    #[must_use]
    pub fn upper(&self) -> PathBuf {
        self.directory.join("upper")
    }

    /// Where the kernel prepares them.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.directory.join("work")
    }

    /// Where the mount appears.
    #[must_use]
    pub fn target(&self) -> PathBuf {
        self.directory.join("merged")
    }

    fn trash(&self) -> PathBuf {
        self.directory.join("trash")
    }

    fn starts(&self) -> PathBuf {
        self.directory.join("starts")
    }

    /// Makes what is missing, notes that a run begins, and gives what
    /// [`prepare`](belljar_sys::overlay::prepare) needs.
    ///
    /// # Errors
    /// Fails if the project is not there or the directory cannot be written.
    pub fn begin(&self) -> Result<OverlaySpec, LayersError> {
        let upper = self.upper();
        let is_new = !upper.exists();
        self.make_directories()?;
        if is_new {
            self.take_after_project()?;
        }
        let starts = self.starts();
        Starts::add(&self.directory, &starts)
            .map_err(|cause| LayersError::Starts { path: starts.clone(), cause })?;
        OverlaySpec::new(&self.lower, &upper, &self.work(), &self.target()).map_err(LayersError::Spec)
    }

    fn make_directories(&self) -> Result<(), LayersError> {
        use std::os::unix::fs::DirBuilderExt;
        for path in [self.directory.clone(), self.upper(), self.work(), self.target(), self.trash()] {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|cause| LayersError::Make { path, cause })?;
        }
        Ok(())
    }

    /// The top of the mount shows the permissions of the upper layer.
    fn take_after_project(&self) -> Result<(), LayersError> {
        let open = |path: &Path| {
            Directory::open(path).map_err(|cause| LayersError::Open { path: path.to_owned(), cause })
        };
        let project = open(&self.lower)?.own_status();
        let (layers, upper) = (open(&self.directory)?, std::ffi::OsStr::new("upper"));
        let fault = |cause| LayersError::Open { path: self.upper(), cause };
        let project = project.map_err(fault)?;
        if is_superuser() {
            layers.set_owner(upper, project.owner, project.group).map_err(fault)?;
        }
        layers.set_mode(upper, project.mode).map_err(fault)
    }

    fn open(&self) -> Result<Layers, LayersError> {
        Layers::open(&self.lower, &self.upper(), &self.named)
    }
}
