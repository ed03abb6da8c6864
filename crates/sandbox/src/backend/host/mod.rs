//! No sandbox: home and configuration are redirected, the environment is cleared, and what nothing enforces is listed by name.

mod lower;
mod process;

use super::defaults::{Capacity, ProcessLimit};
use super::registry::Backend;
use super::{LaunchError, LaunchRequest, Lowering, NeedsMet, Running};
use belljar_contract::{AbsPath, Launch, Plan, Unmet, Workload};

const NO_LIMIT: &str = "without a sandbox no limit is set";

/// The backend without a sandbox.
#[derive(Debug)]
pub(super) struct Host;

impl Backend for Host {
    fn check_needs(&self, lowering: &Lowering<'_>) -> Result<NeedsMet, Vec<Unmet>> {
        lower::check_needs(lowering)
    }

    fn open_needs(&self, plan: &Plan) -> Vec<Unmet> {
        lower::open_needs(plan, &Workload::Agent(Vec::new()))
    }

    fn lower(&self, lowering: &Lowering<'_>, met: NeedsMet) -> Result<Launch, Vec<Unmet>> {
        lower::lower(self, lowering, met)
    }

    fn launch(&self, request: LaunchRequest<'_>) -> Result<Running, LaunchError> {
        Ok(Box::new(process::launch(request)?))
    }

    /// Nothing is mounted anywhere else.
    fn guest_path(&self, on_host: &AbsPath) -> AbsPath {
        on_host.clone()
    }

    fn default_processes(&self, _pids: u32, _capacity: Capacity) -> Result<ProcessLimit, String> {
        Err(NO_LIMIT.to_owned())
    }

    fn default_tmpfs(&self) -> Result<&'static str, String> {
        Err(NO_LIMIT.to_owned())
    }
}
