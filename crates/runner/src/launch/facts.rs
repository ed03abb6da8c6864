//! What is found out about this machine and the project for a launch, before the user agrees to it.

use super::allowances;
use super::error::RunError;
use super::interpreter::interpreter;
use super::workspace::Watch;
use crate::environment::HostEnvironment;
use crate::plan::planned::Planned;
use belljar_contract::AbsPath;
use belljar_sandbox::{MachineFacts, SourceIdentity, held_limits, look_around};
use belljar_sys::mounts::try_identity;
use std::collections::BTreeMap;

/// The facts that a launch depends on. `exec`, `run` and `shell` gather them before the user agrees to the plan: a source
/// of a mount that is replaced afterwards is refused. A trial gathers them when its stage exists: the user agreed to the
/// suite's files before, and the mounts are belljar's own copies of them.
#[derive(Debug)]
pub struct LaunchFacts {
    /// The capabilities of this machine for the plan.
    pub(super) machine: MachineFacts,
    /// The state of the project, for the comparison at the end of the run.
    pub(super) project: Watch,
    /// The identities of the sources that the plan names, and of the guarded files of the project.
    pub(super) identities: BTreeMap<AbsPath, SourceIdentity>,
}

impl LaunchFacts {
    /// Examines the machine and the project.
    ///
    /// # Errors
    /// If the project cannot be examined.
    pub fn gather(planned: &Planned, environment: &HostEnvironment) -> Result<Self, RunError> {
        let plan = &planned.compiled.plan;
        let mut machine = look_around(
            environment.program("bwrap"),
            environment.guest.path().clone(),
            planned.program_found().cloned(),
        );
        let limits = &plan.limits;
        if limits.memory.is_some() || limits.pids.is_some() || limits.cpu.is_some() {
            machine.limits = held_limits();
        }
        if let (Some(_), Some(agent)) = (&plan.image, &machine.agent) {
            machine.interpreter = interpreter(agent.as_path());
        }
        let project = Watch::begin(planned)?;
        let allowed = allowances(plan, environment).read()?;
        machine.guard = project.guard(plan, &allowed)?;
        machine.guarded = project.guarded(machine.guard.as_ref(), &allowed);
        let mut identities = planned.identities.clone();
        // Without a sandbox nothing is mounted.
        if plan.backend.isolates() {
            for (path, _access) in &machine.guarded {
                identities.entry(path.clone()).or_insert_with(|| try_identity(path.as_path()));
            }
        }
        Ok(Self { machine, project, identities })
    }
}
