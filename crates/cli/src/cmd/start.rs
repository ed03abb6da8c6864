//! Shared by `run`, `exec` and `shell`: shows the plan, asks for agreement, and runs the command.

mod text;

use super::agent_options::{self, AgentOptions};
use super::by_hand::ByHandOptions;
use super::dotenv_options::DotenvOptions;
use super::plan::Beside;
use crate::cmd::Call;
use crate::confirm::confirmed;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{
    AgentChoice, AgentName, BackendKind, Digest, Envelope, Event, ExitCode, ImageName, OpenNeed, OsText,
    RunName, RunVerb, SandboxChoice, TimeSpan, Workload, visible,
};
use belljar_report::{changes, render_changes, render_diagnostics, render_open};
use belljar_runner::{
    AgentWords, AgreementStanding, Agreements, CommandOutcome, EgressMode, Ending, LaunchFacts, Model,
    Planned, Planner, Reach, Report, RunError, RunRequest, RunSubject, Stdio, Waiting, ask_hidden,
    is_interactive, launch_hints, run,
};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use text::{audit, keeping, proposal, report_denied, spending};

/// Options of every verb that starts something.
#[derive(Debug, clap::Args)]
pub struct StartOptions {
    #[command(flatten)]
    pub sandbox: SandboxOptions,
    #[command(flatten)]
    pub dotenv: DotenvOptions,
    #[command(flatten)]
    pub by_hand: ByHandOptions,
    /// Agree to the project's manifest for this run without being asked
    #[arg(long, conflicts_with = "agree_to")]
    pub yes: bool,
    /// Agree to the plan with this digest, and refuse any other
    #[arg(long, value_name = "DIGEST", value_parser = super::agree::digest, hide_short_help = true)]
    pub agree_to: Option<Digest>,
    /// Propose egress rules for what was refused; they are printed, not applied
    #[arg(long)]
    pub learn: bool,
    /// End the command after this time, overriding the manifest [default: 12h for an agent without a terminal]
    #[arg(long, value_name = "TIME", value_parser = super::scenario_options::patience)]
    pub timeout: Option<TimeSpan>,
    /// Show the plan and start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: print one JSON object
    #[arg(long, requires = "dry_run")]
    pub json: bool,
}

/// The sandbox that the command line asks for, overriding the manifest.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SandboxOptions {
    /// Sandbox backend, overriding the manifest; `host` disables isolation
    #[arg(long, value_name = "BACKEND", value_parser = backend_parser())]
    pub backend: Option<BackendKind>,
    /// Container image, overriding the manifest; it is never fetched
    #[arg(long, value_name = "IMAGE", value_parser = ImageName::parse, hide_short_help = true)]
    pub image: Option<ImageName>,
}

impl SandboxOptions {
    pub fn asked(&self) -> SandboxChoice {
        SandboxChoice { backend: self.backend, image: self.image.clone() }
    }
}

/// Parses the name of a backend; the help lists all of them.
pub fn backend_parser() -> impl TypedValueParser<Value = BackendKind> {
    let values = BackendKind::ALL.map(|kind| PossibleValue::new(kind.name()).help(kind.about()));
    PossibleValuesParser::new(values).try_map(|name| {
        BackendKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or("unknown backend")
    })
}

/// The planner, and the sandbox that was started meanwhile.
pub struct Begun {
    pub planner: Planner,
    /// Ended unused where nothing is to be started after all.
    waiting: Option<Waiting>,
}

impl StartOptions {
    /// Finds the project. A sandbox that was started early and does not fit is ended.
    pub fn begin(&self, call: &Call<'_>) -> Result<Begun, CliError> {
        let fits = !self.dry_run && self.sandbox.backend.is_none_or(BackendKind::starts_early);
        let planner = call
            .planner_with(&self.dotenv)
            .map_err(CliError::into_launch)?
            .with_sandbox(self.sandbox.asked())
            .with_by_hand(self.by_hand.given().map_err(CliError::into_launch)?);
        let waiting = call.waiting().filter(|_| fits);
        Ok(Begun { planner, waiting })
    }
}

impl Begun {
    /// The same for a version of the agent.
    pub fn with_agent(self, agent: Option<AgentChoice>) -> Self {
        Self { planner: self.planner.with_agent(agent), ..self }
    }
}

/// An argument of the command line, whatever its bytes.
pub fn argument(argument: OsString) -> Result<OsText, CliError> {
    OsText::new(argument.into_vec()).map_err(|error| CliError::new(ExitCode::LaunchFailed, error.to_string()))
}

/// What is to run in the sandbox.
pub enum Work {
    Command(Vec<OsText>),
    Agent(AgentWords),
}

impl Work {
    fn workload(&self, planned: &Planned) -> Result<Workload, CliError> {
        match self {
            Work::Command(words) => Ok(Workload::Command(words.clone())),
            Work::Agent(words) => {
                let arguments = planned.arguments(words);
                let failed = |error| CliError::from_chain(ExitCode::LaunchFailed, &error);
                arguments.map(Workload::Agent).map_err(failed)
            }
        }
    }
}

/// A command to start, as the command line describes it.
pub struct Start<'a> {
    pub verb: RunVerb,
    pub begun: Begun,
    pub agent: Option<&'a str>,
    /// How the version of the agent is chosen; `None` if no agent is started.
    pub version: Option<&'a AgentOptions>,
    pub work: Work,
    pub name: Option<RunName>,
    pub model: Model,
    pub options: &'a StartOptions,
}

/// Plans, asks, runs, reports; returns the exit status.
pub fn start(request: Start<'_>, output: &Output) -> Result<u8, CliError> {
    let Start { verb, begun: Begun { planner, waiting }, agent, version, work, name, model, options } =
        request;
    let planner = &planner;
    let ready = version.filter(|version| !options.dry_run || version.installs());
    let planned = agent_options::plan(planner, (agent, ready), output).map_err(CliError::into_launch)?;
    let workload = &work.workload(&planned)?;
    if options.dry_run {
        show(verb, (planner, &planned), workload, output);
        return Ok(ExitCode::Passed.code());
    }
    if !planned.warnings.is_empty() {
        output.say(&render_diagnostics(&planned.warnings, &planned.sources, output.err_style()));
    }
    let explained = |error: RunError| {
        let hints = launch_hints(&error, planner.environment());
        hints.into_iter().fold(CliError::from(error), CliError::hint)
    };
    let held = version.map(|_started| planned.hold_agent(planner.environment())).transpose();
    let _held = held.map_err(|error| CliError::from(&*error).into_launch())?;
    // Before the user agrees: what is replaced after that is not mounted.
    let facts = LaunchFacts::gather(&planned, planner.environment()).map_err(explained)?;
    let digest = planned.of_manifests().compiled.plan.digest();
    let pinned = super::agree::pinned(options.agree_to, digest)?;
    if planned.needs_agreement && !options.yes && !pinned {
        agree(planner, &planned, output)?;
    }
    audit(&planned, output);
    let mut ask = |message: &str| ask_hidden(message);
    let mut running = false;
    let interactive = is_interactive();
    let mut held = Vec::new();
    let mut watch = |event: &Event| {
        if let Event::HostExecutedHeld { path, act, why } = event {
            let line = super::findings::held_line(path, *act, why, planner.environment());
            // A program that draws on the screen would be disturbed; these lines wait for its end.
            if interactive { held.push(line) } else { output.say(&line) }
        }
        // Once the command runs, the terminal is its own.
        if let Event::Notice { text } = event
            && !running
        {
            output.say(&format!("belljar: {}", visible(text)));
        }
        running |= matches!(event, Event::CommandStarted { .. });
    };
    let report = run(RunRequest {
        notice: None,
        planned: &planned,
        facts,
        environment: planner.environment(),
        workload,
        subject: RunSubject::of(verb),
        name,
        model,
        mode: if options.learn { EgressMode::Learn } else { EgressMode::Enforce },
        reach: Reach::AsRuled,
        time: options.timeout,
        open: &mut |open| {
            let open: Vec<OpenNeed> = open.iter().map(OpenNeed::from).collect();
            output.say(&render_open(&open, output.err_style()));
        },
        ask: &mut ask,
        stdio: Stdio::User,
        waiting,
        files: None,
        judge: None,
        taping: belljar_runner::tape::Taping::Off,
        watch: &mut watch,
    })
    .map_err(explained)?;
    let status = report.outcome.status();
    print_report(report, &held, (planner, &planned), options, output);
    Ok(status)
}

fn print_report(
    report: Report,
    held: &[String],
    (planner, planned): (&Planner, &Planned),
    options: &StartOptions,
    output: &Output,
) {
    let Report {
        outcome,
        directory,
        unrecorded: _among_the_errors,
        record_errors,
        planted,
        findings,
        kept,
        denied,
        needed,
        warnings,
        spent,
        transcript: _,
        taped: _,
        replayed: _,
        values: _,
        redact: _,
        reached,
    } = report;
    print_outcome(&outcome, planned, output);
    for limit in &reached {
        output.say(&format!("belljar: {limit}"));
    }
    report_denied(&denied, output);
    for (what, fix) in warnings {
        output.say(&format!("error: {}\nhint: {}", visible(&what), visible(&fix)));
    }
    if options.learn {
        output.say(&proposal(planned, &needed, &denied));
    }
    super::findings::report_held(held, output);
    // Last of what can be long, so that nothing that a command causes pushes it off the screen.
    super::findings::report(&planted, findings.as_deref(), planner.environment(), output);
    if let Some(kept) = kept {
        output.say(&keeping(&kept, planner));
    }
    if let Some(spent) = spent {
        output.say(&format!("belljar: {}", spending(spent)));
    }
    for error in record_errors {
        output.say(&format!("belljar: {}", visible(&error)));
    }
    if let Some(directory) = directory {
        output.say(&format!("belljar: the run is recorded in {}", planner.environment().shown(&directory)));
    }
}

fn print_outcome(outcome: &CommandOutcome, planned: &Planned, output: &Output) {
    match outcome {
        CommandOutcome::NotExecuted { what, exit } => {
            let why = if *exit == ExitCode::NotFound {
                "was not found in the sandbox"
            } else {
                "cannot be executed"
            };
            output.say(&format!("error: `{}` {why}", visible(&what.to_string())));
            if let (Some(image), ExitCode::NotFound) = (&planned.compiled.plan.image, *exit) {
                output.say(&format!(
                    "hint: the image `{image}` lacks it, or the interpreter that it needs; \
                     `exec -- PROGRAM` runs a program of the image"
                ));
            }
        }
        CommandOutcome::Ended(Ending::Lost) => {
            output.say("error: the sandbox ended without reporting a status")
        }
        CommandOutcome::Ended(Ending::Unguarded) => {
            output.say("error: the egress services failed; the sandbox was ended");
        }
        CommandOutcome::Ended(
            Ending::Own(_) | Ending::TimeLimit(_) | Ending::Stopped(_) | Ending::Dismissed,
        ) => {}
    }
}

fn show(verb: RunVerb, (planner, planned): (&Planner, &Planned), workload: &Workload, output: &Output) {
    let plan = &planned.compiled.plan;
    let digest = planned.of_manifests().compiled.plan.digest();
    if output.json {
        let data = json!({"digest": digest, "plan": plan, "by_hand": planned.given_by_hand(), "secrets": planned.entering, "default_limits": planned.defaults, "not_isolated": planned.open, "started": false});
        output.envelope(&Envelope::new(verb.name(), ExitCode::Passed, data));
    } else {
        let arguments: &[OsText] = match workload {
            Workload::Agent(arguments) => arguments,
            Workload::Command(_) => &[],
        };
        let beside = Beside { arguments, ..Beside::default() };
        output.result(&super::plan::page(planned, &planner.environment().home, beside, output.out_style()));
    }
}

/// What a project's manifest asks for is shown before the first run and whenever it has changed. What is given by hand is
/// not shown, because it is not agreed to.
fn agree(planner: &Planner, planned: &Planned, output: &Output) -> Result<(), CliError> {
    let asked_for = planned.of_manifests();
    let plan = &asked_for.compiled.plan;
    let agreements = Agreements::new(&planner.environment().config);
    let style = output.err_style();
    match agreements.standing(plan).map_err(|error| CliError::from(error).into_launch())? {
        AgreementStanding::Agreed => return Ok(()),
        AgreementStanding::Never => {
            let page = super::plan::page(asked_for, &planner.environment().home, Beside::default(), style);
            output.say(&page);
        }
        AgreementStanding::Changed(before) => {
            let differences = changes(&before.shown, &json!(plan));
            output.say(&format!("Since you agreed:\n{}", render_changes(&differences, style)));
        }
    }
    let trust = named("trust", planned);
    output.say(&format!("A yes is kept until the plan changes; `{trust} --revoke` takes it back."));
    if !confirmed("Start this?", &instead(&trust, plan.digest())).map_err(CliError::into_launch)? {
        return Err(CliError::new(ExitCode::LaunchFailed, "not agreed to; nothing was started"));
    }
    agreements.agree(plan).map_err(|error| CliError::from(error).into_launch())?;
    Ok(())
}

/// What to do where there is no terminal to ask at.
fn instead(trust: &str, digest: Digest) -> String {
    format!(
        "`{trust} --yes` agrees once; `--agree-to {digest}` agrees to this plan, `--yes` to any, for this run"
    )
}

/// A verb with the agent that is meant, to be typed.
fn named(verb: &str, planned: &Planned) -> String {
    super::changes::command(verb, planned.called.as_ref().map(AgentName::as_str), None)
}
