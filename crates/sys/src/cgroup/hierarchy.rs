//! Where the control groups of this process are, read from two files of `/proc`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// A controller that belljar sets limits with, or kills through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Memory and swap.
    Memory,
    /// The number of processes.
    Pids,
    /// Processor time.
    Cpu,
    /// Stopping a whole group (version 1 only; version 2 always can).
    Freezer,
}

impl Controller {
    /// The name the kernel uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Cpu => "cpu",
            Controller::Freezer => "freezer",
        }
    }

    const ALL: [Controller; 4] = [Controller::Memory, Controller::Pids, Controller::Cpu, Controller::Freezer];
}

/// Which version of control groups rules this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupMode {
    /// Version 2 alone.
    V2,
    /// Version 1 alone.
    V1,
    /// Controllers in version 1, with a version 2 tree beside them.
    Hybrid,
    /// No control groups are mounted.
    Absent,
}

/// The directories of the groups that this process is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hierarchy {
    /// Version 1, by controller.
    pub v1: BTreeMap<Controller, PathBuf>,
    /// Version 2: the mount point and the group.
    pub v2: Option<Unified>,
}

/// The version 2 tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unified {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The group of this process, somewhere below.
    pub own: PathBuf,
}

impl Hierarchy {
    /// Reads the running system.
    ///
    /// # Errors
    /// Fails without `/proc`.
    pub fn detect() -> std::io::Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let groups = std::fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::parse(&mounts, &groups))
    }

    /// The groups that another process is in, as they are seen from here.
    ///
    /// # Errors
    /// Fails if the process is gone, or without `/proc`.
    pub fn of(pid: Pid) -> std::io::Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_pid()))?;
        Ok(Self::parse(&mounts, &groups))
    }

    /// Joins the two files: where each tree is mounted, and where in it the process is.
    #[must_use]
    pub fn parse(mountinfo: &str, cgroup: &str) -> Self {
        let mut hierarchy = Hierarchy::default();
        for mount in mountinfo.lines().filter_map(Mounted::parse) {
            let own = |group: &str| join(mount.point, mount.root, group);
            if mount.kind == "cgroup2" {
                let group = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
                hierarchy.v2 =
                    group.map(|group| Unified { mount: PathBuf::from(mount.point), own: own(group) });
                continue;
            }
            for controller in Controller::ALL {
                if mount.options.split(',').any(|option| option == controller.name()) {
                    let group = cgroup.lines().find_map(|line| group_of(line, controller));
                    hierarchy.v1.extend(group.map(|group| (controller, own(group))));
                }
            }
        }
        hierarchy
    }

    /// Which version rules.
    #[must_use]
    pub fn mode(&self) -> CgroupMode {
        match (self.v1.is_empty(), self.v2.is_some()) {
            (true, true) => CgroupMode::V2,
            (false, false) => CgroupMode::V1,
            (false, true) => CgroupMode::Hybrid,
            (true, false) => CgroupMode::Absent,
        }
    }
}

struct Mounted<'line> {
    root: &'line str,
    point: &'line str,
    kind: &'line str,
    options: &'line str,
}

impl<'line> Mounted<'line> {
    fn parse(line: &'line str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        let mounted = Mounted {
            root: before.next()?,
            point: before.next()?,
            kind: after.next()?,
            options: after.nth(1)?,
        };
        matches!(mounted.kind, "cgroup" | "cgroup2").then_some(mounted)
    }
}

/// `4:memory:/a/b` or `3:cpu,cpuacct:/a`.
fn group_of(line: &str, controller: Controller) -> Option<&str> {
    let (_, rest) = line.split_once(':')?;
    let (names, group) = rest.split_once(':')?;
    names.split(',').any(|name| name == controller.name()).then_some(group)
}

/// The mount may show only a part of the tree (in a container); a group outside that part is its top.
fn join(point: &str, root: &str, group: &str) -> PathBuf {
    let inside = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    let inside = inside.strip_prefix("/").unwrap_or(inside);
    Path::new(point).join(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "40 39 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      41 39 0:32 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
    const CONTAINER: &str = "40 39 0:31 /docker/abc /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n";

    #[test]
    fn version_2_alone() {
        let hierarchy = Hierarchy::parse(V2, "0::/user.slice/app.scope\n");
        assert_eq!(hierarchy.mode(), CgroupMode::V2);
        let own = PathBuf::from("/sys/fs/cgroup/user.slice/app.scope");
        assert_eq!(hierarchy.v2, Some(Unified { mount: "/sys/fs/cgroup".into(), own }));
    }

    #[test]
    fn controllers_that_share_a_mount() {
        let hierarchy = Hierarchy::parse(V1, "4:memory:/a/b\n3:cpu,cpuacct:/c\n");
        assert_eq!(hierarchy.mode(), CgroupMode::V1);
        assert_eq!(hierarchy.v1[&Controller::Memory], Path::new("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(hierarchy.v1[&Controller::Cpu], Path::new("/sys/fs/cgroup/cpu,cpuacct/c"));
        assert!(!hierarchy.v1.contains_key(&Controller::Pids));
    }

    #[test]
    fn a_container_sees_its_part_of_the_tree() {
        let hierarchy = Hierarchy::parse(CONTAINER, "7:pids:/docker/abc/x\n");
        assert_eq!(hierarchy.v1[&Controller::Pids], Path::new("/sys/fs/cgroup/pids/x"));
    }

    #[test]
    fn lines_of_other_file_systems_and_broken_ones_are_passed_over() {
        assert_eq!(
            Hierarchy::parse("1 2 3\n\n - \n9 9 9 / /x rw - ext4 /dev/a rw\n", "x\n"),
            Hierarchy::default()
        );
    }
}
