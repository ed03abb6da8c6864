//! From a plan to a command that has run: values are found, the sandbox is built, the command is watched.

mod attended;
mod reached;
mod secrets;
mod terms;

pub use terms::{Ask, Attendant, Model, Outcome, Report, RunError, RunRequest, Spent};

use crate::allowances::Allowances;
use crate::engine::engine_places;
use crate::findings;
use crate::instances::HeldInstance;
use crate::interpreter::interpreter;
use crate::journal::{self, Journal};
use crate::layers::{self, Layer};
use crate::locks::{Holder, SessionLock};
use crate::outward::{Outward, OutwardEnd, OutwardRequest, Serving, ServingRequest};
use crate::planning::{Planned, SessionFlags, Surroundings};
use crate::questions::Questions;
use crate::supervise::{Ending, Watched, supervise, take_signals};
use crate::tape::Taping;
use crate::terminal::Terminal;
use crate::values::{for_the_guest, values};
use crate::workspace::{self, Watch, WorkspaceError};
use attended::Attended;
use belljar_contract::{
    AbsPath, BackendKind, Destination, Errand, Event, ExitCode, GuestEnd, GuestOnHeld, GuestVariable,
    HeldBack, Launch, LimitKind, MountSource, Need, OsText, Plan, ReachedLimit, RunName, RunStatus, Unmet,
    WorkspaceMode,
};
use belljar_egress::gateway::{GatewayTrouble, TokenCount, UsageTotals};
use belljar_record::{Redact, redacted_event};
use belljar_sandbox::{
    Beginning, Engine, LaunchError, LaunchRequest, Lowering, Machine, Overlay, Waiting, held_limits,
    look_around, lower,
};
use secrets::secrets;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::SystemTime;

/// Lowers a plan for an errand on this machine.
///
/// # Errors
/// Names every need that cannot be enforced.
pub fn lowered(planned: &Planned, surroundings: &Surroundings, errand: &Errand) -> Result<Launch, RunError> {
    let (machine, _watch) = look(planned, surroundings)?;
    lower_here(&planned.compiled.plan, errand, &machine, Terminal::wanted())
}

/// The declared limits that the plan's backend cannot enforce on this machine: a start is refused for them. What else a start
/// lacks is not said.
#[must_use]
pub fn refused_limits(planned: &Planned, surroundings: &Surroundings) -> Vec<Unmet> {
    const LIMITS: [Need; 4] = [Need::Memory, Need::Pids, Need::Cpu, Need::Tmpfs];
    let errand = Errand::Command(vec![OsText::default()]);
    let is_limit = |need: &Need| LIMITS.contains(need);
    if !planned.compiled.plan.needs(&errand).iter().any(is_limit) {
        return Vec::new();
    }
    match lowered(planned, surroundings, &errand) {
        Err(RunError::Unmet(error)) => {
            error.unmet.into_iter().filter(|unmet| is_limit(&unmet.need)).collect()
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// What this machine has for the plan, and a watch over the project.
fn look(planned: &Planned, surroundings: &Surroundings) -> Result<(Machine, Watch), RunError> {
    let plan = &planned.compiled.plan;
    let mut machine = look_around(
        surroundings.program("bwrap"),
        surroundings.guest.path().clone(),
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
    let allowed = allowances(plan, surroundings).read()?;
    machine.guard = watch.guard(plan, &allowed)?;
    machine.guarded = watch.guarded(machine.guard.as_ref(), &allowed);
    // Shown as the run would have it; which one it is, is known when it begins.
    machine.kept = Some(layers::shown(plan, planned.repository.as_ref()));
    Ok((machine, watch))
}

/// What the user allows in the project.
fn allowances(plan: &Plan, surroundings: &Surroundings) -> Allowances {
    Allowances::of(&surroundings.config, &plan.workspace.source)
}

fn lower_here(plan: &Plan, errand: &Errand, machine: &Machine, terminal: bool) -> Result<Launch, RunError> {
    Ok(lower(&Lowering { plan, workload: errand, machine, terminal })?)
}

/// Runs an errand to its end.
///
/// # Errors
/// When it could not be run at all; nothing is left behind then.
pub fn run(request: RunRequest<'_>) -> Result<Report, RunError> {
    let RunRequest {
        planned,
        surroundings,
        errand,
        notice,
        name,
        model,
        mode,
        reach,
        ask,
        attendant,
        waiting,
        files,
        taping,
        watch,
    } = request;
    let terminal = matches!(attendant, Attendant::User) && Terminal::wanted();
    let (mut machine, guard) = look(planned, surroundings)?;
    if let Some(guard) = &mut machine.guard
        && terminal
    {
        guard.on_held = GuestOnHeld::Ask;
    }
    let mut plan = planned.compiled.plan.clone();
    let identity = crate::git::fill_identity(&mut plan, &surroundings.git_files());
    // What this machine cannot honour is told before anyone is asked for anything.
    let mut launch = lower_here(&plan, errand, &machine, terminal)?;
    if let Some(image) = &plan.image {
        let engine = Engine::find(&engine_places(surroundings)).map_err(LaunchError::from)?;
        engine.named_image(image).map_err(LaunchError::from)?;
    }
    let outward = match (&model, plan.has_proxy()) {
        (Model::Absent, false) => None,
        (Model::Absent | Model::Live | Model::Script(_) | Model::Replay(_), _) => {
            let request =
                OutwardRequest { plan: &plan, surroundings, model: &model, mode, reach, ask: &mut *ask };
            let outward = Outward::prepare(request)?;
            outward.fill(&mut plan)?;
            launch = lower_here(&plan, errand, &machine, terminal)?;
            Some(outward)
        }
    };
    if let Attendant::Talk(_) = attendant {
        attended::keep_apart(&mut launch);
    }
    let plan = &plan;
    let mut identities = identities(plan);
    if plan.backend != BackendKind::Host {
        identities.insert(surroundings.guest.path().clone(), surroundings.guest.unpack()?);
    }
    let values = values(plan, surroundings, ask)?;
    let instance =
        HeldInstance::is_wanted(plan).then(|| HeldInstance::prepare(plan, SystemTime::now())).transpose()?;
    let holder = Holder { run: RunName::numbered(&plan.agent, 1), pid: std::process::id() };
    // A conversation that is not kept is nobody else's to go on with.
    let _session = match (session(planned, errand), &instance) {
        (Some(id), Some(instance)) => Some(SessionLock::take(instance, &id, &holder)?),
        (Some(_), None) | (None, _) => None,
    };
    let layer = match (plan.workspace.mode, &instance) {
        (WorkspaceMode::Direct, _) | (_, None) => None,
        (WorkspaceMode::Overlay | WorkspaceMode::Copy, Some(instance)) => {
            Some(Layer::for_run(plan, planned.repository.as_ref(), instance).map_err(WorkspaceError::from)?)
        }
    };
    let mut overlays = Vec::new();
    if let Some(layer) = &layer {
        overlays = workspace::overlays_of(planned, layer)?;
        belljar_sandbox::note_repository(&overlays).map_err(WorkspaceError::Note)?;
        machine.kept = Some(layer.at());
        launch = lower_here(plan, errand, &machine, terminal)?;
        if let Attendant::Talk(_) = attendant {
            attended::keep_apart(&mut launch);
        }
    }
    if plan.workspace.mode == WorkspaceMode::Copy {
        workspace::copy(&overlays)?;
        overlays.clear();
    }
    let found = secrets(planned, surroundings, &values, outward.as_ref(), &taping);
    let found = found.map_err(RunError::TapeKey)?;
    let (redact, value_digests) = (found.redact, found.digests);
    let mut journal = match (errand, &outward) {
        (Errand::Agent(_), _) | (Errand::Command(_), Some(_)) => {
            let mut journal = Journal::open(planned, surroundings, name.as_ref(), Arc::clone(&redact))?;
            found.unsearched.iter().for_each(|one| journal.emit(&Event::Notice { text: one.to_string() }));
            if launch.container.is_some() {
                journal.used(None);
            }
            Some(journal)
        }
        (Errand::Command(_), None) => None,
    };
    let allowed = match machine.guard {
        Some(_) => Allowances::notice(&allowances(plan, surroundings).read()?, surroundings),
        None => None,
    };
    for text in notice.into_iter().chain(allowed).chain(identity) {
        let event = Event::Notice { text };
        watch(&event);
        journal.iter_mut().for_each(|journal| journal.emit(&event));
    }
    let mut variables = for_the_guest(&values)?;
    variables.extend(outward.iter().flat_map(|outward| outward.variables(plan)));
    let prepared = Prepared {
        plan,
        errand,
        launch: &launch,
        variables,
        identities: &identities,
        surroundings,
        overlays: &overlays,
        outward,
        attendant,
        waiting,
        terminal,
        taping,
        redact: &redact,
        watch,
    };
    let mut told = OutwardEnd::default();
    let mut reached = Vec::new();
    let mut held = Vec::new();
    let ended = carry_out(prepared, model, journal.as_mut(), (&mut told, &mut reached, &mut held));
    if let Some(journal) = &mut journal {
        journal.keep_transcripts(plan);
        if let Some(files) = files {
            journal.keep_files(files.end());
        }
    }
    let (mut planted, mut trouble) = guard.end();
    let mut kept = None;
    match layer.map(|layer| crate::aside::look_at(planned, layer)) {
        None => {}
        Some(Ok((summary, carried))) => {
            kept = summary;
            planted.extend(carried);
        }
        Some(Err(error)) => {
            trouble.push(format!("the changes are kept, but could not be looked at: {error}"));
        }
    }
    // The names are the run's own choice: nothing of them is kept or shown as it is.
    let mut planted: Vec<_> = planted
        .into_iter()
        .map(|finding| findings::redacted(finding, &plan.workspace.source, &redact))
        .collect();
    let findings = findings::keep(surroundings, plan, &mut planted, held).unwrap_or_else(|error| {
        trouble.push(format!("the findings are not kept: {error}"));
        None
    });
    if let Some(journal) = &mut journal {
        planted.iter().for_each(|finding| journal.emit(&findings::event(finding)));
    }
    let status = match &ended {
        Ok(Outcome::Ended(Ending::Own(end))) => reached::status(*end, &reached),
        Ok(Outcome::Ended(Ending::TimeLimit(_))) => RunStatus::LimitReached { limit: LimitKind::Time },
        Ok(Outcome::Ended(Ending::Stopped(_) | Ending::Dismissed)) => RunStatus::Stopped,
        Ok(Outcome::Ended(Ending::Lost | Ending::Unguarded)) => {
            reached::status(GuestEnd::Signal(rustix::process::Signal::KILL.as_raw()), &reached)
        }
        Ok(Outcome::NotExecuted { what, .. }) => {
            RunStatus::NotStarted { why: format!("`{what}` cannot be executed") }
        }
        Err(error) => RunStatus::NotStarted { why: error.to_string() },
    };
    let OutwardEnd {
        mut denied,
        troubles,
        needed,
        usage,
        cost_micros,
        transcript,
        taped,
        replayed,
        model_head: _,
        egress_head: _in_the_journal,
        failures,
    } = told;
    trouble.extend(failures);
    denied.iter_mut().for_each(|one| one.redact(&redact));
    let spent = usage.map(|usage| spent(&usage, cost_micros.unwrap_or(0)));
    let folder = journal.map(|mut journal| {
        for refused in &denied {
            journal.emit(&Event::Notice { text: refused.sentence.clone() });
        }
        let (folder, failed) = journal.finish(status, spent);
        trouble.extend(failed.map(|error| format!("the record is not complete: {error}")));
        folder
    });
    let trouble = trouble.iter().map(|text| redact.scrub(text)).collect();
    let troubles = troubles.into_iter().map(|trouble| (redact.scrub(&trouble.to_string()), trouble.fix()));
    let troubles = troubles.collect();
    // A host whose name holds a value is not proposed for a manifest.
    let holds = |to: &Destination| redact.scrub_bytes(to.to_string().as_bytes()).is_some();
    let needed = needed.into_iter().filter(|to| !holds(to)).collect();
    Ok(Report {
        outcome: ended?,
        folder,
        trouble,
        planted,
        findings,
        kept,
        denied,
        needed,
        troubles,
        spent,
        transcript,
        taped,
        replayed,
        values: value_digests,
        reached,
    })
}

fn spent(usage: &UsageTotals, cost_micros: u64) -> Spent {
    let tokens = |count: &TokenCount| (count.input + count.cache_read + count.cache_creation, count.output);
    let sums = usage.models.values().map(|model| tokens(&model.tokens));
    let (input_tokens, output_tokens) =
        sums.fold((0, 0), |(read, written), (more, much)| (read + more, written + much));
    Spent { input_tokens, output_tokens, cost_micros }
}

/// The conversation that the agent is asked to go on with.
fn session(planned: &Planned, errand: &Errand) -> Option<String> {
    let Errand::Agent(arguments) = errand else { return None };
    let SessionFlags { named, newest } = &planned.session_flags;
    let words: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    for (at, word) in words.iter().enumerate() {
        if newest.contains(word) {
            return Some("newest".to_owned());
        }
        for flag in named {
            if word == flag {
                return words.get(at + 1).cloned();
            }
            if let Some(id) = word.strip_prefix(flag.as_str()).and_then(|rest| rest.strip_prefix('=')) {
                return Some(id.to_owned());
            }
        }
    }
    None
}

struct Prepared<'a> {
    plan: &'a Plan,
    errand: &'a Errand,
    launch: &'a Launch,
    variables: Vec<GuestVariable>,
    identities: &'a BTreeMap<AbsPath, belljar_sys::mounts::Identity>,
    surroundings: &'a Surroundings,
    overlays: &'a [Overlay],
    outward: Option<Outward>,
    attendant: Attendant,
    waiting: Option<Waiting>,
    terminal: bool,
    taping: Taping,
    redact: &'a Redact,
    watch: &'a mut dyn FnMut(&Event),
}

fn carry_out(
    prepared: Prepared<'_>,
    model: Model,
    mut journal: Option<&mut Journal>,
    (told, reached, held): (&mut OutwardEnd, &mut Vec<ReachedLimit>, &mut Vec<HeldBack>),
) -> Result<Outcome, RunError> {
    let Prepared {
        plan,
        errand,
        launch,
        mut variables,
        identities,
        surroundings,
        overlays,
        outward,
        attendant,
        waiting,
        terminal,
        taping,
        redact,
        watch,
    } = prepared;
    let name = match &journal {
        Some(journal) => journal.name().to_owned(),
        None => format!("{}-{}", plan.agent, std::process::id()),
    };
    let record = match &journal {
        Some(journal) if outward.is_some() => Some((journal.id().clone(), journal.egress_log()?)),
        Some(_) | None => None,
    };
    let recorder = match (&journal, taping) {
        (Some(journal), Taping::On(normalisers)) if record.is_some() => {
            Some(journal.recorder(normalisers, crate::tape::sought(surroundings))?)
        }
        (Some(_) | None, Taping::On(_) | Taping::Off) => None,
    };
    let model_log = match (&journal, &attendant) {
        (Some(journal), Attendant::Talk(_)) if record.is_some() => Some(journal.model_log()?),
        (Some(_) | None, Attendant::Talk(_) | Attendant::User) => None,
    };
    let signals = take_signals()?;
    let time = reached::time_limit(plan, errand, &attendant, terminal);
    let (attendant, calls) = attendant.with_model_calls();
    let (mut console, streams) = Attended::open(attendant, journal.as_deref())?;
    let recorded = journal.is_some();
    let mut emit = |event: &Event| {
        let shown = redacted_event(event, redact);
        watch(&shown);
        if let Event::HostExecutedHeld { path, act, why } = shown.as_ref() {
            held.push(HeldBack { path: path.clone(), act: *act, why: why.clone() });
        }
        if let Some(journal) = &mut journal {
            journal.emit(event);
        }
    };
    if terminal {
        variables.extend(terminal_variables(surroundings));
    }
    let engine = launch.container.is_some().then(|| engine_places(surroundings));
    let engine = engine.as_ref();
    let request =
        LaunchRequest { launch, waiting, variables, streams, name: &name, overlays, engine, identities };
    let mut running = belljar_sandbox::launch(request)?;
    if let Some(controller) = running.take_controller() {
        console.attach(controller)?;
    }
    for text in running.lacks() {
        emit(&Event::Notice { text: text.clone() });
    }
    if let Some(landlock) = running.landlock() {
        emit(&Event::Sealed { landlock });
    }
    journal::limit_events(launch).iter().for_each(&mut emit);
    // Serves until the end of this function; the sandbox ends before it. Its log is begun before the command is.
    let serving = match outward.zip(record) {
        Some((outward, (run, (log, redact)))) => {
            let running = &mut running;
            let request =
                ServingRequest { plan, running, model, recorder, model_log, calls, run, log, redact };
            Some(Serving::start(outward, request)?)
        }
        None => None,
    };
    console.enter()?;
    match running.start()? {
        Beginning::Started => emit(&Event::CommandStarted { argv0: launch.guest.program.clone() }),
        Beginning::Failed { what, errno } => {
            let missing = errno == rustix::io::Errno::NOENT.raw_os_error();
            let exit = if missing { ExitCode::NotFound } else { ExitCode::NotExecutable };
            return Ok(Outcome::NotExecuted { what, exit });
        }
    }
    if let (Some(time), None) = (time, plan.limits.time) {
        let mechanism = "the supervisor's clock (default)".to_owned();
        emit(&Event::LimitSet { limit: LimitKind::Time, value: time.to_string(), mechanism });
    }
    let guard = serving.as_ref().map(Serving::alive);
    console.begin(&mut emit);
    let ending = supervise(Watched {
        plan,
        running: &mut running,
        console: console.as_console(),
        signals: &signals,
        time_limit: time.map(belljar_contract::TimeSpan::duration),
        guard,
        questions: Questions::new(surroundings, allowances(plan, surroundings)),
        emit: &mut emit,
    })?;
    let mut kinds = running.reached().to_vec();
    for limit in &kinds {
        emit(&Event::LimitReached { limit: *limit });
    }
    match ending {
        Ending::Own(end) => emit(&Event::CommandEnded { end }),
        Ending::TimeLimit(end) => {
            kinds.push(LimitKind::Time);
            emit(&Event::LimitReached { limit: LimitKind::Time });
            emit(&Event::CommandEnded { end });
        }
        Ending::Unguarded => {
            emit(&Event::Notice { text: "the way out failed, and everything was ended".to_owned() });
        }
        Ending::Stopped(_) | Ending::Dismissed | Ending::Lost => {}
    }
    if recorded {
        running.settle();
    }
    if let Some(serving) = serving {
        *told = serving.finish();
    }
    if told.troubles.iter().any(|trouble| matches!(trouble, GatewayTrouble::BudgetReached { .. })) {
        kinds.push(LimitKind::Cost);
        emit(&Event::LimitReached { limit: LimitKind::Cost });
    }
    *reached = reached::reached(&kinds, launch, time);
    if let Some(head) = told.model_head {
        emit(&Event::ModelLogged { head });
    }
    if let Some(head) = told.egress_head {
        emit(&Event::EgressLogged { head });
    }
    let Some(journal) = journal else {
        return Ok(Outcome::Ended(ending));
    };
    if launch.container.is_some() {
        journal.used(running.used());
    }
    if let Some(transcript) = &told.transcript {
        // What the model was asked, one request a line: the evidence of what the agent knew.
        let bodies = transcript.requests.iter().filter_map(|request| Some(request.json_text()?.as_str()));
        journal.keep("model-requests.jsonl", &bodies.flat_map(|body| [body, "\n"]).collect::<Vec<_>>());
    }
    Ok(Outcome::Ended(ending))
}

/// What the sources of the mounts are now: the launch compares.
fn identities(plan: &Plan) -> BTreeMap<AbsPath, belljar_sys::mounts::Identity> {
    let sources = plan.mounts.iter().filter_map(|mount| match &mount.source {
        MountSource::Host(path) => Some(path),
        MountSource::Workspace if plan.workspace.mode == WorkspaceMode::Direct => {
            Some(&plan.workspace.source)
        }
        _ => None,
    });
    // A source that is gone has no identity; opening it says so by name.
    sources
        .filter_map(|path| Some((path.clone(), belljar_sys::mounts::identity(path.as_path()).ok()?)))
        .collect()
}

/// What a program needs to know about the terminal.
fn terminal_variables(surroundings: &Surroundings) -> Vec<GuestVariable> {
    let known = |name: &str| surroundings.variables.get(std::ffi::OsStr::new(name));
    let pair = |name: &str, value: &[u8]| {
        Some(GuestVariable { name: OsText::new(name).ok()?, value: OsText::new(value).ok()? })
    };
    let term =
        known("TERM").filter(|term| !term.is_empty()).map_or(&b"xterm-256color"[..], |term| term.as_bytes());
    let colour = known("COLORTERM").and_then(|value| pair("COLORTERM", value.as_bytes()));
    pair("TERM", term).into_iter().chain(colour).collect()
}
