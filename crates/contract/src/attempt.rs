//! What a probe tries from inside, and what became of it.

use serde::{Deserialize, Serialize};

/// One thing to try, with the name that its finding carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptRequest {
    /// The name.
    pub id: String,
    /// What to try.
    pub attempt: Attempt,
}

/// Something to try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Attempt {
    /// Read a file; open if it holds the text.
    Read {
        /// The file.
        path: String,
        /// What it holds if it is the right one.
        holds: String,
    },
    /// The same through a symbolic link that is planted first.
    ReadThroughLink {
        /// Where the link is planted.
        link: String,
        /// Where it leads.
        path: String,
        /// What the file holds.
        holds: String,
    },
    /// Append to a file, which may not be there yet.
    Write {
        /// The file.
        path: String,
    },
    /// Plant a symbolic link.
    Link {
        /// Where.
        at: String,
        /// Where it leads.
        to: String,
    },
    /// Make a directory.
    MakeDirectory {
        /// Where.
        path: String,
    },
    /// Open one of these for reading; open if one lets itself be opened.
    OpenAny {
        /// The files.
        paths: Vec<String>,
    },
    /// Connect to one of these sockets.
    ConnectUnix {
        /// Their paths.
        paths: Vec<String>,
    },
    /// Connect to an address.
    ConnectTcp {
        /// Address and port.
        address: String,
    },
    /// Send a packet to an address.
    SendUdp {
        /// Address and port.
        address: String,
    },
    /// Send these bytes in a packet to an address.
    SendDatagram {
        /// Address and port.
        address: String,
        /// What it says.
        say: String,
    },
    /// Look a name up; open if it has an address.
    LookUp {
        /// The name.
        name: String,
    },
    /// Speak to a host, by its name or address; open if it answers with the text.
    Speak {
        /// Host and port.
        to: String,
        /// What to say, one after the other, each after an answer to the one before.
        say: Vec<String>,
        /// What the host answers.
        holds: String,
    },
    /// The same with the proxy that the environment names. `{token}` stands for the header with its token, `{login}`
    /// for the same in SOCKS.
    SpeakToProxy {
        /// What to say.
        say: Vec<String>,
        /// What the host behind the proxy answers.
        holds: String,
    },
    /// Look for a text in one's own environment, in every process, and in every file below these folders.
    Search {
        /// The text.
        holds: String,
        /// The folders.
        below: Vec<String>,
    },
    /// Look for a text in the files that lie beside the one that a variable names.
    Beside {
        /// The variable.
        variable: String,
        /// The text.
        holds: String,
    },
    /// Look for a text in one's own environment.
    Environment {
        /// The text.
        holds: String,
    },
    /// Look for a text in what the kernel shows of every process but the prober.
    Processes {
        /// Where.
        file: ProcessFile,
        /// The text.
        holds: String,
    },
    /// Look for a text in what the kernel shows of the prober's parent: inside, the first process.
    Parent {
        /// Where.
        file: ProcessFile,
        /// The text.
        holds: String,
    },
    /// Set the name of the machine to what it is.
    Hostname,
    /// A probe of the guest's own table, by name.
    Named {
        /// The name.
        probe: String,
    },
    /// Write so many bytes to files without names in these directories, together; open if all of them fit.
    Fill {
        /// The directories.
        places: Vec<String>,
        /// How many bytes.
        bytes: u64,
    },
    /// Start so many threads at once; open if all of them start. The kernel counts a thread as a process, and threads end
    /// with the prober.
    Threads {
        /// How many.
        count: u32,
    },
    /// Run a script by `sh`; open if it ends with 0.
    Shell {
        /// The script.
        script: String,
    },
}

/// A file of `/proc/PID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessFile {
    /// The variables.
    Environ,
    /// The command line.
    Cmdline,
}

impl ProcessFile {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ProcessFile::Environ => "environ",
            ProcessFile::Cmdline => "cmdline",
        }
    }
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeFinding {
    /// The name of the probe.
    pub probe: String,
    /// What became of it.
    pub outcome: ProbeOutcome,
    /// What was seen, in words.
    pub detail: String,
}

/// What became of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeOutcome {
    /// It went through.
    Open,
    /// It was refused.
    Closed {
        /// With this answer; `None` where there was none to be had.
        errno: Option<i32>,
    },
    /// It could not be tried here; it says nothing.
    Unsupported,
}
