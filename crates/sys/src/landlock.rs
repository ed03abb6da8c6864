//! Landlock as a second layer behind the mounts: file rules by root, and scopes for signals and abstract sockets.
//!
//! Best effort above ABI 3 (Linux 6.2): what the kernel offers is used, and what was really enforced is returned,
//! to be reported. A path that cannot be opened is an error; it is never left out quietly.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// Why the rules could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum LandlockError {
    /// A root of the rules cannot be opened.
    #[error("cannot open {} for a Landlock rule", path.display())]
    Open {
        /// The root.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: landlock::PathFdError,
    },
    /// The root directory cannot be listed.
    #[error("cannot list the root directory for the Landlock rules")]
    List(#[source] std::io::Error),
    /// A directory above a root cannot be listed.
    #[error("cannot list {} for the Landlock rules", path.display())]
    Way {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// A rule was refused.
    #[error("cannot add {} to the Landlock rules", path.display())]
    Rule {
        /// The root.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: RulesetError,
    },
    /// The ruleset was refused.
    #[error("cannot make a Landlock ruleset")]
    Create(#[source] RulesetError),
    /// The ruleset was made but not applied.
    #[error("cannot apply the Landlock rules")]
    Restrict(#[source] RulesetError),
}

/// Which files are reachable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileRules {
    /// Landlock adds nothing to the mounts.
    AsMounted,
    /// Nothing below `/proc` can be opened for writing, and nothing below `/run`, where belljar's sockets lie, can be
    /// written, removed or moved; everything else is as mounted. Rules only grant, so they name every other directory of the
    /// root; a file that lies in the root itself cannot be written.
    Apart,
    /// Everything outside these roots is closed.
    Roots {
        /// Readable and executable.
        read_only: Vec<PathBuf>,
        /// Everything, device controls included.
        read_write: Vec<PathBuf>,
    },
}

/// The restrictions that the kernel enforces from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enforced {
    /// The ABI of the kernel; 0 where it has no Landlock.
    pub abi: u32,
    /// File rules.
    pub files: Restriction,
    /// No signals to processes outside.
    pub signals: Restriction,
    /// No connection to abstract sockets opened outside.
    pub abstract_sockets: Restriction,
}

/// The state of one restriction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restriction {
    /// The kernel enforces it.
    Standing,
    /// It was not asked for.
    NotAsked,
    /// The kernel does not have it.
    Missing,
}

/// The newest ABI this was written for.
const NEWEST: ABI = ABI::V6;
const FILES_SINCE: u32 = 3;
const SCOPES_SINCE: u32 = 6;

/// Confines the calling thread and its future children. Sets no-new-privileges as a side effect.
///
/// # Errors
/// Fails if a root cannot be opened or the kernel has Landlock and refuses. On a kernel without Landlock it succeeds
/// with [`Restriction::Missing`].
pub fn restrict(rules: &FileRules) -> Result<Enforced, LandlockError> {
    let abi = kernel_abi();
    if abi == 0 {
        return Ok(enforced(0, rules));
    }
    let mut created = ruleset(abi, rules)?;
    if abi >= FILES_SINCE {
        created = apply_roots(created, rules)?;
    }
    let status = created.restrict_self().map_err(LandlockError::Restrict)?;
    // If this kernel supports none of the rules, the ruleset is empty and nothing is enforced.
    let abi = if status.ruleset == RulesetStatus::NotEnforced { 0 } else { abi };
    Ok(enforced(abi, rules))
}

/// The accesses that [`restrict_making_to`] denies elsewhere.
fn making(abi: u32) -> BitFlags<AccessFs> {
    let rights = AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::MakeSym
        // The process at the other end of a pipe decides what its reader reads.
        | AccessFs::MakeFifo
        // Anybody can make a whiteout, and git takes one for a directory of its own. A socket, too, but programs need sockets.
        | AccessFs::MakeChar
        | AccessFs::WriteFile
        | AccessFs::Refer;
    if abi >= FILES_SINCE { rights | AccessFs::Truncate } else { rights }
}

/// The first ABI that can deny moving files between directories.
pub const MAKING_SINCE: u32 = 2;

/// The directories beside the way to each of these roots, from the top of the file system on; links are left out, and what
/// may not be opened.
///
/// # Errors
/// Fails if a directory on the way cannot be listed.
pub fn beside(roots: &[PathBuf]) -> Result<Vec<PathBuf>, LandlockError> {
    let on_the_way = |path: &Path| roots.iter().any(|root| root.starts_with(path));
    let mut ways: Vec<&Path> = roots.iter().flat_map(|root| root.ancestors().skip(1)).collect();
    ways.sort();
    ways.dedup();
    // A root that lies below another is not reached on a way of its own.
    ways.retain(|way| !roots.iter().any(|root| way.starts_with(root)));
    let mut out = Vec::new();
    for way in ways {
        let failed = |cause| LandlockError::Way { path: way.to_owned(), cause };
        for entry in std::fs::read_dir(way).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_directory = entry.file_type().map_err(failed)?.is_dir();
            if is_directory && !on_the_way(&entry.path()) && PathFd::new(entry.path()).is_ok() {
                out.push(entry.path());
            }
        }
    }
    Ok(out)
}

/// Confines the calling thread and its future children: nothing can be made, opened for writing or moved but in these
/// places and below them. Everything else about them is as before.
///
/// # Errors
/// Fails if the kernel has no such rules, or a place cannot be opened.
pub fn restrict_making_to(places: &[PathBuf]) -> Result<(), LandlockError> {
    let rights = making(kernel_abi());
    let mut created = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(rights)
        .map_err(LandlockError::Create)?
        .create()
        .map_err(LandlockError::Create)?;
    for path in places {
        created = add(created, path, rights)?;
    }
    created.restrict_self().map(drop).map_err(LandlockError::Restrict)
}

/// The ABI of the running kernel, 0 where Landlock is absent or switched off.
#[must_use]
pub fn kernel_abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with a null attribute, size zero and this flag the kernel only answers with its version.
    let answer =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    crate::raw::check(answer).map_or(0, |version| u32::try_from(version).unwrap_or(0))
}

fn ruleset(abi: u32, rules: &FileRules) -> Result<RulesetCreated, LandlockError> {
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    if abi >= FILES_SINCE && matches!(rules, FileRules::Roots { .. }) {
        ruleset = ruleset
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V3))
            .map_err(LandlockError::Create)?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))
            .map_err(LandlockError::Create)?;
    }
    if abi >= FILES_SINCE && *rules == FileRules::Apart {
        ruleset = ruleset
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(writing())
            .map_err(LandlockError::Create)?
            .set_compatibility(CompatLevel::BestEffort);
    }
    ruleset
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(LandlockError::Create)?
        .create()
        .map_err(LandlockError::Create)
}

fn apply_roots(mut created: RulesetCreated, rules: &FileRules) -> Result<RulesetCreated, LandlockError> {
    let (read_only, read_write) = match rules {
        FileRules::AsMounted => return Ok(created),
        FileRules::Apart => return apply_all_but_proc_and_run(created),
        FileRules::Roots { read_only, read_write } => (read_only, read_write),
    };
    let read = AccessFs::from_read(NEWEST);
    for (paths, access) in [(read_only, read), (read_write, AccessFs::from_all(NEWEST))] {
        for path in paths {
            created = add(created, path, access)?;
        }
    }
    Ok(created)
}

/// Opening a file for writing, and what it takes to put another socket in the place of one. A ruleset about files denies
/// moving between directories unless it grants that, too.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::WriteFile
        | AccessFs::Refer
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::MakeSock
        | AccessFs::MakeSym
}

fn apply_all_but_proc_and_run(mut created: RulesetCreated) -> Result<RulesetCreated, LandlockError> {
    for entry in std::fs::read_dir("/").map_err(LandlockError::List)? {
        let entry = entry.map_err(LandlockError::List)?;
        // A link leads to a directory that has a rule of its own.
        let is_directory = entry.file_type().map_err(LandlockError::List)?.is_dir();
        if is_directory && entry.file_name() != "proc" && entry.file_name() != "run" {
            created = add(created, &entry.path(), writing())?;
        }
    }
    Ok(created)
}

fn add(
    created: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, LandlockError> {
    let opened = PathFd::new(path).map_err(|cause| LandlockError::Open { path: path.to_owned(), cause })?;
    // A file takes only the rights that make sense for a file.
    let access = if is_directory(&opened) { access } else { access & AccessFs::from_file(NEWEST) };
    created
        .add_rule(PathBeneath::new(opened, access))
        .map_err(|cause| LandlockError::Rule { path: path.to_owned(), cause })
}

fn is_directory(opened: &PathFd) -> bool {
    rustix::fs::fstat(opened).is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

fn enforced(abi: u32, rules: &FileRules) -> Enforced {
    let since = |since| if abi >= since { Restriction::Standing } else { Restriction::Missing };
    let files = match rules {
        FileRules::AsMounted => Restriction::NotAsked,
        FileRules::Apart | FileRules::Roots { .. } => since(FILES_SINCE),
    };
    Enforced { abi, files, signals: since(SCOPES_SINCE), abstract_sockets: since(SCOPES_SINCE) }
}
