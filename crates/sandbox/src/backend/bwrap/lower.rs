//! A plan becomes arguments for bubblewrap, which makes the namespaces, and a root for the guest to build in them. Pure.
//!
//! The order is the meaning: the system, `/etc`, kernel file systems, what the plan mounts in its own order, guards
//! over the project, files. At last the guest makes the root itself read-only: from then on the files in it, and the
//! empty directories around the project, cannot be written.

use super::etc;
use crate::backend::defaults::{self, Processes, default_limits};
use crate::backend::waiting::Opening;
use crate::backend::{Lowering, Machine, SystemEntry};
use belljar_contract::{
    AbsPath, Access, BackendKind, BindSource, Control, Doors, EnvSource, Errand, FileContent, GUEST_PROTOCOL,
    GuestAddress, GuestBeginning, GuestBounds, GuestFiles, GuestFilter, GuestListener, GuestRoot, GuestSpec,
    GuestStream, GuestTerminal, GuestVariable, Launch, LaunchArgument, Limits, Mount, MountSource, Need,
    OsText, Plan, RootPart, Unmet, WorkspaceMode,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where the guest lies inside.
pub(in crate::backend) const GUEST: &str = belljar_contract::GUEST_PROGRAM;
/// Where sockets to the supervisor appear.
const RUN: &str = "/run/belljar";
/// The listener of the model's gateway.
pub const MODEL_LISTENER: &str = "model";
/// The listener of the agent that signs for ssh.
pub const SSH_LISTENER: &str = "ssh-agent";
/// The listener of the proxy.
pub const PROXY_LISTENER: &str = "proxy";
/// Where the proxy is reached inside.
pub const PROXY_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);
/// How long processes have to end.
const GRACE_MS: u32 = 500;

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

pub(crate) fn lower(lowering: &Lowering<'_>) -> Result<Launch, Vec<Unmet>> {
    let Lowering { plan, machine, terminal, .. } = *lowering;
    let (controls, mut unmet) = controls(lowering, |need| control(need, lowering));
    let Some(program) = machine.bwrap.clone() else {
        unmet.push(Unmet {
            need: Need::Files,
            why: "bubblewrap is not installed".to_owned(),
            fix: "apt install bubblewrap, dnf install bubblewrap, or your system's equivalent".to_owned(),
        });
        return Err(unmet);
    };
    unmet.extend(no_agent(lowering).into_iter().chain(no_image(lowering)));
    if !unmet.is_empty() {
        return Err(unmet);
    }
    let doors = Doors::of(&plan.egress).listeners();
    let Opening { program, arguments, command } = opening(&program, &machine.guest);
    Ok(Launch {
        backend: BackendKind::Bwrap,
        program,
        arguments,
        command,
        container: None,
        root: root(lowering),
        guest: with_doors(guest(lowering, terminal), doors),
        made: Vec::new(),
        limits: plan.limits.clone(),
        defaults: default_limits(plan, machine.capacity),
        bounds: bounds(lowering),
        controls,
        open: Vec::new(),
    })
}

/// The agent is not there, where it is to be started.
pub(in crate::backend) fn no_agent(lowering: &Lowering<'_>) -> Option<Unmet> {
    let missing = matches!(lowering.errand, Errand::Agent(_)) && lowering.machine.agent.is_none();
    missing.then(|| Unmet {
        need: Need::Model,
        why: format!("the agent {} is not installed, or not on PATH", lowering.plan.harness),
        fix: "install it, or put it on PATH".to_owned(),
    })
}

/// An image is named where there are none.
pub(in crate::backend) fn no_image(lowering: &Lowering<'_>) -> Option<Unmet> {
    let Plan { image, backend, .. } = lowering.plan;
    image.as_ref().map(|image| Unmet {
        need: Need::Files,
        why: format!("the image `{image}` is for containers; {} has none", backend.name()),
        fix: "use `backend = \"container\"`, or leave `image` out".to_owned(),
    })
}

/// How a sandbox begins, whatever the plan: it is told about the plan when it stands.
pub(in crate::backend) fn opening(bwrap: &AbsPath, guest: &AbsPath) -> Opening {
    Opening {
        program: OsText::new(bwrap.as_bytes()).unwrap_or_default(),
        arguments: texts(&NAMESPACES),
        command: command(guest),
    }
}

pub(in crate::backend) fn texts(words: &[&str]) -> Vec<LaunchArgument> {
    words.iter().filter_map(|word| OsText::new(*word).ok().map(LaunchArgument::Text)).collect()
}

/// What bubblewrap does: the namespaces. In them the guest still sees the machine, and it alone runs there; it may mount,
/// so that it can build the root, and as user 0 it may have terminals in it.
///
/// Not `--die-with-parent`: until bubblewrap has told its child who it is, the child waits for that word alone, and would wait
/// for ever if bubblewrap were ended before. The guest ends when nobody is at the other end of its line, and bubblewrap with
/// it.
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
    // The binds of the guest are made from it; devices among them.
    "--dev-bind",
    "/",
    "/",
    "--chdir",
    "/",
];

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
    parts.own(RUN, |at| RootPart::Directory { at, mode: 0o700 });
    if let Ok(path) = AbsPath::new(GUEST) {
        parts.bind(&machine.guest, &path, Access::ReadOnly);
    }
    parts.0
}

/// Where allowed names have addresses, the guest opens a socket at each.
pub(in crate::backend) fn with_doors(mut guest: GuestSpec, doors: Vec<GuestListener>) -> GuestSpec {
    guest.range = (!doors.is_empty()).then_some(Doors::RANGE);
    guest.listeners.extend(doors);
    guest
}

fn lower_mount(mount: &Mount, lowering: &Lowering<'_>, parts: &mut Parts) {
    let Lowering { plan, machine, .. } = lowering;
    let Mount { target, source, access, why: _ } = mount;
    let at = target.clone();
    match source {
        // The system comes first, before anything of the plan.
        MountSource::System | MountSource::Image => {}
        MountSource::SyntheticEtc => {
            let resolver = !Doors::of(&plan.egress).doors.is_empty();
            for (path, text) in etc::files(&plan.home_directory, resolver) {
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
            if let (Some(agent), Errand::Agent(_)) = (&machine.agent, lowering.errand) {
                parts.bind(agent, target, Access::ReadOnly);
            }
        }
        MountSource::Workspace => kept_or_own(&plan.workspace.source, mount, lowering, parts),
        MountSource::Host(path) if is_repository(path, mount, machine) => {
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
fn is_repository(path: &AbsPath, mount: &Mount, machine: &Machine) -> bool {
    let repository = machine.kept.as_ref().and_then(|kept| kept.repository.as_ref());
    repository == Some(path) && mount.target == *path && mount.access == Access::ReadWrite
}

/// The project or its repository: itself, its copy, or the overlay on it.
fn kept_or_own(source: &AbsPath, mount: &Mount, lowering: &Lowering<'_>, parts: &mut Parts) {
    let Lowering { plan, machine, .. } = lowering;
    let kept = machine.kept.as_ref().and_then(|kept| kept.of(plan, source));
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

/// The guest, by its descriptor: inside, its name may mean another file by then.
fn command(guest: &AbsPath) -> Vec<LaunchArgument> {
    let mut words = texts(&["--"]);
    words.push(LaunchArgument::Program(guest.clone()));
    words.extend(texts(&["init", "--control"]));
    words.push(LaunchArgument::Control);
    words
}

/// What is started, with its environment and streams; the same for every backend.
pub(in crate::backend) fn guest(lowering: &Lowering<'_>, terminal: bool) -> GuestSpec {
    let Lowering { plan, errand, machine, .. } = lowering;
    let text = |bytes: &[u8]| OsText::new(bytes).ok();
    let argv: Vec<OsText> = match errand {
        Errand::Agent(more) => {
            let own = plan.argv.iter().filter_map(|word| text(word.as_bytes()));
            let prompt = plan.prompt.iter().filter_map(|prompt| text(prompt.argument.as_bytes()));
            // What the user adds on the command line takes the place of the first message.
            let prompt: Vec<OsText> = if more.is_empty() { prompt.collect() } else { Vec::new() };
            own.chain(more.iter().cloned()).chain(prompt).collect()
        }
        Errand::Command(argv) => argv.clone(),
    };
    let environment = plan.env.iter().filter_map(|entry| match &entry.source {
        EnvSource::Constant(value) => Some(GuestVariable {
            name: text(entry.name.as_str().as_bytes())?,
            value: text(value.as_bytes())?,
        }),
        EnvSource::Literal(_)
        | EnvSource::Variable(_)
        | EnvSource::Prompt(_)
        | EnvSource::File(_)
        | EnvSource::Command(_)
        | EnvSource::Run(_) => None,
    });
    let unix = |name: &str, file: &str| {
        let path = text(format!("{RUN}/{file}").as_bytes())?;
        Some(GuestListener { name: name.to_owned(), at: GuestAddress::Unix { path, mode: 0o600 } })
    };
    let proxy = || GuestListener {
        name: PROXY_LISTENER.to_owned(),
        at: GuestAddress::Tcp { address: PROXY_ADDRESS },
    };
    let model = matches!(errand, Errand::Agent(_)) && plan.egress.model;
    let listeners = [
        model.then(|| unix(MODEL_LISTENER, "model.sock")).flatten(),
        (!plan.ssh.is_empty()).then(|| unix(SSH_LISTENER, "ssh-agent.sock")).flatten(),
        plan.has_proxy().then(proxy),
    ];
    let listeners: Vec<GuestListener> = listeners.into_iter().flatten().collect();
    GuestSpec {
        protocol: GUEST_PROTOCOL,
        program: argv.first().cloned().unwrap_or_default(),
        argv,
        environment: environment.collect(),
        directory: text(plan.workspace.directory.as_bytes()).unwrap_or_default(),
        // Where they lead is known when it is started.
        stdin: GuestStream::Null,
        stdout: GuestStream::Null,
        stderr: GuestStream::Null,
        terminal: if terminal { GuestTerminal::Own } else { GuestTerminal::Absent },
        range: None,
        beginning: beginning(plan, terminal, &listeners),
        listeners,
        // What it is made of is known when it is started.
        root: GuestRoot::AsFound,
        files: GuestFiles::AsMounted,
        filter: GuestFilter::Standard,
        guard: machine.guard.clone(),
        umask: 0o022,
        limits: defaults::resources(plan, machine.capacity),
        grace_ms: GRACE_MS,
    }
}

/// Limits that the guest sets while it builds the root.
pub(in crate::backend) fn bounds(lowering: &Lowering<'_>) -> GuestBounds {
    let Lowering { plan, machine, .. } = lowering;
    GuestBounds {
        tmpfs: plan.limits.tmpfs_bytes(machine.capacity.memory),
        pid_max: match defaults::processes(plan, machine.capacity) {
            Some(Ok(Processes::Numbers(most))) => Some(most),
            Some(
                Ok(Processes::Resource(_) | Processes::Engine(_) | Processes::EngineAndResource(_)) | Err(_),
            )
            | None => None,
        },
    }
}

/// A round trip less where nothing has to be ready outside before the command runs: a control group that it must be
/// born in, somebody who answers on a listener, a terminal in the right mode.
fn beginning(plan: &Plan, terminal: bool, listeners: &[GuestListener]) -> GuestBeginning {
    let Limits { memory, cpu, pids, time: _, cost_usd: _, tmpfs: _, unlimited: _ } = &plan.limits;
    let in_group = memory.is_some() || cpu.is_some() || pids.is_some();
    if in_group || terminal || !listeners.is_empty() {
        GuestBeginning::OnOrder
    } else {
        GuestBeginning::AtOnce
    }
}

/// Every need is either met by a control or refused; a test holds this to be total.
pub(in crate::backend) fn controls(
    lowering: &Lowering<'_>,
    control: impl Fn(Need) -> Mechanism,
) -> (Vec<Control>, Vec<Unmet>) {
    let (mut controls, mut unmet) = (Vec::new(), Vec::new());
    for need in lowering.plan.needs(lowering.errand) {
        match control(need) {
            Ok(mechanism) => controls.push(Control { need, mechanism: mechanism.to_owned() }),
            Err((why, fix)) => unmet.push(Unmet { need, why: why.to_owned(), fix: fix.to_owned() }),
        }
    }
    (controls, unmet)
}

/// What enforces a need, or why nothing does and what would help.
pub(in crate::backend) type Mechanism = Result<&'static str, (&'static str, &'static str)>;

pub(in crate::backend) fn control(need: Need, lowering: &Lowering<'_>) -> Mechanism {
    let limit = |mechanism| {
        if lowering.machine.limits.contains(&need) {
            Ok(mechanism)
        } else {
            Err((
                "no control group that may be written has the controller",
                "`belljar doctor` says what is there; or leave the limit out",
            ))
        }
    };
    match need {
        Need::Files => Ok("mount namespace with an allowlisted root, made read-only"),
        Need::Processes => Ok("pid namespace with its own /proc"),
        Need::Ipc => Ok("ipc namespace"),
        Need::Network => Ok("network namespace with a loopback only"),
        Need::Environment => Ok("cleared; the guest sets the listed variables"),
        Need::Privileges => {
            Ok("user namespace, empty capability sets, no_new_privs, nested namespaces refused by seccomp")
        }
        Need::Kernel => Ok("seccomp filter, Landlock where the kernel has it"),
        Need::Keyring => Ok("a fresh session keyring, key calls refused by seccomp"),
        Need::Descriptors => Ok("every descriptor but the standard streams is closed"),
        Need::Terminal => Ok("a pseudo-terminal of belljar's, or none"),
        Need::Lifetime => Ok("the guest ends everything when the supervisor goes; parent-death signal"),
        Need::HostExecuted if lowering.machine.guard.is_some() => {
            Ok("Landlock and a broker of the guest hold them back; read-only mounts; what is new is reported")
        }
        Need::HostExecuted => {
            Ok("read-only mounts over those that exist; those made during the run are reported")
        }
        Need::Overlay => Ok("overlay mount; the project is its read-only lower layer"),
        Need::Copy => Ok("a copy is mounted in the project's place"),
        Need::Memory => limit("control group: memory"),
        Need::Pids => limit("control group: pids"),
        Need::Cpu => limit("control group: cpu"),
        Need::Tmpfs => Ok(defaults::TMPFS_MECHANISM),
        Need::Time => Ok("the supervisor's clock"),
        Need::Model => Ok("gateway on a unix socket; the credential stays outside"),
        Need::Cost => Ok("the gateway counts, and refuses the request that would pass the limit"),
        Need::Egress => Ok("proxy and doors on sockets inside; the policy decides and dials outside"),
        Need::Credentials => Ok("added outside, where TLS is intercepted for exactly these hosts"),
        Need::Ssh => Ok("an agent that signs with the declared key for the declared host alone"),
    }
}
