//! While the sandbox exists: builds it, starts its services, runs and supervises the command.

use super::allowances;
use super::error::RunError;
use super::judging::{AskedJudge, Judging};
use super::limits;
use super::prepare::{Decided, Sandbox};
use super::report::CommandOutcome;
use super::request::{Model, Stdio};
use super::streams::Streamed;
use crate::egress::{EgressEnd, EgressError, EgressServices, Serving, ServingRequest};
use crate::environment::HostEnvironment;
use crate::launch::engine::engine_places;
use crate::session::conversation::{ModelCalls, ModelLine};
use crate::session::questions::Questions;
use crate::session::supervise::{Ending, Watched, stop_requested, supervise, take_signals};
use crate::store::journal::{self, Journal};
use crate::store::names::fresh_run_id;
use crate::suite::Judged;
use crate::tape::Taping;
use belljar_contract::{
    Event, ExitCode, GuestVariable, HeldBack, LimitKind, Observation, OsText, Plan, ReachedLimit, RunId,
    TimeSpan,
};
use belljar_egress::gateway::GatewayTrouble;
use belljar_egress::log::LOG_LIMIT;
use belljar_egress::model_log::ModelLog;
use belljar_egress::tape::Recorder;
use belljar_record::{Redact, redacted_event};
use belljar_sandbox::{Beginning, LaunchError, LaunchRequest, Running};
use belljar_sys::signal::Signals;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;

/// The largest size of an egress log that is kept in memory while a command runs.
const UNKEPT_LIMIT: u64 = 16 << 20;

/// A command whose sandbox has ended.
pub(super) struct Ended {
    pub outcome: Result<CommandOutcome, RunError>,
    pub egress: EgressEnd,
    pub reached: Vec<ReachedLimit>,
    pub held: Vec<HeldBack>,
}

/// Builds the sandbox, runs the command in it and waits until every process has ended. If the launch fails, everything
/// observed until then is returned as well.
pub(super) fn launch(sandbox: Sandbox<'_>, journal: Option<&mut Journal>, redact: &Redact) -> Ended {
    let mut seen = Gathered::default();
    let outcome = carry_out(sandbox, journal, redact, &mut seen);
    let Gathered { egress, reached, held } = seen;
    Ended { outcome, egress, reached, held }
}

#[derive(Default)]
struct Gathered {
    egress: EgressEnd,
    reached: Vec<ReachedLimit>,
    held: Vec<HeldBack>,
}

/// Passes events to the caller and to the record, and collects attempts that the guard held back as findings.
struct Events<'a> {
    watch: &'a mut dyn FnMut(&Event),
    journal: Option<&'a mut Journal>,
    redact: &'a Redact,
    held: &'a mut Vec<HeldBack>,
    /// What was said, for a judge.
    said: Option<Vec<Observation>>,
}

impl Events<'_> {
    fn emit(&mut self, event: &Event) {
        let shown = redacted_event(event, self.redact);
        (self.watch)(&shown);
        if let Event::HostExecutedHeld { path, act, why } = shown.as_ref() {
            self.held.push(HeldBack { path: path.clone(), act: *act, why: why.clone() });
        }
        if let (Some(said), Event::Seen { what }) = (&mut self.said, shown.as_ref())
            && matches!(**what, Observation::Said { .. })
        {
            said.push((**what).clone());
        }
        if let Some(journal) = &mut self.journal {
            journal.emit(event);
        }
    }
}

/// A judge with its line to the model, and the other end of the line.
fn with_line(judging: Judging, (line, calls): (ModelLine, ModelCalls)) -> ((Judging, ModelLine), ModelCalls) {
    ((judging, line), calls)
}

fn carry_out(
    sandbox: Sandbox<'_>,
    journal: Option<&mut Journal>,
    redact: &Redact,
    seen: &mut Gathered,
) -> Result<CommandOutcome, RunError> {
    let Sandbox {
        plan,
        workload,
        decided: Decided { launch, terminal, mut variables, run_files, overlays, services },
        identities,
        environment,
        model,
        time: asked,
        stdio,
        waiting,
        judging,
        taping,
        watch,
    } = sandbox;
    let launch = &launch;
    let name = match &journal {
        Some(journal) => journal.name().to_owned(),
        None => format!("{}-{}", plan.agent, std::process::id()),
    };
    let time = asked.or_else(|| limits::time_limit(plan, workload, &stdio, terminal));
    let logs = match (&journal, &services) {
        (Some(journal), Some(_)) => Some(Logs::open(journal, taping, &stdio, environment)?),
        (None, Some(_)) => Some(Logs::unkept(redact)?),
        (_, None) => None,
    };
    let signals = take_signals()?;
    let (stdio, calls) = stdio.with_model_calls();
    let (judging, judge_calls) = judging.map(|judging| with_line(judging, ModelLine::new())).unzip();
    let (mut console, streams) = Streamed::open(stdio, journal.as_deref())?;
    let said = judging.is_some().then(Vec::new);
    let mut events = Events { watch, journal, redact, held: &mut seen.held, said };
    if terminal {
        variables.extend(terminal_variables(environment));
    }
    let engine = launch.container.is_some().then(|| engine_places(environment));
    let request = LaunchRequest {
        launch,
        waiting,
        variables,
        streams,
        name: &name,
        overlays: &overlays,
        engine: engine.as_ref(),
        identities: &identities,
        run_files: &run_files,
    };
    let mut running = match belljar_sandbox::launch(request) {
        Ok(running) => running,
        // A terminal sends the signal to the program that builds the sandbox as well, which then fails.
        Err(error) => return interrupted_or(error, &signals, &mut events),
    };
    if let Some(controller) = running.take_controller() {
        console.attach(controller)?;
    }
    for text in running.lacks() {
        events.emit(&Event::Notice { text: text.clone() });
    }
    if let Some(landlock) = running.landlock() {
        events.emit(&Event::Sealed { landlock });
    }
    journal::limit_events(launch).iter().for_each(|event| events.emit(event));
    // The log is opened before the command starts. The services run until the end of this function; the sandbox ends
    // earlier.
    let mut serving = match services.zip(logs) {
        Some((services, logs)) => {
            Some(serve(services, logs, (plan, &mut running), model, (calls, judge_calls))?)
        }
        None => None,
    };
    console.enter()?;
    if let Some(signal) = stop_requested(&signals)? {
        events.emit(&Event::Interrupted { signal });
        return Ok(CommandOutcome::Ended(Ending::Stopped(signal)));
    }
    let beginning = match running.start() {
        Ok(beginning) => beginning,
        // The signal came while the guest was waited for.
        Err(error) => return interrupted_or(error, &signals, &mut events),
    };
    match beginning {
        Beginning::Started => events.emit(&Event::CommandStarted { argv0: launch.guest.program.clone() }),
        Beginning::Failed { what, errno } => {
            let missing = errno == rustix::io::Errno::NOENT.raw_os_error();
            let exit = if missing { ExitCode::NotFound } else { ExitCode::NotExecutable };
            return Ok(CommandOutcome::NotExecuted { what, exit });
        }
    }
    if let Some(time) = time.filter(|time| plan.limits.time != Some(*time)) {
        let from = if asked.is_some() { "--timeout" } else { "default" };
        let mechanism = format!("the supervisor's clock ({from})");
        events.emit(&Event::LimitSet { limit: LimitKind::Time, value: time.to_string(), mechanism });
    }
    console.begin(&mut |event| events.emit(event));
    let ending = supervise(Watched {
        plan,
        running: &mut running,
        console: console.as_console(),
        signals: &signals,
        time_limit: time.map(TimeSpan::duration),
        guard: serving.as_ref().map(Serving::alive),
        questions: Questions::new(environment, allowances(plan, environment)),
        emit: &mut |event| events.emit(event),
    })?;
    let mut kinds = running.reached().to_vec();
    for limit in &kinds {
        events.emit(&Event::LimitReached { limit: *limit });
    }
    emit_ending(ending, &mut kinds, &mut events);
    if events.journal.is_some() {
        running.settle();
    }
    let asked = match (judging, &mut serving, ending) {
        (Some((judging, line)), Some(serving), Ending::Own(_)) => {
            serving.agent_ended();
            let said = events.said.take().unwrap_or_default();
            judging.begin(line, said, redact).map_err(EgressError::Start).map(Some)?
        }
        // A run that did not end by itself is not judged, and costs nothing more.
        (Some(_) | None, _, _) => None,
    };
    let interrupted = asked.as_ref().and_then(|asked| asked.wait(&signals));
    if let Some(signal) = interrupted {
        events.emit(&Event::Interrupted { signal });
    }
    if let Some(serving) = serving {
        seen.egress = serving.finish();
    }
    if let Some(Judged { answers, usage }) = asked.map(AskedJudge::end) {
        events.emit(&Event::Judged { answers, usage });
    }
    emit_egress(&seen.egress, &mut kinds, &mut events);
    seen.reached = limits::reached(&kinds, launch, time);
    if let Some(journal) = events.journal {
        if launch.container.is_some() {
            journal.used(running.used());
        }
        keep_model_requests(&seen.egress, journal);
    }
    Ok(CommandOutcome::Ended(interrupted.map_or(ending, Ending::Stopped)))
}

/// A launch that fails after a signal asked for its end was interrupted.
fn interrupted_or(
    error: LaunchError,
    signals: &Signals,
    events: &mut Events<'_>,
) -> Result<CommandOutcome, RunError> {
    let Some(signal) = stop_requested(signals)? else { return Err(error.into()) };
    events.emit(&Event::Interrupted { signal });
    Ok(CommandOutcome::Ended(Ending::Stopped(signal)))
}

/// The files that the egress services write to.
struct Logs {
    run: RunId,
    egress: (File, Redact),
    recorder: Option<Recorder>,
    model: Option<ModelLog>,
    /// The largest size of the egress log.
    limit: u64,
}

impl Logs {
    fn open(
        journal: &Journal,
        taping: Taping,
        stdio: &Stdio,
        environment: &HostEnvironment,
    ) -> Result<Self, RunError> {
        let egress = journal.egress_log()?;
        let recorder = match taping {
            Taping::On(normalisers) => Some(journal.recorder(normalisers, crate::tape::sought(environment))?),
            Taping::Off => None,
        };
        let model = match stdio {
            Stdio::Conversation(_) => Some(journal.model_log()?),
            Stdio::User => None,
        };
        Ok(Self { run: journal.id().clone(), egress, recorder, model, limit: LOG_LIMIT })
    }

    /// For a command that leaves no record, because nothing that it asks for is allowed.
    fn unkept(redact: &Redact) -> Result<Self, RunError> {
        let memory = rustix::fs::memfd_create("egress", rustix::fs::MemfdFlags::CLOEXEC);
        let log = memory.map_err(|errno| RunError::from(EgressError::Start(errno.into())))?;
        let egress = (File::from(log), Redact::clone(redact));
        Ok(Self { run: fresh_run_id(), egress, recorder: None, model: None, limit: UNKEPT_LIMIT })
    }
}

fn serve(
    services: EgressServices,
    logs: Logs,
    (plan, running): (&Plan, &mut Running),
    model: Model,
    (calls, judge_calls): (Option<ModelCalls>, Option<ModelCalls>),
) -> Result<Serving, RunError> {
    let Logs { run, egress: (log, redact), recorder, model: model_log, limit } = logs;
    let request = ServingRequest {
        plan,
        running,
        model,
        recorder,
        model_log,
        calls,
        judge_calls,
        run,
        log,
        limit,
        redact,
    };
    Ok(Serving::start(services, request)?)
}

fn emit_ending(ending: Ending, kinds: &mut Vec<LimitKind>, events: &mut Events<'_>) {
    match ending {
        Ending::Own(end) => events.emit(&Event::CommandEnded { end }),
        Ending::TimeLimit(end) => {
            kinds.push(LimitKind::Time);
            events.emit(&Event::LimitReached { limit: LimitKind::Time });
            events.emit(&Event::CommandEnded { end });
        }
        Ending::Unguarded => {
            let text = "the egress services failed, and the sandbox was ended".to_owned();
            events.emit(&Event::Notice { text });
        }
        Ending::Stopped(signal) => events.emit(&Event::Interrupted { signal }),
        Ending::Dismissed | Ending::Lost => {}
    }
}

fn emit_egress(egress: &EgressEnd, kinds: &mut Vec<LimitKind>, events: &mut Events<'_>) {
    if egress.gateway_errors.iter().any(|error| matches!(error, GatewayTrouble::BudgetReached { .. })) {
        kinds.push(LimitKind::Cost);
        events.emit(&Event::LimitReached { limit: LimitKind::Cost });
    }
    if let Some(head) = egress.model_head {
        events.emit(&Event::ModelLogged { head });
    }
    if let Some(head) = egress.egress_head {
        events.emit(&Event::EgressLogged { head });
    }
}

/// Stores the requests that a scripted model received, one per line, as evidence of what the agent knew.
fn keep_model_requests(egress: &EgressEnd, journal: &mut Journal) {
    let Some(transcript) = &egress.transcript else { return };
    let bodies = transcript.requests.iter().filter_map(|request| Some(request.json_text()?.as_str()));
    journal.keep("model-requests.jsonl", &bodies.flat_map(|body| [body, "\n"]).collect::<Vec<_>>());
}

/// The variables that describe the user's terminal.
fn terminal_variables(environment: &HostEnvironment) -> Vec<GuestVariable> {
    let known = |name: &str| environment.variables.get(std::ffi::OsStr::new(name));
    let pair = |name: &str, value: &[u8]| {
        Some(GuestVariable { name: OsText::new(name).ok()?, value: OsText::new(value).ok()? })
    };
    let term =
        known("TERM").filter(|term| !term.is_empty()).map_or(&b"xterm-256color"[..], |term| term.as_bytes());
    let colour = known("COLORTERM").and_then(|value| pair("COLORTERM", value.as_bytes()));
    pair("TERM", term).into_iter().chain(colour).collect()
}
