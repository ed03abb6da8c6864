//! Directories of the group trees: the files of version 1 and version 2 behind the same verbs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::{CgroupError, Controller, GroupLimits, Hierarchy, Limit};

/// The period in which a processor quota counts.
const PERIOD_MICROSECONDS: u64 = 100_000;

/// Where a directory of a leaf can be made.
#[derive(Debug)]
pub(super) struct Place {
    parent: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Version {
    V1(Controller),
    /// With the controllers that hold limits in it.
    V2(Vec<Controller>),
}

/// Whether the processes of a group move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Motion {
    Frozen,
    Thawed,
}

/// One directory of a leaf.
#[derive(Debug)]
pub(super) struct GroupDirectory {
    path: PathBuf,
    version: Version,
}

/// Where the directories of a leaf with these controllers go.
pub(super) fn places(hierarchy: &Hierarchy, needed: &[Controller]) -> Result<Vec<Place>, CgroupError> {
    let (in_v1, in_v2): (Vec<_>, Vec<_>) =
        needed.iter().copied().partition(|controller| hierarchy.v1.contains_key(controller));
    let freezer = Controller::Freezer;
    let in_v1 = in_v1.into_iter().chain(hierarchy.v1.contains_key(&freezer).then_some(freezer));
    let mut places: Vec<_> = in_v1
        .filter_map(|controller| {
            let parent = hierarchy.v1.get(&controller)?.clone();
            Some(Place { parent, version: Version::V1(controller) })
        })
        .collect();
    match v2_parent(hierarchy, &in_v2) {
        Some(parent) => places.push(Place { parent, version: Version::V2(in_v2) }),
        None => {
            if let Some(controller) = in_v2.first() {
                return Err(CgroupError::NoController { controller: *controller });
            }
        }
    }
    Ok(places)
}

/// The nearest group at or above ours that gives its children the controllers. Ours usually cannot: a group with
/// processes in it may not hand on controllers, except the top.
fn v2_parent(hierarchy: &Hierarchy, needed: &[Controller]) -> Option<PathBuf> {
    let unified = hierarchy.v2.as_ref()?;
    let groups = unified.own.ancestors().take_while(|group| group.starts_with(&unified.mount));
    groups.map(Path::to_owned).find(|group| {
        let control = group.join("cgroup.subtree_control");
        needed.iter().all(|controller| {
            let given = || controllers(&control).iter().any(|name| name == controller.name());
            given() || (std::fs::write(&control, format!("+{}", controller.name())).is_ok() && given())
        })
    })
}

fn controllers(file: &Path) -> Vec<String> {
    // A file that cannot be read names no controller.
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Directories below the groups of this process, or above it in version 2, whose names begin with `prefix`.
pub(super) fn find(hierarchy: &Hierarchy, prefix: &str) -> Vec<(String, GroupDirectory)> {
    let v1 = hierarchy.v1.iter().map(|(controller, parent)| (parent.clone(), Version::V1(*controller)));
    let v2 = hierarchy.v2.iter().flat_map(|unified| {
        let groups = unified.own.ancestors().take_while(|group| group.starts_with(&unified.mount));
        groups.map(|group| (group.to_owned(), Version::V2(Vec::new())))
    });
    let mut found = Vec::new();
    for (parent, version) in v1.chain(v2) {
        // A group that cannot be listed holds none of ours.
        for entry in std::fs::read_dir(&parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push((name, GroupDirectory { path: entry.path(), version: version.clone() }));
            }
        }
    }
    found
}

impl Place {
    pub(super) fn create(self, name: &str) -> Result<GroupDirectory, CgroupError> {
        let path = self.parent.join(name);
        std::fs::create_dir(&path).map_err(|cause| CgroupError::Create { path: path.clone(), cause })?;
        Ok(GroupDirectory { path, version: self.version })
    }
}

impl GroupDirectory {
    /// The group that rules a controller for a process that is in these.
    pub(super) fn of(groups: &Hierarchy, controller: Controller) -> Option<Self> {
        match groups.v1.get(&controller) {
            Some(path) => Some(GroupDirectory { path: path.clone(), version: Version::V1(controller) }),
            None => groups.v2.as_ref().map(|unified| GroupDirectory {
                path: unified.own.clone(),
                version: Version::V2(vec![controller]),
            }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn limit(&self, limits: &GroupLimits) -> Result<(), CgroupError> {
        for (file, value) in self.settings(limits) {
            self.write(file, &value)?;
        }
        self.holds(limits)
    }

    /// Whether the kernel gives back what was asked for.
    pub(super) fn holds(&self, limits: &GroupLimits) -> Result<(), CgroupError> {
        for (file, asked) in self.settings(limits) {
            let held = self.read(file)?;
            if held != asked {
                return Err(CgroupError::NotHeld { path: self.path.join(file), asked, held });
            }
        }
        Ok(())
    }

    /// Whether a process that is in these groups is in this one.
    pub(super) fn encloses(&self, pid: Pid, groups: &Hierarchy) -> Result<(), CgroupError> {
        let found = match &self.version {
            Version::V1(controller) => groups.v1.get(controller),
            Version::V2(_) => groups.v2.as_ref().map(|unified| &unified.own),
        };
        if found == Some(&self.path) {
            return Ok(());
        }
        Err(CgroupError::Outside { path: self.path.clone(), pid: pid.as_raw_pid(), found: found.cloned() })
    }

    /// The files to write, in order.
    fn settings(&self, limits: &GroupLimits) -> Vec<(&'static str, String)> {
        let GroupLimits { memory, swap, pids, cpu_percent } = *limits;
        let mut settings = Vec::new();
        let mut set = |file, limit: Limit, value: fn(u64) -> String| {
            if let Limit::AtMost(bound) = limit {
                settings.push((file, value(bound)));
            }
        };
        match &self.version {
            Version::V1(Controller::Memory) => {
                set("memory.limit_in_bytes", memory, pages);
                set("memory.memsw.limit_in_bytes", with_swap(memory, swap), pages);
            }
            Version::V1(Controller::Pids) => set("pids.max", pids, |bound| bound.to_string()),
            Version::V1(Controller::Cpu) => {
                set("cpu.cfs_period_us", cpu_percent, |_| PERIOD_MICROSECONDS.to_string());
                set("cpu.cfs_quota_us", cpu_percent, |bound| quota(bound).to_string());
            }
            Version::V1(Controller::Freezer) => {}
            Version::V2(controllers) if controllers.is_empty() => {}
            Version::V2(_) => {
                set("memory.max", memory, pages);
                set("memory.swap.max", swap, pages);
                set("pids.max", pids, |bound| bound.to_string());
                set("cpu.max", cpu_percent, |bound| format!("{} {PERIOD_MICROSECONDS}", quota(bound)));
            }
        }
        settings
    }

    pub(super) fn read_limits(&self, limits: &mut GroupLimits) -> Result<(), CgroupError> {
        let bytes = |file| self.read(file).map(|text| bound(&text));
        match &self.version {
            Version::V1(Controller::Memory) => {
                limits.memory = bytes("memory.limit_in_bytes")?;
                if self.path.join("memory.memsw.limit_in_bytes").exists() {
                    limits.swap = without_memory(bytes("memory.memsw.limit_in_bytes")?, limits.memory);
                }
            }
            Version::V1(Controller::Pids) => limits.pids = bytes("pids.max")?,
            Version::V1(Controller::Cpu) => limits.cpu_percent = percent(&self.read("cpu.cfs_quota_us")?),
            Version::V1(Controller::Freezer) => {}
            Version::V2(controllers) => {
                for controller in controllers {
                    match controller {
                        Controller::Memory => {
                            limits.memory = bytes("memory.max")?;
                            limits.swap = bytes("memory.swap.max")?;
                        }
                        Controller::Pids => limits.pids = bytes("pids.max")?,
                        Controller::Cpu => limits.cpu_percent = percent(&self.read("cpu.max")?),
                        Controller::Freezer => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the kernel refused or killed something for a limit of this group; false if the counters cannot be read.
    pub(super) fn reached(&self, controller: Controller) -> bool {
        let rules = match &self.version {
            Version::V1(own) => *own == controller,
            Version::V2(controllers) => controllers.contains(&controller),
        };
        // Version 1 counts the killed since Linux 4.13; its other counters count what was reclaimed in time, too.
        let (file, counters): (_, &[&str]) = match (&self.version, controller) {
            (Version::V1(_), Controller::Memory) => ("memory.oom_control", &["oom_kill"]),
            (Version::V2(_), Controller::Memory) => ("memory.events", &["oom", "oom_kill"]),
            (Version::V1(_) | Version::V2(_), Controller::Pids) => ("pids.events", &["max"]),
            (Version::V1(_) | Version::V2(_), Controller::Cpu | Controller::Freezer) => return false,
        };
        let counted = |text: String| {
            text.lines().filter_map(|line| line.split_once(' ')).any(|(name, count)| {
                counters.contains(&name) && count.trim().parse::<u64>().is_ok_and(|count| count > 0)
            })
        };
        rules && self.read(file).is_ok_and(counted)
    }

    pub(super) fn add(&self, pid: Pid) -> Result<(), CgroupError> {
        self.write("cgroup.procs", &pid.as_raw_pid().to_string())
    }

    /// The processes in it; none once it is removed, which others may do at any time.
    pub(super) fn members(&self) -> Result<Vec<Pid>, CgroupError> {
        let text = match self.read("cgroup.procs") {
            Err(CgroupError::Read { cause, .. }) if is_gone(&cause) => String::new(),
            answer => answer?,
        };
        Ok(text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect())
    }

    /// Whether the kernel killed the group in one act (version 2 since Linux 5.14).
    pub(super) fn kill_at_once(&self) -> bool {
        matches!(self.version, Version::V2(_)) && self.write("cgroup.kill", "1").is_ok()
    }

    /// Stops the group or lets it go on, where that is possible; killing goes on without it.
    pub(super) fn set(&self, state: Motion) {
        let (v1, v2) = match state {
            Motion::Frozen => ("FROZEN", "1"),
            Motion::Thawed => ("THAWED", "0"),
        };
        match self.version {
            Version::V1(Controller::Freezer) => self.write("freezer.state", v1).ok(),
            Version::V1(_) => None,
            Version::V2(_) => self.write("cgroup.freeze", v2).ok(),
        };
    }

    /// The kernel may hold an emptied group for a moment (`EBUSY`) while the last process is taken apart.
    pub(super) fn remove(&self) -> Result<(), CgroupError> {
        let until = Instant::now() + Duration::from_secs(2);
        loop {
            match std::fs::remove_dir(&self.path) {
                Ok(()) => return Ok(()),
                Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                Err(cause) if cause.kind() == std::io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(cause) => return Err(CgroupError::Create { path: self.path.clone(), cause }),
            }
        }
    }

    fn write(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        let path = self.path.join(file);
        std::fs::write(&path, value).map_err(|cause| CgroupError::Write {
            path,
            value: value.to_owned(),
            cause,
        })
    }

    fn read(&self, file: &str) -> Result<String, CgroupError> {
        let path = self.path.join(file);
        let text = std::fs::read_to_string(&path).map_err(|cause| CgroupError::Read { path, cause })?;
        Ok(text.trim_end().to_owned())
    }
}

/// Whether a group is gone: its directory, or, where the file was open already, what is behind it (`ENODEV`).
fn is_gone(cause: &std::io::Error) -> bool {
    cause.kind() == std::io::ErrorKind::NotFound
        || cause.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// The kernel counts in pages, whose size differs between machines, and would round down silently.
fn pages(bytes: u64) -> String {
    let page = rustix::param::page_size() as u64;
    (bytes / page * page).to_string()
}

fn quota(percent: u64) -> u64 {
    percent.saturating_mul(PERIOD_MICROSECONDS) / 100
}

/// Version 1 limits memory and swap together.
fn with_swap(memory: Limit, swap: Limit) -> Limit {
    match (memory, swap) {
        (Limit::AtMost(memory), Limit::AtMost(swap)) => Limit::AtMost(memory.saturating_add(swap)),
        (Limit::Unlimited, _) | (_, Limit::Unlimited) => Limit::Unlimited,
    }
}

fn without_memory(both: Limit, memory: Limit) -> Limit {
    match (both, memory) {
        (Limit::AtMost(both), Limit::AtMost(memory)) => Limit::AtMost(both.saturating_sub(memory)),
        (Limit::Unlimited, _) | (_, Limit::Unlimited) => Limit::Unlimited,
    }
}

/// `max`, `-1` and the largest number of pages all mean that there is no limit.
fn bound(text: &str) -> Limit {
    const NO_LIMIT_SINCE: u64 = i64::MAX as u64 / 4096 * 4096;
    match text.parse() {
        Ok(bound) if bound < NO_LIMIT_SINCE => Limit::AtMost(bound),
        Ok(_) | Err(_) => Limit::Unlimited,
    }
}

/// `quota` or `quota period`.
fn percent(text: &str) -> Limit {
    let mut numbers = text.split(' ').map(str::parse::<u64>);
    let Some(Ok(quota)) = numbers.next() else { return Limit::Unlimited };
    let period = numbers.next().and_then(Result::ok).unwrap_or(PERIOD_MICROSECONDS);
    Limit::AtMost(quota.saturating_mul(100) / period.max(1))
}
