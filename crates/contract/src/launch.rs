//! A lowered plan: what exactly is started, and which mechanism enforces which need.

use crate::{
    AbsPath, Access, BackendKind, Container, DefaultLimit, FileContent, GuestBounds, GuestSpec, Limits,
    OsText, Plan, Purpose, WorkspaceMode,
};
use serde::{Deserialize, Serialize};

/// An isolation property that a plan requires. A backend enforces it with a named control or refuses the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Only the files that the plan lists are visible.
    Files,
    /// Processes of the host cannot be seen or signalled.
    Processes,
    /// Shared memory, semaphores and queues of the host are not accessible.
    Ipc,
    /// No network except the sockets that belljar passes in.
    Network,
    /// Only the variables that the plan lists.
    Environment,
    /// No capabilities, no way to gain any, no nested namespaces.
    Privileges,
    /// No kernel interfaces that programs do not need.
    Kernel,
    /// No keys of the user's session.
    Keyring,
    /// No descriptors of the caller.
    Descriptors,
    /// The user's own terminal is not accessible.
    Terminal,
    /// No process outlives the supervisor.
    Lifetime,
    /// Files that the host would execute later cannot be changed unnoticed.
    HostExecuted,
    /// Changes are kept in an overlay.
    Overlay,
    /// Changes are made to a copy.
    Copy,
    /// A limit on memory.
    Memory,
    /// A limit on processes.
    Pids,
    /// A limit on processors.
    Cpu,
    /// A limit on time.
    Time,
    /// A limit on money.
    Cost,
    /// A limit on file systems in memory.
    Tmpfs,
    /// The model, through the gateway.
    Model,
    /// Only the hosts that the plan allows.
    Egress,
    /// Credentials stay outside the sandbox.
    Credentials,
    /// ssh keys stay outside the sandbox.
    Ssh,
}

impl Need {
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Need::Files => "only the listed files",
            Need::Processes => "no processes of the host",
            Need::Ipc => "no shared memory of the host",
            Need::Network => "no network but belljar's sockets",
            Need::Environment => "only the listed variables",
            Need::Privileges => "no privileges",
            Need::Kernel => "no risky kernel interfaces",
            Need::Keyring => "no keys of the session",
            Need::Descriptors => "no descriptors of the caller",
            Need::Terminal => "a terminal of its own",
            Need::Lifetime => "nothing outlives the supervisor",
            Need::HostExecuted => "files that the host executes are guarded",
            Need::Overlay => "changes are kept in an overlay",
            Need::Copy => "changes are made to a copy",
            Need::Memory => "a limit on memory",
            Need::Pids => "a limit on processes",
            Need::Cpu => "a limit on processors",
            Need::Time => "a limit on time",
            Need::Cost => "a limit on money",
            Need::Tmpfs => "a limit on file systems in memory",
            Need::Model => "the model through the gateway",
            Need::Egress => "the allowed hosts and no others",
            Need::Credentials => "credentials that stay outside",
            Need::Ssh => "ssh keys that stay outside",
        }
    }
}

/// The command to start inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workload {
    /// The agent, with further arguments.
    Agent(Vec<OsText>),
    Command(Vec<OsText>),
}

impl Plan {
    /// The needs of the plan for a command.
    #[must_use]
    pub fn needs(&self, workload: &Workload) -> Vec<Need> {
        let mut needs = vec![
            Need::Files,
            Need::Processes,
            Need::Ipc,
            Need::Network,
            Need::Environment,
            Need::Privileges,
            Need::Kernel,
            Need::Keyring,
            Need::Descriptors,
            Need::Terminal,
            Need::Lifetime,
        ];
        match (self.workspace.mode, self.purpose) {
            (WorkspaceMode::Direct, Purpose::Session | Purpose::Test) => needs.push(Need::HostExecuted),
            (WorkspaceMode::Overlay, _) => needs.push(Need::Overlay),
            (WorkspaceMode::Copy, _) => needs.push(Need::Copy),
        }
        let Limits { memory, pids, cpu, time, cost_usd, tmpfs, unlimited: _ } = &self.limits;
        let mut when = |wanted: bool, need: Need| {
            if wanted {
                needs.push(need);
            }
        };
        when(memory.is_some(), Need::Memory);
        when(pids.is_some(), Need::Pids);
        when(cpu.is_some(), Need::Cpu);
        when(time.is_some(), Need::Time);
        when(tmpfs.is_some(), Need::Tmpfs);
        let agent = matches!(workload, Workload::Agent(_));
        when(agent && cost_usd.is_some(), Need::Cost);
        when(agent && self.egress.model, Need::Model);
        when(self.has_proxy(), Need::Egress);
        when(!self.credentials.is_empty(), Need::Credentials);
        when(!self.ssh.is_empty(), Need::Ssh);
        needs
    }
}

/// The mechanism that enforces a need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Control {
    pub need: Need,
    pub mechanism: String,
}

/// A need that this machine cannot enforce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmet {
    pub need: Need,
    pub why: String,
    /// How to make it enforceable.
    pub fix: String,
}

/// A need that nothing enforced during a run without a sandbox, as its record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenNeed {
    pub need: Need,
    /// What the command can do.
    pub why: String,
}

impl From<&Unmet> for OpenNeed {
    fn from(Unmet { need, why, fix: _ }: &Unmet) -> Self {
        Self { need: *need, why: why.clone() }
    }
}

/// One argument of the program that builds the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchArgument {
    Text(OsText),
    /// A file of the host to execute. It is opened at launch and named by its descriptor.
    Program(AbsPath),
    /// The number of the control socket's descriptor.
    Control,
}

impl LaunchArgument {
    /// For people; descriptors are shown by their meaning.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            LaunchArgument::Text(text) => format!("{text:?}").trim_matches('"').to_owned(),
            LaunchArgument::Program(path) => format!("<descriptor of {path}>"),
            LaunchArgument::Control => "<descriptor of the control socket>".to_owned(),
        }
    }
}

/// One part of the root inside. Missing parent directories are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootPart {
    /// The directory of the container's image, read-only, without the places of the other parts.
    Image {
        /// The path in the image and inside.
        at: AbsPath,
    },
    Directory {
        at: AbsPath,
        mode: u32,
    },
    Link {
        at: AbsPath,
        /// The target as written.
        to: OsText,
    },
    File {
        at: AbsPath,
        /// Its content, assembled at launch.
        content: FileContent,
    },
    /// An empty file system in memory.
    Memory {
        at: AbsPath,
        /// The mode of its top directory.
        mode: u32,
    },
    /// A `/proc` for the processes inside; settings of the whole machine are read-only.
    Processes {
        at: AbsPath,
    },
    /// Pseudo devices without hardware behind them, and terminals of the sandbox.
    Devices {
        at: AbsPath,
    },
    /// Hides whatever exists at this path.
    Mask {
        at: AbsPath,
    },
    /// A file or directory of the host, with everything mounted below it.
    Bind {
        from: BindSource,
        at: AbsPath,
        /// Whether it can be written.
        access: Access,
    },
}

/// The source of a bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindSource {
    /// A part of the system. Symbolic links are followed.
    System(AbsPath),
    /// A mount that was made for the sandbox only.
    Mounted(AbsPath),
    /// A path of the host. It is opened at launch without following links, and compared again inside.
    Host(AbsPath),
}

impl BindSource {
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        match self {
            BindSource::System(path) | BindSource::Mounted(path) | BindSource::Host(path) => path,
        }
    }
}

impl RootPart {
    /// For people: the kind, the mode and the path. The content of a file is not shown.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let octal = |mode: &u32| format!("{mode:04o}");
        let word = |text: &str| text.to_owned();
        match self {
            RootPart::Image { at } => vec![word("image"), word("read-only"), at.to_string()],
            RootPart::Directory { at, mode } => vec![word("directory"), octal(mode), at.to_string()],
            RootPart::Link { at, to } => vec![word("link"), to.to_string(), at.to_string()],
            RootPart::File { at, content: _ } => vec![word("file"), octal(&0o644), at.to_string()],
            RootPart::Memory { at, mode } => vec![word("memory"), octal(mode), at.to_string()],
            RootPart::Processes { at } => vec![word("processes"), at.to_string()],
            RootPart::Devices { at } => vec![word("devices"), at.to_string()],
            RootPart::Mask { at } => vec![word("mask"), at.to_string()],
            RootPart::Bind { from, at, access } => {
                let how = match access {
                    Access::ReadOnly => "read-only",
                    Access::ReadWrite => "read-write",
                };
                vec![word("bind"), word(how), from.path().to_string(), at.to_string()]
            }
        }
    }
}

/// A lowered plan. Nothing has been started yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub backend: BackendKind,
    /// The program that builds the sandbox. With the backend `host` it is the command itself, and a name is looked up
    /// in the `PATH` that the command gets.
    pub program: OsText,
    /// Its arguments, passed by descriptor.
    pub arguments: Vec<LaunchArgument>,
    /// The command line that it starts inside. It takes that from nowhere else.
    pub command: Vec<LaunchArgument>,
    /// The container, if the backend uses one.
    pub container: Option<Container>,
    /// The root that the guest builds inside, in this order; empty with the backend `host`.
    pub root: Vec<RootPart>,
    /// The spec for the guest; variables with secret values are added at launch.
    pub guest: GuestSpec,
    /// What is made on the host before the launch, in order.
    pub made: Vec<Made>,
    pub limits: Limits,
    /// Limits that apply by default.
    pub defaults: Vec<DefaultLimit>,
    /// Limits that the guest sets while it builds the root.
    pub bounds: GuestBounds,
    /// Which mechanism enforces which need.
    pub controls: Vec<Control>,
    /// Needs that nothing enforces. Empty for every backend that isolates; choosing the backend `host` accepts them.
    pub open: Vec<Unmet>,
}

/// Something that is made on the host before the launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Made {
    Directory(AbsPath),
    /// A directory that is emptied at the start, unless another run is using it.
    Fresh(AbsPath),
    File(AbsPath),
    /// A file with this content.
    Written {
        at: AbsPath,
        content: FileContent,
    },
    Link {
        at: AbsPath,
        to: AbsPath,
    },
    /// A copy of a file or a whole directory. Changes to it do not change its source.
    Copy {
        at: AbsPath,
        /// The source of the copy.
        from: AbsPath,
    },
}

impl Made {
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        match self {
            Made::Directory(path) | Made::Fresh(path) | Made::File(path) => path,
            Made::Written { at, .. } | Made::Link { at, .. } | Made::Copy { at, .. } => at,
        }
    }
}
