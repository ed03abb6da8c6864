//! Before the sandbox exists: examines the machine, finds values, creates directories and the record.

use super::error::RunError;
use super::judging::Judging;
use super::request::{Model, RunRequest, RunSubject, Stdio};
use super::secrets::secrets;
use super::values::{for_the_guest, values};
use super::workspace::{self, Watch, WorkspaceError};
use super::{LaunchFacts, allowances, shown_layers};
use crate::changes::layers::Layer;
use crate::egress::{EgressRequest, EgressServices};
use crate::environment::HostEnvironment;
use crate::git::identity_files;
use crate::launch::engine::engine_places;
use crate::plan::allowances::Allowances;
use crate::plan::planned::Planned;
use crate::session::terminal::Terminal;
use crate::store::instances::HeldInstance;
use crate::store::journal::Journal;
use crate::store::locks::{Holder, SessionLock};
use crate::suite::FilesWatch;
use crate::tape::Taping;
use belljar_contract::{
    AbsPath, BindSource, Event, GuestVariable, Launch, OpenNeed, Plan, Purpose, RootPart, RunFiles, RunName,
    TapeValues, TimeSpan, Workload, WorkspaceMode,
};
use belljar_record::Redact;
use belljar_sandbox::{
    Engine, LaunchError, Lowering, Overlay, SourceIdentities, SourceIdentity, Waiting, check_needs, lower,
};
use belljar_sys::mounts::{Identity, try_identity};
use rustix::io::Errno;
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
    pub decided: Decided,
    pub identities: SourceIdentities,
    pub environment: &'a HostEnvironment,
    pub model: Model,
    /// The time limit of the command line.
    pub time: Option<TimeSpan>,
    pub stdio: Stdio,
    pub waiting: Option<Waiting>,
    pub judging: Option<Judging>,
    pub taping: Taping,
    pub watch: &'a mut dyn FnMut(&Event),
}

/// What is decided after the user agreed to the plan. It adds to the plan and changes nothing in it.
pub(super) struct Decided {
    /// The plan, lowered once, with the places where this run keeps changes.
    pub launch: Launch,
    pub terminal: bool,
    /// The values of variables, found just now.
    pub variables: Vec<GuestVariable>,
    pub run_files: RunFiles,
    pub overlays: Vec<Overlay>,
    pub services: Option<EgressServices>,
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
        facts,
        environment,
        workload,
        subject,
        notice,
        name,
        model,
        mode,
        reach,
        time,
        open,
        ask,
        stdio,
        waiting,
        files,
        judge,
        taping,
        watch,
    } = request;
    let terminal = matches!(stdio, Stdio::User) && Terminal::wanted();
    let conversation = matches!(stdio, Stdio::Conversation(_));
    let LaunchFacts { machine, project, identities: agreed } = facts;
    let plan = &planned.compiled.plan;
    let mut notices: Vec<String> = notice.into_iter().collect();
    // An unmet need is reported before the user is asked for a value.
    let shown = shown_layers(planned);
    let lowering = Lowering { plan, workload, machine: &machine, terminal, conversation, kept: Some(&shown) };
    let met = check_needs(&lowering)?;
    if !met.open().is_empty() {
        open(met.open());
    }
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
    let mut identities = SourceIdentities { agreed, own: BTreeMap::new() };
    let kept = Kept::prepare(planned, workload, &identities)?;
    let claimed = kept.layer.as_ref().map(Layer::at);
    let launch = lower(&Lowering { kept: claimed.as_ref().or(lowering.kept), ..lowering }, met)?;
    identities.own = own_identities(plan, &launch, &identities.agreed, environment)?;
    let found = secrets(planned, environment, &values, services.as_ref(), &taping)?;
    let (redact, value_digests) = (found.redact, found.digests);
    if machine.guard.is_some() {
        notices.extend(Allowances::notice(&allowances(plan, environment).read()?, environment));
    }
    notices.extend(identity);
    let mut variables = for_the_guest(&values)?;
    variables.extend(services.iter().flat_map(|services| services.variables(plan)));
    // Nothing fails after this: a record that was begun is ended by `finish`.
    let mut journal = None;
    if records(plan, workload) {
        let mut opened = Journal::open(planned, environment, (name.as_ref(), &subject), Arc::clone(&redact))?;
        found.unsearched.iter().for_each(|one| opened.emit(&Event::Notice { text: one.to_string() }));
        if launch.container.is_some() {
            opened.used(None);
        }
        journal = Some(opened);
    }
    let unsealed = (!launch.open.is_empty())
        .then(|| Event::Unsealed { open: launch.open.iter().map(OpenNeed::from).collect() });
    for event in unsealed.into_iter().chain(notices.into_iter().map(|text| Event::Notice { text })) {
        watch(&event);
        journal.iter_mut().for_each(|journal| journal.emit(&event));
    }
    let Kept { layer, overlays, session } = kept;
    let decided = Decided { launch, terminal, variables, run_files, overlays, services };
    let judge = judge.filter(|_| model.has_judge());
    let judging = judge.map(|judge| Judging { judge, files: files.clone() });
    let sandbox = Sandbox {
        plan,
        workload,
        decided,
        identities,
        environment,
        model,
        time,
        stdio,
        waiting,
        judging,
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

/// Agents leave a record, and so does every command that can reach something.
fn records(plan: &Plan, workload: &Workload) -> bool {
    match workload {
        Workload::Agent(_) => true,
        Workload::Command(_) => plan.egress.opens() || plan.purpose == Purpose::Test,
    }
}

/// The run's part of the state that is kept for the project.
struct Kept {
    layer: Option<Layer>,
    overlays: Vec<Overlay>,
    session: Option<SessionLock>,
}

impl Kept {
    fn prepare(
        planned: &Planned,
        workload: &Workload,
        identities: &SourceIdentities,
    ) -> Result<Self, RunError> {
        let plan = &planned.compiled.plan;
        let wanted = HeldInstance::is_wanted(plan);
        let instance = wanted.then(|| HeldInstance::prepare(plan, SystemTime::now())).transpose()?;
        let holder = Holder { run: RunName::numbered(&plan.agent, 1), pid: std::process::id() };
        // Only a conversation that is kept can be continued by another run.
        let continued = match workload {
            Workload::Agent(arguments) => planned.flags.continued(arguments),
            Workload::Command(_) => None,
        };
        let session = match (continued, &instance) {
            (Some(id), Some(instance)) => Some(SessionLock::take(instance, &id, &holder)?),
            (Some(_), None) | (None, _) => None,
        };
        let layer = match (plan.workspace.mode, &instance) {
            (WorkspaceMode::Direct, _) | (_, None) => None,
            (WorkspaceMode::Overlay | WorkspaceMode::Copy, Some(instance)) => {
                let repository = planned.repository.as_ref();
                // Nothing is copied from, or noted about, a project that was replaced.
                let mut sources = std::iter::once(&plan.workspace.source).chain(repository);
                sources.try_for_each(|source| identities.confirm(source))?;
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

/// The identities of the mounted files and directories that belljar itself made for the run.
fn own_identities(
    plan: &Plan,
    launch: &Launch,
    agreed: &BTreeMap<AbsPath, SourceIdentity>,
    environment: &HostEnvironment,
) -> Result<BTreeMap<AbsPath, Identity>, RunError> {
    let mut own = BTreeMap::new();
    if plan.backend.isolates() {
        own.insert(environment.guest.path().clone(), environment.guest.unpack()?);
    }
    for part in &launch.root {
        let RootPart::Bind { from: BindSource::Host(path), .. } = part else { continue };
        if path.is_within(&plan.instance.directory) && !agreed.contains_key(path) {
            let found = try_identity(path.as_path());
            let failed = |cause: Errno| LaunchError::Source { path: path.clone(), cause: cause.into() };
            own.insert(path.clone(), found.map_err(failed)?);
        }
    }
    Ok(own)
}
