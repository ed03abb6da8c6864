//! A plan becomes a container and a root for the guest to build in it. Pure.

use super::{contents, image};
use crate::backend::defaults::default_limits_of;
use crate::backend::registry::Backend;
use crate::backend::shared::guest_spec::{bounds, guest_spec};
use crate::backend::shared::listeners::with_allowed_hosts;
use crate::backend::shared::needs::{OwnMechanisms, controls, no_agent};
use crate::backend::shared::{root, texts};
use crate::backend::{Lowering, NeedsMet};
use belljar_contract::{
    AbsPath, Access, BackendKind, BindSource, Container, ContainerImage, ContainerMount, Launch,
    LaunchArgument, Limits, Need, OsText, RootPart, Unmet, Workload, WorkspaceMode,
};

pub(super) fn check_needs(lowering: &Lowering<'_>) -> Result<NeedsMet, Vec<Unmet>> {
    let (controls, mut unmet) = controls(lowering, &MECHANISMS);
    unmet.extend(no_agent(lowering));
    unmet.extend(nameable_mounts(lowering, &root::root(lowering)).err());
    if unmet.is_empty() { Ok(NeedsMet { controls, open: Vec::new() }) } else { Err(unmet) }
}

pub(super) fn lower(
    backend: &dyn Backend,
    lowering: &Lowering<'_>,
    met: NeedsMet,
) -> Result<Launch, Vec<Unmet>> {
    let Lowering { plan, machine, .. } = *lowering;
    let NeedsMet { controls, open } = met;
    let root = root::root(lowering);
    // Checked again: where changes are kept is decided after the needs are checked.
    let mounts = nameable_mounts(lowering, &root).map_err(|unmet| vec![unmet])?;
    let image = match &plan.image {
        Some(name) => ContainerImage::Named(name.clone()),
        None => ContainerImage::Empty(image::base_name()),
    };
    let wanted = match (&image, lowering.workload) {
        (ContainerImage::Named(_), Workload::Agent(_)) => contents::wanted(&machine.interpreter),
        (ContainerImage::Named(_), Workload::Command(_)) | (ContainerImage::Empty(_), _) => Vec::new(),
    };
    let container = Container { image, mounts, wanted };
    Ok(Launch {
        backend: BackendKind::Container,
        program: OsText::new("container").unwrap_or_default(),
        arguments: arguments(&container, &plan.limits),
        command: command(&container.image.place(&machine.guest)),
        container: Some(container),
        root,
        guest: with_allowed_hosts(guest_spec(backend, lowering), plan),
        made: Vec::new(),
        limits: plan.limits.clone(),
        defaults: default_limits_of(backend, plan, machine.capacity),
        bounds: bounds(backend, lowering),
        controls,
        open,
    })
}

/// The mounts that show the guest what it binds. What lies below a mount can be seen through it and needs none of its own; the
/// guest removes what is too much.
fn mounts(root: &[RootPart], layers: Vec<ContainerMount>) -> Vec<ContainerMount> {
    let mut wanted: Vec<ContainerMount> = root
        .iter()
        .filter_map(|part| match part {
            RootPart::Bind { from: BindSource::System(path) | BindSource::Host(path), access, .. } => {
                Some(ContainerMount { path: path.clone(), access: *access })
            }
            RootPart::Bind { from: BindSource::Mounted(_), .. }
            | RootPart::Image { .. }
            | RootPart::Directory { .. }
            | RootPart::Link { .. }
            | RootPart::File { .. }
            | RootPart::Memory { .. }
            | RootPart::Processes { .. }
            | RootPart::Devices { .. }
            | RootPart::Mask { .. } => None,
        })
        .chain(layers)
        .collect();
    // Parents before children, and of the same path the writable mount first.
    wanted.sort_by(|left, right| {
        let key = |mount: &ContainerMount| (mount.path.clone(), mount.access == Access::ReadOnly);
        key(left).cmp(&key(right))
    });
    let mut kept: Vec<ContainerMount> = Vec::new();
    for mount in wanted {
        let nearest = kept.iter().rev().find(|above| mount.path.is_within(&above.path));
        let seen = nearest
            .is_some_and(|above| above.access == Access::ReadWrite || mount.access == Access::ReadOnly);
        if !seen {
            kept.push(mount);
        }
    }
    kept
}

/// The layers of the overlay, where the plan keeps changes in one: the guest mounts it.
fn layers(lowering: &Lowering<'_>) -> Vec<ContainerMount> {
    let plan = lowering.plan;
    match (plan.workspace.mode, lowering.kept) {
        (WorkspaceMode::Direct | WorkspaceMode::Copy, _) | (WorkspaceMode::Overlay, None) => Vec::new(),
        (WorkspaceMode::Overlay, Some(kept)) => {
            let lower = [Some(&plan.workspace.source), kept.repository.as_ref()].into_iter().flatten();
            let lower = lower.map(|path| ContainerMount { path: path.clone(), access: Access::ReadOnly });
            let upper = ContainerMount { path: kept.directory.clone(), access: Access::ReadWrite };
            lower.chain([upper]).collect()
        }
    }
}

/// The mounts of the container. A path that is not UTF-8 cannot be sent to an engine: requests to engines are JSON.
fn nameable_mounts(lowering: &Lowering<'_>, root: &[RootPart]) -> Result<Vec<ContainerMount>, Unmet> {
    let mounts = mounts(root, layers(lowering));
    match mounts.iter().find(|mount| mount.path.as_path().to_str().is_none()) {
        None => Ok(mounts),
        Some(odd) => Err(Unmet {
            need: Need::Files,
            why: format!("`{}` cannot be mounted in a container: its name is not UTF-8", odd.path),
            fix: "rename it, or use `backend = \"bwrap\"`".to_owned(),
        }),
    }
}

/// The container as a command line of an engine would have it, to be read by people.
fn arguments(container: &Container, limits: &Limits) -> Vec<LaunchArgument> {
    let Container { image, mounts, wanted: _ } = container;
    let Limits { memory, pids: _, cpu, time: _, cost_usd: _, tmpfs: _, unlimited: _ } = limits;
    let pids = super::body::pids(limits);
    let mut arguments: Vec<String> =
        ["--network", "none", "--read-only", "--cap-drop", "all", "--ipc", "private"]
            .map(str::to_owned)
            .to_vec();
    arguments.splice(0..0, ["--image".to_owned(), image.to_string()]);
    arguments.extend(["--security-opt".to_owned(), "no-new-privileges".to_owned()]);
    let mut limit = |name: &str, value: Option<String>| {
        arguments.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    };
    limit("--memory", memory.map(|memory| memory.bytes().to_string()));
    limit("--pids-limit", pids.map(|pids| pids.to_string()));
    limit("--cpus", cpu.map(|cpu| format!("{:.3}", f64::from(cpu.milli()) / 1000.0)));
    for ContainerMount { path, access } in mounts {
        let how = match access {
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
        };
        arguments.extend(["--volume".to_owned(), format!("{path}:{}:{how}", image.place(path))]);
    }
    arguments
        .iter()
        .filter_map(|argument| OsText::new(argument.as_bytes()).ok().map(LaunchArgument::Text))
        .collect()
}

fn command(guest: &AbsPath) -> Vec<LaunchArgument> {
    let guest = OsText::new(guest.as_bytes()).ok().map(LaunchArgument::Text);
    let mut arguments = texts(&["--"]);
    arguments.extend(guest);
    arguments.extend(texts(&["init", "--connect"]));
    arguments.push(LaunchArgument::Control);
    arguments
}

const MECHANISMS: OwnMechanisms = OwnMechanisms {
    files: "the container's mounts, and in it a root of the listed parts, made read-only",
    processes: "the container's pid namespace",
    ipc: "the container's ipc namespace",
    network: "the container has a loopback only",
    privileges: "a container without capabilities, a user namespace in it, no_new_privs, seccomp",
    lifetime: "the guest ends everything when the supervisor goes; the engine removes",
    memory: Ok("the container's control group: memory, read back"),
    pids: Ok("the container's control group: pids, read back"),
    cpu: Ok("the container's control group: cpu, read back"),
};

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(path: &str, access: Access) -> RootPart {
        let path = AbsPath::new(path).unwrap();
        RootPart::Bind { from: BindSource::Host(path.clone()), at: path, access }
    }

    #[test]
    fn what_can_be_seen_already_is_not_mounted_again() {
        use Access::{ReadOnly, ReadWrite};
        let parts = [
            bind("/home/u/project/.git/hooks", ReadOnly),
            bind("/home/u/project", ReadWrite),
            bind("/usr", ReadOnly),
            bind("/usr/src/other", ReadWrite),
            bind("/usr/share/x", ReadOnly),
            bind("/home/u/project", ReadOnly),
            bind("/home/u/projects", ReadOnly),
        ];
        let kept: Vec<_> = mounts(&parts, Vec::new())
            .into_iter()
            .map(|mount| (mount.path.to_string(), mount.access))
            .collect();
        let expected = [
            ("/home/u/project", ReadWrite),
            ("/home/u/projects", ReadOnly),
            ("/usr", ReadOnly),
            ("/usr/src/other", ReadWrite),
        ];
        assert_eq!(kept, expected.map(|(path, access)| (path.to_owned(), access)));
    }
}
