//! Limits by control group. A limit that was asked for and does not hold is a refusal, never a warning.

use belljar_contract::{Limits, Need};
use belljar_sys::cgroup::{self, CgroupError, Controller, Leaf, Limit};
use rustix::process::Pid;

/// The leaves of belljar begin with this, so that a sweep finds those that a power cut left.
pub const LEAF_PREFIX: &str = "belljar-run-";

/// Which limits this machine holds, found out by setting them. Costs a few system calls; asked only when needed.
#[must_use]
pub fn held_limits() -> Vec<Need> {
    let Ok(support) = cgroup::probe() else { return Vec::new() };
    let need = |controller: &Controller| match controller {
        Controller::Memory => Some(Need::Memory),
        Controller::Pids => Some(Need::Pids),
        Controller::Cpu => Some(Need::Cpu),
        // It holds no limit; it is how a group is ended.
        Controller::Freezer => None,
    };
    support.holds.iter().filter_map(need).collect()
}

/// A control group with the limits, or none when no limit needs one.
pub(super) fn leaf(name: &str, limits: &Limits) -> Result<Option<Leaf>, CgroupError> {
    let Limits { memory, pids, cpu, time: _, cost_usd: _ } = limits;
    if memory.is_none() && pids.is_none() && cpu.is_none() {
        return Ok(None);
    }
    let at_most = |value: Option<u64>| value.map_or(Limit::Unlimited, Limit::AtMost);
    let wanted = cgroup::Limits {
        memory: at_most(memory.map(belljar_contract::ByteSize::bytes)),
        // The limit includes swap: without this a program would only become slow.
        swap: if memory.is_some() { Limit::AtMost(0) } else { Limit::Unlimited },
        pids: at_most(pids.map(u64::from)),
        // Rounded up: a share below a hundredth is still a share.
        cpu_percent: at_most(cpu.map(|cpus| u64::from(cpus.milli().div_ceil(10)))),
    };
    Leaf::create(&format!("{LEAF_PREFIX}{name}"), &wanted).map(Some)
}

/// Moves a process and all that descend from it. None of them has started anything of the agent's yet.
pub(super) fn add_family(leaf: &Leaf, root: Pid) -> Result<(), CgroupError> {
    let mut waiting = vec![root];
    while let Some(pid) = waiting.pop() {
        leaf.add(pid)?;
        let number = pid.as_raw_pid();
        let children = std::fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
        // A process that has just ended has no children left to move.
        let children = children.unwrap_or_default();
        waiting.extend(children.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)));
    }
    Ok(())
}
