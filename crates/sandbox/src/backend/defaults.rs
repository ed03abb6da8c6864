//! Limits that hold without being declared, by mechanisms that cost a start nothing: sizes of file systems, a resource
//! limit, a number of the pid namespace. What this machine cannot enforce is reported, never dropped in silence.

use super::registry::{Backend, registered};
use belljar_contract::{
    DefaultLimit, GuestLimit, GuestResource, LimitKind, Plan, Purpose, SCENARIO_TIME, UNATTENDED_TIME,
};

/// The facts about a machine that decide which defaults hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The memory of the machine in bytes.
    pub memory: u64,
    /// The major and minor version of the kernel.
    pub kernel: (u32, u32),
    /// Whether belljar runs as the superuser.
    pub superuser: bool,
}

impl Capacity {
    /// Asks the kernel of this machine, with two system calls.
    #[must_use]
    pub fn here() -> Self {
        let info = rustix::system::sysinfo();
        let memory = u64::from(info.mem_unit).saturating_mul(info.totalram as u64);
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(['.', '-', '+']).map_while(|word| word.parse().ok());
        let kernel = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Self { memory, kernel, superuser: rustix::process::geteuid().is_root() }
    }
}

/// The kernel counts processes per user namespace since Linux 5.14 (`kernel/ucount.c`, 2021-08-29). Before, a limit would
/// count the user's other processes, too.
const COUNTED_PER_NAMESPACE: (u32, u32) = (5, 14);
/// `pid_max` belongs to the pid namespace since Linux 6.14 (`kernel/pid_namespace.c`, 2025-03-24). Before, it is the whole
/// machine's and must not be touched.
const PID_MAX_PER_NAMESPACE: (u32, u32) = (6, 14);

/// What limits the number of processes where the plan declares no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessLimit {
    /// A resource limit of the command.
    Resource(u32),
    /// The largest number of a process in its namespace. The superuser is exempt from the resource limit.
    Numbers(u32),
    /// The control group that the container's engine sets.
    Engine(u32),
    /// Both the control group of the engine and a resource limit of the command.
    EngineAndResource(u32),
}

impl ProcessLimit {
    const fn mechanism(self) -> &'static str {
        match self {
            ProcessLimit::Resource(_) => "RLIMIT_NPROC, counted per user namespace; checked twice a second",
            ProcessLimit::Numbers(_) => "pid_max of the pid namespace; checked twice a second",
            ProcessLimit::Engine(_) => "the container's control group: pids",
            ProcessLimit::EngineAndResource(_) => {
                "RLIMIT_NPROC, counted per user namespace; checked twice a second; and the container's control group: pids"
            }
        }
    }
}

/// Decides how processes are limited by default; nothing where the plan declares a limit, or none at all.
pub(super) fn processes(
    backend: &dyn Backend,
    plan: &Plan,
    capacity: Capacity,
) -> Option<Result<ProcessLimit, String>> {
    Some(backend.default_processes(plan.limits.default_pids()?, capacity))
}

/// Decides how processes are limited by default in a sandbox of namespaces.
pub(super) fn in_namespaces(pids: u32, capacity: Capacity) -> Result<ProcessLimit, String> {
    let lacks = |who: &str, version: &str| {
        Err(format!("{who}it takes Linux {version} or later; `limits.pids` sets a control group"))
    };
    match capacity.superuser {
        true if capacity.kernel >= PID_MAX_PER_NAMESPACE => Ok(ProcessLimit::Numbers(pids)),
        true => lacks("for the superuser ", "6.14"),
        false if capacity.kernel >= COUNTED_PER_NAMESPACE => Ok(ProcessLimit::Resource(pids)),
        false => lacks("", "5.14"),
    }
}

/// Says what limits processes by default in a sandbox of namespaces on this machine, or why nothing does.
///
/// # Errors
/// The reason.
pub fn default_process_limit(capacity: Capacity) -> Result<&'static str, String> {
    in_namespaces(belljar_contract::DEFAULT_PIDS, capacity).map(ProcessLimit::mechanism)
}

/// The resource limits of the command.
pub(super) fn resources(backend: &dyn Backend, plan: &Plan, capacity: Capacity) -> Vec<GuestLimit> {
    let core = GuestLimit { resource: GuestResource::Core, soft: 0, hard: 0 };
    let processes = match processes(backend, plan, capacity) {
        Some(Ok(ProcessLimit::Resource(pids) | ProcessLimit::EngineAndResource(pids))) => {
            Some(u64::from(pids))
        }
        Some(Ok(ProcessLimit::Numbers(_) | ProcessLimit::Engine(_)) | Err(_)) | None => None,
    };
    let processes =
        processes.map(|pids| GuestLimit { resource: GuestResource::Processes, soft: pids, hard: pids });
    std::iter::once(core).chain(processes).collect()
}

/// The defaults of a plan on a machine, as a page lists them and a record keeps them. The time of `run` is among them:
/// it holds where there is no terminal.
#[must_use]
pub fn default_limits(plan: &Plan, capacity: Capacity) -> Vec<DefaultLimit> {
    default_limits_of(registered(plan.backend), plan, capacity)
}

/// The same for the backend of the plan.
pub(super) fn default_limits_of(backend: &dyn Backend, plan: &Plan, capacity: Capacity) -> Vec<DefaultLimit> {
    let limits = &plan.limits;
    let tmpfs = limits.tmpfs_bytes(capacity.memory).filter(|_| limits.tmpfs.is_none());
    let tmpfs = tmpfs.map(|bytes| DefaultLimit {
        limit: LimitKind::Tmpfs,
        value: size(bytes),
        mechanism: backend.default_tmpfs(),
    });
    let processes =
        limits.default_pids().zip(processes(backend, plan, capacity)).map(|(pids, held)| DefaultLimit {
            limit: LimitKind::Pids,
            value: pids.to_string(),
            mechanism: held.map(ProcessLimit::mechanism),
        });
    let (time, when) = match plan.purpose {
        Purpose::Test => (SCENARIO_TIME, "the supervisor's clock"),
        Purpose::Session => (UNATTENDED_TIME, "the supervisor's clock, for `run` without a terminal"),
    };
    let time = limits.time_or(Some(time)).filter(|_| limits.time.is_none()).map(|time| DefaultLimit {
        limit: LimitKind::Time,
        value: time.to_string(),
        mechanism: Ok(when),
    });
    tmpfs.into_iter().chain(processes).chain(time).collect()
}

/// What bounds the file systems in memory.
pub(super) const TMPFS_MECHANISM: &str = "sizes of the file systems in memory, together";

/// In the largest unit that is not below one, rounded down.
fn size(bytes: u64) -> String {
    let (unit, shift) = match bytes {
        0..0x10_0000 => ("K", 10),
        0x10_0000..0x4000_0000 => ("M", 20),
        _ => ("G", 30),
    };
    let tenths = ((bytes >> (shift - 10)) * 10) >> 10;
    match tenths % 10 {
        0 => format!("{}{unit}", tenths / 10),
        rest => format!("{}.{rest}{unit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::super::tests::plan;
    use super::*;
    use belljar_contract::BackendKind;

    fn held(
        backend: BackendKind,
        kernel: (u32, u32),
        superuser: bool,
    ) -> Option<Result<ProcessLimit, String>> {
        processes(registered(backend), &plan(backend), Capacity { memory: 8 << 30, kernel, superuser })
    }

    #[test]
    fn processes_are_limited_by_what_this_kernel_counts_per_sandbox() {
        use BackendKind::{Bwrap, Container, Host};
        assert_eq!(held(Bwrap, (5, 14), false), Some(Ok(ProcessLimit::Resource(4096))));
        assert_eq!(held(Bwrap, (6, 18), true), Some(Ok(ProcessLimit::Numbers(4096))));
        // An older kernel would change the number of the whole machine.
        assert!(held(Bwrap, (6, 13), true).unwrap().is_err());
        assert!(held(Bwrap, (5, 13), false).unwrap().is_err());
        assert_eq!(held(Container, (5, 4), true), Some(Ok(ProcessLimit::Engine(4096))));
        assert_eq!(held(Container, (5, 4), false), Some(Ok(ProcessLimit::Engine(4096))));
        assert_eq!(held(Container, (5, 14), false), Some(Ok(ProcessLimit::EngineAndResource(4096))));
        assert!(held(Host, (6, 18), false).unwrap().is_err());
    }

    #[test]
    fn sizes_are_shown_as_people_write_them() {
        assert_eq!([size(4 << 30), size(3900 << 20), size(512 << 20)], ["4G", "3.8G", "512M"]);
    }
}
