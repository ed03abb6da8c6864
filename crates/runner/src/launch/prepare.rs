//! Before the sandbox exists: examines the machine, finds values, creates directories and the record.

use super::error::RunError;
use super::request::{Model, RunRequest, RunSubject, Stdio};
use super::secrets::secrets;
use super::streams;
use super::values::{for_the_guest, values};
use super::workspace::{self, Watch, WorkspaceError};
use super::{allowances, examine, lower_here};
use crate::changes::layers::Layer;
use crate::egress::{EgressRequest, EgressServices};
use crate::environment::HostEnvironment;
use crate::git::identity_files;
use crate::launch::engine::engine_places;
use crate::plan::allowances::Allowances;
use crate::plan::planned::{Planned, SessionFlags};
use crate::session::terminal::Terminal;
use crate::store::instances::HeldInstance;
use crate::store::journal::Journal;
use crate::store::locks::{Holder, SessionLock};
use crate::suite::FilesWatch;
use crate::tape::Taping;
use belljar_contract::{
    AbsPath, BindSource, Event, GuestOnHeld, GuestVariable, Launch, Plan, RootPart, RunFiles, RunName,
    TapeValues, Workload, WorkspaceMode,
};
use belljar_record::Redact;
use belljar_sandbox::{Engine, LaunchError, Lowering, Overlay, Waiting, check_needs};
use belljar_sys::mounts::{Identity, identity};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// A run whose sandbox can be launched.
pub(super) struct Prepared<'a> {
    pub sandbox: Sandbox<'a>,
    pub record: Record<'a>,
}

/// The parts of a run that the launch consumes.
pub(super) struct Sandbox<'a> {
    pub plan: &'a Plan,
    pub workload: &'a Workload,
    pub launch: Launch,
    pub variables: Vec<GuestVariable>,
    pub identities: BTreeMap<AbsPath, Identity>,
    pub run_files: RunFiles,
    pub overlays: Vec<Overlay>,
    pub environment: &'a HostEnvironment,
    pub services: Option<EgressServices>,
    pub model: Model,
    pub stdio: Stdio,
    pub waiting: Option<Waiting>,
    pub terminal: bool,
    pub taping: Taping,
    pub watch: &'a mut dyn FnMut(&Event),
}

/// The parts of a run that outlive the sandbox: its record, and the state that the end is compared with.
pub(super) struct Record<'a> {
    pub planned: &'a Planned,
    pub environment: &'a HostEnvironment,
    pub subject: RunSubject,
    pub journal: Option<Journal>,
    pub redact: Redact,
    pub value_digests: Option<TapeValues>,
    pub project: Watch,
    pub layer: Option<Layer>,
    pub files: Option<FilesWatch>,
    /// Held until the end, so that no other run continues the same conversation.
    pub session: Option<SessionLock>,
}

/// Does everything that can fail before the sandbox is built.
pub(super) fn prepare(request: RunRequest<'_>) -> Result<Prepared<'_>, RunError> {
    let RunRequest {
        planned,
        environment,
        workload,
        subject,
        notice,
        name,
        model,
        mode,
        reach,
        ask,
        stdio,
        waiting,
        files,
        taping,
        watch,
    } = request;
    let terminal = matches!(stdio, Stdio::User) && Terminal::wanted();
    let (mut machine, project) = examine(planned, environment)?;
    if let Some(guard) = &mut machine.guard
        && terminal
    {
        guard.on_held = GuestOnHeld::Ask;
    }
    let plan = &planned.compiled.plan;
    let mut notices: Vec<String> = notice.into_iter().collect();
    // An unmet need is reported before the user is asked for a value.
    check_needs(&Lowering { plan, workload, machine: &machine, terminal })?;
    if let Some(image) = &plan.image {
        let engine = Engine::find(&engine_places(environment)).map_err(LaunchError::from)?;
        engine.named_image(image).map_err(LaunchError::from)?;
    }
    let mut run_files = RunFiles::default();
    let identity = identity_files(plan, &environment.git_files(), &mut run_files);
    let services = match (&model, plan.has_proxy()) {
        (Model::Absent, false) => None,
        (Model::Absent | Model::Live | Model::Script(_) | Model::Replay(_), _) => {
            let request = EgressRequest { plan, environment, model: &model, mode, reach, ask: &mut *ask };
            let services = EgressServices::prepare(request)?;
            services.files(plan, &mut run_files)?;
            Some(services)
        }
    };
    let values = values(plan, environment, ask)?;
    let kept = Kept::prepare(planned, plan, workload)?;
    if let Some(layer) = &kept.layer {
        machine.kept = Some(layer.at());
    }
    let mut launch = lower_here(plan, workload, &machine, terminal)?;
    if let Stdio::Conversation(_) = stdio {
        streams::keep_apart(&mut launch);
    }
    let identities = identities(planned, &launch, environment)?;
    let found = secrets(planned, environment, &values, services.as_ref(), &taping);
    let found = found.map_err(RunError::TapeKey)?;
    let (redact, value_digests) = (found.redact, found.digests);
    let mut journal = None;
    if records(workload, services.is_some()) {
        let mut opened = Journal::open(planned, environment, (name.as_ref(), &subject), Arc::clone(&redact))?;
        found.unsearched.iter().for_each(|one| opened.emit(&Event::Notice { text: one.to_string() }));
        if launch.container.is_some() {
            opened.used(None);
        }
        journal = Some(opened);
    }
    if machine.guard.is_some() {
        notices.extend(Allowances::notice(&allowances(plan, environment).read()?, environment));
    }
    notices.extend(identity);
    for text in notices {
        let event = Event::Notice { text };
        watch(&event);
        journal.iter_mut().for_each(|journal| journal.emit(&event));
    }
    let mut variables = for_the_guest(&values)?;
    variables.extend(services.iter().flat_map(|services| services.variables(plan)));
    let Kept { layer, overlays, session } = kept;
    let sandbox = Sandbox {
        plan,
        workload,
        launch,
        variables,
        identities,
        run_files,
        overlays,
        environment,
        services,
        model,
        stdio,
        waiting,
        terminal,
        taping,
        watch,
    };
    let record = Record {
        planned,
        environment,
        subject,
        journal,
        redact,
        value_digests,
        project,
        layer,
        files,
        session,
    };
    Ok(Prepared { sandbox, record })
}

/// Agents leave a record, and so does every command with egress services.
fn records(workload: &Workload, serves: bool) -> bool {
    match workload {
        Workload::Agent(_) => true,
        Workload::Command(_) => serves,
    }
}

/// The run's part of the state that is kept for the project.
struct Kept {
    layer: Option<Layer>,
    overlays: Vec<Overlay>,
    session: Option<SessionLock>,
}

impl Kept {
    fn prepare(planned: &Planned, plan: &Plan, workload: &Workload) -> Result<Self, RunError> {
        let wanted = HeldInstance::is_wanted(plan);
        let instance = wanted.then(|| HeldInstance::prepare(plan, SystemTime::now())).transpose()?;
        let holder = Holder { run: RunName::numbered(&plan.agent, 1), pid: std::process::id() };
        // Only a conversation that is kept can be continued by another run.
        let session = match (continued_session(planned, workload), &instance) {
            (Some(id), Some(instance)) => Some(SessionLock::take(instance, &id, &holder)?),
            (Some(_), None) | (None, _) => None,
        };
        let layer = match (plan.workspace.mode, &instance) {
            (WorkspaceMode::Direct, _) | (_, None) => None,
            (WorkspaceMode::Overlay | WorkspaceMode::Copy, Some(instance)) => {
                let repository = planned.repository.as_ref();
                Some(Layer::for_run(plan, repository, instance).map_err(WorkspaceError::from)?)
            }
        };
        let mut overlays = Vec::new();
        if let Some(layer) = &layer {
            overlays = workspace::overlays_of(planned, layer)?;
            belljar_sandbox::note_repository(&overlays).map_err(WorkspaceError::Note)?;
        }
        if plan.workspace.mode == WorkspaceMode::Copy {
            workspace::copy(&overlays)?;
            overlays.clear();
        }
        Ok(Self { layer, overlays, session })
    }
}

/// The conversation that the agent's arguments ask to continue.
fn continued_session(planned: &Planned, workload: &Workload) -> Option<String> {
    let Workload::Agent(arguments) = workload else { return None };
    let SessionFlags { named, newest } = &planned.session_flags;
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    for (at, argument) in arguments.iter().enumerate() {
        if newest.contains(argument) {
            return Some("newest".to_owned());
        }
        for flag in named {
            if argument == flag {
                return arguments.get(at + 1).cloned();
            }
            if let Some(id) = argument.strip_prefix(flag.as_str()).and_then(|rest| rest.strip_prefix('=')) {
                return Some(id.to_owned());
            }
        }
    }
    None
}

/// The identities of everything that is mounted: those that were taken with the plan, and those of what belljar makes or
/// examines itself for the run. The launch refuses a source without one.
fn identities(
    planned: &Planned,
    launch: &Launch,
    environment: &HostEnvironment,
) -> Result<BTreeMap<AbsPath, Identity>, RunError> {
    let plan = &planned.compiled.plan;
    let mut out = planned.identities.clone();
    if plan.backend.isolates() {
        out.insert(environment.guest.path().clone(), environment.guest.unpack()?);
    }
    let guarded = |path: &AbsPath| {
        plan.workspace.mode == WorkspaceMode::Direct
            && (path.is_within(&plan.workspace.source)
                || planned.repository.as_ref().is_some_and(|repository| path.is_within(repository)))
    };
    for part in &launch.root {
        let RootPart::Bind { from: BindSource::Host(path), .. } = part else { continue };
        let own = path.is_within(&environment.data) || guarded(path);
        if own && !out.contains_key(path) {
            out.extend(identity(path.as_path()).ok().map(|found| (path.clone(), found)));
        }
    }
    Ok(out)
}
