//! A plan becomes files in the instance and a plain command. Pure.

use super::NO_LIMIT;
use crate::backend::defaults::default_limits_of;
use crate::backend::registry::Backend;
use crate::backend::shared::guest_spec::guest_spec;
use crate::backend::shared::needs::{no_agent, no_image};
use crate::backend::{Lowering, NeedsMet};
use belljar_contract::{
    AbsPath, Access, BackendKind, Control, GuestBounds, Launch, Made, Mount, MountSource, Need, Plan, Unmet,
    Workload,
};

/// How a need is treated without a sandbox.
enum Fate {
    /// It is enforced all the same, by this mechanism.
    Enforced(&'static str),
    /// Nothing enforces it. Choosing this backend accepts that, and every run says it.
    Open(&'static str),
    /// The plan asks for it by name, so the launch is refused.
    Refused(&'static str),
}

const OTHER_BACKEND: &str = "use `backend = \"bwrap\"`";

pub(super) fn check_needs(lowering: &Lowering<'_>) -> Result<NeedsMet, Vec<Unmet>> {
    let Lowering { plan, workload, .. } = *lowering;
    let open = open_needs(plan, workload);
    let (mut controls, mut refused) = (Vec::new(), Vec::new());
    for need in plan.needs(workload) {
        match fate(need) {
            Fate::Enforced(mechanism) => controls.push(Control { need, mechanism: mechanism.to_owned() }),
            Fate::Open(_) => {}
            Fate::Refused(why) => {
                refused.push(Unmet { need, why: why.to_owned(), fix: OTHER_BACKEND.to_owned() });
            }
        }
    }
    refused.extend(no_agent(lowering).into_iter().chain(no_image(lowering)));
    refused.extend(plan.mounts.iter().filter_map(|mount| stand_in(mount, lowering).err()));
    if refused.is_empty() { Ok(NeedsMet { controls, open }) } else { Err(refused) }
}

/// The needs that nothing enforces. Choosing this backend accepts them, and every run lists them.
pub(super) fn open_needs(plan: &Plan, workload: &Workload) -> Vec<Unmet> {
    let open = plan.needs(workload).into_iter().filter_map(|need| match fate(need) {
        Fate::Open(why) => {
            let fix = "`backend = \"bwrap\"` enforces it".to_owned();
            Some(Unmet { need, why: why.to_owned(), fix })
        }
        Fate::Enforced(_) | Fate::Refused(_) => None,
    });
    open.collect()
}

pub(super) fn lower(
    backend: &dyn Backend,
    lowering: &Lowering<'_>,
    met: NeedsMet,
) -> Result<Launch, Vec<Unmet>> {
    let Lowering { plan, machine, .. } = *lowering;
    let NeedsMet { controls, open } = met;
    let mut made = vec![Made::Fresh(own_directory(plan)), Made::Directory(plan.home_directory.clone())];
    for mount in &plan.mounts {
        made.extend(stand_in(mount, lowering).map_err(|unmet| vec![unmet])?);
    }
    made.extend(
        plan.files
            .iter()
            .map(|file| Made::Written { at: file.target.clone(), content: file.content.clone() }),
    );
    let guest = guest_spec(backend, lowering);
    Ok(Launch {
        backend: BackendKind::Host,
        program: guest.program.clone(),
        arguments: Vec::new(),
        command: Vec::new(),
        container: None,
        root: Vec::new(),
        guest,
        made,
        limits: plan.limits.clone(),
        defaults: default_limits_of(backend, plan, machine.capacity),
        bounds: GuestBounds::default(),
        controls,
        open,
    })
}

/// What is made in the place of a mount. Nothing can be mounted over a path of the host, so the target must be in belljar's own
/// directory, or be the source itself.
fn stand_in(mount: &Mount, lowering: &Lowering<'_>) -> Result<Vec<Made>, Unmet> {
    let Lowering { plan, machine, workload, .. } = lowering;
    let Mount { target, source, access, why: _ } = mount;
    let own = target.is_within(&own_directory(plan));
    Ok(match source {
        MountSource::System
        | MountSource::Image
        | MountSource::SyntheticEtc
        | MountSource::Proc
        | MountSource::Devices => Vec::new(),
        MountSource::Temporary if own => vec![Made::Directory(target.clone())],
        MountSource::Temporary => Vec::new(),
        MountSource::AgentProgram => match (&machine.agent, workload) {
            (Some(agent), Workload::Agent(_)) => vec![Made::Link { at: target.clone(), to: agent.clone() }],
            (Some(_) | None, Workload::Agent(_) | Workload::Command(_)) => Vec::new(),
        },
        MountSource::Workspace if *target == plan.workspace.source => Vec::new(),
        MountSource::Host(path) if path == target => Vec::new(),
        // What is declared read-only is copied: a change must not reach its source.
        MountSource::Host(path) if own => vec![match access {
            Access::ReadOnly => Made::Copy { at: target.clone(), from: path.clone() },
            Access::ReadWrite => Made::Link { at: target.clone(), to: path.clone() },
        }],
        MountSource::InstanceDirectory(path) if own => {
            vec![Made::Directory(path.clone()), Made::Link { at: target.clone(), to: path.clone() }]
        }
        MountSource::InstanceFile(path) if own => {
            vec![Made::File(path.clone()), Made::Link { at: target.clone(), to: path.clone() }]
        }
        MountSource::Workspace
        | MountSource::Host(_)
        | MountSource::InstanceDirectory(_)
        | MountSource::InstanceFile(_) => {
            return Err(Unmet {
                need: Need::Files,
                why: format!("without a sandbox nothing can be mounted at `{target}`"),
                fix: "use `backend = \"bwrap\"`, or leave the mount's `target` out".to_owned(),
            });
        }
    })
}

/// The directory of the instance that holds home and configuration.
fn own_directory(plan: &Plan) -> AbsPath {
    plan.instance.directory.child("host")
}

fn fate(need: Need) -> Fate {
    match need {
        Need::Environment => Fate::Enforced("cleared; only the listed variables are set"),
        Need::Descriptors => Fate::Enforced("every descriptor but the standard streams is closed"),
        Need::Time => Fate::Enforced("the supervisor's clock"),
        Need::Model => Fate::Enforced("gateway on a unix socket; the credential stays outside"),
        Need::Cost => Fate::Enforced("the gateway counts, and refuses the request that would pass the limit"),
        Need::Files => Fate::Open("every file of yours can be read and written; settings in /etc apply"),
        Need::Processes => Fate::Open("your processes can be seen, signalled and traced"),
        Need::Ipc => Fate::Open("shared memory and sockets of yours can be used"),
        Need::Network => Fate::Open("the whole network can be reached, this machine's services too"),
        Need::Privileges => Fate::Open("it has your privileges"),
        Need::Kernel => Fate::Open("every kernel interface that you may use can be used"),
        Need::Keyring => Fate::Open("the keys of your session can be used"),
        Need::Terminal => Fate::Open("it has a terminal of its own, but can open yours"),
        Need::Lifetime => Fate::Open("processes that leave its group outlive the run"),
        Need::HostExecuted => Fate::Open("hooks, settings and shell files can be changed"),
        Need::Egress => {
            Fate::Open("hosts that are not allowed can be reached; only programs that use the proxy are seen")
        }
        Need::Overlay => Fate::Refused("without a sandbox changes cannot be kept in an overlay"),
        Need::Copy => Fate::Refused("without a sandbox the project cannot be replaced by a copy"),
        Need::Memory | Need::Pids | Need::Cpu | Need::Tmpfs => Fate::Refused(NO_LIMIT),
        Need::Credentials => {
            Fate::Enforced("added outside, where TLS is intercepted, for programs that go through the proxy")
        }
        Need::Ssh => Fate::Refused("without a sandbox ssh reads your own keys and configuration"),
    }
}
