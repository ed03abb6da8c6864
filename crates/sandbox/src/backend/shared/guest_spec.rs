//! What the guest starts: the command with its environment, and the limits that the guest sets.

use super::listeners::listeners;
use crate::backend::Lowering;
use crate::backend::defaults::{self, ProcessLimit};
use crate::backend::registry::Backend;
use belljar_contract::{
    EnvEntry, EnvSource, GUEST_PROTOCOL, GuestBeginning, GuestBounds, GuestFiles, GuestFilter, GuestGuard,
    GuestListener, GuestOnHeld, GuestRoot, GuestSpec, GuestStream, GuestTerminal, GuestVariable, Limits,
    OsText, Plan, Workload,
};

/// How long processes have to end after SIGTERM.
const GRACE_MS: u32 = 500;

/// The command with its environment. Streams and root are filled in by the launch.
pub(in crate::backend) fn guest_spec(backend: &dyn Backend, lowering: &Lowering<'_>) -> GuestSpec {
    let Lowering { plan, workload, machine, terminal, conversation, kept: _ } = *lowering;
    // Every backend gets its guest here. All fields are named, so that a new one does not compile until it is decided who
    // lowers it.
    let Plan {
        env,
        workspace,
        // Below, in `argv`, `beginning` and the limits that the guest sets.
        argv: _,
        prompt: _,
        limits: _,
        // The root or, without one, the files in its place; `made` of the host, the mounts of a container.
        mounts: _,
        files: _,
        home_directory: _,
        instance: _,
        image: _,
        // `listeners` and the needs.
        egress: _,
        credentials: _,
        ssh: _,
        harness: _,
        agent_version: _,
        backend: _,
        // Outside the sandbox: the gateway, the record and the guard over the project.
        agent: _,
        purpose: _,
        model_credentials: _,
        provider_tools: _,
        redact: _,
        used_outside: _,
        // Compiled into arguments, mounts, files and variables, or only shown.
        format: _,
        model: _,
        effort: _,
        home: _,
        skills: _,
        mcp: _,
        plugins: _,
        refused: _,
    } = plan;
    let argv = argv(plan, workload);
    let listeners = listeners(lowering);
    GuestSpec {
        protocol: GUEST_PROTOCOL,
        program: argv.first().cloned().unwrap_or_default(),
        argv,
        environment: env.iter().filter_map(constant).collect(),
        directory: text(workspace.directory.as_bytes()).unwrap_or_default(),
        stdin: GuestStream::Null,
        stdout: GuestStream::Null,
        stderr: GuestStream::Null,
        terminal: if terminal { GuestTerminal::Own } else { GuestTerminal::Absent },
        range: None,
        beginning: beginning(plan, terminal, &listeners),
        listeners,
        root: GuestRoot::AsFound,
        files: if conversation { GuestFiles::ProcessesApart } else { GuestFiles::AsMounted },
        filter: if conversation { GuestFilter::Apart } else { GuestFilter::Standard },
        guard: machine.guard.clone().map(|guard| GuestGuard { on_held: on_held(terminal), ..guard }),
        umask: 0o022,
        limits: defaults::resources(backend, plan, machine.capacity),
        grace_ms: GRACE_MS,
    }
}

/// What happens to a change that the guard holds back: a user at the terminal is asked.
fn on_held(terminal: bool) -> GuestOnHeld {
    if terminal { GuestOnHeld::Ask } else { GuestOnHeld::Refuse }
}

fn text(bytes: &[u8]) -> Option<OsText> {
    OsText::new(bytes).ok()
}

fn argv(plan: &Plan, workload: &Workload) -> Vec<OsText> {
    match workload {
        Workload::Agent(more) => {
            let own = plan.argv.iter().filter_map(|argument| text(argument.as_bytes()));
            let prompt = plan.prompt.iter().filter_map(|prompt| text(prompt.argument.as_bytes()));
            // What the user adds on the command line takes the place of the first message.
            let prompt: Vec<OsText> = if more.is_empty() { prompt.collect() } else { Vec::new() };
            own.chain(more.iter().cloned()).chain(prompt).collect()
        }
        Workload::Command(argv) => argv.clone(),
    }
}

/// A variable whose value the plan holds. The other values are found when the command is launched.
fn constant(entry: &EnvEntry) -> Option<GuestVariable> {
    match &entry.source {
        EnvSource::Constant(value) => Some(GuestVariable {
            name: text(entry.name.as_str().as_bytes())?,
            value: text(value.as_bytes())?,
        }),
        EnvSource::Literal(_)
        | EnvSource::Variable(_)
        | EnvSource::Prompt(_)
        | EnvSource::File(_)
        | EnvSource::Command(_)
        | EnvSource::Run(_) => None,
    }
}

/// Limits that the guest sets while it builds the root.
pub(in crate::backend) fn bounds(backend: &dyn Backend, lowering: &Lowering<'_>) -> GuestBounds {
    let Lowering { plan, machine, .. } = lowering;
    GuestBounds {
        tmpfs: plan.limits.tmpfs_bytes(machine.capacity.memory),
        pid_max: match defaults::processes(backend, plan, machine.capacity) {
            Some(Ok(ProcessLimit::Numbers(most))) => Some(most),
            Some(
                Ok(ProcessLimit::Resource(_) | ProcessLimit::Engine(_) | ProcessLimit::EngineAndResource(_))
                | Err(_),
            )
            | None => None,
        },
    }
}

/// Starting at once saves a round trip. It is right where nothing has to be ready outside before the command runs: neither a
/// control group that the command must be born in, nor the other end of a listener, nor a terminal in the right mode.
fn beginning(plan: &Plan, terminal: bool, listeners: &[GuestListener]) -> GuestBeginning {
    let Limits { memory, cpu, pids, time: _, cost_usd: _, tmpfs: _, unlimited: _ } = &plan.limits;
    let in_group = memory.is_some() || cpu.is_some() || pids.is_some();
    if in_group || terminal || !listeners.is_empty() {
        GuestBeginning::OnOrder
    } else {
        GuestBeginning::AtOnce
    }
}
