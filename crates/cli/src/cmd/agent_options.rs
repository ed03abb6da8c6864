//! The version of the agent that a command line asks for, and the installation of one.

use super::many::option;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AgentChoice, AgentRelease, ExitCode, NamedBy, Purpose};
use belljar_report::human_size;
use belljar_runner::agents::{
    AgentWish, ChooseError, InstallError, InstallNews, Installed, VersionWish, install_agent, known_agent,
    missing_agents,
};
use belljar_runner::tape::RecordedAgentError;
use belljar_runner::{Harnesses, HostEnvironment, Planned, Planner};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The time between two updates of the progress line.
const PAINT_EVERY: Duration = Duration::from_millis(100);
/// Asks for the version of each tape.
const RECORDED: &str = "recorded";

/// Options of every verb that starts an agent.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AgentOptions {
    /// Start this version of the agent, one of `agent list`
    ///
    /// Without it the version that the session or the manifest names is started, or else the agent on your PATH. One that
    /// is not installed is an error, unless --install is given.
    #[arg(id = "agent_version", long = "agent", value_name = "NAME@VERSION", value_parser = wanted)]
    version: Option<WantedAgent>,
    /// Install the named version first if it is not installed
    #[arg(long, hide_short_help = true)]
    install: bool,
}

/// What `--agent` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedAgent {
    Release(AgentRelease),
    /// The version that a tape was recorded with.
    Recorded,
}

/// Parses the version of an agent.
fn wanted(text: &str) -> Result<WantedAgent, String> {
    let release = AgentRelease::parse(text).map_err(|error| {
        let profile = Harnesses::built_in().usual().profile();
        let version = profile.versions.tested.last().map(ToString::to_string).unwrap_or_default();
        format!("{error}; a version of the agent's program is named as in {}@{version}", profile.name)
    })?;
    match known_agent(&release.name) {
        Ok(_known) => Ok(WantedAgent::Release(release)),
        Err(error) => Err([vec![error.to_string()], error.hints()].concat().join("; ")),
    }
}

/// Parses what `replay --agent` takes.
fn wanted_or_recorded(text: &str) -> Result<WantedAgent, String> {
    if text == RECORDED { Ok(WantedAgent::Recorded) } else { wanted(text) }
}

/// The option of `replay`, which also takes `recorded`.
pub fn of_replay(argument: clap::Arg) -> clap::Arg {
    argument
        .value_name("NAME@VERSION|recorded")
        .value_parser(wanted_or_recorded)
        .help("Start this version of the agent; `recorded`: the one that each tape names")
}

impl AgentOptions {
    /// The version that overrides what files name.
    pub fn asked(&self) -> Option<AgentChoice> {
        match &self.version {
            Some(WantedAgent::Release(release)) => {
                Some(AgentChoice { release: release.clone(), named_by: NamedBy::Option })
            }
            Some(WantedAgent::Recorded) | None => None,
        }
    }

    /// Whether each tape's own version is asked for.
    pub fn recorded(&self) -> bool {
        self.version == Some(WantedAgent::Recorded)
    }

    /// Whether what is missing is installed.
    pub const fn installs(&self) -> bool {
        self.install
    }

    /// The options for a worker. What it needs is installed before it is started.
    pub fn arguments(&self) -> Vec<OsString> {
        let value = match &self.version {
            Some(WantedAgent::Release(release)) => release.to_string(),
            Some(WantedAgent::Recorded) => RECORDED.to_owned(),
            None => return Vec::new(),
        };
        vec![option("--agent", value)]
    }

    /// Makes sure that versions are installed: with `--install` it installs those that are not.
    ///
    /// # Errors
    /// If one is not installed, or cannot be. All that are missing are named.
    pub fn ready<'r>(
        &self,
        wanted: impl IntoIterator<Item = &'r AgentRelease>,
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<(), CliError> {
        let missing = missing_agents(environment, wanted)?;
        match (missing.is_empty(), self.install) {
            (true, _) => Ok(()),
            (false, false) => Err(ChooseError::NotInstalled { missing }.into()),
            (false, true) => missing.iter().try_for_each(|one| {
                installing(&AgentWish::from(&one.release), environment, output).map(|_installed| ())
            }),
        }
    }
}

/// The plan. A version of the agent that is to be started is there, or is installed if the user says so.
pub fn plan(
    planner: &Planner,
    (agent, version): (Option<&str>, Option<&AgentOptions>),
    output: &Output,
) -> Result<Planned, CliError> {
    let planned = planner.plan(agent, Purpose::Session).map_err(|error| {
        // A version in the place of an agent of the manifest.
        let release = agent.and_then(|agent| AgentRelease::parse(agent).ok());
        let hint = release
            .map(|release| format!("`belljar run --agent {release}` starts this version of the program"));
        hint.into_iter().fold(CliError::from(error), CliError::hint)
    })?;
    let (Some(version), Err(error)) = (version, &planned.program) else { return Ok(planned) };
    match &**error {
        ChooseError::NotInstalled { missing } => {
            version.ready(missing.iter().map(|one| &one.release), planner.environment(), output)?;
            Ok(planner.plan(agent, Purpose::Session)?)
        }
        error @ (ChooseError::Unknown { .. }
        | ChooseError::NotAVersion { .. }
        | ChooseError::NotOnPath { .. }
        | ChooseError::Wrapper(_)
        | ChooseError::Store(_)) => Err(error.into()),
    }
}

/// Installs a version and shows the progress.
pub fn installing(
    wish: &AgentWish,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<Installed, CliError> {
    let profile = known_agent(&wish.name)?;
    let latest = || VersionWish::Tag("latest".to_owned());
    let version = wish.version.clone().unwrap_or_else(latest);
    let mut progress = Progress { output, wish, painted: None, said: None };
    let installed = install_agent(environment, profile, &version, &mut |news| progress.take(news));
    progress.end();
    installed.map_err(|error| install_failure(&error))
}

impl From<&ChooseError> for CliError {
    fn from(error: &ChooseError) -> Self {
        let out = Self::from_chain(ExitCode::Invalid, error);
        error.hints().into_iter().fold(out, Self::hint)
    }
}

impl From<RecordedAgentError> for CliError {
    fn from(error: RecordedAgentError) -> Self {
        let out = Self::from_chain(ExitCode::Invalid, &error);
        match error {
            RecordedAgentError::Unknown { cause, .. } => cause.hints().into_iter().fold(out, Self::hint),
            RecordedAgentError::NoVersion { .. } | RecordedAgentError::NotAVersion { .. } => {
                out.hint("`--agent NAME@VERSION` names one; without the option the agent on your PATH runs")
            }
        }
    }
}

pub fn install_failure(error: &InstallError) -> CliError {
    let exit = match error {
        InstallError::NoVersion { .. } | InstallError::Settings(_) => ExitCode::Invalid,
        InstallError::Store(_)
        | InstallError::Fetch { .. }
        | InstallError::Metadata { .. }
        | InstallError::NoPlatform { .. }
        | InstallError::NoIntegrity { .. }
        | InstallError::Tarball { .. }
        | InstallError::Clear { .. }
        | InstallError::Integrity { .. }
        | InstallError::Unpack { .. }
        | InstallError::Write { .. }
        | InstallError::Runtime(_) => ExitCode::Unsupported,
    };
    let out = CliError::from_chain(exit, error);
    error.hint().into_iter().fold(out, CliError::hint)
}

/// Progress of a download: on a terminal one line that is updated, elsewhere a line for each step.
struct Progress<'a> {
    output: &'a Output,
    wish: &'a AgentWish,
    painted: Option<Instant>,
    said: Option<&'static str>,
}

impl Progress<'_> {
    fn take(&mut self, news: InstallNews) {
        if self.output.json {
            return;
        }
        let wish = self.wish;
        let (step, line) = match news {
            InstallNews::Waiting => ("wait", format!("waiting for another process that installs {wish}")),
            InstallNews::Fetching { bytes, total: Some(total) } => {
                let percent = bytes.saturating_mul(100).checked_div(total).unwrap_or(100);
                let (bytes, total) = (human_size(bytes), human_size(total));
                ("fetch", format!("fetching {wish}: {bytes} of {total}, {percent} %"))
            }
            InstallNews::Fetching { bytes, total: None } => {
                ("fetch", format!("fetching {wish}: {}", human_size(bytes)))
            }
            InstallNews::Unpacking => ("unpack", format!("unpacking {wish}")),
        };
        let changed = self.said.replace(step) != Some(step);
        if !std::io::stderr().is_terminal() {
            if changed {
                let plain = line.split_once(": ").map_or(line.as_str(), |(plain, _)| plain);
                self.output.say(&format!("belljar: {plain} …"));
            }
        } else if changed || self.painted.is_none_or(|at| at.elapsed() > PAINT_EVERY) {
            self.output.paint(&line);
            self.painted = Some(Instant::now());
        }
    }

    fn end(&self) {
        if self.painted.is_some() {
            self.output.paint("");
        }
    }
}
