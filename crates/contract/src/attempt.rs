//! What a probe attempts inside the sandbox, and the result.

use serde::{Deserialize, Serialize};

/// One attempt and the name under which its result is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptRequest {
    pub id: String,
    pub attempt: Attempt,
}

/// An attempt. It is "open" if it succeeds, which a sandbox should prevent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Attempt {
    /// Read a file; open if it contains the text.
    Read {
        path: String,
        /// Text that proves that the right file was read.
        holds: String,
    },
    /// Create a symbolic link, then read the file through it.
    ReadThroughLink {
        /// Where the link is created.
        link: String,
        /// The target of the link.
        path: String,
        /// Text that the file contains.
        holds: String,
    },
    /// Append to a file, which need not exist yet.
    Write {
        path: String,
    },
    /// Create a symbolic link.
    Link {
        at: String,
        /// The target of the link.
        to: String,
    },
    MakeDirectory {
        path: String,
    },
    /// Open any of these files for reading; open if one of them can be opened.
    OpenAny {
        paths: Vec<String>,
    },
    /// Connect to any of these Unix sockets.
    ConnectUnix {
        paths: Vec<String>,
    },
    /// Connect to an address.
    ConnectTcp {
        address: String,
    },
    /// Send a packet to an address.
    SendUdp {
        address: String,
    },
    /// Send these bytes in a packet to an address.
    SendDatagram {
        address: String,
        /// The payload of the packet.
        say: String,
    },
    /// Resolve a name; open if it has an address.
    LookUp {
        name: String,
    },
    /// Connect to a host by name or address; open if its answer contains the text.
    Speak {
        to: String,
        /// Messages to send in order, each after the answer to the previous one.
        say: Vec<String>,
        /// Text that the host's answer contains.
        holds: String,
    },
    /// The same through the proxy that the environment names. `{token}` is replaced by the header with its token,
    /// `{login}` by the SOCKS login with the same token.
    SpeakToProxy {
        say: Vec<String>,
        /// Text that the host behind the proxy answers with.
        holds: String,
    },
    /// Search for a text in the prober's environment, in every process, and in every file below these directories.
    Search {
        holds: String,
        below: Vec<String>,
    },
    /// Search for a text in the files next to the file that a variable names.
    Beside {
        variable: String,
        holds: String,
    },
    /// Search for a text in the prober's environment.
    Environment {
        holds: String,
    },
    /// Search for a text in what the kernel shows of every process except the prober.
    Processes {
        file: ProcessFile,
        holds: String,
    },
    /// Search for a text in what the kernel shows of the prober's parent, which is the first process inside a
    /// sandbox.
    Parent {
        file: ProcessFile,
        holds: String,
    },
    /// Set the host name to its current value.
    Hostname,
    /// A probe of the guest's own table, by its name there.
    Named {
        probe: String,
    },
    /// Write this many bytes to unnamed files in these directories; open if all of them fit.
    Fill {
        places: Vec<String>,
        bytes: u64,
    },
    /// Start this many threads at once; open if all of them start. The kernel counts a thread as a process, and
    /// threads end with the prober.
    Threads {
        count: u32,
    },
    /// Run a script with `sh`; open if it exits with 0.
    Shell {
        script: String,
    },
}

/// A file of `/proc/PID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessFile {
    Environ,
    Cmdline,
}

impl ProcessFile {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ProcessFile::Environ => "environ",
            ProcessFile::Cmdline => "cmdline",
        }
    }
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeFinding {
    /// The name from [`AttemptRequest::id`].
    pub probe: String,
    /// What became of it.
    pub outcome: ProbeOutcome,
    /// What was observed, for messages.
    pub detail: String,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeOutcome {
    /// It succeeded.
    Open,
    /// It was refused.
    Closed {
        /// The kernel's error, where there was one.
        errno: Option<i32>,
    },
    /// It could not be tried here, so it says nothing about the sandbox.
    Unsupported,
}
