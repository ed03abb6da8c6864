//! What the supervisor and the process inside the sandbox say to each other.
//!
//! Over one unix stream socket: the supervisor sends a [`GuestSpec`], the guest answers with [`GuestReport`]s, the
//! supervisor steers with [`GuestOrder`]s. Each message is a frame of JSON, bounded by the constants here.
//!
//! ```text
//! supervisor                                guest init
//!   GuestSpec (+ streams, contents)  ─────▶
//!                                   ◀──────  Terminal (+ its controlling end), if one is asked for
//!                                   ◀──────  Listening (+ one descriptor a listener, in order), if there are any
//!                                   ◀──────  Sealed
//!   GuestOrder::Start               ──────▶  if the spec says that it waits for the order
//!                                   ◀──────  Started | ExecFailed
//!   GuestOrder::{Signal, Stop}      ──────▶
//!                                   ◀──────  Stopped, Held, HeldMore, as often as it happens
//!                                   ◀──────  Asked, one at a time
//!   GuestOrder::Answer              ──────▶  unless it was Withdrawn before
//!                                   ◀──────  Exited
//! ```
//! `SetupFailed` may stand in the place of any report before `Started`. The socket closing is a message too: to the
//! guest it means that the supervisor is gone, to the supervisor that nothing inside is left.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

mod codec;
mod guard;
mod root;
mod text;

pub use codec::GuestCodecError;
pub use guard::{
    GUEST_GUARD_PATHS_MAX, GuestAct, GuestAlias, GuestAnswer, GuestGuard, GuestGuardRoot, GuestOnHeld,
    GuestYes,
};
pub use root::{GuestBounds, GuestGround, GuestLayer, GuestOverlay, GuestPart, GuestRoot, GuestSource};
pub use text::{OsText, OsTextError};

/// The version of this protocol. Both sides come from one build, except where an image carries an older guest.
pub const GUEST_PROTOCOL: u32 = 7;
/// Where the guest lies inside.
pub const GUEST_PROGRAM: &str = "/opt/belljar/bin/belljar-guest";
/// The longest [`GuestSpec`] in bytes: twice what the kernel lets a program have as arguments by default.
pub const GUEST_SPEC_MAX: usize = 4 * 1024 * 1024;
/// The longest [`GuestReport`] or [`GuestOrder`] in bytes.
pub const GUEST_REPORT_MAX: usize = 64 * 1024;
/// The most listeners, as many as descriptors fit in one message.
pub const GUEST_LISTENERS_MAX: usize = 128;

/// What to run inside, and what to close before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// [`GUEST_PROTOCOL`].
    pub protocol: u32,
    /// The command; a name without `/` is looked up in the `PATH` of `environment`.
    pub program: OsText,
    /// What it sees as its arguments, its own name first.
    pub argv: Vec<OsText>,
    /// Its whole environment.
    pub environment: Vec<GuestVariable>,
    /// Where it starts; absolute.
    pub directory: OsText,
    /// Standard input.
    pub stdin: GuestStream,
    /// Standard output.
    pub stdout: GuestStream,
    /// Standard error.
    pub stderr: GuestStream,
    /// What the terminal of its session is.
    pub terminal: GuestTerminal,
    /// Addresses that are made to lead to the sandbox itself, so that listeners can stand for other hosts.
    pub range: Option<GuestRange>,
    /// When the command starts.
    pub beginning: GuestBeginning,
    /// Sockets to open inside and hand out.
    pub listeners: Vec<GuestListener>,
    /// The root, before anything else is opened in it.
    pub root: GuestRoot,
    /// Landlock rules on top of the mounts.
    pub files: GuestFiles,
    /// Which system-call filter.
    pub filter: GuestFilter,
    /// Where files that the host would execute later are held back, while the command runs.
    pub guard: Option<GuestGuard>,
    /// The mask for new files.
    pub umask: u32,
    /// Resource limits.
    pub limits: Vec<GuestLimit>,
    /// How long processes may take to end after SIGTERM, in milliseconds.
    pub grace_ms: u32,
}

/// When the command starts, once every wall stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestBeginning {
    /// At once: nothing outside has to be ready before it.
    AtOnce,
    /// On [`GuestOrder::Start`].
    OnOrder,
}

/// A variable of the environment. Its value is not shown by `Debug`: the token of the proxy is among them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestVariable {
    /// Not empty, without `=`.
    pub name: OsText,
    /// Anything.
    pub value: OsText,
}

impl std::fmt::Debug for GuestVariable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let GuestVariable { name, value } = self;
        write!(formatter, "{name:?}=<{} bytes>", value.as_bytes().len())
    }
}

/// Where a standard stream comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestStream {
    /// As the guest was started with.
    Inherit,
    /// `/dev/null`.
    Null,
    /// The descriptor with this index among those that came with the spec.
    Attached(u8),
    /// The terminal of the session.
    Terminal,
}

/// What the terminal of the command's session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestTerminal {
    /// None.
    Absent,
    /// One that is opened inside, so that it has a name there. It is standard input; its controlling end is handed out.
    Own,
}

/// A range of IPv4 addresses; it lies in the block that is set aside for benchmarks (198.18.0.0/15), so that no
/// host of the world is hidden by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestRange {
    /// Its first address.
    pub network: Ipv4Addr,
    /// The length of its prefix.
    pub prefix: u8,
}

impl GuestRange {
    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        crate::Cidr::new(IpAddr::V4(self.network), self.prefix).is_some_and(|range| range.contains(address))
    }

    /// Whether it is nothing but a part of the block for benchmarks.
    #[must_use]
    pub fn is_set_aside(&self) -> bool {
        let [first, second, ..] = self.network.octets();
        self.prefix >= 15 && first == 198 && matches!(second, 18 | 19)
    }
}

/// A socket to open inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestListener {
    /// How reports call it; unique.
    pub name: String,
    /// Where it listens.
    pub at: GuestAddress,
}

/// Where a socket listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestAddress {
    /// On the loopback or in the range; port 0 takes a free one, which the descriptor tells.
    Tcp {
        /// The address.
        address: SocketAddr,
    },
    /// The same for datagrams.
    Udp {
        /// The address.
        address: SocketAddr,
    },
    /// At a path that does not exist yet.
    Unix {
        /// Absolute.
        path: OsText,
        /// The mode of the socket file.
        mode: u32,
    },
}

/// Landlock rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestFiles {
    /// The mounts alone decide.
    AsMounted,
    /// The mounts decide, and nothing below `/proc` can be written, the memory of other processes included, nor anything
    /// below `/run`, where belljar's sockets lie.
    ProcessesApart,
    /// Everything outside these roots is closed, whatever is mounted.
    Roots {
        /// Readable and executable.
        read_only: Vec<OsText>,
        /// Everything.
        read_write: Vec<OsText>,
    },
}

/// A system-call filter, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestFilter {
    /// The whole table.
    Standard,
    /// The whole table, and no process may write to the memory of another, take its descriptors or attach to it.
    Apart,
}

/// A resource limit; soft at most hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestLimit {
    /// Of what.
    pub resource: GuestResource,
    /// What the program is held to.
    pub soft: u64,
    /// How far it may raise that.
    pub hard: u64,
}

/// The resources that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestResource {
    /// Size of a core file, in bytes.
    Core,
    /// Processor time, in seconds.
    Cpu,
    /// Size of a file, in bytes.
    FileSize,
    /// Open descriptors.
    OpenFiles,
    /// Processes of the user.
    Processes,
    /// Address space, in bytes.
    AddressSpace,
}

/// What the guest tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestReport {
    /// The terminal is open; its controlling end comes with this message, and nobody inside has it any more.
    Terminal,
    /// The listeners are open; their descriptors come with this message, in the order of the spec.
    Listening {
        /// As many as descriptors.
        names: Vec<String>,
    },
    /// Every wall stands. The command has not been started.
    Sealed {
        /// What Landlock adds on this kernel.
        landlock: GuestLandlock,
    },
    /// The command runs.
    Started {
        /// Its number inside.
        pid: i32,
    },
    /// The command could not be executed; the sandbox ends.
    ExecFailed {
        /// The file, or the name that was not found.
        what: OsText,
        /// The kernel's answer.
        errno: i32,
    },
    /// A step before that failed; the sandbox ends.
    SetupFailed {
        /// Which.
        step: GuestStep,
        /// The kernel's answer, 0 where it was not asked.
        errno: i32,
        /// In words.
        detail: String,
    },
    /// The guard held something back.
    Held {
        /// Where, inside.
        path: OsText,
        /// What was tried.
        act: GuestAct,
        /// What would run it, or what of its content is not let through.
        why: String,
    },
    /// The guard held back more than it tells of.
    HeldMore {
        /// How often, in all.
        count: u64,
    },
    /// The guard held something back, and the call waits for an answer.
    Asked {
        /// Which question it is; every one has another number.
        number: u64,
        /// Where, inside.
        path: OsText,
        /// What was tried.
        act: GuestAct,
        /// What would run it, or what of its content is not let through.
        why: String,
        /// What a yes is for.
        yes: GuestYes,
    },
    /// The call that a question was about is gone.
    Withdrawn {
        /// Which question.
        number: u64,
    },
    /// The command stopped itself, as Ctrl-Z makes programs do; it goes on with [`GuestOrder::Signal`] and SIGCONT.
    Stopped,
    /// The command ended; what it left behind is being ended too.
    Exited {
        /// How.
        end: GuestEnd,
        /// What it used up, with those of its children that it waited for.
        used: GuestUsage,
        /// Whether a file system in memory had no room left.
        full: bool,
        /// Whether a limit of processes that the guest set was reached, as far as it counted.
        crowded: bool,
    },
}

/// What was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestUsage {
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
    /// The most memory that one process had at once, in bytes.
    pub peak_memory_bytes: u64,
}

/// What Landlock enforces. All [`GuestWall::Missing`] is possible: it is an additional wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestLandlock {
    /// The ABI of the kernel, 0 without Landlock.
    pub abi: u32,
    /// File rules.
    pub files: GuestWall,
    /// No signals to processes outside.
    pub signals: GuestWall,
    /// No abstract sockets outside.
    pub abstract_sockets: GuestWall,
}

/// The state of a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestWall {
    /// It stands.
    Standing,
    /// It was not asked for.
    NotAsked,
    /// The kernel does not have it.
    Missing,
}

/// The steps of setting up, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestStep {
    /// Closing inherited descriptors, becoming the first process.
    Begin,
    /// Reading the spec.
    Spec,
    /// Building the root.
    Root,
    /// Opening the terminal.
    Terminal,
    /// Making the range lead here.
    Range,
    /// Opening the listeners.
    Listeners,
    /// A fresh session keyring.
    Keyring,
    /// Emptying the capability sets.
    Capabilities,
    /// No new privileges, not dumpable.
    Privileges,
    /// Landlock.
    Landlock,
    /// The system-call filter.
    Filter,
    /// The guard over files that the host would execute later.
    Guard,
    /// Waiting for the order to start.
    Order,
    /// Session, terminal, streams, limits, directory.
    Command,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestEnd {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl std::fmt::Display for GuestEnd {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(out, "status {code}"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
        }
    }
}

impl GuestEnd {
    /// The status that a shell would show: 128 and the number for a signal.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            GuestEnd::Code(code) => (code & 0xff) as u8,
            GuestEnd::Signal(signal) => 128u8.saturating_add((signal & 0x7f) as u8),
        }
    }
}

/// What the supervisor orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestOrder {
    /// Start the command: the supervisor has the listeners, the limits are set, the log is open.
    Start,
    /// Send this signal to the command's process group.
    Signal {
        /// 1 to 64.
        signal: i32,
    },
    /// End everything: SIGTERM, the grace time, SIGKILL.
    Stop,
    /// What the user decided.
    Answer {
        /// About which question.
        number: u64,
        /// What.
        answer: GuestAnswer,
    },
}
