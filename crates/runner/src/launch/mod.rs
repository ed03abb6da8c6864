//! From a plan to a command that has run, in three phases: [`prepare`], [`launch`], [`finish`].

pub(crate) mod early;
pub(crate) mod engine;
mod error;
mod facts;
mod finish;
pub(crate) mod guest_program;
pub(crate) mod interpreter;
mod judging;
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
pub use facts::LaunchFacts;
pub use report::{CommandOutcome, Report, Spent};
pub use request::{Ask, Model, RunRequest, RunSubject, ScenarioUsed, Stdio};

use crate::changes::layers;
use crate::environment::HostEnvironment;
use crate::plan::allowances::Allowances;
use crate::plan::planned::Planned;
use crate::session::terminal::Terminal;
use belljar_contract::{Launch, Need, OsText, Plan, Unmet, Workload};
use belljar_sandbox::{KeptAt, Lowering, MachineFacts, check_needs, lower};
use finish::finish;
pub(crate) use finish::model_usage;
use live::launch;
use prepare::{Prepared, prepare};

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
    let machine = LaunchFacts::gather(planned, environment)?.machine;
    let kept = shown_layers(planned);
    let lowering = at_terminal(planned, workload, &machine, &kept);
    Ok(lower(&lowering, check_needs(&lowering)?)?)
}

/// The inputs of the lowering for a command that the user starts.
fn at_terminal<'a>(
    planned: &'a Planned,
    workload: &'a Workload,
    machine: &'a MachineFacts,
    kept: &'a KeptAt,
) -> Lowering<'a> {
    let plan = &planned.compiled.plan;
    Lowering { plan, workload, machine, terminal: Terminal::wanted(), conversation: false, kept: Some(kept) }
}

/// The layers that a run would get; the run itself claims its own when it begins.
fn shown_layers(planned: &Planned) -> KeptAt {
    layers::shown(&planned.compiled.plan, planned.repository.as_ref())
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
    let Ok(facts) = LaunchFacts::gather(planned, environment) else { return Vec::new() };
    let kept = shown_layers(planned);
    match check_needs(&at_terminal(planned, &workload, &facts.machine, &kept)) {
        Err(error) => error.unmet.into_iter().filter(|unmet| is_limit(&unmet.need)).collect(),
        Ok(_) => Vec::new(),
    }
}

/// The files of the project that the user allows every run to change.
fn allowances(plan: &Plan, environment: &HostEnvironment) -> Allowances {
    Allowances::of(&environment.config, &plan.workspace.source)
}
