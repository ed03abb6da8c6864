//! The tier of a scenario, and the backend that stands for it.

use super::load::Trial;
use super::trial::TrialError;
use belljar_contract::{BackendKind, SandboxChoice};
use belljar_plan::Fidelity;

impl Trial {
    /// The backend that the command line asks for, or that of the scenario's tier. `container` is what the format calls a
    /// sandbox without a network of its own and with its own file tree, which bubblewrap is. At `hostloop` and `cowork`
    /// other tools run parts of the agent outside; here all of it is inside, which is stricter.
    pub(super) fn backend(&self, asked: &SandboxChoice) -> Result<BackendKind, TrialError> {
        if let Some(backend) = asked.backend {
            return Ok(backend);
        }
        match self.scenario.fidelity {
            None | Some(Fidelity::Container | Fidelity::Hostloop | Fidelity::Cowork) => {
                Ok(BackendKind::Bwrap)
            }
            Some(Fidelity::Protocol) => Ok(BackendKind::Host),
            // A sandbox that shares the kernel is weaker than a virtual machine, so it is not chosen instead.
            Some(Fidelity::Microvm) => Err(TrialError::Unsupported(
                "`fidelity: microvm` asks for a virtual machine, and belljar has no such backend; write `fidelity: \
                 container`, or choose a backend for this run with --backend"
                    .to_owned(),
            )),
        }
    }

    /// The tier that a run had: the backend, and the tier of the scenario that it stands for.
    #[must_use]
    pub fn tier(&self, backend: BackendKind) -> String {
        match self.scenario.fidelity {
            Some(tier) if tier.name() != backend.name() => format!("{} for {tier}", backend.name()),
            Some(_) | None => backend.name().to_owned(),
        }
    }
}
