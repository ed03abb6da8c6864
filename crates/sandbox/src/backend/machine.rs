//! The facts about this machine that lowering depends on, found out once.

use super::KeptAt;
use super::defaults::Capacity;
use belljar_contract::{AbsPath, Access, GuestGuard, OsText, Plan, Workload};
use std::path::Path;

/// A part of the system's root that is shown inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemEntry {
    /// A file or directory that is mounted as it is.
    Shown(AbsPath),
    /// A symbolic link, as merged-/usr systems have them.
    Link {
        /// The path of the link.
        at: AbsPath,
        /// The text of the link.
        to: OsText,
    },
    /// A small file: a copy is cheaper than a mount.
    Copied {
        /// The path of the file.
        at: AbsPath,
        /// The content of the file.
        text: String,
    },
}

/// The facts about a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// The path of bubblewrap, if it is installed.
    pub bwrap: Option<AbsPath>,
    /// The guest, the program that finishes the sandbox from inside.
    pub guest: AbsPath,
    /// The path of the agent, if it is installed.
    pub agent: Option<AbsPath>,
    /// The loader or interpreter of the agent's program: one of these must be inside. Filled only where the system inside is
    /// not this machine's.
    pub interpreter: Vec<AbsPath>,
    /// The directories of programs and libraries.
    pub system: Vec<SystemEntry>,
    /// Files and directories of `/etc` that hold no secret and that programs need.
    pub etc: Vec<SystemEntry>,
    /// The limits that the control groups of this machine can set.
    pub limits: Vec<belljar_contract::Need>,
    /// The facts that decide which default limits hold.
    pub capacity: Capacity,
    /// Paths in the project that are mounted over themselves, in order: what the host would execute later
    /// read-only, and the directories that must not be renamed away from above it.
    pub guarded: Vec<(AbsPath, Access)>,
    /// Where the guest refuses changes to what the host would execute later; nothing where there is nothing to guard, or the
    /// kernel has no guard.
    pub guard: Option<GuestGuard>,
}

/// Everything that lowering is a function of.
#[derive(Debug, Clone, Copy)]
pub struct Lowering<'a> {
    /// The plan to lower.
    pub plan: &'a Plan,
    /// The agent or the command that is to be started.
    pub workload: &'a Workload,
    /// The machine that it is lowered for.
    pub machine: &'a MachineFacts,
    /// Whether the workload gets a terminal.
    pub terminal: bool,
    /// Whether belljar talks to the agent in its protocol. A verdict is based on the agent's frames then, so tools are kept
    /// from interfering with the agent; a run at the user's terminal stays open for debuggers.
    pub conversation: bool,
    /// Where changes are kept, when the plan does not have them written to the project.
    pub kept: Option<&'a KeptAt>,
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

/// The largest file that is copied.
const COPIED_LIMIT: u64 = 16 << 10;

/// Finds the facts out, with few calls, because every start pays for them.
#[must_use]
pub fn look_around(bwrap: Option<AbsPath>, guest: AbsPath, agent: Option<AbsPath>) -> MachineFacts {
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
        found.is_dir().then_some(SystemEntry::Shown(at))
    });
    let etc = ETC.iter().filter(|path| Path::new(path).exists()).filter_map(|path| abs(path)).map(of_etc);
    MachineFacts {
        bwrap,
        guest,
        agent,
        interpreter: Vec::new(),
        system: system.collect(),
        etc: etc.collect(),
        limits: Vec::new(),
        capacity: Capacity::here(),
        guarded: Vec::new(),
        guard: None,
    }
}

/// How a path of `/etc` is shown: links into `/usr`, which is inside as well, as they are; small files as copies.
fn of_etc(at: AbsPath) -> SystemEntry {
    if let Ok(to) = std::fs::read_link(&at) {
        let in_usr = to.starts_with("/usr") || to.starts_with("../usr");
        let ends_there = || Path::new("/etc").join(&to).symlink_metadata().is_ok_and(|found| found.is_file());
        return match OsText::new(to.as_os_str().as_encoded_bytes()) {
            Ok(text) if in_usr && ends_there() => SystemEntry::Link { at, to: text },
            Ok(_) | Err(_) => SystemEntry::Shown(at),
        };
    }
    let small = at.as_path().metadata().is_ok_and(|found| found.is_file() && found.len() <= COPIED_LIMIT);
    match small.then(|| std::fs::read_to_string(&at)) {
        Some(Ok(text)) => SystemEntry::Copied { at, text },
        Some(Err(_)) | None => SystemEntry::Shown(at),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_small_is_copied_and_links_stay_where_they_lead_somewhere() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| AbsPath::new(directory.path().join(name)).unwrap();
        let bin = fs::read_dir("/usr/bin").unwrap().map(|entry| entry.unwrap());
        let in_usr =
            bin.map(|entry| entry.path()).find(|path| path.symlink_metadata().unwrap().is_file()).unwrap();
        fs::write(at("small"), "6\n").unwrap();
        fs::write(at("large"), "x".repeat(20_000)).unwrap();
        fs::write(at("bytes"), [0xff, 0xfe]).unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink(&in_usr, at("to-usr")).unwrap();
        symlink("/usr/there-is-no-such-file", at("to-nothing")).unwrap();
        symlink(at("small"), at("to-elsewhere")).unwrap();
        assert_eq!(of_etc(at("small")), SystemEntry::Copied { at: at("small"), text: "6\n".to_owned() });
        for shown in ["large", "bytes", "directory", "to-nothing", "to-elsewhere"] {
            assert_eq!(of_etc(at(shown)), SystemEntry::Shown(at(shown)));
        }
        let to = OsText::new(in_usr.into_os_string().into_encoded_bytes()).unwrap();
        assert_eq!(of_etc(at("to-usr")), SystemEntry::Link { at: at("to-usr"), to });
    }
}
