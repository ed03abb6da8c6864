//! A plan, lowered: what exactly is started, and which mechanism enforces which need.

use crate::{
    AbsPath, Access, BackendKind, Container, DefaultLimit, FileContent, GuestBounds, GuestSpec, Limits,
    OsText, Plan, Purpose, WorkspaceMode,
};
use serde::Serialize;

/// An isolation property that a plan demands. A backend enforces it by a named control or refuses the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Only the files that the plan lists.
    Files,
    /// No process of the host is seen or signalled.
    Processes,
    /// No shared memory, semaphores or queues of the host.
    Ipc,
    /// No network but what is handed in.
    Network,
    /// No variable but those listed.
    Environment,
    /// No capability, none to be gained, no nested namespaces.
    Privileges,
    /// No kernel interface that programs do not need.
    Kernel,
    /// No key of the user's session.
    Keyring,
    /// No descriptor of the caller.
    Descriptors,
    /// Never the user's own terminal.
    Terminal,
    /// Nothing outlives the supervisor.
    Lifetime,
    /// What the host would execute later cannot be changed unnoticed.
    HostExecuted,
    /// Changes are kept aside.
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
    /// Hosts that the plan allows, and no others.
    Egress,
    /// Credentials that stay outside.
    Credentials,
    /// Keys of ssh that stay outside.
    Ssh,
}

impl Need {
    /// In words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Need::Files => "only the listed files",
            Need::Processes => "no processes of the host",
            Need::Ipc => "no shared memory of the host",
            Need::Network => "no network but what is handed in",
            Need::Environment => "only the listed variables",
            Need::Privileges => "no privileges",
            Need::Kernel => "no risky kernel interfaces",
            Need::Keyring => "no keys of the session",
            Need::Descriptors => "no descriptors of the caller",
            Need::Terminal => "a terminal of its own",
            Need::Lifetime => "nothing outlives the supervisor",
            Need::HostExecuted => "files that the host executes are guarded",
            Need::Overlay => "changes are kept aside",
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

/// What is to be started inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// The agent, with further arguments.
    Agent(Vec<OsText>),
    /// Another command.
    Command(Vec<OsText>),
}

impl Plan {
    /// What the plan demands for an errand.
    #[must_use]
    pub fn needs(&self, errand: &Errand) -> Vec<Need> {
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
        let agent = matches!(errand, Errand::Agent(_));
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
    /// The need.
    pub need: Need,
    /// The mechanism.
    pub mechanism: String,
}

/// A need that cannot be enforced here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmet {
    /// The need.
    pub need: Need,
    /// Why not.
    pub why: String,
    /// What would help.
    pub fix: String,
}

/// One argument of the program that builds the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchArgument {
    /// This text.
    Text(OsText),
    /// A file of the host to execute, opened at launch and named by its descriptor.
    Program(AbsPath),
    /// The number of the control socket's descriptor.
    Control,
}

impl LaunchArgument {
    /// For people: descriptors by what they stand for.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            LaunchArgument::Text(text) => format!("{text:?}").trim_matches('"').to_owned(),
            LaunchArgument::Program(path) => format!("<descriptor of {path}>"),
            LaunchArgument::Control => "<descriptor of the control socket>".to_owned(),
        }
    }
}

/// One part of the root inside. Directories above it are made where they are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootPart {
    /// What the container's image has there, read-only, but for the places of the other parts.
    Image {
        /// Where, in the image and inside.
        at: AbsPath,
    },
    /// An empty directory.
    Directory {
        /// Where.
        at: AbsPath,
        /// Its mode.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where.
        at: AbsPath,
        /// What it says.
        to: OsText,
    },
    /// A file.
    File {
        /// Where.
        at: AbsPath,
        /// What it holds, put together at launch.
        content: FileContent,
    },
    /// An empty file system in memory.
    Memory {
        /// Where.
        at: AbsPath,
        /// The mode of its top.
        mode: u32,
    },
    /// The processes inside; switches of the whole machine are read-only.
    Processes {
        /// Where.
        at: AbsPath,
    },
    /// Devices without a machine behind them, and terminals of the sandbox's own.
    Devices {
        /// Where.
        at: AbsPath,
    },
    /// Nothing can be read there, where there is something.
    Mask {
        /// Where.
        at: AbsPath,
    },
    /// A file or directory of the host, with what is mounted below it.
    Bind {
        /// Which.
        from: BindSource,
        /// Where it appears.
        at: AbsPath,
        /// Whether it can be written.
        access: Access,
    },
}

/// What is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindSource {
    /// A part of the system, whose own links are followed.
    System(AbsPath),
    /// What is mounted there for the sandbox alone.
    Mounted(AbsPath),
    /// What the path is at launch: opened without following a link, and compared again inside.
    Host(AbsPath),
}

impl BindSource {
    /// The path.
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        match self {
            BindSource::System(path) | BindSource::Mounted(path) | BindSource::Host(path) => path,
        }
    }
}

impl RootPart {
    /// For people, in words: what, how and where. The content of a file is not shown.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
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

/// A lowered plan. Still nothing has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The backend.
    pub backend: BackendKind,
    /// The program that builds the sandbox; without walls the command itself, a name of which is looked up in
    /// the `PATH` that it gets.
    pub program: OsText,
    /// Its arguments, handed over by descriptor.
    pub arguments: Vec<LaunchArgument>,
    /// What it starts inside, as its own command line: it takes that from nowhere else.
    pub command: Vec<LaunchArgument>,
    /// The container that holds it, where one does.
    pub container: Option<Container>,
    /// The root that the guest builds inside, in this order; empty where there are no walls.
    pub root: Vec<RootPart>,
    /// What the guest is told; variables whose values are secret are added at launch.
    pub guest: GuestSpec,
    /// What is made on the host before, in order.
    pub made: Vec<Made>,
    /// What may be used up.
    pub limits: Limits,
    /// Limits that hold without being declared.
    pub defaults: Vec<DefaultLimit>,
    /// What the guest is told about limits that it sets while it builds the root.
    pub bounds: GuestBounds,
    /// Which mechanism enforces which need.
    pub controls: Vec<Control>,
    /// What nothing enforces. Empty for every backend that has walls; choosing one without is the acceptance.
    pub open: Vec<Unmet>,
}

/// Something on the host that is made before the launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Made {
    /// A directory.
    Directory(AbsPath),
    /// A directory that is empty at the start, unless another run is using it.
    Fresh(AbsPath),
    /// An empty file.
    File(AbsPath),
    /// A file with this content.
    Written {
        /// Where.
        at: AbsPath,
        /// What it holds.
        content: FileContent,
    },
    /// A symbolic link.
    Link {
        /// Where.
        at: AbsPath,
        /// Where it leads.
        to: AbsPath,
    },
    /// A copy of a file or a whole directory: what is changed in it is not changed at its source.
    Copy {
        /// Where.
        at: AbsPath,
        /// Of what.
        from: AbsPath,
    },
}

impl Made {
    /// What is made.
    #[must_use]
    pub fn path(&self) -> &AbsPath {
        match self {
            Made::Directory(path) | Made::Fresh(path) | Made::File(path) => path,
            Made::Written { at, .. } | Made::Link { at, .. } | Made::Copy { at, .. } => at,
        }
    }
}
