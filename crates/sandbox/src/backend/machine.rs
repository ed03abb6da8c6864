//! What lowering has to know about this machine, asked once.

use belljar_contract::{AbsPath, Access, Errand, OsText, Plan};
use std::path::Path;

/// A part of the system's root that is shown inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemEntry {
    /// A directory.
    Directory(AbsPath),
    /// A symbolic link, as merged-/usr systems have them.
    Link {
        /// Where it is.
        at: AbsPath,
        /// What it says.
        to: OsText,
    },
}

/// This machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// bubblewrap.
    pub bwrap: Option<AbsPath>,
    /// The program that finishes the sandbox from inside.
    pub guest: AbsPath,
    /// The agent's program.
    pub agent: Option<AbsPath>,
    /// What the agent's program is started with, its loader or interpreter: one of these must be inside. Asked only
    /// where the system inside is not this machine's.
    pub interpreter: Vec<AbsPath>,
    /// The system's directories.
    pub system: Vec<SystemEntry>,
    /// Files and directories of `/etc` that hold no secret and that programs need.
    pub etc: Vec<AbsPath>,
    /// Which limits can be set: the control groups there are.
    pub limits: Vec<belljar_contract::Need>,
    /// Paths in the project that are mounted over themselves, in order: what the host would execute later
    /// read-only, and the directories that must not be renamed away from above it.
    pub guarded: Vec<(AbsPath, Access)>,
}

/// Everything that lowering is a function of.
#[derive(Debug, Clone, Copy)]
pub struct Lowering<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What is to be started.
    pub errand: &'a Errand,
    /// This machine.
    pub machine: &'a Machine,
    /// Whether the errand gets a terminal.
    pub terminal: bool,
}

/// Programs and libraries; each is a directory or, on merged systems, a link into `/usr`.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix"];

/// Parts of `/etc` without secrets: alternatives and trust roots, the linker's cache, the time zone, names of ports and
/// formats.
const ETC: [&str; 11] = [
    "/etc/alternatives",
    "/etc/debian_version",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/pki",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
];

/// Looks at the system: a handful of calls, because every start pays for them.
#[must_use]
pub fn look_around(bwrap: Option<AbsPath>, guest: AbsPath, agent: Option<AbsPath>) -> Machine {
    let abs = |path: &str| AbsPath::new(path).ok();
    let system = SYSTEM.iter().filter_map(|path| {
        let at = abs(path)?;
        let found = Path::new(path).symlink_metadata().ok()?;
        if found.is_symlink() {
            let to = std::fs::read_link(path).ok()?;
            return Some(SystemEntry::Link {
                at,
                to: OsText::new(to.into_os_string().into_encoded_bytes()).ok()?,
            });
        }
        found.is_dir().then_some(SystemEntry::Directory(at))
    });
    let etc = ETC.iter().filter(|path| Path::new(path).exists()).filter_map(|path| abs(path));
    Machine {
        bwrap,
        guest,
        agent,
        interpreter: Vec::new(),
        system: system.collect(),
        etc: etc.collect(),
        limits: Vec::new(),
        guarded: Vec::new(),
    }
}
