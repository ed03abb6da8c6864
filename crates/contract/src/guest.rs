//! The protocol between the supervisor and the guest, belljar's process inside the sandbox.
//!
//! Messages go over one Unix stream socket: the supervisor sends a [`GuestSpec`], the guest answers with
//! [`GuestReport`]s, the supervisor controls it with [`GuestOrder`]s. Each message is a frame of JSON, bounded by the
//! constants here.
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
//! `SetupFailed` may replace any report before `Started`. Closing the socket is a message too: to the guest it means
//! that the supervisor is gone, to the supervisor that no process is left inside.

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

/// The version of this protocol. Both sides come from one build, unless an image contains an older guest.
pub const GUEST_PROTOCOL: u32 = 7;
/// The path of the guest inside the sandbox.
pub const GUEST_PROGRAM: &str = "/opt/belljar/bin/belljar-guest";
/// The maximum size of a [`GuestSpec`] in bytes: twice the kernel's default limit for the arguments of a program.
pub const GUEST_SPEC_MAX: usize = 4 * 1024 * 1024;
/// The maximum size of a [`GuestReport`] or [`GuestOrder`] in bytes.
pub const GUEST_REPORT_MAX: usize = 64 * 1024;
/// The maximum number of listeners: their descriptors must fit into one message.
pub const GUEST_LISTENERS_MAX: usize = 128;

/// The command to run inside, and the isolation to set up before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// [`GUEST_PROTOCOL`].
    pub protocol: u32,
    /// The command; a name without `/` is looked up in the `PATH` of `environment`.
    pub program: OsText,
    /// Its arguments, including its own name as the first one.
    pub argv: Vec<OsText>,
    /// Its whole environment.
    pub environment: Vec<GuestVariable>,
    /// Its working directory; must be absolute.
    pub directory: OsText,
    pub stdin: GuestStream,
    pub stdout: GuestStream,
    pub stderr: GuestStream,
    /// The terminal of its session.
    pub terminal: GuestTerminal,
    /// Addresses that are routed to the sandbox itself, so that listeners can stand for other hosts.
    pub range: Option<GuestRange>,
    pub beginning: GuestBeginning,
    /// Sockets to open inside and pass to the supervisor.
    pub listeners: Vec<GuestListener>,
    /// The root file system; built before anything in it is opened.
    pub root: GuestRoot,
    /// Landlock rules in addition to the mounts.
    pub files: GuestFiles,
    /// The system-call filter.
    pub filter: GuestFilter,
    /// Where the guard refuses changes to files that the host would execute later, while the command runs.
    pub guard: Option<GuestGuard>,
    /// The umask of the command.
    pub umask: u32,
    pub limits: Vec<GuestLimit>,
    /// The time between SIGTERM and SIGKILL when the sandbox ends, in milliseconds.
    pub grace_ms: u32,
}

/// When the command starts after the sandbox is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestBeginning {
    /// Immediately: nothing outside has to be ready first.
    AtOnce,
    /// On [`GuestOrder::Start`].
    OnOrder,
}

/// A variable of the environment. `Debug` does not show its value, because the proxy's token is among the values.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestVariable {
    /// Must not be empty or contain `=`.
    pub name: OsText,
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
    /// The stream that the guest itself was started with.
    Inherit,
    /// `/dev/null`.
    Null,
    /// The descriptor with this index among those that were sent with the spec.
    Attached(u8),
    /// The terminal of the session.
    Terminal,
}

/// The terminal of the command's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestTerminal {
    /// No controlling terminal.
    Absent,
    /// A terminal that is opened inside, so that it has a name there. It is standard input; its controlling end is
    /// passed to the supervisor.
    Own,
}

/// A range of IPv4 addresses. It must be within the block reserved for benchmarks (198.18.0.0/15), so that it hides
/// no real host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestRange {
    pub network: Ipv4Addr,
    pub prefix: u8,
}

impl GuestRange {
    /// Whether the address is in the range.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        crate::Cidr::new(IpAddr::V4(self.network), self.prefix).is_some_and(|range| range.contains(address))
    }

    /// Whether the range is within the block reserved for benchmarks.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        let [first, second, ..] = self.network.octets();
        self.prefix >= 15 && first == 198 && matches!(second, 18 | 19)
    }
}

/// A socket to open inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestListener {
    /// Its name in reports; unique.
    pub name: String,
    pub at: GuestAddress,
}

/// The address of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestAddress {
    /// An address on the loopback or in the range; port 0 takes a free port, which the descriptor shows.
    Tcp { address: SocketAddr },
    /// The same for UDP.
    Udp { address: SocketAddr },
    /// A path that does not exist yet.
    Unix {
        /// Must be absolute.
        path: OsText,
        /// The mode of the socket's file.
        mode: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestFiles {
    /// Only the mounts decide.
    AsMounted,
    /// The mounts decide. In addition nothing below `/proc`, including the memory of other processes, and nothing
    /// below `/run`, where belljar's sockets are, can be written.
    ProcessesApart,
    /// Everything outside these directories is closed, whatever is mounted.
    Roots {
        read_only: Vec<OsText>,
        /// Readable, executable and writable.
        read_write: Vec<OsText>,
    },
}

/// A system-call filter, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestFilter {
    /// The complete deny table.
    Standard,
    /// The complete deny table, and no process can write to another's memory, take its descriptors or attach to it.
    Apart,
}

/// A resource limit; `soft` must not exceed `hard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestLimit {
    pub resource: GuestResource,
    /// The limit in effect.
    pub soft: u64,
    /// The limit up to which the program may raise it.
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
    OpenFiles,
    /// Processes of the user.
    Processes,
    /// Address space, in bytes.
    AddressSpace,
}

/// What the guest reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GuestReport {
    /// The terminal is open; its controlling end comes with this message, and no process inside keeps it.
    Terminal,
    /// The listeners are open; their descriptors come with this message, in the order of the spec.
    Listening {
        /// The names, one for each descriptor.
        names: Vec<String>,
    },
    /// The sandbox is complete. The command has not been started.
    Sealed {
        /// What Landlock enforces on this kernel.
        landlock: GuestLandlock,
    },
    /// The command was started.
    Started {
        /// Its process id inside the sandbox.
        pid: i32,
    },
    /// The command could not be executed; the sandbox ends.
    ExecFailed {
        /// The file, or the name that was not found.
        what: OsText,
        /// The kernel's error.
        errno: i32,
    },
    /// A step before the start failed; the sandbox ends.
    SetupFailed {
        step: GuestStep,
        /// The kernel's error, 0 if the failure is not a system call's.
        errno: i32,
        /// A description for messages.
        detail: String,
    },
    /// The guard refused an attempt.
    Held {
        /// The path inside the sandbox.
        path: OsText,
        act: GuestAct,
        /// What would execute the file, or which content is not allowed.
        why: String,
    },
    /// The guard refused more attempts than it reports one by one.
    HeldMore {
        /// The total number of refused attempts.
        count: u64,
    },
    /// The guard stopped an attempt; the system call waits for an answer.
    Asked {
        /// The number of the question; unique.
        number: u64,
        /// The path inside the sandbox.
        path: OsText,
        act: GuestAct,
        /// What would execute the file, or which content is not allowed.
        why: String,
        /// What the user would allow with a yes.
        yes: GuestYes,
    },
    /// The process that a question was about is gone.
    Withdrawn { number: u64 },
    /// The command stopped itself, as Ctrl-Z makes programs do. [`GuestOrder::Signal`] with SIGCONT resumes it.
    Stopped,
    /// The command ended; the guest is ending the processes that it left behind.
    Exited {
        end: GuestEnd,
        /// Resources that it used, including those of children it waited for.
        used: GuestUsage,
        /// Whether a file system in memory was full.
        full: bool,
        /// Whether the process limit that the guest set was reached, as far as the guest counted.
        crowded: bool,
    },
}

/// Resources that were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestUsage {
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
    /// The largest resident memory of a single process, in bytes.
    pub peak_memory_bytes: u64,
}

/// What Landlock enforces. All may be [`GuestRestriction::Missing`], because Landlock is an additional layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestLandlock {
    /// The kernel's Landlock ABI version, 0 without Landlock.
    pub abi: u32,
    pub files: GuestRestriction,
    /// Signals to processes outside are refused.
    pub signals: GuestRestriction,
    /// Connections to abstract Unix sockets outside are refused.
    pub abstract_sockets: GuestRestriction,
}

/// The state of a protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestRestriction {
    Standing,
    /// It was not asked for.
    NotAsked,
    /// The kernel does not support it.
    Missing,
}

/// The steps of the setup, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestStep {
    /// Closing inherited descriptors and becoming the first process.
    Begin,
    Spec,
    Root,
    Terminal,
    /// Routing the range to the sandbox.
    Range,
    Listeners,
    /// Creating a new session keyring.
    Keyring,
    /// Emptying the capability sets.
    Capabilities,
    /// Setting no-new-privileges and not dumpable.
    Privileges,
    Landlock,
    Filter,
    /// The guard over files that the host would execute later.
    Guard,
    /// Waiting for the order to start.
    Order,
    /// Setting up the session, terminal, streams, limits and directory of the command.
    Command,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestEnd {
    Code(i32),
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
    /// The exit status that a shell would show: 128 plus the number for a signal.
    #[must_use]
    pub fn status(self) -> u8 {
        match self {
            GuestEnd::Code(code) => (code & 0xff) as u8,
            GuestEnd::Signal(signal) => 128u8.saturating_add((signal & 0x7f) as u8),
        }
    }
}

/// What the supervisor sends after the spec.
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
    /// End all processes: SIGTERM, the grace time, SIGKILL.
    Stop,
    /// The user's answer to a question.
    Answer {
        /// The number of the question.
        number: u64,
        answer: GuestAnswer,
    },
}
