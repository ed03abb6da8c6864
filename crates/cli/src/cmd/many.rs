//! Running many at once, for `test`, `record`, `replay` and `tape refresh`: each in a belljar of its own, with one display.

mod display;

use super::scenario_options::{AnswerOptions, TryOptions, WhenUnanswered};
use super::start::SandboxOptions;
use crate::env;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Digest, Envelope, ExitCode, ScenarioResult};
use belljar_report::render_summary;
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{
    Consent, EndSignals, Job, JobResult, SuiteError, SuiteOutcome, SuiteQuestions, SuiteRequest, SuiteVerb,
    Trial, end_with_input, run_suite,
};
use display::Display;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::num::NonZero;

/// Options of every verb that runs many at once.
#[derive(Debug, clap::Args)]
pub struct ManyOptions {
    /// Take only the files whose path contains TEXT
    #[arg(short = 'k', value_name = "TEXT")]
    pub filter: Option<String>,
    /// Number to run at once [default: twice the processors]
    #[arg(short, long, value_name = "NUMBER")]
    pub jobs: Option<NonZero<usize>>,
    /// Start no more after the first one that does not pass
    #[arg(long)]
    pub fail_fast: bool,
    /// List the files without running anything
    #[arg(long)]
    pub list: bool,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    worker: bool,
}

/// An option with its value for another belljar process, in one word: a value may begin with a dash.
pub fn option(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

impl SandboxOptions {
    /// The same options for another belljar process.
    pub fn arguments(&self) -> Vec<OsString> {
        let Self { backend, image } = self;
        let backend = backend.iter().map(|backend| option("--backend", backend.name()));
        let image = image.iter().map(|image| option("--image", image.as_str()));
        backend.chain(image).collect()
    }
}

/// How often each is run.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct RepeatOption {
    /// Run each one this many times
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
}

impl ManyOptions {
    /// Makes a worker end with the suite that started it.
    pub fn begin(&self) -> Result<(), CliError> {
        match self.worker {
            true => end_with_input().map_err(|error| CliError::from_chain(ExitCode::Bug, &error)),
            false => Ok(()),
        }
    }
}

/// The same act for many files.
pub struct Suite<'a> {
    pub verb: SuiteVerb,
    pub files: &'a [AbsPath],
    pub times: u32,
    pub many: &'a ManyOptions,
    /// Who answers, where the verb has deciders.
    pub deciders: Option<&'a AnswerOptions>,
    pub quiet: bool,
    /// The options of the worker for one file, which asks in a directory of its own.
    pub worker: &'a dyn Fn(&AbsPath, Option<&AbsPath>) -> Vec<OsString>,
    /// Prints what a row says beyond the result of its run.
    pub print: &'a dyn Fn(&AbsPath, &JobResult),
    pub environment: &'a HostEnvironment,
    pub output: &'a Output,
}

impl Suite<'_> {
    /// Runs all of them. The user has agreed to what they ask for.
    pub fn run(&self) -> Result<SuiteOutcome, CliError> {
        let Self { files, times, many, deciders, environment, output, .. } = *self;
        let questions = deciders.map_or(Ok(None), |deciders| questions(deciders, environment))?;
        if let Some(deciders) = deciders.filter(|_| !self.quiet) {
            deciders.say_where_to_answer(output);
        }
        let jobs: Vec<(&AbsPath, u32)> =
            files.iter().flat_map(|file| (1..=times).map(move |time| (file, time))).collect();
        let name = |(file, time): &(&AbsPath, u32)| match time {
            1 => environment.shown(file),
            _ => format!("{} #{time}", environment.shown(file)),
        };
        let names: Vec<String> = jobs.iter().map(name).collect();
        let job = |((number, (file, _)), name): ((usize, &(&AbsPath, u32)), &String)| {
            let questions = questions.as_ref().map(|questions| questions.of_run(file, number + 1));
            Job { name: name.clone(), arguments: self.arguments(file, questions.as_ref()) }
        };
        let request = SuiteRequest {
            program: env::own()?.as_path().to_owned(),
            jobs: jobs.iter().enumerate().zip(&names).map(job).collect(),
            at_once: many.jobs,
            fail_fast: many.fail_fast,
        };
        let mut display = Display::new(self, &jobs, &names);
        let end = run_suite(&request, &mut |news| display.take(news)).map_err(not_run)?;
        let mut ended = display.into_results();
        ended.sort_by_key(|(at, _)| *at);
        // Those after a stop are absent, so the number is that of the job.
        let numbered = ended.into_iter().map(|(at, job)| match times {
            1 => job,
            _ => repetition(job, jobs[at].1),
        });
        let outcome = SuiteOutcome { jobs: numbered.collect(), end };
        if !output.json {
            output.say(&summary(&outcome, output));
        }
        Ok(outcome)
    }

    fn arguments(&self, file: &AbsPath, questions: Option<&AbsPath>) -> Vec<OsString> {
        // Relative paths among the options start from the same directory.
        let mut out: Vec<OsString> = vec!["-C".into(), self.environment.directory.as_path().into()];
        out.extend(self.verb.words().iter().map(OsString::from));
        out.extend(["--json".into(), "--worker".into()]);
        out.extend((self.worker)(file, questions));
        out.push(file.as_path().into());
        out
    }
}

/// Refuses a person as the decider of several runs.
pub fn askable(deciders: &AnswerOptions) -> Result<(), CliError> {
    if deciders.on_unanswered != Some(WhenUnanswered::Ask) {
        return Ok(());
    }
    let text = "`--on-unanswered ask` cannot ask about several runs at once";
    Err(CliError::new(ExitCode::Invalid, text).hint("name one scenario, without --repeat"))
}

/// The directory of questions for all runs; marked as done when the suite has ended, however it ends.
fn questions(
    deciders: &AnswerOptions,
    environment: &HostEnvironment,
) -> Result<Option<SuiteQuestions>, CliError> {
    let Some(directory) = &deciders.decider_dir else { return Ok(None) };
    let opened = SuiteQuestions::new(TryOptions::path(environment, directory)?);
    Ok(Some(opened.map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?))
}

fn repetition(mut job: JobResult, number: u32) -> JobResult {
    job.row["repetition"] = json!(number);
    job
}

fn not_run(error: SuiteError) -> CliError {
    let exit = match &error {
        SuiteError::Signals(_) => ExitCode::LaunchFailed,
        SuiteError::Start(_) => ExitCode::Bug,
    };
    CliError::from_chain(exit, &error)
}

/// Runs one in this process. A signal that arrives when the run itself has ended does not break off what follows.
pub fn alone(one: impl FnOnce() -> Result<(ExitCode, Value), CliError>) -> Result<SuiteOutcome, CliError> {
    let held = EndSignals::take().map_err(not_run)?;
    let (exit, row) = one()?;
    drop(held);
    Ok(SuiteOutcome::alone(exit, row))
}

/// The last lines about many.
pub fn summary(outcome: &SuiteOutcome, output: &Output) -> String {
    let runs: Vec<&ScenarioResult> = outcome.jobs.iter().filter_map(|job| job.run.as_ref()).collect();
    let exits: Vec<ExitCode> = outcome.jobs.iter().map(|job| job.exit).collect();
    render_summary((&outcome.count(), &exits), &runs, output.err_style())
}

/// Ends a verb: its envelope, with `more` beside the results, and its exit code.
pub fn finish(verb: SuiteVerb, outcome: &SuiteOutcome, more: &[(&str, Value)], output: &Output) -> ExitCode {
    let exit = outcome.exit();
    if output.json {
        let mut data = outcome.json();
        more.iter().for_each(|(name, value)| data[*name] = value.clone());
        output.envelope(&Envelope::new(verb.words()[0], exit, data));
    }
    exit
}

/// Prints the files that a verb would take.
pub fn list(
    verb: SuiteVerb,
    (files, more): (&[AbsPath], &[(&str, Value)]),
    environment: &HostEnvironment,
    output: &Output,
) -> ExitCode {
    if output.json {
        let mut data = json!({verb.files(): files});
        more.iter().for_each(|(name, value)| data[*name] = value.clone());
        output.envelope(&Envelope::new(verb.words()[0], ExitCode::Passed, data));
    } else {
        let lines: Vec<String> = files.iter().map(|path| format!("{}\n", environment.shown(path))).collect();
        output.result(&lines.concat());
    }
    ExitCode::Passed
}

/// What the user agreed to for each file that asks for something. A worker agrees to this digest: what changed in between
/// is refused.
pub fn agreed<'t>(
    consent: &Consent,
    loaded: impl IntoIterator<Item = (&'t AbsPath, &'t Trial)>,
) -> BTreeMap<AbsPath, Digest> {
    let digest =
        |(file, trial): (&AbsPath, &Trial)| Some((file.clone(), consent.digest_for(&trial.scope.suite)?));
    loaded.into_iter().filter_map(digest).collect()
}
