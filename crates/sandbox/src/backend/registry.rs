//! The trait of a backend, and the registry of backends.

use super::bwrap::Bwrap;
use super::container::ContainerBackend;
use super::defaults::{Capacity, ProcessLimit};
use super::host::Host;
use super::{LaunchError, LaunchRequest, Lowering, NeedsMet, Running};
use belljar_contract::{AbsPath, BackendKind, Launch, Plan, Unmet};

/// Finds the backend of a plan.
pub(super) type Registry = fn(BackendKind) -> &'static dyn Backend;

/// The registry: one line for each backend.
pub(super) fn registered(kind: BackendKind) -> &'static dyn Backend {
    match kind {
        BackendKind::Host => &Host,
        BackendKind::Bwrap => &Bwrap,
        BackendKind::Container => &ContainerBackend,
    }
}

/// Turns plans into commands that run.
pub(super) trait Backend: Sync {
    /// Says what enforces each need of the plan, or names every need that cannot be enforced. A pure function.
    fn check_needs(&self, lowering: &Lowering<'_>) -> Result<NeedsMet, Vec<Unmet>>;

    /// Lists the needs of an agent's plan that nothing enforces. A backend that isolates leaves none open.
    fn open_needs(&self, _plan: &Plan) -> Vec<Unmet> {
        Vec::new()
    }

    /// Decides what exactly would be started, once the needs are checked. A pure function.
    fn lower(&self, lowering: &Lowering<'_>, met: NeedsMet) -> Result<Launch, Vec<Unmet>>;

    /// Builds what was lowered. The command itself waits for [`super::Launched::start`].
    fn launch(&self, request: LaunchRequest<'_>) -> Result<Running, LaunchError>;

    /// Returns the path of the guest's program for what this backend starts.
    fn guest_path(&self, on_host: &AbsPath) -> AbsPath;

    /// Decides what limits the number of processes where the plan declares no limit, or says why nothing does.
    fn default_processes(&self, pids: u32, capacity: Capacity) -> Result<ProcessLimit, String>;

    /// Says what limits the file systems in memory where the plan declares no limit, or why nothing does.
    fn default_tmpfs(&self) -> Result<&'static str, String>;
}
