//! The root that the guest builds, as an ordered list of its parts.
//!
//! A later part covers an earlier one: the system, `/etc`, kernel file systems, the mounts of the plan in its own order, the
//! guarded paths of the project, files. At last the guest makes the root read-only: from then on the files in it, and the
//! empty directories around the project, cannot be written.

use super::{etc, guest_inside, listeners};
use crate::backend::{KeptAt, Lowering, SystemEntry};
use belljar_contract::{
    AbsPath, Access, BindSource, FileContent, Mount, MountSource, Plan, RootPart, Workload, WorkspaceMode,
};

/// The parts of the root, in order.
struct Parts(Vec<RootPart>);

impl Parts {
    /// A name of ours; every one of them is absolute.
    fn own(&mut self, path: &str, part: impl FnOnce(AbsPath) -> RootPart) {
        self.0.extend(AbsPath::new(path).ok().map(part));
    }

    fn bind(&mut self, source: &AbsPath, target: &AbsPath, access: Access) {
        self.0.push(RootPart::Bind { from: BindSource::Host(source.clone()), at: target.clone(), access });
    }

    fn system(&mut self, entry: &SystemEntry) {
        self.0.push(match entry.clone() {
            SystemEntry::Shown(at) => {
                RootPart::Bind { from: BindSource::System(at.clone()), at, access: Access::ReadOnly }
            }
            SystemEntry::Link { at, to } => RootPart::Link { at, to },
            SystemEntry::Copied { at, text } => RootPart::File { at, content: FileContent::Text(text) },
        });
    }

    fn file(&mut self, target: &AbsPath, content: FileContent) {
        self.0.push(RootPart::File { at: target.clone(), content });
    }
}

pub(in crate::backend) fn root(lowering: &Lowering<'_>) -> Vec<RootPart> {
    let Lowering { plan, machine, .. } = *lowering;
    let mut parts = Parts(Vec::new());
    if plan.image.is_some() {
        parts.own("/", |at| RootPart::Image { at });
    } else {
        machine.system.iter().for_each(|entry| parts.system(entry));
    }
    // Before what the plan mounts: a project may lie below one of them.
    parts.own("/run", |at| RootPart::Memory { at, mode: 0o755 });
    parts.own("/var/tmp", |at| RootPart::Memory { at, mode: 0o1777 });
    for mount in &plan.mounts {
        lower_mount(mount, lowering, &mut parts);
    }
    for (path, access) in &machine.guarded {
        if let Some(target) = inside(plan, path) {
            parts.bind(path, &target, *access);
        }
    }
    for file in &plan.files {
        parts.file(&file.target, file.content.clone());
    }
    parts.own(listeners::SOCKETS, |at| RootPart::Directory { at, mode: 0o700 });
    parts.bind(&machine.guest, &guest_inside(&machine.guest), Access::ReadOnly);
    parts.0
}

fn lower_mount(mount: &Mount, lowering: &Lowering<'_>, parts: &mut Parts) {
    let Lowering { plan, machine, .. } = lowering;
    let Mount { target, source, access, why: _ } = mount;
    let at = target.clone();
    match source {
        // The system comes first, before anything of the plan.
        MountSource::System | MountSource::Image => {}
        MountSource::SyntheticEtc => {
            for (path, text) in etc::files(&plan.home_directory) {
                parts.own(path, |at| RootPart::File { at, content: FileContent::Text(text) });
            }
            // An image has its own.
            let machines = if plan.image.is_some() { &[][..] } else { machine.etc.as_slice() };
            machines.iter().for_each(|entry| parts.system(entry));
        }
        MountSource::Proc => {
            parts.0.push(RootPart::Processes { at });
            // The kernel lists the keys of a user by number and description in every namespace.
            for hidden in ["keys", "key-users"] {
                parts.0.push(RootPart::Mask { at: target.child(hidden) });
            }
        }
        MountSource::Devices => parts.0.push(RootPart::Devices { at }),
        MountSource::Temporary => {
            let mode = if *target == plan.home_directory { 0o700 } else { 0o1777 };
            parts.0.push(RootPart::Memory { at, mode });
        }
        MountSource::AgentProgram => {
            if let (Some(agent), Workload::Agent(_)) = (&machine.agent, lowering.workload) {
                parts.bind(agent, target, Access::ReadOnly);
            }
        }
        MountSource::Workspace => kept_or_own(&plan.workspace.source, mount, lowering, parts),
        MountSource::Host(path) if is_repository(path, mount, lowering.kept) => {
            kept_or_own(path, mount, lowering, parts);
        }
        MountSource::Host(path) => parts.bind(path, target, *access),
        // The runner makes them before a launch.
        MountSource::InstanceDirectory(path) | MountSource::InstanceFile(path) => {
            parts.bind(path, target, *access);
        }
    }
}

/// Whether a mount is that of the project's repository, whose changes are kept with those of the project.
fn is_repository(path: &AbsPath, mount: &Mount, kept: Option<&KeptAt>) -> bool {
    let repository = kept.and_then(|kept| kept.repository.as_ref());
    repository == Some(path) && mount.target == *path && mount.access == Access::ReadWrite
}

/// The project or its repository: itself, its copy, or the overlay on it.
fn kept_or_own(source: &AbsPath, mount: &Mount, lowering: &Lowering<'_>, parts: &mut Parts) {
    let Lowering { plan, kept, .. } = *lowering;
    let kept = kept.and_then(|kept| kept.of(plan, source));
    let place = |path: std::path::PathBuf| AbsPath::new(path).ok();
    match plan.workspace.mode {
        WorkspaceMode::Direct => parts.bind(source, &mount.target, mount.access),
        WorkspaceMode::Copy => {
            if let Some(copy) = kept.and_then(|kept| place(kept.copy())) {
                parts.bind(&copy, &mount.target, mount.access);
            }
        }
        // Mounted in a namespace that only bubblewrap and the guest see, so nothing can be opened out here.
        WorkspaceMode::Overlay => {
            let from = kept.and_then(|kept| place(kept.target())).map(BindSource::Mounted);
            let at = mount.target.clone();
            parts.0.extend(from.map(|from| RootPart::Bind { from, at, access: Access::ReadWrite }));
        }
    }
}

/// Where a path of the project, or of its repository, appears inside.
fn inside(plan: &Plan, path: &AbsPath) -> Option<AbsPath> {
    match path.relative_to(&plan.workspace.source) {
        Some(below) => plan.workspace.target.join(below).ok(),
        // A repository outside the project stands at its own path.
        None => Some(path.clone()),
    }
}
