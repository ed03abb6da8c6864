//! The limits of a run: which time limit applies, and which limits were reached.

use super::Stdio;
use crate::session::conversation::Then;
use belljar_contract::{
    GuestEnd, Launch, LimitKind, Limits, Plan, Purpose, ReachedLimit, RunStatus, SCENARIO_TIME, TimeSpan,
    UNATTENDED_TIME, Workload,
};

/// The exit status that a shell reports for a killed process.
const KILLED: u8 = 137;

/// The time limit of a run: the declared one, or the default if no user is present.
pub(super) fn time_limit(
    plan: &Plan,
    workload: &Workload,
    stdio: &Stdio,
    terminal: bool,
) -> Option<TimeSpan> {
    let talks = match stdio {
        Stdio::User => false,
        Stdio::Conversation(talk) => matches!(talk.then, Then::Listen(_)),
    };
    let agent = matches!(workload, Workload::Agent(_));
    let default = match plan.purpose {
        Purpose::Test if !terminal && !talks => Some(SCENARIO_TIME),
        Purpose::Session if agent && !terminal && !talks => Some(UNATTENDED_TIME),
        Purpose::Test | Purpose::Session => None,
    };
    plan.limits.time_or(default)
}

/// The limits that were reached, each once, with their values.
pub(super) fn reached(kinds: &[LimitKind], launch: &Launch, time: Option<TimeSpan>) -> Vec<ReachedLimit> {
    let Limits { memory, pids, cpu, time: _, cost_usd, tmpfs, unlimited: _ } = &launch.limits;
    let declared = |kind: LimitKind| match kind {
        LimitKind::Memory => memory.map(|value| value.to_string()),
        LimitKind::Pids => pids.map(|value| value.to_string()),
        LimitKind::Cpu => cpu.map(|value| value.to_string()),
        LimitKind::Time => time.map(|value| value.to_string()),
        LimitKind::Cost => cost_usd.map(|value| value.to_string()),
        LimitKind::Tmpfs => tmpfs.map(|value| value.to_string()),
    };
    let default = |kind: LimitKind| {
        launch.defaults.iter().find(|default| default.limit == kind).map(|default| default.value.clone())
    };
    let mut kinds = kinds.to_vec();
    kinds.sort();
    kinds.dedup();
    kinds
        .into_iter()
        .map(|limit| ReachedLimit { limit, value: declared(limit).or_else(|| default(limit)) })
        .collect()
}

/// The status of a command that ended by itself. If the kernel killed it for its memory, the memory limit ended it.
pub(super) fn status(end: GuestEnd, reached: &[ReachedLimit]) -> RunStatus {
    let memory = reached.iter().any(|one| one.limit == LimitKind::Memory);
    if memory && end.status() == KILLED {
        return RunStatus::LimitReached { limit: LimitKind::Memory };
    }
    crate::store::journal::status(end)
}
