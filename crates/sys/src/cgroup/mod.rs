//! Control groups: a leaf with limits around one run.
//!
//! A leaf is one directory in version 2, and one for each controller in version 1. On a hybrid machine it also has
//! a directory in the version 2 tree, where a group can be killed at once even when its limits are elsewhere.
//! Nothing is taken on trust: what was written is read back, and a limit that does not hold is an error.

mod hierarchy;
mod tree;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::birth::Birth;
use rustix::process::{Pid, Signal};

pub use hierarchy::{CgroupMode, Controller, Hierarchy, Unified};
use tree::{GroupDirectory, Motion};

/// Why a leaf could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// `/proc` does not say.
    #[error("cannot find out where control groups are mounted")]
    Detect(#[source] std::io::Error),
    /// A limit was asked for that nothing here can hold.
    #[error("no `{}` controller can be used for a group of our own", controller.name())]
    NoController {
        /// The controller.
        controller: Controller,
    },
    /// The name would leave the directory.
    #[error("`{name}` cannot be the name of a control group")]
    Name {
        /// The name.
        name: String,
    },
    /// The directory was not made.
    #[error("cannot make the control group {}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// A file was not written.
    #[error("cannot write `{value}` to {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The value to write.
        value: String,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// A file was not read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: std::io::Error,
    },
    /// The kernel took a limit and holds another.
    #[error("{} holds `{held}` instead of `{asked}`", path.display())]
    NotHeld {
        /// The file.
        path: PathBuf,
        /// The value that was written.
        asked: String,
        /// The value that was read back.
        held: String,
    },
    /// A process is somewhere else than it was put: no limit of the group reaches it.
    #[error(
        "the limits of {} do not reach the process {pid}: the kernel says that it is in {}",
        path.display(),
        found.as_deref().unwrap_or(Path::new("no such group")).display()
    )]
    Outside {
        /// The group.
        path: PathBuf,
        /// The process.
        pid: i32,
        /// Where it is in that tree.
        found: Option<PathBuf>,
    },
    /// Processes were left when the time was over.
    #[error("processes of the control group {} outlived SIGKILL", path.display())]
    Survivors {
        /// The directory.
        path: PathBuf,
    },
}

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// None is set.
    Unlimited,
    /// At most this many.
    AtMost(u64),
}

/// The limits of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimits {
    /// Bytes of memory.
    pub memory: Limit,
    /// Bytes of swap on top of it.
    pub swap: Limit,
    /// Processes and threads.
    pub pids: Limit,
    /// Hundredths of one processor: 150 is one and a half.
    pub cpu_percent: Limit,
}

impl GroupLimits {
    /// No limit at all.
    pub const NONE: GroupLimits = GroupLimits {
        memory: Limit::Unlimited,
        swap: Limit::Unlimited,
        pids: Limit::Unlimited,
        cpu_percent: Limit::Unlimited,
    };

    fn controllers(&self) -> Vec<Controller> {
        let GroupLimits { memory, swap, pids, cpu_percent } = *self;
        let asked = [
            (Controller::Memory, memory != Limit::Unlimited || swap != Limit::Unlimited),
            (Controller::Pids, pids != Limit::Unlimited),
            (Controller::Cpu, cpu_percent != Limit::Unlimited),
        ];
        asked.into_iter().filter(|(_, asked)| *asked).map(|(controller, _)| controller).collect()
    }
}

/// A leaf that was found, not made.
#[derive(Debug)]
pub struct FoundLeaf {
    name: String,
    directories: Vec<GroupDirectory>,
}

impl FoundLeaf {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is; one of its directories, where it has several.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.directories.first().map(GroupDirectory::path)
    }

    /// Returns whether no process is in it. One that was removed since it was found is empty.
    ///
    /// # Errors
    /// Fails if a file of the leaf cannot be read.
    pub fn is_empty(&self) -> Result<bool, CgroupError> {
        for directory in &self.directories {
            if !directory.members()?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes it over: from now on dropping it kills what is in it and removes it.
    #[must_use]
    pub fn adopt(self) -> Leaf {
        Leaf { directories: self.directories }
    }
}

/// The limits that control groups can hold on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Support {
    /// Which version rules.
    pub mode: CgroupMode,
    /// The controllers that held a limit when it was tried.
    pub holds: Vec<Controller>,
}

/// The leaves of [`probe`] begin with this; the [`Birth`] of their maker follows.
pub const PROBE_PREFIX: &str = "belljar-probe-";

/// Finds out by doing: makes a leaf for each controller, sets a limit, and removes it.
///
/// # Errors
/// Fails without `/proc`.
pub fn probe() -> Result<Support, CgroupError> {
    let hierarchy = Hierarchy::detect().map_err(CgroupError::Detect)?;
    let tried = [
        (
            Controller::Memory,
            GroupLimits { memory: Limit::AtMost(1 << 30), swap: Limit::AtMost(0), ..GroupLimits::NONE },
        ),
        (Controller::Pids, GroupLimits { pids: Limit::AtMost(1000), ..GroupLimits::NONE }),
        (Controller::Cpu, GroupLimits { cpu_percent: Limit::AtMost(100), ..GroupLimits::NONE }),
    ];
    let name = format!("{PROBE_PREFIX}{}", Birth::own().map_err(CgroupError::Detect)?);
    let holds = |limits| Leaf::create_in(&hierarchy, &name, limits).is_ok();
    let holds = tried.iter().filter(|(_, limits)| holds(limits)).map(|(controller, _)| *controller).collect();
    Ok(Support { mode: hierarchy.mode(), holds })
}

/// Makes sure that limits which somebody else set reach a process: the kernel says which groups it is in, and those hold
/// exactly these limits now.
///
/// # Errors
/// Names the limit that is not held.
pub fn confirm(pid: Pid, limits: &GroupLimits) -> Result<(), CgroupError> {
    let groups = Hierarchy::of(pid).map_err(CgroupError::Detect)?;
    limits.controllers().iter().try_for_each(|controller| {
        let directory = GroupDirectory::of(&groups, *controller);
        directory.ok_or(CgroupError::NoController { controller: *controller })?.holds(limits)
    })
}

/// The groups of a process that somebody else made, to be looked at later.
#[derive(Debug)]
pub struct Groups {
    directories: Vec<(Controller, GroupDirectory)>,
}

impl Groups {
    /// Finds the groups that a process is in now.
    ///
    /// # Errors
    /// Fails without `/proc`, or if the process is gone.
    pub fn of(pid: Pid) -> Result<Self, CgroupError> {
        let groups = Hierarchy::of(pid).map_err(CgroupError::Detect)?;
        let held = |controller| Some((controller, GroupDirectory::of(&groups, controller)?));
        Ok(Self {
            directories: [Controller::Memory, Controller::Pids].into_iter().filter_map(held).collect(),
        })
    }

    /// The controllers whose limits were reached so far.
    #[must_use]
    pub fn reached(&self) -> Vec<Controller> {
        let reached =
            |(controller, directory): &&(Controller, GroupDirectory)| directory.reached(*controller);
        self.directories.iter().filter(reached).map(|(controller, _)| *controller).collect()
    }
}

/// A group of our own. Dropping it kills what is in it and removes it.
#[derive(Debug)]
pub struct Leaf {
    directories: Vec<GroupDirectory>,
}

impl Leaf {
    /// Makes a leaf below the groups of this process and sets the limits.
    ///
    /// # Errors
    /// Fails if a limit has no controller, the directory cannot be made, or a limit does not hold.
    pub fn create(name: &str, limits: &GroupLimits) -> Result<Self, CgroupError> {
        let hierarchy = Hierarchy::detect().map_err(CgroupError::Detect)?;
        Self::create_in(&hierarchy, name, limits)
    }

    /// As [`Leaf::create`], in a hierarchy that is known.
    ///
    /// # Errors
    /// As [`Leaf::create`].
    pub fn create_in(hierarchy: &Hierarchy, name: &str, limits: &GroupLimits) -> Result<Self, CgroupError> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(CgroupError::Name { name: name.to_owned() });
        }
        // Filled one by one, so that an error on the way removes what was made.
        let mut leaf = Leaf { directories: Vec::new() };
        for place in tree::places(hierarchy, &limits.controllers())? {
            leaf.directories.push(place.create(name)?);
        }
        for directory in &leaf.directories {
            directory.limit(limits)?;
        }
        Ok(leaf)
    }

    /// The leaves whose names begin with `prefix`, of earlier runs and of living ones: the caller tells them apart by
    /// name. Finding one changes nothing.
    ///
    /// # Errors
    /// Fails without `/proc`, or if the prefix is empty: every group of the machine would match.
    pub fn existing(prefix: &str) -> Result<Vec<FoundLeaf>, CgroupError> {
        if prefix.is_empty() {
            return Err(CgroupError::Name { name: prefix.to_owned() });
        }
        let hierarchy = Hierarchy::detect().map_err(CgroupError::Detect)?;
        let mut found = std::collections::BTreeMap::<String, Vec<GroupDirectory>>::new();
        for (name, directory) in tree::find(&hierarchy, prefix) {
            found.entry(name).or_default().push(directory);
        }
        Ok(found.into_iter().map(|(name, directories)| FoundLeaf { name, directories }).collect())
    }

    /// Moves a process into the leaf; its future children are born there.
    ///
    /// # Errors
    /// Fails if the process is gone, or moving it needs a right over the group it is in.
    pub fn add(&self, pid: Pid) -> Result<(), CgroupError> {
        self.directories.iter().try_for_each(|directory| directory.add(pid))
    }

    /// Makes sure that the limits reach a process: the kernel itself says which groups the process is in, those are
    /// the leaf's, and they hold these limits now. A successful write proves nothing: a directory that only looks like a
    /// group accepts every number and limits no process.
    ///
    /// # Errors
    /// Names the group that the process is not in, or the limit that is not held.
    pub fn confirm(&self, pid: Pid, limits: &GroupLimits) -> Result<(), CgroupError> {
        let groups = Hierarchy::of(pid).map_err(CgroupError::Detect)?;
        self.directories.iter().try_for_each(|directory| {
            directory.encloses(pid, &groups)?;
            directory.holds(limits)
        })
    }

    /// The limits as the kernel holds them.
    ///
    /// # Errors
    /// Fails if a file of the leaf cannot be read.
    pub fn limits(&self) -> Result<GroupLimits, CgroupError> {
        let mut limits = GroupLimits::NONE;
        self.directories.iter().try_for_each(|directory| directory.read_limits(&mut limits))?;
        Ok(limits)
    }

    /// The controllers whose limits were reached so far.
    #[must_use]
    pub fn reached(&self) -> Vec<Controller> {
        let reached =
            |controller: &Controller| self.directories.iter().any(|directory| directory.reached(*controller));
        [Controller::Memory, Controller::Pids].into_iter().filter(reached).collect()
    }

    /// The processes in the leaf.
    ///
    /// # Errors
    /// Fails if a file of the leaf cannot be read.
    pub fn members(&self) -> Result<Vec<Pid>, CgroupError> {
        let mut members = Vec::new();
        for directory in &self.directories {
            members.extend(directory.members()?);
        }
        members.sort_by_key(|pid| pid.as_raw_pid());
        members.dedup();
        Ok(members)
    }

    /// The directories of the leaf.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(GroupDirectory::path)
    }

    /// Ends every process in the leaf and waits, up to the deadline, until none is left.
    ///
    /// # Errors
    /// Fails if processes are left when the time is over.
    pub fn kill_all(&self, within: Duration) -> Result<(), CgroupError> {
        let until = Instant::now() + within;
        // A frozen group cannot fork away from the signals; a killed one need not be frozen.
        if !self.directories.iter().any(GroupDirectory::kill_at_once) {
            self.directories.iter().for_each(|directory| directory.set(Motion::Frozen));
        }
        loop {
            let members = self.members()?;
            let Some(_) = members.first() else { break };
            if Instant::now() > until {
                let path = self.paths().next().map(Path::to_owned).unwrap_or_default();
                return Err(CgroupError::Survivors { path });
            }
            for pid in members {
                // An error means that the process has ended already.
                rustix::process::kill_process(pid, Signal::KILL).ok();
            }
            self.directories.iter().for_each(|directory| directory.set(Motion::Thawed));
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Kills what is left and removes the directories, and says if that failed; [`Drop`] cannot.
    ///
    /// # Errors
    /// Fails if a process or a directory is left.
    pub fn remove(mut self) -> Result<(), CgroupError> {
        self.remove_now()
    }

    fn remove_now(&mut self) -> Result<(), CgroupError> {
        // One directory that fails must not keep the others.
        let mut outcome = self.kill_all(Duration::from_secs(2));
        for directory in std::mem::take(&mut self.directories) {
            outcome = outcome.and(directory.remove());
        }
        outcome
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // `remove` reports; a sweep finds by name what is left here.
        self.remove_now().ok();
    }
}
