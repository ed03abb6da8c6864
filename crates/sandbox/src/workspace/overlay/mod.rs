//! Keeps the agent's changes beside the project.
//!
//! An [`Overlay`] keeps them in a directory of the instance: `upper` and `work` are the kernel's, `merged` is where
//! the mount appears in the run's own mount namespace, `starts` records when runs began, `originals` are versions for a
//! merge. [`Overlay::changes`] compares the layers, [`Overlay::apply`] writes changes to the project one by one,
//! [`Overlay::discard`] drops them. None of these may happen while a run has the overlay mounted; the caller holds a lock.

mod alone;
mod apply;
mod applying;
mod changes;
mod copied;
mod discard;
mod group;
mod journal;
mod kept;
mod known;
mod layers;
mod merge;
mod merging;
mod originals;
mod repositories;
mod sides;
mod starts;
mod tracked;
mod transaction;

use std::path::{Path, PathBuf};

use belljar_sys::Errno;
use belljar_sys::beneath::{Directory, is_superuser};
use belljar_sys::overlay::{OverlayError, OverlaySpec};

pub use apply::{
    Applied, ApplyConsent, ApplyMode, ApplyRequest, BranchUse, ChangeSelection, OnConflict, RefusedBecause,
    RefusedChange,
};
pub use changes::{Change, ChangeKind, Changes};
pub use discard::Discarded;
pub use group::{BranchRequest, Branched, NewBranch};
pub use kept::{BothChanged, Kept, KeptChanges, KeptRepository};
pub use merging::Unmerged;
pub(in crate::workspace) use repositories::Place;
pub use repositories::{Presence, note_repository};
pub use sides::{Side, SideContent};

use crate::workspace::copy::CopyError;
use layers::Layers;

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
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// The times of the runs cannot be read or written.
    #[error("cannot keep the start of the run in {}", path.display())]
    Starts {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// Where an apply writes cannot be noted.
    #[error("cannot note an apply in {}", path.display())]
    Applying {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// The list of copied files cannot be written or read.
    #[error("cannot keep track of the copy in {}", path.display())]
    Copied {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// The journal of an interrupted apply cannot be read, so that nothing may be changed.
    #[error("cannot read what an interrupted apply did in {}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// An interrupted apply cannot be undone; the next command tries again.
    #[error("cannot undo an interrupted apply at {}", path.display())]
    Undo {
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The versions that both sides began with cannot be kept.
    #[error("cannot keep versions for a merge in {}", path.display())]
    Originals {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// The project cannot be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
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

    /// The project.
    #[must_use]
    pub fn lower(&self) -> &Path {
        &self.lower
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
        // A look at the changes may have made it.
        let is_new = std::fs::read_dir(&upper).map_or(true, |mut entries| entries.next().is_none());
        self.make_directories()?;
        if is_new {
            self.take_after_project()?;
        }
        self.note_start()?;
        OverlaySpec::new(&self.lower, &upper, &self.work(), &self.target()).map_err(LayersError::Spec)
    }

    fn make_directories(&self) -> Result<(), LayersError> {
        let all = [self.directory.clone(), self.upper(), self.work(), self.target(), self.trash()];
        all.iter().try_for_each(|path| make_private(path))
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

    /// Removes directories of the layer that change nothing.
    fn prune(&self) -> Result<(), LayersError> {
        if !self.upper().exists() {
            return Ok(());
        }
        discard::prune(&self.open()?).map_err(|cause| LayersError::Open { path: self.upper(), cause })
    }

    /// Whether no change is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let none = |path: PathBuf| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        !self.has_copy() && (!self.upper().exists() || none(self.upper()))
    }

    fn open(&self) -> Result<Layers, LayersError> {
        Layers::open(&self.lower, &self.upper(), &self.named)
    }
}

fn make_private(path: &Path) -> Result<(), LayersError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|cause| LayersError::Make { path: path.to_owned(), cause })
}

/// Writes a file, whole or not at all.
fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(content)?;
    // A machine that stops must not leave the name without the content.
    file.sync_data()?;
    std::fs::rename(&new, path)?;
    // Nor without the name.
    path.parent().map_or(Ok(()), |parent| std::fs::File::open(parent)?.sync_all())
}

/// Whether the path is known not to exist.
fn is_absent(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}
