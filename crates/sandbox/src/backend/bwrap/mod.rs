//! bubblewrap makes the namespaces; the guest builds the root in them and seals the sandbox.

mod holder;
mod lower;
mod prestart;

pub(super) use prestart::Leaving;
pub use prestart::Waiting;

use super::defaults::{self, Capacity, ProcessLimit, TMPFS_MECHANISM};
use super::registry::Backend;
use super::shared::guest_root::{self, RootSources};
use super::shared::guest_session::{GuestCommand, Unsealed};
use super::shared::{files, guest_inside};
use super::{LaunchError, LaunchRequest, Lowering, NeedsMet, Running};
use belljar_contract::{AbsPath, GuestGround, Launch, Unmet};
use holder::Bubblewrap;

/// The backend of namespaces.
#[derive(Debug)]
pub(super) struct Bwrap;

impl Backend for Bwrap {
    fn check_needs(&self, lowering: &Lowering<'_>) -> Result<NeedsMet, Vec<Unmet>> {
        lower::check_needs(lowering)
    }

    fn lower(&self, lowering: &Lowering<'_>, met: NeedsMet) -> Result<Launch, Vec<Unmet>> {
        lower::lower(self, lowering, met)
    }

    fn launch(&self, request: LaunchRequest<'_>) -> Result<Running, LaunchError> {
        let LaunchRequest {
            launch,
            waiting,
            variables,
            streams,
            name,
            overlays,
            engine: _,
            identities,
            run_files,
        } = request;
        launch.made.iter().try_for_each(|made| files::make(made, run_files))?;
        let (begun, unused) = Waiting::for_launch(waiting, launch, overlays, identities)?;
        let sources = RootSources { ground: GuestGround::Namespaces, image: None, identities, run_files };
        // While bubblewrap makes the namespaces.
        let root = match guest_root::prepare(sources, &launch.root, launch.bounds) {
            Ok(root) => root,
            Err(error) => {
                drop(begun.leave());
                return Err(error);
            }
        };
        let (holder, control) = Bubblewrap::new(begun, unused);
        Unsealed { holder, control, root }.seal(GuestCommand { launch, variables, streams, run: name })
    }

    fn guest_path(&self, on_host: &AbsPath) -> AbsPath {
        guest_inside(on_host)
    }

    fn default_processes(&self, pids: u32, capacity: Capacity) -> Result<ProcessLimit, String> {
        defaults::in_namespaces(pids, capacity)
    }

    fn default_tmpfs(&self) -> Result<&'static str, String> {
        Ok(TMPFS_MECHANISM)
    }
}
