//! What a plan mounts of the host.

use belljar_contract::{AbsPath, MountSource, Plan};
use belljar_sandbox::SourceIdentity;
use belljar_sys::mounts::try_identity;
use std::collections::BTreeMap;

/// The identities of everything of the host that the plan mounts. The launch refuses a source that has none, and says
/// why it has none.
pub(super) fn identities(plan: &Plan, program: Option<&AbsPath>) -> BTreeMap<AbsPath, SourceIdentity> {
    let sources = plan.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Host(path) => Some(path),
        MountSource::Workspace => Some(&plan.workspace.source),
        MountSource::AgentProgram => program,
        MountSource::System
        | MountSource::Image
        | MountSource::SyntheticEtc
        | MountSource::Proc
        | MountSource::Devices
        | MountSource::Temporary
        | MountSource::InstanceDirectory(_)
        | MountSource::InstanceFile(_) => None,
    });
    sources.map(|path| (path.clone(), try_identity(path.as_path()))).collect()
}

/// The directories and files of the host that the agent gets.
pub(super) fn mounted(plan: &Plan) -> impl Iterator<Item = &AbsPath> + Clone {
    let mounts = plan.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Host(path) | MountSource::InstanceDirectory(path) | MountSource::InstanceFile(path) => {
            Some(path)
        }
        // The project is named below; the others hold no file of the user.
        MountSource::Workspace
        | MountSource::System
        | MountSource::Image
        | MountSource::SyntheticEtc
        | MountSource::Proc
        | MountSource::Devices
        | MountSource::Temporary
        | MountSource::AgentProgram => None,
    });
    std::iter::once(&plan.workspace.source).chain(mounts)
}
