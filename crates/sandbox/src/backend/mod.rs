//! The backends, equal before the plan: each enforces a need by a named control or refuses.

mod bwrap;
mod container;
mod defaults;
mod either;
mod guard;
mod host;
mod limits;
mod machine;
mod making;
mod running;
mod telling;
mod waiting;

pub use bwrap::{MODEL_LISTENER, PROXY_ADDRESS, PROXY_LISTENER, SSH_LISTENER};
pub use container::{
    BuiltImage, CONTAINER_FOLDER_PREFIX, ENGINE_VARIABLE, Engine, EngineError, EnginePlaces, FromError,
    Image, ImageAct, ImageNews, OrphanContainer, Rebuild, ServiceEnd, UnfinishedImage, wanted_of_images,
};
pub use defaults::{Capacity, default_limits, default_process_limit};
pub use either::Running;
pub use guard::guard_lacks;
pub use limits::{LEAF_PREFIX, held_limits, leaf_maker};
pub use machine::{Lowering, Machine, SystemEntry, look_around};
pub use running::{Beginning, LaunchError, LaunchRequest, News, StreamEnd, Streams};
pub use waiting::Waiting;

use crate::workspace::Overlay;
use belljar_contract::{AbsPath, BackendKind, Launch, Plan, Unmet};

/// Why a plan cannot be honoured here: every need that cannot be enforced, by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this machine cannot honour the plan with the backend {}", .backend.name())]
pub struct BackendError {
    /// The backend.
    pub backend: BackendKind,
    /// What it cannot enforce.
    pub unmet: Vec<Unmet>,
}

/// Where the changes of a run are kept that does not write to the project itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAt {
    /// A directory of the instance.
    pub directory: AbsPath,
    /// The repository of the project, where it lies elsewhere: it is kept out of reach in the same way.
    pub repository: Option<AbsPath>,
}

impl KeptAt {
    /// The layers of the project.
    #[must_use]
    pub fn project(&self) -> AbsPath {
        self.directory.child("project")
    }

    /// The layers of the repository elsewhere.
    #[must_use]
    pub fn of_repository(&self) -> AbsPath {
        self.directory.child("repository")
    }

    /// Where the layers of a source of the plan's mounts are, if they are kept here.
    fn of(&self, plan: &Plan, source: &AbsPath) -> Option<Overlay> {
        let at = if *source == plan.workspace.source {
            self.project()
        } else if self.repository.as_ref() == Some(source) {
            self.of_repository()
        } else {
            return None;
        };
        Some(Overlay::new(source.as_path(), at.as_path()))
    }
}

/// Lowers a plan: what exactly would be started. Nothing happens.
///
/// # Errors
/// Names every need that the backend cannot enforce on this machine.
pub fn lower(lowering: &Lowering<'_>) -> Result<Launch, BackendError> {
    let backend = lowering.plan.backend;
    match backend {
        BackendKind::Bwrap => bwrap::lower(lowering).map_err(|unmet| BackendError { backend, unmet }),
        BackendKind::Host => host::lower(lowering).map_err(|unmet| BackendError { backend, unmet }),
        BackendKind::Container => container::lower(lowering).map_err(|unmet| BackendError { backend, unmet }),
    }
}

/// Acts: builds the sandbox and starts the guest in it. The command itself waits for [`Running::start`].
///
/// # Errors
/// Names the step that failed; nothing is left behind.
pub fn launch(request: LaunchRequest<'_>) -> Result<Running, LaunchError> {
    match request.launch.backend {
        BackendKind::Host => host::launch(request).map(|unwalled| Running::Host(Box::new(unwalled))),
        BackendKind::Bwrap | BackendKind::Container => running::launch(request).map(Running::Sealed),
    }
}

/// Where the guest's program is when a backend has started something: inside, or, without walls, where it lies.
#[must_use]
pub fn guest_path(backend: BackendKind, outside: &AbsPath) -> AbsPath {
    match backend {
        BackendKind::Host => outside.clone(),
        BackendKind::Bwrap | BackendKind::Container => {
            AbsPath::new(bwrap::GUEST).unwrap_or_else(|_| outside.clone())
        }
    }
}

#[cfg(test)]
#[path = "totality_tests.rs"]
mod tests;
