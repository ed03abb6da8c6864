//! Which mechanism enforces each need, and needs that no backend meets.

use crate::backend::{Lowering, defaults};
use belljar_contract::{Control, Need, Unmet, Workload};

/// What enforces a need, or why nothing does and what would help.
pub(in crate::backend) type Mechanism = Result<&'static str, (&'static str, &'static str)>;

/// The mechanisms that differ between the backends that have a guest.
#[derive(Debug, Clone, Copy)]
pub(in crate::backend) struct OwnMechanisms {
    pub files: &'static str,
    pub processes: &'static str,
    pub ipc: &'static str,
    pub network: &'static str,
    pub privileges: &'static str,
    pub lifetime: &'static str,
    pub memory: Mechanism,
    pub pids: Mechanism,
    pub cpu: Mechanism,
}

/// Finds what enforces each need of a plan in a sandbox with a guest. Each is enforced or refused; a test checks that none is
/// left out.
pub(in crate::backend) fn controls(
    lowering: &Lowering<'_>,
    own: &OwnMechanisms,
) -> (Vec<Control>, Vec<Unmet>) {
    let (mut controls, mut unmet) = (Vec::new(), Vec::new());
    for need in lowering.plan.needs(lowering.workload) {
        match mechanism(need, lowering, own) {
            Ok(mechanism) => controls.push(Control { need, mechanism: mechanism.to_owned() }),
            Err((why, fix)) => unmet.push(Unmet { need, why: why.to_owned(), fix: fix.to_owned() }),
        }
    }
    (controls, unmet)
}

fn mechanism(need: Need, lowering: &Lowering<'_>, own: &OwnMechanisms) -> Mechanism {
    match need {
        Need::Files => Ok(own.files),
        Need::Processes => Ok(own.processes),
        Need::Ipc => Ok(own.ipc),
        Need::Network => Ok(own.network),
        Need::Privileges => Ok(own.privileges),
        Need::Lifetime => Ok(own.lifetime),
        Need::Memory => own.memory,
        Need::Pids => own.pids,
        Need::Cpu => own.cpu,
        Need::Environment => Ok("cleared; the guest sets the listed variables"),
        Need::Kernel => Ok("seccomp filter, Landlock where the kernel has it"),
        Need::Keyring => Ok("a fresh session keyring, key calls refused by seccomp"),
        Need::Descriptors => Ok("every descriptor but the standard streams is closed"),
        Need::Terminal => Ok("a pseudo-terminal of belljar's, or none"),
        Need::HostExecuted if lowering.machine.guard.is_some() => {
            Ok("Landlock and a broker of the guest hold them back; read-only mounts; what is new is reported")
        }
        Need::HostExecuted => {
            Ok("read-only mounts over those that exist; those made during the run are reported")
        }
        Need::Overlay => Ok("overlay mount; the project is its read-only lower layer"),
        Need::Copy => Ok("a copy is mounted in the project's place"),
        Need::Tmpfs => Ok(defaults::TMPFS_MECHANISM),
        Need::Time => Ok("the supervisor's clock"),
        Need::Model => Ok("gateway on a unix socket; the credential stays outside"),
        Need::Cost => Ok("the gateway counts, and refuses the request that would pass the limit"),
        Need::Egress => {
            Ok("a proxy and the addresses of allowed hosts inside; the policy decides and dials outside")
        }
        Need::Credentials => Ok("added outside, where TLS is intercepted for exactly these hosts"),
        Need::Ssh => Ok("an agent that signs with the declared key for the declared host alone"),
    }
}

/// The agent is to be started and is not installed.
pub(in crate::backend) fn no_agent(lowering: &Lowering<'_>) -> Option<Unmet> {
    let missing = matches!(lowering.workload, Workload::Agent(_)) && lowering.machine.agent.is_none();
    missing.then(|| Unmet {
        need: Need::Model,
        why: format!("the agent {} is not installed, or not on PATH", lowering.plan.harness),
        fix: format!(
            "put it on PATH, or name a version, as in `--agent {}@VERSION --install`; a replay takes `--agent recorded \
             --install`",
            lowering.plan.harness
        ),
    })
}

/// The plan names an image, and its backend takes none.
pub(in crate::backend) fn no_image(lowering: &Lowering<'_>) -> Option<Unmet> {
    let plan = lowering.plan;
    plan.image.as_ref().map(|image| Unmet {
        need: Need::Files,
        why: format!("the image `{image}` is for containers; {} has none", plan.backend.name()),
        fix: "use `backend = \"container\"`, or leave `image` out".to_owned(),
    })
}
