//! A plan becomes arguments for bubblewrap. Pure.
//!
//! The order is the meaning: namespaces, the system, `/etc`, kernel file systems, what the plan mounts in its
//! own order, guards over the project, files, and at last the root itself read-only.

use super::etc;
use crate::backend::{Lowering, SystemEntry, copy_directory, overlay};
use belljar_contract::{
    AbsPath, Access, BackendKind, Control, Doors, EnvSource, Errand, FileContent, GUEST_PROTOCOL,
    GuestAddress, GuestBeginning, GuestFiles, GuestFilter, GuestLimit, GuestListener, GuestResource,
    GuestSpec, GuestStream, GuestTerminal, GuestVariable, Launch, LaunchArgument, Limits, Mount, MountSource,
    Need, OsText, Plan, Unmet, WorkspaceMode,
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

struct Arguments(Vec<LaunchArgument>);

impl Arguments {
    fn text(&mut self, text: &str) -> &mut Self {
        // A text of ours has no NUL; one that did would end the launch at bubblewrap's own parser.
        self.0.extend(OsText::new(text.as_bytes()).ok().map(LaunchArgument::Text));
        self
    }

    fn texts(&mut self, texts: &[&str]) -> &mut Self {
        for text in texts {
            self.text(text);
        }
        self
    }

    fn path(&mut self, path: &AbsPath) -> &mut Self {
        self.0.extend(OsText::new(path.as_bytes()).ok().map(LaunchArgument::Text));
        self
    }

    fn bind(&mut self, source: &AbsPath, target: &AbsPath, access: Access) {
        self.text(match access {
            Access::ReadOnly => "--ro-bind-fd",
            Access::ReadWrite => "--bind-fd",
        });
        self.0.push(LaunchArgument::Source(source.clone()));
        self.path(target);
    }

    fn file(&mut self, target: &AbsPath, content: FileContent) {
        self.texts(&["--perms", "0644", "--file"]);
        self.0.push(LaunchArgument::Content { name: target.to_string(), content });
        self.path(target);
    }

    fn tmpfs(&mut self, mode: &str, target: &AbsPath) {
        self.texts(&["--perms", mode, "--tmpfs"]).path(target);
    }
}

pub(crate) fn lower(lowering: &Lowering<'_>) -> Result<Launch, Vec<Unmet>> {
    let Lowering { plan, errand, machine, terminal } = *lowering;
    let (controls, mut unmet) = controls(lowering);
    let Some(program) = machine.bwrap.clone() else {
        unmet.push(Unmet {
            need: Need::Files,
            why: "bubblewrap is not installed".to_owned(),
            fix: "apt install bubblewrap, dnf install bubblewrap, or your system's equivalent".to_owned(),
        });
        return Err(unmet);
    };
    if matches!(errand, Errand::Agent(_)) && machine.agent.is_none() {
        unmet.push(Unmet {
            need: Need::Model,
            why: format!("the agent {} is not installed, or not on PATH", plan.harness),
            fix: "install it, or put it on PATH".to_owned(),
        });
    }
    if !unmet.is_empty() {
        return Err(unmet);
    }
    let mut arguments = Arguments(Vec::new());
    let doors = Doors::of(&plan.egress).listeners();
    namespaces(&mut arguments, !doors.is_empty());
    for entry in &machine.system {
        match entry {
            SystemEntry::Directory(path) => {
                arguments.text("--ro-bind").path(path).path(path);
            }
            SystemEntry::Link { at, to } => {
                arguments.text("--symlink");
                arguments.0.push(LaunchArgument::Text(to.clone()));
                arguments.path(at);
            }
        }
    }
    // Before what the plan mounts: a project may lie below one of them.
    for (mode, path) in [("0755", "/run"), ("1777", "/var/tmp")] {
        if let Ok(path) = AbsPath::new(path) {
            arguments.tmpfs(mode, &path);
        }
    }
    for mount in &plan.mounts {
        lower_mount(mount, lowering, &mut arguments);
    }
    for (path, access) in &machine.guarded {
        if let Some(target) = inside(plan, path) {
            arguments.bind(path, &target, *access);
        }
    }
    for file in &plan.files {
        arguments.file(&file.target, file.content.clone());
    }
    finish(&mut arguments, lowering);
    Ok(Launch {
        backend: BackendKind::Bwrap,
        program: OsText::new(program.as_bytes()).unwrap_or_default(),
        arguments: arguments.0,
        command: command(),
        guest: with_doors(guest(lowering, terminal), doors),
        made: Vec::new(),
        limits: plan.limits.clone(),
        controls,
        open: Vec::new(),
    })
}

fn namespaces(arguments: &mut Arguments, doors: bool) {
    // Asked for one by one: `--unshare-all` would try the user namespace only where it thinks it is needed.
    arguments.texts(&[
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup",
        "--hostname",
        "belljar",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        "--as-pid-1",
        "--clearenv",
    ]);
    if doors {
        // Over the new user namespace alone, and for the guest alone: it makes a network namespace with the doors, then
        // empties the sets, before the command is started.
        for capability in ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETPCAP"] {
            arguments.texts(&["--cap-add", capability]);
        }
    }
}

/// Where allowed names have addresses, the guest opens a socket at each.
fn with_doors(mut guest: GuestSpec, doors: Vec<GuestListener>) -> GuestSpec {
    guest.range = (!doors.is_empty()).then_some(Doors::RANGE);
    guest.listeners.extend(doors);
    guest
}

fn lower_mount(mount: &Mount, lowering: &Lowering<'_>, arguments: &mut Arguments) {
    let Lowering { plan, machine, .. } = lowering;
    let Mount { target, source, access, why: _ } = mount;
    match source {
        // The system's directories come first, before anything of the plan.
        MountSource::System => {}
        MountSource::SyntheticEtc => {
            let resolver = !Doors::of(&plan.egress).doors.is_empty();
            for (path, text) in etc::files(&plan.home_directory, resolver) {
                if let Ok(path) = AbsPath::new(path) {
                    arguments.file(&path, FileContent::Text(text));
                }
            }
            for path in &machine.etc_files {
                arguments.texts(&["--perms", "0644", "--file"]);
                arguments.0.push(LaunchArgument::Readable(path.clone()));
                arguments.path(path);
            }
            for path in &machine.etc {
                arguments.text("--ro-bind").path(path).path(path);
            }
        }
        MountSource::Proc => {
            arguments.text("--proc").path(target);
            // The kernel lists the keys of a user by number and description in every namespace.
            for hidden in ["/proc/keys", "/proc/key-users"] {
                arguments.texts(&["--ro-bind", "/dev/null", hidden]);
            }
        }
        MountSource::Devices => {
            arguments.text("--dev").path(target);
        }
        MountSource::Temporary => {
            let mode = if *target == plan.home_directory { "0700" } else { "1777" };
            arguments.tmpfs(mode, target);
        }
        MountSource::AgentProgram => {
            if let (Some(agent), Errand::Agent(_)) = (&machine.agent, lowering.errand) {
                arguments.bind(agent, target, Access::ReadOnly);
            }
        }
        MountSource::Workspace => match plan.workspace.mode {
            WorkspaceMode::Direct => arguments.bind(&plan.workspace.source, target, *access),
            WorkspaceMode::Copy => arguments.bind(&copy_directory(plan), target, *access),
            // Mounted in a namespace that only bubblewrap sees, so it has no descriptor out here.
            WorkspaceMode::Overlay => {
                if let Ok(merged) = AbsPath::new(overlay(plan).target()) {
                    arguments.text("--bind").path(&merged).path(target);
                }
            }
        },
        MountSource::Host(path) => arguments.bind(path, target, *access),
        // The runner makes them before a launch.
        MountSource::InstanceDirectory(path) | MountSource::InstanceFile(path) => {
            arguments.bind(path, target, *access);
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

fn finish(arguments: &mut Arguments, lowering: &Lowering<'_>) {
    arguments.texts(&["--perms", "0700", "--dir", RUN]);
    if let Ok(path) = AbsPath::new(GUEST) {
        arguments.bind(&lowering.machine.guest, &path, Access::ReadOnly);
    }
    // Files made above lie in the root's own memory: from here on they, and the empty directories around the
    // project, cannot be written.
    arguments.texts(&["--remount-ro", "/", "--chdir", "/"]);
}

fn command() -> Vec<LaunchArgument> {
    let mut words = Arguments(Vec::new());
    words.texts(&["--", GUEST, "init", "--control"]);
    words.0.push(LaunchArgument::Control);
    words.0
}

/// What is started, with its environment and streams; the same for every backend.
pub(in crate::backend) fn guest(lowering: &Lowering<'_>, terminal: bool) -> GuestSpec {
    let Lowering { plan, errand, .. } = lowering;
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
        files: GuestFiles::AsMounted,
        filter: GuestFilter::Standard,
        umask: 0o022,
        limits: vec![GuestLimit { resource: GuestResource::Core, soft: 0, hard: 0 }],
        grace_ms: GRACE_MS,
    }
}

/// A round trip less where nothing has to be ready outside before the command runs: a control group that it must be
/// born in, somebody who answers on a listener, a terminal in the right mode.
fn beginning(plan: &Plan, terminal: bool, listeners: &[GuestListener]) -> GuestBeginning {
    let Limits { memory, cpu, pids, time: _, cost_usd: _ } = &plan.limits;
    let in_group = memory.is_some() || cpu.is_some() || pids.is_some();
    if in_group || terminal || !listeners.is_empty() {
        GuestBeginning::OnOrder
    } else {
        GuestBeginning::AtOnce
    }
}

/// Every need is either met by a control or refused; a test holds this to be total.
fn controls(lowering: &Lowering<'_>) -> (Vec<Control>, Vec<Unmet>) {
    let (mut controls, mut unmet) = (Vec::new(), Vec::new());
    for need in lowering.plan.needs(lowering.errand) {
        match control(need, lowering) {
            Ok(mechanism) => controls.push(Control { need, mechanism: mechanism.to_owned() }),
            Err((why, fix)) => unmet.push(Unmet { need, why: why.to_owned(), fix: fix.to_owned() }),
        }
    }
    (controls, unmet)
}

fn control(need: Need, lowering: &Lowering<'_>) -> Result<&'static str, (&'static str, &'static str)> {
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
        Need::HostExecuted => {
            Ok("read-only mounts over those that exist; those made during the run are reported")
        }
        Need::Overlay => Ok("overlay mount; the project is its read-only lower layer"),
        Need::Copy => Ok("a copy is mounted in the project's place"),
        Need::Memory => limit("control group: memory"),
        Need::Pids => limit("control group: pids"),
        Need::Cpu => limit("control group: cpu"),
        Need::Time => Ok("the supervisor's clock"),
        Need::Model => Ok("gateway on a unix socket; the credential stays outside"),
        Need::Cost => Ok("the gateway counts, and refuses the request that would pass the limit"),
        Need::Egress => Ok("proxy and doors on sockets inside; the policy decides and dials outside"),
        Need::Credentials => Ok("added outside, where TLS is intercepted for exactly these hosts"),
        Need::Ssh => Ok("an agent that signs with the declared key for the declared host alone"),
    }
}
