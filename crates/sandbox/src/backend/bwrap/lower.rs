//! A plan becomes arguments for bubblewrap, which makes the namespaces, and a root for the guest to build in them. Pure.

use super::prestart::Opening;
use crate::backend::defaults::default_limits_of;
use crate::backend::registry::Backend;
use crate::backend::shared::guest_spec::{bounds, guest_spec};
use crate::backend::shared::listeners::with_allowed_hosts;
use crate::backend::shared::needs::{Mechanism, OwnMechanisms, controls, no_agent, no_image};
use crate::backend::shared::root::root;
use crate::backend::shared::texts;
use crate::backend::{Lowering, NeedsMet};
use belljar_contract::{AbsPath, BackendKind, Launch, LaunchArgument, Need, OsText, Unmet};

pub(super) fn check_needs(lowering: &Lowering<'_>) -> Result<NeedsMet, Vec<Unmet>> {
    let (controls, mut unmet) = controls(lowering, &mechanisms(lowering));
    if let Err(missing) = program(lowering) {
        unmet.push(missing);
        return Err(unmet);
    }
    unmet.extend(no_agent(lowering).into_iter().chain(no_image(lowering)));
    if unmet.is_empty() { Ok(NeedsMet { controls, open: Vec::new() }) } else { Err(unmet) }
}

fn program<'a>(lowering: &Lowering<'a>) -> Result<&'a AbsPath, Unmet> {
    lowering.machine.bwrap.as_ref().ok_or_else(|| Unmet {
        need: Need::Files,
        why: "bubblewrap is not installed".to_owned(),
        fix: "apt install bubblewrap, dnf install bubblewrap, or your system's equivalent".to_owned(),
    })
}

pub(super) fn lower(
    backend: &dyn Backend,
    lowering: &Lowering<'_>,
    met: NeedsMet,
) -> Result<Launch, Vec<Unmet>> {
    let Lowering { plan, machine, .. } = *lowering;
    let NeedsMet { controls, open } = met;
    let program = program(lowering).map_err(|missing| vec![missing])?;
    let Opening { program, arguments, command } = opening(program, &machine.guest);
    Ok(Launch {
        backend: BackendKind::Bwrap,
        program,
        arguments,
        command,
        container: None,
        root: root(lowering),
        guest: with_allowed_hosts(guest_spec(backend, lowering), plan),
        made: Vec::new(),
        limits: plan.limits.clone(),
        defaults: default_limits_of(backend, plan, machine.capacity),
        bounds: bounds(backend, lowering),
        controls,
        open,
    })
}

/// How a sandbox is started, whatever the plan: the guest in it receives the plan when it runs.
pub(super) fn opening(bwrap: &AbsPath, guest: &AbsPath) -> Opening {
    Opening {
        program: OsText::new(bwrap.as_bytes()).unwrap_or_default(),
        arguments: texts(&NAMESPACES),
        command: command(guest),
    }
}

/// The namespaces that bubblewrap makes. The guest alone runs in them at first, and still sees the machine; it may mount, so
/// that it can build the root, and as user 0 it may have terminals in it.
///
/// Not `--die-with-parent`: until bubblewrap has written the user mapping of its child, the child waits for that alone, and
/// would wait for ever if bubblewrap were ended before. The guest ends when the other end of its socket is closed, and
/// bubblewrap with it.
const NAMESPACES: [&str; 25] = [
    // Asked for one by one: `--unshare-all` would try the user namespace only where it thinks it is needed.
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--hostname",
    "belljar",
    "--uid",
    "0",
    "--gid",
    "0",
    "--cap-drop",
    "ALL",
    "--cap-add",
    "CAP_SYS_ADMIN",
    "--cap-add",
    // Without it user 0 cannot be another user in a namespace within this one.
    "CAP_SETFCAP",
    "--as-pid-1",
    "--clearenv",
    // The guest's binds are made from it, devices among them.
    "--dev-bind",
    "/",
    "/",
    "--chdir",
    "/",
];

/// The guest, by its descriptor: inside, its name may mean another file by then.
fn command(guest: &AbsPath) -> Vec<LaunchArgument> {
    let mut arguments = texts(&["--"]);
    arguments.push(LaunchArgument::Program(guest.clone()));
    arguments.extend(texts(&["init", "--control"]));
    arguments.push(LaunchArgument::Control);
    arguments
}

fn mechanisms(lowering: &Lowering<'_>) -> OwnMechanisms {
    let limit = |need: Need, mechanism| -> Mechanism {
        if lowering.machine.limits.contains(&need) {
            Ok(mechanism)
        } else {
            Err((
                "no writable control group has the controller",
                "`belljar doctor` says what is there; or leave the limit out",
            ))
        }
    };
    OwnMechanisms {
        files: "mount namespace with an allowlisted root, made read-only",
        processes: "pid namespace with its own /proc",
        ipc: "ipc namespace",
        network: "network namespace with a loopback only",
        privileges: "user namespace, empty capability sets, no_new_privs, nested namespaces refused by seccomp",
        lifetime: "the guest ends everything when the supervisor goes; parent-death signal",
        memory: limit(Need::Memory, "control group: memory"),
        pids: limit(Need::Pids, "control group: pids"),
        cpu: limit(Need::Cpu, "control group: cpu"),
    }
}
