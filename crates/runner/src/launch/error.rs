//! The errors of a launch.

use crate::egress::EgressError;
use crate::launch::guest_program::UnpackError;
use crate::launch::workspace::WorkspaceError;
use crate::plan::agreements::AgreementError;
use crate::session::supervise::SuperviseError;
use crate::session::terminal::TerminalError;
use crate::store::instances::InstanceError;
use crate::store::journal::JournalError;
use crate::store::locks::SessionLockError;
use belljar_sandbox::{BackendError, LaunchError};

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The backend cannot enforce the plan on this machine.
    #[error(transparent)]
    Unmet(#[from] BackendError),
    /// A value of the environment could not be found.
    #[error("cannot find the value of `{name}`: {what}")]
    Value {
        name: String,
        /// The place that was searched; never the value.
        what: String,
        #[source]
        cause: std::io::Error,
    },
    /// The terminal cannot be used.
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    /// The guest program cannot be unpacked.
    #[error(transparent)]
    Guest(#[from] UnpackError),
    /// The sandbox could not be built.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The workspace cannot be prepared.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The user's allowances for the project cannot be read.
    #[error(transparent)]
    Allowed(#[from] AgreementError),
    /// The state kept for the project cannot be used.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Another run has the same conversation open.
    #[error(transparent)]
    Session(#[from] SessionLockError),
    /// The run cannot be recorded.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A conversation was requested for a command that keeps no record.
    #[error("a conversation needs a record, and this command keeps none")]
    UnrecordedConversation,
    /// The egress services cannot be started.
    #[error(transparent)]
    EgressServices(#[from] EgressError),
    /// The key for the digests on a tape can neither be read nor created.
    #[error("cannot use the key for tapes in belljar's state directory")]
    TapeKey(#[source] std::io::Error),
    /// The supervision of the command failed.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
}
