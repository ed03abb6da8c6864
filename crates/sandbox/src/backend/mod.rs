//! The backends: each lowers a plan to a launch, in which a named mechanism enforces every need or the plan is refused, and
//! acts on the launch.

mod bwrap;
mod container;
mod defaults;
mod error;
mod guard;
mod host;
mod launched;
mod limits;
mod machine;
mod registry;
mod request;
mod shared;

pub use bwrap::Waiting;
pub use container::{
    BuiltImage, CONTAINER_DIRECTORY_PREFIX, ENGINE_VARIABLE, Engine, EngineError, EnginePlaces, FromError,
    Image, ImageAct, ImageNews, OrphanContainer, Rebuild, ServiceEnd, UnfinishedImage, wanted_of_images,
};
pub use defaults::{Capacity, default_limits, default_process_limit};
pub use error::LaunchError;
pub use guard::guard_lacks;
pub use launched::{Beginning, Launched, News, Running};
pub use limits::{LEAF_PREFIX, held_limits, leaf_maker};
pub use machine::{Lowering, MachineFacts, SystemEntry, look_around};
pub use request::{LaunchRequest, StreamEnd, Streams};
pub use shared::listeners::{MODEL_LISTENER, PROXY_ADDRESS, PROXY_LISTENER, SSH_LISTENER};
pub use shared::source_identities::{SourceIdentities, SourceIdentity};

use crate::workspace::Overlay;
use belljar_contract::{AbsPath, BackendKind, Control, Launch, OpenNeed, Plan, Unmet};
use registry::{Registry, registered};

/// Why a plan is refused on this machine: every need that cannot be enforced, by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this machine cannot honour the plan with the backend {}", .backend.name())]
pub struct BackendError {
    /// The backend of the plan.
    pub backend: BackendKind,
    /// The needs that it cannot enforce.
    pub unmet: Vec<Unmet>,
}

/// Where the changes of a run are kept that does not write to the project itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAt {
    /// A directory of the instance.
    pub directory: AbsPath,
    /// The repository of the project, if it is outside the project: its changes are kept in the same way.
    pub repository: Option<AbsPath>,
}

impl KeptAt {
    /// The layers of the project.
    #[must_use]
    pub fn project(&self) -> AbsPath {
        self.directory.child("project")
    }

    /// The layers of a repository outside the project.
    #[must_use]
    pub fn of_repository(&self) -> AbsPath {
        self.directory.child("repository")
    }

    /// Returns the layers of a source of the plan's mounts, if its changes are kept here.
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

/// The needs of a plan that this machine can honour. Only [`check_needs`] makes one, and [`lower`] takes it.
#[derive(Debug)]
pub struct NeedsMet {
    controls: Vec<Control>,
    open: Vec<Unmet>,
}

impl NeedsMet {
    /// The needs that nothing enforces; empty for every backend that isolates.
    #[must_use]
    pub fn open(&self) -> &[Unmet] {
        &self.open
    }
}

/// Checks that the backend can enforce every need of the plan on this machine. Nothing is lowered. A pure function.
///
/// # Errors
/// Names every need that it cannot enforce.
pub fn check_needs(lowering: &Lowering<'_>) -> Result<NeedsMet, BackendError> {
    check_needs_by(registered, lowering)
}

fn check_needs_by(registry: Registry, lowering: &Lowering<'_>) -> Result<NeedsMet, BackendError> {
    let backend = lowering.plan.backend;
    registry(backend).check_needs(lowering).map_err(|unmet| BackendError { backend, unmet })
}

/// Lowers a plan whose needs were checked: decides what exactly would be started. A pure function.
///
/// # Errors
/// Names what the backend cannot do with the last inputs, which may be others than those of the check.
pub fn lower(lowering: &Lowering<'_>, met: NeedsMet) -> Result<Launch, BackendError> {
    lower_by(registered, lowering, met)
}

fn lower_by(registry: Registry, lowering: &Lowering<'_>, met: NeedsMet) -> Result<Launch, BackendError> {
    let backend = lowering.plan.backend;
    registry(backend).lower(lowering, met).map_err(|unmet| BackendError { backend, unmet })
}

/// Builds the sandbox and starts the guest in it. The command itself waits for [`Launched::start`].
///
/// # Errors
/// Names the step that failed; nothing is left behind.
pub fn launch(request: LaunchRequest<'_>) -> Result<Running, LaunchError> {
    launch_by(registered, request)
}

fn launch_by(registry: Registry, request: LaunchRequest<'_>) -> Result<Running, LaunchError> {
    registry(request.launch.backend).launch(request)
}

/// Lists the needs of an agent's plan that nothing enforces; none where the backend isolates.
#[must_use]
pub fn open_needs(plan: &Plan) -> Vec<OpenNeed> {
    registered(plan.backend).open_needs(plan).iter().map(OpenNeed::from).collect()
}

/// Returns the path of the guest's program for what a backend starts: its path inside, or its own path on the host.
#[must_use]
pub fn guest_path(backend: BackendKind, on_host: &AbsPath) -> AbsPath {
    registered(backend).guest_path(on_host)
}

#[cfg(test)]
mod stub_tests;
#[cfg(test)]
#[path = "totality_tests.rs"]
mod tests;
