mod protocol;
mod text;
mod worker;

use super::agent_options::{AgentOptions, of_replay};
use super::agree::{AgreeOptions, Agreeing, to_type};
use super::dotenv_options::DotenvOptions;
use super::many::{self, ManyOptions, RepeatOption, Suite};
use super::scenario_options::{
    AnswerOptions, LastWord, TryOptions, failure, patience, print_result, say_skipped, show, untracked,
};
use super::start::SandboxOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, AgentChoice, ExitCode, TimeSpan};
use belljar_report::Shown;
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{
    Consent, Keep, SuiteOutcome, SuiteVerb, Trial, TrialUse, load_scenario, selected,
};
use belljar_runner::tape::{
    AcrossVersions, OnDrift, Pace, ReplayError, ReplayRequest, Scenarios, StaleRule, Tape, find_tapes,
    not_replayed, open_cassette, recorded_agent, replay, tape_beside,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use text::{ReplayedRow, basis_text, drift_text, row_text, stale_hint};

/// Replay tapes: the real agent in the sandbox, with recorded answers as the model
///
/// Tools, hooks and servers run again, without a network unless --network is given; files and egress are judged again. A
/// request that the tape does not have is a drift: both values are shown, and the status is 7. With --protocol nothing runs:
/// the recorded conversation is read and judged again, which also works for cassettes of cowork-harness. Checks that need
/// what a recording does not have are unknown, and the status is 3. It is also 3 if the scenario, its session, a skill, a
/// plugin, an upload, a directory or a project changed since the recording, and with --strict if the plan or the agent did.
/// Several tapes are replayed at once. With --protocol no run is kept: `trace` takes the tape itself.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar replay scenarios -k hello\n  $ belljar replay --protocol --explain scenarios\n  \
    $ belljar replay --json --protocol scenarios\n  $ belljar replay --agent recorded --install scenarios\n",
    mut_arg("agent_version", of_replay)
)]
pub struct ReplayArgs {
    /// Tapes, or directories to search for them; with --protocol, also cassettes
    #[arg(required = true, value_name = "TAPE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    many: ManyOptions,
    #[command(flatten)]
    repeat: RepeatOption,
    /// What to do with a request that the tape does not have
    #[arg(long, value_enum, default_value = "fail", value_name = "HOW", conflicts_with = "protocol")]
    on_drift: Drifting,
    /// Run nothing: read the recorded conversation and judge it again
    #[arg(long, conflicts_with_all = ["backend", "image", "repeat", "agent_version", "install"])]
    protocol: bool,
    /// Show the evidence behind each check that passed
    #[arg(long, conflicts_with = "quiet")]
    explain: bool,
    /// Change the recording, one value at a time, and list the changes that no check notices; if any, the status is 1
    #[arg(long, requires = "protocol")]
    mutate: bool,
    /// Require everything to be as recorded, including the plan and the agent's version and program
    #[arg(long, conflicts_with = "allow_stale")]
    strict: bool,
    /// Judge a recording even if its scenario, session, skills, plugins or inputs changed since
    #[arg(long)]
    allow_stale: bool,
    /// Answer with the recorded pauses instead of as fast as possible
    #[arg(long, conflicts_with = "protocol", hide_short_help = true)]
    timed: bool,
    /// Answer a question, as in 'which format=PDF'
    #[arg(long = "answer", value_name = "QUESTION=ANSWER")]
    answers: Vec<String>,
    /// Connect to the hosts that the session allows [default: no network]
    #[arg(long, conflicts_with = "protocol")]
    network: bool,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    agent: AgentOptions,
    #[command(flatten)]
    agree: AgreeOptions,
    #[command(flatten)]
    dotenv: DotenvOptions,
    /// End a run after this time, overriding the scenario [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = patience, hide_short_help = true, conflicts_with = "protocol")]
    timeout: Option<TimeSpan>,
    /// Stage files of skills and plugins that git does not track, for a tape that was recorded so
    #[arg(long, hide_short_help = true, conflicts_with = "protocol")]
    include_untracked: bool,
    /// Keep the whole workspace in the run's directory
    #[arg(long, hide_short_help = true)]
    keep: bool,
    /// Print failures only
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print everything: thoughts, whole results, the evidence behind each check
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How a drift is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Drifting {
    /// End the run at once
    Fail,
    /// Continue with the nearest recorded answer; the status is still 7
    Continue,
    /// Ask the real model; the status is still 7
    Live,
}

impl Drifting {
    const fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Continue => "continue",
            Self::Live => "live",
        }
    }
}

impl Command for ReplayArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment_with(&self.dotenv)?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &ReplayArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    args.many.begin()?;
    let mut tapes = Vec::new();
    let mut without = Vec::new();
    for path in &args.paths {
        let path = TryOptions::path(environment, path)?;
        if path.as_path().is_file() {
            if path.as_path().extension().is_some_and(|ending| ending == "yaml" || ending == "yml") {
                let text = format!("`{}` is a scenario, not a tape", environment.shown(&path));
                let hint = format!("its tape is {}", environment.shown(&tape_beside(&path, None)));
                return Err(CliError::new(ExitCode::Invalid, text).hint(hint));
            }
            tapes.push(path);
            continue;
        }
        let found = find_tapes(&path)?;
        without.extend(not_replayed(&path, &found, environment));
        tapes.extend(found);
    }
    let tapes = selected(tapes, args.many.filter.as_deref(), ("tapes", environment))?;
    say_skipped(&without, environment, output);
    let without = [("not_replayed", json!(without))];
    if args.many.list {
        return Ok(many::list(SuiteVerb::Replay, (&tapes, &without), environment, output));
    }
    let outcome = match (tapes.as_slice(), args.protocol, args.repeat.repeat) {
        (tapes, true, _) => protocol::rejudge_all(args, environment, tapes, output)?,
        ([tape], false, 1) => alone(args, environment, tape, output)?,
        (tapes, false, _) => together(args, environment, tapes, output)?,
    };
    Ok(many::finish(SuiteVerb::Replay, &outcome, &without, output))
}

const fn stale_rule(args: &ReplayArgs) -> StaleRule {
    if args.allow_stale { StaleRule::Allowed } else { StaleRule::Unverified }
}

const fn across(args: &ReplayArgs) -> AcrossVersions {
    if args.strict { AcrossVersions::Strict } else { AcrossVersions::UserSide }
}

const fn used_for(args: &ReplayArgs) -> TrialUse {
    if args.network { TrialUse::Run } else { TrialUse::RunOffline }
}

/// One tape, in this process, with everything it says.
fn alone(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    path: &AbsPath,
    output: &Output,
) -> Result<SuiteOutcome, CliError> {
    let (sandbox, used_for) = (args.sandbox.asked(), used_for(args));
    let agreeing = &Agreeing { options: &args.agree, sandbox: &sandbox, used_for, environment, output };
    let scenarios = Scenarios::within(args.timeout);
    let opened = open_to_run(args, agreeing, path, &scenarios)?;
    args.agent.ready(opened.trial.release(opened.agent.as_ref()), environment, output)?;
    let consent = agreeing.ask([&*opened.trial])?;
    many::alone(|| replay_one(args, environment, opened, &consent, output))
}

/// Many tapes, each in a belljar of its own, after the user has agreed to what all of their scenarios ask for. A tape that
/// cannot be used is reported by its own worker.
fn together(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    tapes: &[AbsPath],
    output: &Output,
) -> Result<SuiteOutcome, CliError> {
    let (sandbox, used_for) = (args.sandbox.asked(), used_for(args));
    let agreeing = &Agreeing { options: &args.agree, sandbox: &sandbox, used_for, environment, output };
    let scenarios = Scenarios::within(args.timeout);
    let load = |path| Some((path, open_to_run(args, agreeing, path, &scenarios).ok()?));
    let loaded: Vec<(&AbsPath, ToReplay)> = tapes.iter().filter_map(load).collect();
    let wanted = loaded.iter().filter_map(|(_, opened)| opened.trial.release(opened.agent.as_ref()));
    args.agent.ready(wanted, environment, output)?;
    let consent = agreeing.ask(loaded.iter().map(|(_, opened)| &*opened.trial))?;
    let agreed = many::agreed(&consent, loaded.iter().map(|(path, opened)| (*path, &*opened.trial)));
    let suite = Suite {
        verb: SuiteVerb::Replay,
        files: tapes,
        times: args.repeat.repeat,
        many: &args.many,
        deciders: None,
        quiet: args.quiet,
        worker: &|tape, _questions| args.for_worker(agreed.get(tape).copied()),
        print: &|tape, job| {
            say(&row_text(args, job, &to_type(tape, environment), output.err_style()), output)
        },
        environment,
        output,
    };
    suite.run()
}

/// A tape that can be run again, its scenario, and the version of the agent that is asked for.
struct ToReplay {
    tape: Tape,
    trial: Arc<Trial>,
    agent: Option<AgentChoice>,
}

/// Opens a tape to run it again.
fn open_to_run(
    args: &ReplayArgs,
    agreeing: &Agreeing<'_>,
    path: &AbsPath,
    scenarios: &Scenarios,
) -> Result<ToReplay, CliError> {
    let environment = agreeing.environment;
    if path.as_path().is_file() {
        open_cassette(path, environment)?;
        return Err(ReplayError::NothingToRun { name: environment.shown(path) }.into());
    }
    let change = |trial| Trial { untracked: untracked(args.include_untracked), ..trial };
    let (tape, trial) = opened(path, agreeing, scenarios, &change)?;
    let agent = match args.agent.recorded() {
        true => Some(recorded_agent(&tape)?),
        false => args.agent.asked(),
    };
    Ok(ToReplay { tape, trial, agent })
}

/// Opens a tape and loads its scenario, which the user permits to read what it names.
pub fn opened(
    path: &AbsPath,
    agreeing: &Agreeing<'_>,
    scenarios: &Scenarios,
    change: &dyn Fn(Trial) -> Trial,
) -> Result<(Tape, Arc<Trial>), CliError> {
    let environment = agreeing.environment;
    let load = |file: &AbsPath| -> Result<Trial, CliError> {
        Ok(change(agreeing.load(|permit| load_scenario(environment, file, permit))??))
    };
    scenarios.open(path, environment, load)
}

const fn shown_by(args: &ReplayArgs) -> Shown {
    Shown::of(args.quiet, args.verbose || args.explain)
}

fn replay_one(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    ToReplay { tape, trial, agent }: ToReplay,
    consent: &Consent,
    output: &Output,
) -> Result<(ExitCode, Value), CliError> {
    let (mut options, trial) = (try_options(args)?, &*trial);
    let detail = options.detail();
    let typed = to_type(tape.directory(), environment);
    let replayed = replay(ReplayRequest {
        environment,
        tape,
        trial,
        consent,
        sandbox: args.sandbox.asked(),
        agent,
        on_drift: match args.on_drift {
            Drifting::Fail => OnDrift::Fail,
            Drifting::Continue => OnDrift::Continue,
            Drifting::Live => OnDrift::Live,
        },
        pace: if args.timed { Pace::AsRecorded } else { Pace::Fast },
        across: across(args),
        stale: stale_rule(args),
        answering: options.deciders.answering(environment, LastWord::NoOne)?,
        keep: if args.keep { Keep::Workspace } else { Keep::Changes },
        watch: &mut |event| show(event, detail, output),
    })
    .map_err(|error| match error {
        ReplayError::Trial(error) => failure(error, environment),
        error @ (ReplayError::Tape(_)
        | ReplayError::Cassette { .. }
        | ReplayError::Find(_)
        | ReplayError::Load(_)
        | ReplayError::Protocol(_)
        | ReplayError::CassetteProtocol(_)
        | ReplayError::Normaliser(_)
        | ReplayError::NothingToRun { .. }
        | ReplayError::Interrupted
        | ReplayError::NotRecorded { .. }) => CliError::from(error),
    })?;
    let exit = replayed.exit();
    if !output.json {
        if exit != ExitCode::Passed || !args.quiet {
            let row = ReplayedRow::of(&replayed);
            let basis = basis_text(&replayed.normalise, &replayed.origins, shown_by(args));
            output.say(&(basis + &drift_text(&row, across(args), output.err_style())));
        }
        options.verbose |= args.explain;
        print_result(trial, &replayed.tried, &options, environment, output);
        say(&stale_hint(args, &replayed.changed, (&typed, trial.file.as_ref())), output);
    }
    Ok((exit, replayed.json(trial)))
}

fn say(text: &str, output: &Output) {
    if !text.is_empty() {
        output.say(text);
    }
}

/// A replay has no deciders of its own.
fn try_options(args: &ReplayArgs) -> Result<TryOptions, CliError> {
    let decider_timeout = patience("1s").map_err(|error| CliError::new(ExitCode::Bug, error.to_string()))?;
    let deciders = AnswerOptions {
        answers: args.answers.clone(),
        allow_tool: Vec::new(),
        deny_tool: Vec::new(),
        answer_policy: None,
        decider_cmd: None,
        decider_dir: None,
        decider_llm: false,
        intent: None,
        decider_model: String::new(),
        decider_timeout,
        on_unanswered: None,
        first: false,
    };
    Ok(TryOptions {
        deciders,
        dotenv: args.dotenv.clone(),
        script: None,
        sandbox: SandboxOptions::default(),
        agent: AgentOptions::default(),
        agree: AgreeOptions::default(),
        max_cost_usd: None,
        timeout: args.timeout,
        include_untracked: args.include_untracked,
        keep: args.keep,
        quiet: args.quiet,
        verbose: args.verbose,
        json: args.json,
    })
}
