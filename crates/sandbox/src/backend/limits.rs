//! Limits by control group. A limit that was asked for and does not hold is a refusal, never a warning.

use belljar_contract::{LimitKind, Limits, Need};
use belljar_sys::birth::Birth;
use belljar_sys::cgroup::{self, CgroupError, Controller, Leaf, Limit};
use rustix::process::Pid;

/// The prefix of belljar's control groups, by which a sweep finds those whose maker was killed.
pub const LEAF_PREFIX: &str = "belljar-run-";

/// Returns the process that made a leaf, as its name says: a new leaf is empty for a moment, and not left over.
#[must_use]
pub fn leaf_maker(name: &str) -> Option<Birth> {
    Birth::parse(name.strip_prefix(LEAF_PREFIX)?.rsplit_once('-')?.1)
}

/// Finds out which limits this machine can set, by setting them. It costs a few system calls.
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

/// Puts a sandbox into a control group with the limits, or into none when no limit needs one. The command has not been
/// started, so everything it will ever start is born there.
///
/// That the limits reach the guest is read back from the kernel, outside, for the guest's own process. The guest is not asked:
/// inside there is no tree of groups, and showing one would show the agent the host's.
pub(super) fn confine(
    name: &str,
    limits: &Limits,
    bwrap: Pid,
    guest: Pid,
) -> Result<Option<Leaf>, CgroupError> {
    let Some(wanted) = wanted(limits) else { return Ok(None) };
    let maker = Birth::own().map_err(CgroupError::Detect)?;
    let leaf = Leaf::create(&format!("{LEAF_PREFIX}{name}-{maker}"), &wanted)?;
    leaf.add(bwrap)?;
    leaf.add(guest)?;
    leaf.confirm(guest, &wanted)?;
    Ok(Some(leaf))
}

/// Reads back that the limits which an engine was asked for reach the guest: engines accept limits that they cannot set, and
/// report nothing. The command has not been started.
pub(super) fn confirm(limits: &Limits, guest: Pid) -> Result<(), CgroupError> {
    wanted(limits).map_or(Ok(()), |wanted| cgroup::confirm(guest, &wanted))
}

/// The limits that controllers stand for.
pub(super) fn kinds(controllers: &[Controller]) -> Vec<LimitKind> {
    let kind = |controller: &Controller| match controller {
        Controller::Memory => Some(LimitKind::Memory),
        Controller::Pids => Some(LimitKind::Pids),
        // A processor that is shared makes nothing fail.
        Controller::Cpu | Controller::Freezer => None,
    };
    controllers.iter().filter_map(kind).collect()
}

fn wanted(limits: &Limits) -> Option<cgroup::GroupLimits> {
    let Limits { memory, pids, cpu, time: _, cost_usd: _, tmpfs: _, unlimited: _ } = limits;
    if memory.is_none() && pids.is_none() && cpu.is_none() {
        return None;
    }
    let at_most = |value: Option<u64>| value.map_or(Limit::Unlimited, Limit::AtMost);
    Some(cgroup::GroupLimits {
        memory: at_most(memory.map(belljar_contract::ByteSize::bytes)),
        // The limit includes swap: without this a program would only become slow.
        swap: if memory.is_some() { Limit::AtMost(0) } else { Limit::Unlimited },
        pids: at_most(pids.map(u64::from)),
        // Rounded up: a share below a hundredth is still a share.
        cpu_percent: at_most(cpu.map(|cpus| u64::from(cpus.milli().div_ceil(10)))),
    })
}
