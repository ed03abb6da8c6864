//! From a plan to a command that has run, in three phases: [`prepare`], [`launch`], [`finish`].

pub(crate) mod early;
pub(crate) mod engine;
mod error;
mod finish;
pub(crate) mod guest_program;
pub(crate) mod interpreter;
mod limits;
mod live;
pub(crate) mod memory;
mod prepare;
mod report;
mod request;
mod secrets;
mod streams;
pub(crate) mod values;
pub(crate) mod workspace;

pub use error::RunError;
pub use report::{Outcome, Report, Spent};
pub use request::{Ask, Model, RunRequest, RunSubject, ScenarioUsed, Stdio};

use crate::changes::layers;
use crate::environment::HostEnvironment;
use crate::plan::allowances::Allowances;
use crate::plan::planned::Planned;
use crate::session::terminal::Terminal;
use belljar_contract::{Launch, Need, OsText, Plan, Unmet, Workload};
use belljar_sandbox::{Lowering, Machine, held_limits, look_around, lower};
use finish::finish;
use interpreter::interpreter;
use live::launch;
use prepare::{Prepared, prepare};
use workspace::Watch;

/// Runs a command in a sandbox to its end.
///
/// # Errors
/// If the command could not be run; no state is left behind then.
pub fn run(request: RunRequest<'_>) -> Result<Report, RunError> {
    let Prepared { sandbox, mut record } = prepare(request)?;
    let ended = launch(sandbox, record.journal.as_mut(), &record.redact);
    finish(ended, record)
}

/// Lowers a plan for a command on this machine.
///
/// # Errors
/// Lists every need that cannot be enforced.
pub fn lowered(
    planned: &Planned,
    environment: &HostEnvironment,
    workload: &Workload,
) -> Result<Launch, RunError> {
    let (machine, _watch) = examine(planned, environment)?;
    lower_here(&planned.compiled.plan, workload, &machine, Terminal::wanted())
}

/// The declared limits that the plan's backend cannot enforce on this machine, so that a start would be refused. Other
/// unmet needs are not included.
#[must_use]
pub fn refused_limits(planned: &Planned, environment: &HostEnvironment) -> Vec<Unmet> {
    const LIMITS: [Need; 4] = [Need::Memory, Need::Pids, Need::Cpu, Need::Tmpfs];
    let workload = Workload::Command(vec![OsText::default()]);
    let is_limit = |need: &Need| LIMITS.contains(need);
    if !planned.compiled.plan.needs(&workload).iter().any(is_limit) {
        return Vec::new();
    }
    match lowered(planned, environment, &workload) {
        Err(RunError::Unmet(error)) => {
            error.unmet.into_iter().filter(|unmet| is_limit(&unmet.need)).collect()
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// The capabilities of this machine for the plan, and a watch over the project.
fn examine(planned: &Planned, environment: &HostEnvironment) -> Result<(Machine, Watch), RunError> {
    let plan = &planned.compiled.plan;
    let mut machine = look_around(
        environment.program("bwrap"),
        environment.guest.path().clone(),
        planned.program_found.clone(),
    );
    let limits = &plan.limits;
    if limits.memory.is_some() || limits.pids.is_some() || limits.cpu.is_some() {
        machine.limits = held_limits();
    }
    if let (Some(_), Some(agent)) = (&plan.image, &machine.agent) {
        machine.interpreter = interpreter(agent.as_path());
    }
    let watch = Watch::begin(planned)?;
    let allowed = allowances(plan, environment).read()?;
    machine.guard = watch.guard(plan, &allowed)?;
    machine.guarded = watch.guarded(machine.guard.as_ref(), &allowed);
    // The path that a run would get; the run itself claims one when it begins.
    machine.kept = Some(layers::shown(plan, planned.repository.as_ref()));
    Ok((machine, watch))
}

/// The files of the project that the user allows every run to change.
fn allowances(plan: &Plan, environment: &HostEnvironment) -> Allowances {
    Allowances::of(&environment.config, &plan.workspace.source)
}

fn lower_here(
    plan: &Plan,
    workload: &Workload,
    machine: &Machine,
    terminal: bool,
) -> Result<Launch, RunError> {
    Ok(lower(&Lowering { plan, workload, machine, terminal })?)
}
