//! A plan becomes files in the instance and a plain command. Pure.

use crate::backend::defaults::default_limits;
use crate::backend::{Lowering, bwrap};
use belljar_contract::{
    AbsPath, Access, BackendKind, Control, Errand, GuestBounds, Launch, Made, Mount, MountSource, Need, Plan,
    Unmet,
};

/// What becomes of a need where there are no walls.
enum Fate {
    /// It is enforced all the same.
    Held(&'static str),
    /// Nothing enforces it; choosing this backend accepts that, and it is said every time.
    Open(&'static str),
    /// It was asked for and cannot be had: the launch is refused.
    Refused(&'static str, &'static str),
}

pub(crate) fn lower(lowering: &Lowering<'_>) -> Result<Launch, Vec<Unmet>> {
    let Lowering { plan, errand, terminal, .. } = *lowering;
    let (mut controls, mut open, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for need in plan.needs(errand) {
        match fate(need) {
            Fate::Held(mechanism) => controls.push(Control { need, mechanism: mechanism.to_owned() }),
            Fate::Open(why) => {
                let fix = "`backend = \"bwrap\"` enforces it".to_owned();
                open.push(Unmet { need, why: why.to_owned(), fix });
            }
            Fate::Refused(why, fix) => {
                refused.push(Unmet { need, why: why.to_owned(), fix: fix.to_owned() });
            }
        }
    }
    refused.extend(bwrap::no_agent(lowering).into_iter().chain(bwrap::no_image(lowering)));
    let mut made = vec![Made::Fresh(ours(plan)), Made::Directory(plan.home_directory.clone())];
    for mount in &plan.mounts {
        match stand_in(mount, lowering) {
            Ok(stand_ins) => made.extend(stand_ins),
            Err(unmet) => refused.push(unmet),
        }
    }
    made.extend(
        plan.files
            .iter()
            .map(|file| Made::Written { at: file.target.clone(), content: file.content.clone() }),
    );
    if !refused.is_empty() {
        return Err(refused);
    }
    let guest = bwrap::guest(lowering, terminal);
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
        defaults: default_limits(plan, lowering.machine.capacity),
        bounds: GuestBounds::default(),
        controls,
        open,
    })
}

/// What stands for a mount: nothing can be laid over a path of the host, so only what lies in belljar's own
/// folders, or at its own place, can be had.
fn stand_in(mount: &Mount, lowering: &Lowering<'_>) -> Result<Vec<Made>, Unmet> {
    let Lowering { plan, machine, errand, .. } = lowering;
    let Mount { target, source, access, why: _ } = mount;
    let own = target.is_within(&ours(plan));
    Ok(match source {
        MountSource::System
        | MountSource::Image
        | MountSource::SyntheticEtc
        | MountSource::Proc
        | MountSource::Devices
        | MountSource::Temporary => Vec::new(),
        MountSource::AgentProgram => match (&machine.agent, errand) {
            (Some(agent), Errand::Agent(_)) => vec![Made::Link { at: target.clone(), to: agent.clone() }],
            (Some(_) | None, _) => Vec::new(),
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
                why: format!("without walls nothing can be shown at `{target}`"),
                fix: "use `backend = \"bwrap\"`, or leave the mount's `target` out".to_owned(),
            });
        }
    })
}

/// The folder of the instance that a plan without walls keeps home and configuration in.
fn ours(plan: &Plan) -> AbsPath {
    plan.instance.directory.child("host")
}

fn fate(need: Need) -> Fate {
    const WALLS: &str = "use `backend = \"bwrap\"`";
    match need {
        Need::Environment => Fate::Held("cleared; only the listed variables are set"),
        Need::Descriptors => Fate::Held("every descriptor but the standard streams is closed"),
        Need::Time => Fate::Held("the supervisor's clock"),
        Need::Model => Fate::Held("gateway on a unix socket; the credential stays outside"),
        Need::Cost => Fate::Held("the gateway counts, and refuses the request that would pass the limit"),
        Need::Files => Fate::Open("every file of yours can be read and written"),
        Need::Processes => Fate::Open("your processes can be seen, signalled and traced"),
        Need::Ipc => Fate::Open("shared memory and sockets of yours can be used"),
        Need::Network => Fate::Open("the whole network can be reached, this machine's services too"),
        Need::Privileges => Fate::Open("it has your privileges"),
        Need::Kernel => Fate::Open("every kernel interface that you may use can be used"),
        Need::Keyring => Fate::Open("the keys of your session can be used"),
        Need::Terminal => Fate::Open("it has a terminal of its own, but can open yours"),
        Need::Lifetime => Fate::Open("processes that leave its group outlive the run"),
        Need::HostExecuted => Fate::Open("hooks, settings and shell files can be changed"),
        Need::Egress => Fate::Open("hosts that are not allowed can be reached as well"),
        Need::Overlay => Fate::Refused("without walls changes cannot be kept aside", WALLS),
        Need::Copy => Fate::Refused("without walls the project cannot be replaced by a copy", WALLS),
        Need::Memory | Need::Pids | Need::Cpu | Need::Tmpfs => {
            Fate::Refused("without walls no limit is set", WALLS)
        }
        Need::Credentials => {
            Fate::Held("added outside, where TLS is intercepted, for programs that go through the proxy")
        }
        Need::Ssh => Fate::Refused("without walls ssh reads your own keys and configuration", WALLS),
    }
}
