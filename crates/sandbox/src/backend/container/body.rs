//! The request that makes a container. It holds no secret: the engine shows it to every user of the engine.

use super::engine::Engine;
use super::orphans;
use belljar_contract::{AbsPath, Access, Container, ContainerImage, ContainerMount, Limits};
use serde_json::{Value, json};

/// Where the guest finds the socket; the path of a socket must be short.
pub(super) const CONTROL: &str = "/run/belljar.sock";
/// The label of the process that supervises, with the time of its start, because process numbers are used again.
pub(super) const SUPERVISOR: &str = "belljar.supervisor";
/// The label of the user that the container belongs to.
pub(super) const OWNER: &str = "belljar.owner";
/// The label of the run that the container belongs to.
pub(super) const RUN: &str = "belljar.run";

/// The parts of the request.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub container: &'a Container,
    /// The image as the engine knows it.
    pub image: &'a str,
    pub limits: &'a Limits,
    /// The guest and its arguments.
    pub command: &'a [String],
    /// The socket that the guest connects to.
    pub control: &'a AbsPath,
    pub run: &'a str,
}

/// The body of the request that makes the container.
pub(super) fn body(engine: &Engine, asked: &Asked<'_>) -> Value {
    let Asked { container, image, limits, command, control, run } = asked;
    let Limits { memory, pids: _, cpu, time: _, cost_usd: _, tmpfs: _, unlimited: _ } = limits;
    let memory = memory.map(belljar_contract::ByteSize::bytes);
    let mut mounts: Vec<Value> = container.mounts.iter().map(|one| mount(one, &container.image)).collect();
    mounts.push(json!({ "Type": "bind", "Source": control, "Target": CONTROL, "ReadOnly": true }));
    // A rootless engine maps user 0 to the user; for a rootful one the user is named. The group is always named: without it
    // the lists of users and groups in the image would add others.
    let (user, group) = if engine.is_rootful() {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    } else {
        (0, 0)
    };
    // Without it user 0 cannot be another user in a namespace within the container; it gives power over nothing else,
    // and the guest gives it up with all others.
    let added: &[&str] = if user == 0 { &["SETFCAP"] } else { &[] };
    json!({
        "Image": image,
        "Entrypoint": command,
        "Cmd": [],
        "Env": [],
        "User": format!("{user}:{group}"),
        "Hostname": "belljar",
        "WorkingDir": "/",
        "NetworkDisabled": true,
        // A health check of the image would run beside the guest, outside of the sandbox that the guest builds.
        "Healthcheck": { "Test": ["NONE"] },
        "Labels": { OWNER: orphans::owner(), SUPERVISOR: orphans::this_process(), RUN: run },
        "HostConfig": {
            "AutoRemove": true,
            "NetworkMode": "none",
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "ReadonlyRootfs": true,
            "CapDrop": ["ALL"],
            "CapAdd": added,
            // The filter is the guest's, as with every backend, and comes before anything else runs. A filter or a
            // profile of the engine's would keep the guest from building the root in its own namespaces.
            "SecurityOpt": ["no-new-privileges", "seccomp=unconfined", "apparmor=unconfined", "label=disable"],
            "Memory": memory.unwrap_or(0),
            // Both together: none of it is swap.
            "MemorySwap": memory.unwrap_or(0),
            // Without a number an engine has a default of its own; -1 is none at all.
            "PidsLimit": pids(limits).map_or(-1, i64::from),
            "NanoCpus": cpu.map_or(0, |cpu| i64::from(cpu.milli().div_ceil(10)) * 10_000_000),
            "Mounts": mounts,
        },
    })
}

/// The limit of processes that the engine sets, declared or by default.
pub(super) fn pids(limits: &Limits) -> Option<u32> {
    limits.pids.or_else(|| limits.default_pids())
}

fn mount(mount: &ContainerMount, image: &ContainerImage) -> Value {
    let ContainerMount { path, access } = mount;
    json!({ "Type": "bind", "Source": path, "Target": image.place(path), "ReadOnly": *access == Access::ReadOnly })
}
