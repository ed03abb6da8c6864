//! Why a sandbox could not be built.

use super::container::EngineError;
use crate::workspace::LayersError;
use belljar_contract::{AbsPath, GuestStep, OsText};
use belljar_sys::cgroup::CgroupError;
use belljar_sys::overlay::{OverlayError, OverlayStep};
use std::io;

/// Why a sandbox could not be built.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A file or directory of the instance could not be made.
    #[error("cannot make `{path}`")]
    Make {
        /// The file or directory.
        path: AbsPath,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
    /// The source of a mount cannot be opened.
    #[error("cannot open `{path}` for the sandbox")]
    Source {
        /// The path of the source.
        path: AbsPath,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
    /// The source of a mount is another file or directory than the plan saw.
    #[error("`{path}` is not what it was when the plan was made")]
    Changed {
        /// The path of the source.
        path: AbsPath,
    },
    /// The source of a mount was not there when the plan was made.
    #[error("`{path}` was not there when the plan was made")]
    Missing {
        /// The path of the source.
        path: AbsPath,
    },
    /// The source of a mount could not be examined when the plan was made.
    #[error("`{path}` could not be examined when the plan was made")]
    Unreadable {
        /// The path of the source.
        path: AbsPath,
        /// The system's answer at that time.
        #[source]
        cause: io::Error,
    },
    /// The launch has a source that neither the plan names nor belljar made for the run.
    #[error("`{path}` is not part of the plan")]
    Unplanned {
        /// The path of the source.
        path: AbsPath,
    },
    /// The content of a file could not be put together.
    #[error("cannot prepare the content of {name}")]
    Content {
        /// The file, or a name for it.
        name: String,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
    /// A program could not be started.
    #[error("cannot start `{program}`")]
    Spawn {
        /// The program's path or name.
        program: OsText,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
    /// The layers of the overlay cannot be used.
    #[error("the changes kept in the overlay cannot be used")]
    Layers(#[from] LayersError),
    /// The overlay could not be prepared.
    #[error("the overlay cannot be prepared")]
    Overlay(#[from] OverlayError),
    /// The kernel refused the overlay.
    #[error("the overlay cannot be mounted: the step {step:?} failed")]
    OverlayStep {
        /// The step that failed.
        step: OverlayStep,
        /// The kernel's answer.
        #[source]
        cause: io::Error,
    },
    /// bubblewrap failed, with its own message.
    #[error("bubblewrap could not build the sandbox: {message}")]
    Bubblewrap {
        /// What it wrote to standard error.
        message: String,
    },
    /// The engine gave no container.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The container ended, with the last message of the guest or of the engine.
    #[error("the container did not become a sandbox: {message}")]
    Container {
        /// The container's log, or the engine's error.
        message: String,
    },
    /// The guest could not close the sandbox from inside.
    #[error("the sandbox could not be sealed at the step {step:?}: {detail}")]
    Sealing {
        /// The step that failed.
        step: GuestStep,
        /// The guest's message.
        detail: String,
    },
    /// A limit of the plan does not hold.
    #[error("a limit does not hold")]
    Limit(#[from] CgroupError),
    /// The sockets of the sandbox need more open files than this process may have.
    #[error("the limit of open files is too low for the sockets of the sandbox")]
    OpenFiles,
    /// The guest broke the protocol, or said nothing.
    #[error("the guest does not answer as it should")]
    Talk(#[source] io::Error),
}

impl LaunchError {
    /// The guest cannot be talked to, for this reason.
    pub(super) fn talk(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Talk(io::Error::other(cause))
    }
}
