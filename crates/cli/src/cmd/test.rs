use super::scenario_options::{Plays, TryOptions, WhenUnanswered, say_skipped};
use crate::cmd::{Call, Command};
use crate::env;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Digest, Envelope, ExitCode, ScenarioResult, SuiteResults};
use belljar_report::{Moment, render_open, render_result, render_summary};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{
    Discovered, Job, Skipped, SuiteNews, SuiteQuestions, SuiteRequest, Trial, TrialUse, end_with_input,
    run_suite, scenario_files,
};
use belljar_runner::tape::Taping;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
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
    /// Run only scenarios whose path contains TEXT
    #[arg(short = 'k', value_name = "TEXT")]
    filter: Option<String>,
    /// Scenarios to run at once [default: twice the processors]
    #[arg(short, long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// Stop starting scenarios after the first one that does not pass
    #[arg(long)]
    fail_fast: bool,
    /// Run each scenario this many times
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Answer as the model with the script beside each scenario, NAME.script.json
    #[arg(long, conflicts_with = "script")]
    scripted: bool,
    /// List the scenarios without running them
    #[arg(long)]
    list: bool,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    worker: bool,
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
    if args.worker {
        end_with_input().map_err(|error| CliError::from_chain(ExitCode::Bug, &error))?;
    }
    let paths = TryOptions::paths(environment, &args.paths)?;
    let Discovered { scenarios: files, skipped } =
        scenario_files(paths, args.filter.as_deref(), environment)?;
    say_skipped(&skipped, environment, output);
    if args.list {
        return list(&files, &skipped, environment, output);
    }
    let suite = match files.as_slice() {
        [file] if args.repeat == 1 => SuiteResults::new(vec![alone(args, environment, file, output)?]),
        _ => together(args, environment, &files, output)?,
    };
    let exit = suite.exit();
    if output.json {
        let mut data = json!(suite);
        if !args.worker {
            data["skipped"] = json!(skipped);
        }
        output.envelope(&Envelope::new("test", exit, data));
    }
    Ok(exit)
}

fn list(
    files: &[AbsPath],
    skipped: &[Skipped],
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    if output.json {
        let data = json!({"scenarios": files, "skipped": skipped});
        output.envelope(&Envelope::new("test", ExitCode::Passed, data));
    } else {
        let lines: Vec<String> = files.iter().map(|path| format!("{}\n", environment.shown(path))).collect();
        output.result(&lines.concat());
    }
    Ok(ExitCode::Passed)
}

/// One scenario, in this process, with everything it says.
fn alone(
    args: &TestArgs,
    environment: &HostEnvironment,
    file: &AbsPath,
    output: &Output,
) -> Result<ScenarioResult, CliError> {
    let plays = Plays::scripted(args.scripted);
    let options = &args.options;
    let trial = options.load((file, plays), environment, output)??;
    let consent = options.consent([&trial], TrialUse::Run, environment, output)?;
    let tried = options.try_scenario(&trial, (plays, &consent), Taping::Off, environment, output)?;
    Ok(tried.result(&trial))
}

/// Many scenarios, each in a belljar of its own.
fn together(
    args: &TestArgs,
    environment: &HostEnvironment,
    files: &[AbsPath],
    output: &Output,
) -> Result<SuiteResults, CliError> {
    if args.options.deciders.on_unanswered == Some(WhenUnanswered::Ask) {
        return Err(CliError::new(
            ExitCode::Invalid,
            "`--on-unanswered ask` cannot ask about several runs at once",
        )
        .hint("name one scenario, without --repeat"));
    }
    let agreed = agree(args, environment, files, output)?;
    // Marked as done when the suite has ended, however it ends.
    let questions = match &args.options.deciders.decider_dir {
        None => None,
        Some(directory) => {
            let opened = SuiteQuestions::new(TryOptions::path(environment, directory)?);
            Some(opened.map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?)
        }
    };
    let names: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let shown = environment.shown(file);
            (1..=args.repeat).map(move |time| match time {
                1 => shown.clone(),
                _ => format!("{shown} #{time}"),
            })
        })
        .collect();
    let repeated = files.iter().flat_map(|file| (0..args.repeat).map(move |_| file));
    let jobs = repeated.zip(&names).zip(1..).map(|((file, name), number)| {
        let questions = questions.as_ref().map(|questions| questions.of_run(file, number));
        let arguments = worker((args, environment), (file, questions.as_ref()), agreed.get(file).copied());
        Job { name: name.clone(), arguments }
    });
    let request = SuiteRequest {
        program: env::own()?.as_path().to_owned(),
        jobs: jobs.collect(),
        at_once: args.jobs,
        fail_fast: args.fail_fast,
    };
    let mut display = Display {
        output,
        names: &names,
        quiet: args.options.quiet,
        unsealed_shown: false,
        running: BTreeMap::new(),
        results: Vec::new(),
    };
    let end = run_suite(&request, &mut |news| display.take(news))
        .map_err(|error| CliError::from_chain(ExitCode::Bug, &error))?;
    let Display { mut results, .. } = display;
    results.sort_by_key(|(job, _)| *job);
    let times = (1..=args.repeat).cycle();
    // Those after a stop are absent, so the number is that of the job.
    let numbered = results.into_iter().map(|(job, result)| {
        let repetition = times.clone().nth(job).filter(|_| args.repeat > 1);
        ScenarioResult { repetition, ..result }
    });
    let suite = end.results(numbered.collect());
    if !output.json {
        output.say(&render_summary(&suite, output.err_style()));
    }
    Ok(suite)
}

/// Has the user agree to what all scenarios ask for; gives the digest for each that asks for something. A file that
/// cannot be read is reported by its own worker, which has no agreement then.
fn agree(
    args: &TestArgs,
    environment: &HostEnvironment,
    files: &[AbsPath],
    output: &Output,
) -> Result<BTreeMap<AbsPath, Digest>, CliError> {
    let options = &args.options;
    let plays = Plays::scripted(args.scripted);
    let mut loaded: Vec<(&AbsPath, Trial)> = Vec::new();
    for file in files {
        loaded.extend(options.load((file, plays), environment, output)?.ok().map(|trial| (file, trial)));
    }
    let trials = loaded.iter().map(|(_, trial)| trial);
    let consent = options.consent(trials, TrialUse::Run, environment, output)?;
    // What was shown, not what the files ask for by now.
    let agreed =
        |(file, trial): &(&AbsPath, Trial)| Some(((*file).clone(), consent.digest_for(&trial.scope.suite)?));
    Ok(loaded.iter().filter_map(agreed).collect())
}

/// A worker agrees to the digest that the user agreed to: what changed in between is refused.
fn worker(
    (args, environment): (&TestArgs, &HostEnvironment),
    (file, questions): (&AbsPath, Option<&AbsPath>),
    agreed: Option<Digest>,
) -> Vec<OsString> {
    let options = &args.options;
    // Relative paths among the options start from the same directory.
    let mut arguments: Vec<OsString> = vec!["-C".into(), environment.directory.as_path().into()];
    arguments.extend(["test".into(), "--json".into(), "--worker".into()]);
    arguments.extend(options.deciders.for_worker(questions));
    let mut flag = |name: &str, value: &OsString| arguments.extend([name.into(), value.clone()]);
    if let Some(script) = &options.script {
        flag("--script", &script.into());
    }
    if let Some(cost) = options.max_cost_usd {
        flag("--max-cost-usd", &cost.to_string().trim_start_matches('$').into());
    }
    if let Some(digest) = agreed {
        flag("--agree-to", &digest.to_string().into());
    }
    if let Some(time) = options.timeout {
        flag("--timeout", &time.to_string().into());
    }
    if let Some(backend) = options.sandbox.backend {
        flag("--backend", &backend.name().into());
    }
    if let Some(image) = &options.sandbox.image {
        flag("--image", &image.as_str().into());
    }
    arguments.extend(options.dotenv.arguments());
    arguments.extend(args.scripted.then(|| "--scripted".into()));
    arguments.extend(options.keep.then(|| "--keep".into()));
    arguments.extend(options.include_untracked.then(|| "--include-untracked".into()));
    arguments.push(file.as_path().into());
    arguments
}

/// Progress of a suite: a line for each scenario that ended, and on a terminal a line with the running ones.
struct Display<'a> {
    output: &'a Output,
    names: &'a [String],
    quiet: bool,
    /// Whether it was printed what nothing enforces.
    unsealed_shown: bool,
    running: BTreeMap<usize, std::time::Instant>,
    results: Vec<(usize, ScenarioResult)>,
}

impl Display<'_> {
    fn take(&mut self, news: SuiteNews) {
        match news {
            SuiteNews::Began { job } => {
                self.running.insert(job, std::time::Instant::now());
            }
            SuiteNews::Ended { job, outcome } => {
                self.running.remove(&job);
                let name = &self.names[job];
                let result = outcome.result(name);
                self.clear();
                if !self.output.json && !self.unsealed_shown && !result.not_isolated.is_empty() {
                    self.unsealed_shown = true;
                    self.output.say(&render_open(&result.not_isolated, self.output.err_style()));
                }
                if !self.output.json && (!self.quiet || !result.passed()) {
                    let moment = if self.quiet { Moment::Hidden } else { Moment::Shown };
                    self.output.say(&render_result(name, &result, moment, self.output.err_style()));
                }
                self.results.push((job, result));
            }
            SuiteNews::Tick => {}
            SuiteNews::Stopping => {
                self.clear();
                self.output.say("belljar: interrupted; running scenarios are ended");
            }
        }
        self.status();
    }

    fn live(&self) -> bool {
        !self.output.json && !self.quiet && std::io::stderr().is_terminal()
    }

    fn clear(&self) {
        if self.live() {
            self.output.paint("");
        }
    }

    fn status(&self) {
        if !self.live() || self.running.is_empty() {
            return;
        }
        let oldest = self.running.iter().min_by_key(|(_, since)| **since);
        let (name, seconds) = oldest
            .map(|(job, since)| (self.names[*job].as_str(), since.elapsed().as_secs()))
            .unwrap_or_default();
        let (done, all, running) = (self.results.len(), self.names.len(), self.running.len());
        self.output.paint(&format!("{done}/{all} done, {running} running, {name} for {seconds} s"));
    }
}
