use super::many::{self, ManyOptions, RepeatOption, Suite};
use super::scenario_options::{Plays, TryOptions, say_skipped};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, ExitCode};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{Discovered, SuiteOutcome, SuiteVerb, TrialUse, scenario_files};
use belljar_runner::tape::Taping;
use serde_json::json;
use std::path::PathBuf;

/// Run scenarios against the real agent and judge what it did
///
/// Each scenario gets a sandbox and a workspace of its own. Several run at once; one bad file does not stop the others.
/// The status is 0 if everything passed, 1 if a check failed, 5 if the agent failed, 3 if evidence is missing, 2 if a file
/// is not valid, 4 if this machine cannot enforce a plan, 130 if a signal ended the run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar test --scripted scenarios/\n  $ belljar test --list .\n")]
pub struct TestArgs {
    /// Scenario files, or directories to search for them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    many: ManyOptions,
    #[command(flatten)]
    repeat: RepeatOption,
    /// Answer as the model with the script beside each scenario, NAME.script.json
    #[arg(long, conflicts_with = "script")]
    scripted: bool,
    #[command(flatten)]
    pub options: TryOptions,
}

impl Command for TestArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment_with(&self.options.dotenv)?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.options.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &TestArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    args.many.begin()?;
    let paths = TryOptions::paths(environment, &args.paths)?;
    let Discovered { scenarios: files, skipped } =
        scenario_files(paths, args.many.filter.as_deref(), environment)?;
    say_skipped(&skipped, environment, output);
    let skipped = [("skipped", json!(skipped))];
    if args.many.list {
        return Ok(many::list(SuiteVerb::Test, (&files, &skipped), environment, output));
    }
    let outcome = match files.as_slice() {
        [file] if args.repeat.repeat == 1 => alone(args, environment, file, output)?,
        _ => together(args, environment, &files, output)?,
    };
    Ok(many::finish(SuiteVerb::Test, &outcome, &skipped, output))
}

/// One scenario, in this process, with everything it says.
fn alone(
    args: &TestArgs,
    environment: &HostEnvironment,
    file: &AbsPath,
    output: &Output,
) -> Result<SuiteOutcome, CliError> {
    let plays = Plays::scripted(args.scripted);
    let options = &args.options;
    let trial = options.load((file, plays), environment, output)??;
    let consent = options.consent([&trial], TrialUse::Run, environment, output)?;
    let tried = options.try_scenario(&trial, (plays, &consent), Taping::Off, environment, output)?;
    Ok(SuiteOutcome::alone(tried.judgement.conclusion.exit(), json!(tried.result(&trial))))
}

/// Many scenarios, each in a belljar of its own.
fn together(
    args: &TestArgs,
    environment: &HostEnvironment,
    files: &[AbsPath],
    output: &Output,
) -> Result<SuiteOutcome, CliError> {
    let TestArgs { paths: _, many, repeat, scripted, options } = args;
    many::askable(&options.deciders)?;
    let agreed = options.agree_to_all((files, Plays::scripted(*scripted)), environment, output)?;
    let suite = Suite {
        verb: SuiteVerb::Test,
        files,
        times: repeat.repeat,
        many,
        deciders: Some(&options.deciders),
        quiet: options.quiet,
        worker: &|file, questions| {
            let mut arguments = options.for_worker(questions, agreed.get(file).copied());
            arguments.extend(scripted.then(|| "--scripted".into()));
            arguments
        },
        print: &|_file, _job| {},
        environment,
        output,
    };
    suite.run()
}
