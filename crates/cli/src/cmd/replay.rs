mod text;

use super::agree::{AgreeOptions, Agreeing};
use super::dotenv_options::DotenvOptions;
use super::scenario_options::{
    AnswerOptions, LastWord, TryOptions, among_others, failure, in_turn, patience, print_result,
    say_interrupted, say_skipped, show, untracked,
};
use super::start::SandboxOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, TimeSpan, visible};
use belljar_report::{Shown, render_judgement};
use belljar_runner::suite::{Consent, InTurn, Keep, Trial, TrialUse, load_scenario};
use belljar_runner::tape::{
    AcrossVersions, Changed, Mutate, OnDrift, Pace, Rejudged, Rejudging, ReplayError, ReplayRequest,
    Scenarios, StaleRule, Tape, cassette, check_closed_network, find_tapes, not_replayed, open_cassette,
    rejudge, rejudge_many, replay,
};
use belljar_runner::{AgreementStanding, Agreements, HostEnvironment};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use text::{drift_text, mutation_text};

/// Replay tapes: the real agent in the sandbox, with recorded answers as the model
///
/// Tools, hooks and servers run again, without a network unless --network is given; files and egress are judged again. A
/// request that the tape does not have is a drift: both values are shown, and the status is 7. With --protocol nothing runs:
/// the recorded conversation is read and judged again, which also works for cassettes of cowork-harness. Checks that need
/// what a recording does not have are unknown, and the status is 3. It is also 3 if the scenario, its session, a skill, a
/// plugin, an upload, a directory or a project changed since the recording. With --protocol no run is kept: `trace` takes the
/// tape itself.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar replay scenarios/hello.tape\n  $ belljar replay --protocol --explain scenarios\n  \
    $ belljar replay --json --protocol scenarios\n"
)]
pub struct ReplayArgs {
    /// Tapes, or directories to search for them; with --protocol, also cassettes
    #[arg(required = true, value_name = "TAPE")]
    paths: Vec<PathBuf>,
    /// What to do with a request that the tape does not have
    #[arg(long, value_enum, default_value = "fail", value_name = "HOW", conflicts_with = "protocol")]
    on_drift: Drifting,
    /// Run nothing: read the recorded conversation and judge it again
    #[arg(long, conflicts_with_all = ["backend", "image"])]
    protocol: bool,
    /// Show the evidence behind each check that passed
    #[arg(long, conflicts_with = "quiet")]
    explain: bool,
    /// Change the recording, one value at a time, and list the changes that no check notices; if any, the status is 1
    #[arg(long, requires = "protocol")]
    mutate: bool,
    /// Require everything to match, even if the agent has another version than the recorded one
    #[arg(long, conflicts_with_all = ["protocol", "allow_stale"])]
    strict: bool,
    /// Judge a recording even if its scenario, session, skills, plugins or inputs changed since
    #[arg(long)]
    allow_stale: bool,
    /// Answer with the recorded pauses instead of as fast as possible
    #[arg(long, conflicts_with = "protocol")]
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
    #[arg(long)]
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
    let mut tapes = Vec::new();
    let mut without = Vec::new();
    for path in &args.paths {
        let path = TryOptions::path(environment, path)?;
        if path.as_path().is_file() {
            tapes.push(path);
            continue;
        }
        let found = find_tapes(&path)?;
        without.extend(not_replayed(&path, &found, environment));
        tapes.extend(found);
    }
    tapes.sort();
    tapes.dedup();
    if !output.json {
        say_skipped(&without, environment, output);
    }
    let all = match args.protocol {
        true => rejudge_all(args, environment, &tapes, output)?,
        false => replay_all(args, environment, &tapes, output)?,
    };
    let exit = all.exit();
    let InTurn { results: rows, not_started, was_interrupted } = all;
    let passed = rows.iter().filter(|(exit, _)| *exit == ExitCode::Passed).count();
    if output.json {
        let results: Vec<&Value> = rows.iter().map(|(_, row)| row).collect();
        let data = json!({"results": results, "passed": passed, "failed": rows.len() - passed,
            "interrupted": was_interrupted, "not_started": not_started, "not_replayed": without});
        output.envelope(&Envelope::new("replay", exit, data));
    } else if tapes.len() > 1 {
        output.say(&format!("{passed} passed, {} failed\n", rows.len() - passed));
        say_interrupted(was_interrupted, not_started, output);
    }
    Ok(exit)
}

/// Judges recordings again. One bad tape does not stop the others; alone, it is the error of the verb.
fn rejudge_all(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    tapes: &[AbsPath],
    output: &Output,
) -> Result<InTurn<Value>, CliError> {
    let scenarios = Scenarios::default();
    let agreements = Agreements::new(&environment.config);
    let how = Rejudging {
        mutate: if args.mutate { Mutate::Yes } else { Mutate::No },
        stale: stale_rule(args),
        permit: &|wishes| {
            args.agree.yes || matches!(agreements.standing(wishes), Ok(AgreementStanding::Agreed))
        },
    };
    if let [tape] = tapes {
        let read = rejudge(tape, environment, &scenarios, how)?;
        let results = vec![print_rejudged(args, environment, tape, &read, output)];
        return Ok(InTurn { results, not_started: 0, was_interrupted: false });
    }
    let mut results = Vec::new();
    let left = rejudge_many(tapes, environment, &scenarios, how, &mut |path, read| {
        let found = read.map_err(CliError::from);
        let found = found.map(|read| print_rejudged(args, environment, path, &read, output));
        results.push(among_others(found, environment, ("tape", path), output));
    });
    let left = left.map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?;
    Ok(InTurn { results, not_started: left.unwrap_or(0), was_interrupted: left.is_some() })
}

const fn stale_rule(args: &ReplayArgs) -> StaleRule {
    if args.allow_stale { StaleRule::Allowed } else { StaleRule::Unverified }
}

/// Runs tapes again, after the user has agreed to what all of their scenarios ask for.
fn replay_all(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    tapes: &[AbsPath],
    output: &Output,
) -> Result<InTurn<Value>, CliError> {
    let sandbox = args.sandbox.asked();
    let used_for = if args.network { TrialUse::Run } else { TrialUse::RunOffline };
    let agreeing = &Agreeing { options: &args.agree, sandbox: &sandbox, used_for, environment, output };
    let scenarios = Scenarios::within(args.timeout.map(TimeSpan::duration));
    let open = |path| (path, open_to_run(args, agreeing, path, &scenarios));
    let opened: Vec<(&AbsPath, Result<_, CliError>)> = tapes.iter().map(open).collect();
    let found = opened.iter().filter_map(|(_, found)| found.as_ref().ok());
    let consent = agreeing.ask(found.map(|(_, trial): &(Tape, Arc<Trial>)| &**trial))?;
    let one = |found: Result<(Tape, Arc<Trial>), CliError>| {
        let (tape, trial) = found?;
        replay_one(args, environment, tape, (&trial, &consent), output)
    };
    in_turn(opened, one, "tape", environment, output)
}

/// A tape that can be run again, and its scenario.
fn open_to_run(
    args: &ReplayArgs,
    agreeing: &Agreeing<'_>,
    path: &AbsPath,
    scenarios: &Scenarios,
) -> Result<(Tape, Arc<Trial>), CliError> {
    let environment = agreeing.environment;
    if path.as_path().is_file() {
        open_cassette(path, environment)?;
        return Err(ReplayError::NothingToRun { name: environment.shown(path) }.into());
    }
    let load = |file: &AbsPath| -> Result<Trial, CliError> {
        let trial = agreeing.load(|permit| load_scenario(environment, file, permit))??;
        Ok(Trial { untracked: untracked(args.include_untracked), ..trial })
    };
    let (tape, trial) = scenarios.open(path, environment, load)?;
    if !args.network {
        check_closed_network(&trial, &args.sandbox.asked())?;
    }
    Ok((tape, trial))
}

fn print_rejudged(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    path: &AbsPath,
    read: &Rejudged,
    output: &Output,
) -> (ExitCode, Value) {
    let exit = read.exit();
    if !output.json && (!args.quiet || exit != ExitCode::Passed) {
        let style = output.err_style();
        let shown = if args.verbose || args.explain { Shown::Everything } else { Shown::Failures };
        let mut text = render_judgement(&read.found.judgement, shown, style);
        if let Some(mismatch) = &read.found.mismatch {
            text.push_str(&format!(
                "{} observation {} is read differently\n    recorded: {}\n    present:  {}\n",
                style.removed("x"),
                mismatch.at,
                visible(mismatch.recorded.as_deref().unwrap_or("nothing")),
                visible(mismatch.present.as_deref().unwrap_or("nothing")),
            ));
        }
        text.push_str(&read.mutations.as_ref().map(|found| mutation_text(found, style)).unwrap_or_default());
        text.push_str(&match read.cassette {
            Some(_) => cassette_hint(args, &read.changed).to_owned(),
            None => stale_hint(args, &read.changed, &environment.shown(path)),
        });
        text.push_str(&format!("{}: {}\n", environment.shown(path), exit.meaning()));
        output.say(&text);
    }
    if read.cassette.is_some() && !output.json && !args.quiet {
        output.say(&format!("note: {}\n", cassette::UNSAID));
    }
    (exit, read.json())
}

fn replay_one(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    tape: Tape,
    (trial, consent): (&Trial, &Consent),
    output: &Output,
) -> Result<(ExitCode, Value), CliError> {
    let mut options = try_options(args)?;
    let detail = options.detail();
    let shown = environment.shown(tape.directory());
    let replayed = replay(ReplayRequest {
        environment,
        tape,
        trial,
        consent,
        sandbox: args.sandbox.asked(),
        on_drift: match args.on_drift {
            Drifting::Fail => OnDrift::Fail,
            Drifting::Continue => OnDrift::Continue,
            Drifting::Live => OnDrift::Live,
        },
        pace: if args.timed { Pace::AsRecorded } else { Pace::Fast },
        across: if args.strict { AcrossVersions::Strict } else { AcrossVersions::UserSide },
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
        | ReplayError::NotRecorded { .. }
        | ReplayError::OpenNetwork) => CliError::from(error),
    })?;
    let exit = replayed.exit();
    if !output.json {
        if exit != ExitCode::Passed || !args.quiet {
            output.say(&drift_text(&replayed, output.err_style()));
        }
        options.verbose |= args.explain;
        print_result(trial, &replayed.tried, &options, environment, output);
        output.say(&stale_hint(args, &replayed.changed, &shown));
    }
    Ok((exit, replayed.json(trial)))
}

/// What to do about a recording whose files changed since.
fn stale_hint(args: &ReplayArgs, changed: &[Changed], shown: &str) -> String {
    match !args.allow_stale && changed.iter().any(Changed::is_of_the_test) {
        true => format!(
            "hint: `belljar tape refresh {shown}` records it again; --allow-stale judges it as it is\n"
        ),
        false => String::new(),
    }
}

/// A cassette cannot be recorded again here.
fn cassette_hint(args: &ReplayArgs, changed: &[Changed]) -> &'static str {
    match !args.allow_stale && !changed.is_empty() {
        true => "hint: --allow-stale judges the cassette by the scenario that is frozen in it\n",
        false => "",
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
