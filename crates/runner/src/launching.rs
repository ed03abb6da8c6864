//! From a plan to a command that has run: values are found, the sandbox is built, the command is watched.

use crate::guest_program::UnpackError;
use crate::instances::{HeldInstance, InstanceError};
use crate::journal::{self, Journal, JournalError};
use crate::locks::{Holder, SessionLock, SessionLockError};
use crate::planning::{Planned, SessionFlags, Surroundings};
use crate::supervise::{Ending, SuperviseError, supervise, take_signals};
use crate::terminal::{Terminal, TerminalError};
use crate::workspace::{self, Planted, Watch, WorkspaceError};
use belljar_contract::{
    AbsPath, BackendKind, EnvEntry, EnvSource, Errand, Event, ExitCode, GuestVariable, Launch, LimitKind,
    MountSource, OsText, Plan, RunName, RunStatus, WorkspaceMode,
};
use belljar_egress::script::{Listen, LoadScriptError, Script, ScriptedModel, StartError};
use belljar_record::{Redact, Secrets};
use belljar_sandbox::{
    BackendError, Beginning, LaunchError, LaunchRequest, Lowering, Overlay, held_limits, look_around, lower,
};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Larger than any secret.
const VALUE_LIMIT: u64 = 1 << 20;

/// Asks the user for a value, without showing what is typed.
pub type Ask<'a> = &'a mut dyn FnMut(&str) -> std::io::Result<String>;

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan cannot be honoured.
    #[error(transparent)]
    Unmet(#[from] BackendError),
    /// A value of the environment could not be found.
    #[error("cannot find the value of `{name}`: {what}")]
    Value {
        /// The variable.
        name: String,
        /// Where it was looked for; never the value.
        what: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// The terminal.
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    /// The program that finishes the sandbox is not there.
    #[error(transparent)]
    Guest(#[from] UnpackError),
    /// The sandbox could not be built.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The project cannot be kept as the plan wants it.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The project's own state cannot be used.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Another run goes on with the same conversation.
    #[error(transparent)]
    Session(#[from] SessionLockError),
    /// The run cannot be recorded.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The model could not be served.
    #[error("cannot serve the model")]
    Model(#[source] StartError),
    /// The command got out of sight.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
}

/// Who answers when the agent speaks to its model.
#[derive(Debug, Clone)]
pub enum Model {
    /// Nobody: the errand is not an agent.
    Absent,
    /// A script is played; no key, no tokens, no network.
    Script(Script),
}

impl Model {
    /// Reads a script.
    ///
    /// # Errors
    /// When the file cannot be read, or is no script.
    pub fn script(path: &AbsPath) -> Result<Self, LoadScriptError> {
        Script::load(path.as_path()).map(Model::Script)
    }
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The command ran and ended.
    Ended(Ending),
    /// The command could not be executed.
    NotExecuted {
        /// The file or name.
        what: String,
        /// 126 or 127.
        exit: ExitCode,
    },
}

impl Outcome {
    /// The status that belljar ends with: the command's own.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Outcome::Ended(Ending::Own(end) | Ending::TimeLimit(end)) => end.status(),
            Outcome::Ended(Ending::Stopped(signal)) => {
                128_u8.saturating_add(u8::try_from(*signal).unwrap_or(127))
            }
            Outcome::Ended(Ending::Lost) => ExitCode::LaunchFailed.code(),
            Outcome::NotExecuted { exit, .. } => exit.code(),
        }
    }
}

/// Lowers a plan for an errand on this machine.
///
/// # Errors
/// Names every need that cannot be enforced.
pub fn lowered(
    planned: &Planned,
    surroundings: &Surroundings,
    errand: &Errand,
    model: &Model,
) -> Result<Launch, RunError> {
    watched(planned, surroundings, errand, model).map(|(launch, _)| launch)
}

fn watched(
    planned: &Planned,
    surroundings: &Surroundings,
    errand: &Errand,
    model: &Model,
) -> Result<(Launch, Watch), RunError> {
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
    let watch = Watch::begin(plan, planned.repository.as_ref())?;
    machine.guarded = watch.guarded();
    let lowering = Lowering {
        plan,
        errand,
        machine: &machine,
        terminal: Terminal::wanted(),
        gateway: matches!(model, Model::Script(_)),
    };
    Ok((lower(&lowering)?, watch))
}

/// What is to be done, and how.
pub struct RunRequest<'a> {
    /// The plan.
    pub planned: &'a Planned,
    /// The user's side of the world.
    pub surroundings: &'a Surroundings,
    /// What to start.
    pub errand: &'a Errand,
    /// The name of the run, and no other; otherwise the agent's, with a number where that is taken.
    pub name: Option<RunName>,
    /// Who answers for the model.
    pub model: Model,
    /// Asks the user for a value.
    pub ask: Ask<'a>,
}

/// A run that is over.
#[derive(Debug)]
pub struct Report {
    /// How it went.
    pub outcome: Outcome,
    /// The folder of the run; only agents leave one.
    pub folder: Option<AbsPath>,
    /// What could not be recorded, or not be looked at.
    pub trouble: Vec<String>,
    /// What the run left in the project that this machine would execute, or that leads out of it.
    pub planted: Vec<Planted>,
}

/// Runs an errand to its end.
///
/// # Errors
/// When it could not be run at all; nothing is left behind then.
pub fn run(request: RunRequest<'_>) -> Result<Report, RunError> {
    let RunRequest { planned, surroundings, errand, name, model, ask } = request;
    let (launch, watch) = watched(planned, surroundings, errand, &model)?;
    let plan = &planned.compiled.plan;
    let mut identities = identities(plan);
    if plan.backend != BackendKind::Host {
        identities.insert(surroundings.guest.path().clone(), surroundings.guest.unpack()?);
    }
    let variables = values(&plan.env, surroundings, ask)?;
    let instance = HeldInstance::prepare(plan, SystemTime::now())?;
    let _session = match session(planned, errand) {
        Some(id) => Some(SessionLock::take(
            &instance,
            &id,
            &Holder { run: RunName::numbered(&plan.agent, 1), pid: std::process::id() },
        )?),
        None => None,
    };
    let (overlay, _aside) = match plan.workspace.mode {
        WorkspaceMode::Direct => (None, None),
        WorkspaceMode::Overlay => {
            (Some(workspace::overlay_of(plan)), Some(workspace::take_aside(plan, &instance)?))
        }
        WorkspaceMode::Copy => {
            let aside = workspace::take_aside(plan, &instance)?;
            workspace::copy(plan)?;
            (None, Some(aside))
        }
    };
    let mut journal = match errand {
        Errand::Agent(_) => {
            Some(Journal::open(planned, surroundings, name.as_ref(), secrets(plan, &variables))?)
        }
        Errand::Command(_) => None,
    };
    let prepared = Prepared {
        plan,
        launch: &launch,
        variables,
        identities: &identities,
        surroundings,
        overlay: overlay.as_ref(),
    };
    let ended = carry_out(prepared, model, journal.as_mut());
    if let Some(journal) = &mut journal {
        journal.keep_transcripts(plan);
    }
    let (planted, mut trouble) = watch.end();
    if let Some(journal) = &mut journal {
        planted.iter().for_each(|planted| journal.emit(&planted.event()));
    }
    let status = match &ended {
        Ok(Outcome::Ended(Ending::Own(end))) => journal::status(*end),
        Ok(Outcome::Ended(Ending::TimeLimit(_))) => RunStatus::LimitReached { limit: LimitKind::Time },
        Ok(Outcome::Ended(Ending::Stopped(_))) => RunStatus::Stopped,
        Ok(Outcome::Ended(Ending::Lost)) => {
            RunStatus::Killed { signal: rustix::process::Signal::KILL.as_raw() }
        }
        Ok(Outcome::NotExecuted { what, .. }) => {
            RunStatus::NotStarted { why: format!("`{what}` cannot be executed") }
        }
        Err(error) => RunStatus::NotStarted { why: error.to_string() },
    };
    let folder = journal.map(|journal| {
        let (folder, failed) = journal.finish(status);
        trouble.extend(failed.map(|error| format!("the record is not complete: {error}")));
        folder
    });
    Ok(Report { outcome: ended?, folder, trouble, planted })
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
    launch: &'a Launch,
    variables: Vec<GuestVariable>,
    identities: &'a BTreeMap<AbsPath, belljar_sys::mounts::Identity>,
    surroundings: &'a Surroundings,
    overlay: Option<&'a Overlay>,
}

fn carry_out(
    prepared: Prepared<'_>,
    model: Model,
    mut journal: Option<&mut Journal>,
) -> Result<Outcome, RunError> {
    let Prepared { plan, launch, mut variables, identities, surroundings, overlay } = prepared;
    let name = match &journal {
        Some(journal) => journal.name().to_owned(),
        None => format!("{}-{}", plan.agent, std::process::id()),
    };
    let mut emit = |event: &Event| {
        if let Some(journal) = &mut journal {
            journal.emit(event);
        }
    };
    let signals = take_signals()?;
    let (mut terminal, streams) = Terminal::open()?;
    if terminal.has_terminal() {
        variables.extend(terminal_variables(surroundings));
    }
    let request = LaunchRequest { launch, variables, streams, name: &name, overlay, identities };
    let mut running = belljar_sandbox::launch(request)?;
    if let Some(landlock) = running.landlock() {
        emit(&Event::Sealed { landlock });
    }
    journal::limit_events(launch).iter().for_each(&mut emit);
    // Serves until the end of this function; the agent's sandbox ends before it.
    let served = match (model, running.take_listener("model")) {
        (Model::Script(script), Some(listener)) => {
            Some(ScriptedModel::start(script, Listen::BoundUnix(listener.into())).map_err(RunError::Model)?)
        }
        (Model::Absent | Model::Script(_), _) => None,
    };
    terminal.enter()?;
    match running.start()? {
        Beginning::Started => emit(&Event::CommandStarted { argv0: launch.guest.program.clone() }),
        Beginning::Failed { what, errno } => {
            let missing = errno == rustix::io::Errno::NOENT.raw_os_error();
            let exit = if missing { ExitCode::NotFound } else { ExitCode::NotExecutable };
            return Ok(Outcome::NotExecuted { what, exit });
        }
    }
    let time = plan.limits.time.map(belljar_contract::TimeSpan::duration);
    let ending = supervise(&mut running, &mut terminal, &signals, time)?;
    match ending {
        Ending::Own(end) => emit(&Event::CommandEnded { end }),
        Ending::TimeLimit(end) => {
            emit(&Event::LimitReached { limit: LimitKind::Time });
            emit(&Event::CommandEnded { end });
        }
        Ending::Stopped(_) | Ending::Lost => {}
    }
    if journal.is_some() {
        running.settle();
    }
    if let (Some(served), Some(journal)) = (served, journal) {
        // What the model was asked, one request a line: the evidence of what the agent knew.
        let transcript = served.finish();
        let bodies = transcript.requests.iter().filter_map(|request| request.json());
        journal.keep("model-requests.jsonl", &bodies.map(|body| format!("{body}\n")).collect::<String>());
    }
    Ok(Outcome::Ended(ending))
}

/// Values that no record may hold: every one that did not come from the manifest's own text, and those that
/// did under a name that looks like a secret's.
fn secrets(plan: &Plan, variables: &[GuestVariable]) -> Redact {
    let secret = |variable: &&GuestVariable| {
        let entry = plan.env.iter().find(|entry| entry.name.as_str().as_bytes() == variable.name.as_bytes());
        entry.is_some_and(EnvEntry::enters_as_secret)
    };
    let pairs = variables
        .iter()
        .filter(secret)
        .map(|variable| (variable.name.to_string(), variable.value.to_string()));
    Secrets::new(pairs).into_redact()
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

/// The values of the variables that are not constants.
fn values(
    env: &[EnvEntry],
    surroundings: &Surroundings,
    ask: Ask<'_>,
) -> Result<Vec<GuestVariable>, RunError> {
    let mut out = Vec::new();
    for entry in env {
        let failed =
            |cause| RunError::Value { name: entry.name.to_string(), what: entry.source.describe(), cause };
        let bytes = match &entry.source {
            EnvSource::Constant(_) => continue,
            EnvSource::Literal(text) => text.clone().into_bytes(),
            EnvSource::Variable(name) => surroundings
                .variables
                .get(std::ffi::OsStr::new(name.as_str()))
                .map(|value| value.as_bytes().to_vec())
                .ok_or_else(|| failed(std::io::Error::other("it is not set")))?,
            EnvSource::Prompt(message) => ask(message).map_err(failed)?.into_bytes(),
            EnvSource::File(path) => trimmed(read_file(path).map_err(failed)?),
            EnvSource::Command(argv) => trimmed(output_of(argv).map_err(failed)?),
        };
        let value = OsText::new(bytes).map_err(|error| failed(std::io::Error::other(error)))?;
        let name = OsText::new(entry.name.as_str()).map_err(|error| failed(std::io::Error::other(error)))?;
        out.push(GuestVariable { name, value });
    }
    Ok(out)
}

/// Files and commands end their output with a newline that is not part of the value.
fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    bytes
}

fn read_file(path: &AbsPath) -> std::io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(VALUE_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn output_of(argv: &[String]) -> std::io::Result<Vec<u8>> {
    let (program, arguments) =
        argv.split_first().ok_or_else(|| std::io::Error::other("there is no program"))?;
    let mut child =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(VALUE_LIMIT).read_to_end(&mut bytes)?;
    }
    let status = child.wait()?;
    if status.success() {
        Ok(bytes)
    } else {
        Err(std::io::Error::other(format!("the command ended with {status}")))
    }
}
