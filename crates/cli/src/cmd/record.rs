use super::many::{self, ManyOptions, Suite, option};
use super::scenario_options::{Plays, TryOptions, say_skipped};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Conclusion, Digest, ExitCode, TapeLeak, TapeLeaks, TapeNormaliser, visible};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{
    Consent, Discovered, JobResult, LoadError, SuiteOutcome, SuiteVerb, Trial, TrialUse, scenario_files,
};
use belljar_runner::tape::{
    Changed, Failing, Normaliser, Normalisers, Recorded, TapeWriteError, Taping, check_target,
    finds_its_scenario, sharing_a_tape, tape_beside,
};
use serde_json::{Value, from_value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Record scenarios, so that they can be replayed without a model
///
/// Each scenario is run and judged as by `test`, and every exchange with the model is kept on a tape beside it,
/// NAME.tape. A run that did not pass is not recorded. An older tape is replaced only by a whole new one. If no
/// tape can be made, the run itself is kept. Secrets that belljar knows are replaced by their names. Several scenarios are
/// recorded at once; each has a tape of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar record --scripted scenarios/hello.yaml\n  \
    $ belljar record --json --scripted scenarios -k hello --out tapes\n")]
pub struct RecordArgs {
    /// Scenario files, or directories to search for them
    #[arg(required = true, value_name = "SCENARIO")]
    paths: Vec<PathBuf>,
    /// Write the tapes to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    many: ManyOptions,
    /// Refused: a tape is one run
    #[arg(long, value_name = "TIMES", hide = true)]
    repeat: Option<u32>,
    /// Also normalise values that may differ in a replay: uuid, timestamp, duration
    #[arg(long = "normalise", value_name = "NAME")]
    normalise: Vec<String>,
    #[command(flatten)]
    pub source: Source,
}

/// Where the answers come from, and what is recorded of them.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// Record with the script beside each scenario, NAME.script.json, as the model
    #[arg(long, conflicts_with = "script")]
    scripted: bool,
    /// Record a run even if it did not pass; the status is 0 then, the verdict is printed
    #[arg(long)]
    allow_failing: bool,
    #[command(flatten)]
    pub options: TryOptions,
}

/// A recording of one scenario.
pub struct Recording<'a> {
    pub source: &'a Source,
    pub trial: &'a Trial,
    pub target: &'a AbsPath,
    pub normalisers: &'a [Normaliser],
    pub consent: &'a Consent,
}

/// Many recordings: of scenarios, or of tapes that are refreshed.
pub struct ManyRecordings<'a> {
    pub verb: SuiteVerb,
    pub files: &'a [AbsPath],
    pub many: &'a ManyOptions,
    /// The options of the verb for each worker.
    pub options: Vec<OsString>,
}

impl Source {
    /// Makes many recordings, each in a belljar of its own, after the user has agreed to what they ask for.
    pub fn together(
        &self,
        recordings: ManyRecordings<'_>,
        agree: impl FnOnce() -> Result<BTreeMap<AbsPath, Digest>, CliError>,
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<SuiteOutcome, CliError> {
        let Self { scripted, allow_failing, options } = self;
        let ManyRecordings { verb, files, many, options: more } = recordings;
        many::askable(&options.deciders)?;
        let agreed = agree()?;
        let suite = Suite {
            verb,
            files,
            times: 1,
            many,
            deciders: Some(&options.deciders),
            quiet: options.quiet,
            worker: &|file, questions| {
                let mut arguments = options.for_worker(questions, agreed.get(file).copied());
                arguments.extend(scripted.then(|| "--scripted".into()));
                arguments.extend(allow_failing.then(|| "--allow-failing".into()));
                arguments.extend_from_slice(&more);
                arguments
            },
            print: &|file, job| print_row((verb, file), job, environment, output),
            environment,
            output,
        };
        suite.run()
    }

    /// Loads a scenario. The inner error is that of the files; the outer one is that the user did not agree.
    pub fn load(
        &self,
        file: &AbsPath,
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<Result<Trial, LoadError>, CliError> {
        self.options.load((file, Plays::scripted(self.scripted)), environment, output)
    }
}

/// A tape names its scenario, and is refused when that lies beyond the directory that it belongs to.
fn out_of_reach(target: &AbsPath, environment: &HostEnvironment) -> CliError {
    let text = format!(
        "a tape at `{}` could not name its scenario, which lies elsewhere",
        environment.shown(target)
    );
    CliError::new(ExitCode::Invalid, text)
        .hint("record into the scenario's repository; `belljar.toml` or `.git` marks its top")
}

/// Found before the run, which may cost something.
pub(super) fn not_writable(error: &TapeWriteError, environment: &HostEnvironment) -> CliError {
    let hint = match error {
        TapeWriteError::InTheWay { path } | TapeWriteError::Foreign { path, name: _ } => {
            format!("move `{}` away, or record to another directory with --out DIR", environment.shown(path))
        }
        TapeWriteError::Busy { .. } => "wait until the other recording has ended".to_owned(),
        TapeWriteError::Write { .. } | TapeWriteError::TooLarge { .. } | TapeWriteError::ReadBack(_) => {
            "make the directory writable, or record to another one with --out DIR".to_owned()
        }
    };
    CliError::from_chain(ExitCode::Invalid, error).hint(hint)
}

impl Command for RecordArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment_with(&self.source.options.dotenv)?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.source.options.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &RecordArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    args.many.begin()?;
    if args.repeat.is_some() {
        let text = "a tape is one run of its scenario, so `record` does not repeat any";
        let hint = "`belljar test --repeat` shows how often a scenario passes";
        return Err(CliError::new(ExitCode::Invalid, text).hint(hint));
    }
    let paths = TryOptions::paths(environment, &args.paths)?;
    let Discovered { scenarios: files, skipped } =
        scenario_files(paths, args.many.filter.as_deref(), environment)?;
    say_skipped(&skipped, environment, output);
    if args.many.list {
        return Ok(many::list(
            SuiteVerb::Record,
            (&files, &[("skipped", json!(skipped))]),
            environment,
            output,
        ));
    }
    let normalisers = normalisers(&args.normalise)?;
    let out = args.out.as_ref().map(|path| TryOptions::path(environment, path)).transpose()?;
    let target = |file: &AbsPath| (file.clone(), tape_beside(file, out.as_ref()));
    let targets: Vec<(AbsPath, AbsPath)> = files.iter().map(target).collect();
    if let Some(two) = sharing_a_tape(&targets) {
        let [one, other] = two.map(|path| environment.shown(path));
        let text = format!("`{one}` and `{other}` would have the same tape");
        return Err(CliError::new(ExitCode::Invalid, text)
            .hint("rename one of them, or record them one at a time with another --out each"));
    }
    let outcome = match targets.as_slice() {
        [one] => alone(args, &normalisers, one, environment, output)?,
        _ => {
            let options = args.for_worker();
            let many = ManyRecordings { verb: SuiteVerb::Record, files: &files, many: &args.many, options };
            let plays = Plays::scripted(args.source.scripted);
            let agree = || args.source.options.agree_to_all((&files, plays), environment, output);
            args.source.together(many, agree, environment, output)?
        }
    };
    let recorded = outcome.jobs.iter().filter(|job| job.row["tape"].is_string()).count();
    Ok(many::finish(
        SuiteVerb::Record,
        &outcome,
        &[("recorded", json!(recorded)), ("skipped", json!(skipped))],
        output,
    ))
}

impl RecordArgs {
    /// The options for the worker of one scenario.
    fn for_worker(&self) -> Vec<OsString> {
        let Self { paths: _, out, many: _, repeat: _, normalise, source: _ } = self;
        let out = out.iter().map(|directory| option("--out", directory));
        let normalise = normalise.iter().map(|name| option("--normalise", name));
        out.chain(normalise).collect()
    }
}

/// One scenario, in this process, with everything it says.
fn alone(
    args: &RecordArgs,
    normalisers: &[Normaliser],
    (file, target): &(AbsPath, AbsPath),
    environment: &HostEnvironment,
    output: &Output,
) -> Result<SuiteOutcome, CliError> {
    if !finds_its_scenario(target, file, environment) {
        return Err(out_of_reach(target, environment));
    }
    check_target(target).map_err(|error| not_writable(&error, environment))?;
    let trial = &args.source.load(file, environment, output)??;
    let consent = &args.source.options.consent([trial], TrialUse::Run, environment, output)?;
    many::alone(|| {
        let recording = Recording { source: &args.source, trial, target, normalisers, consent };
        let recorded = one(&recording, environment, output)?;
        Ok((recorded.exit(), recorded.json()))
    })
}

/// The usual ones, and those that were asked for.
fn normalisers(wanted: &[String]) -> Result<Vec<Normaliser>, CliError> {
    let mut all = Normaliser::defaults();
    for name in wanted {
        let one = Normaliser::parse(name).map_err(|error| {
            let known: Vec<&str> = Normaliser::ALL.iter().map(|one| one.name()).collect();
            CliError::from_chain(ExitCode::Invalid, &error).hint(format!("there are {}", known.join(", ")))
        })?;
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.sort_unstable();
    Ok(all)
}

pub(super) fn one(
    recording: &Recording<'_>,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<Recorded, CliError> {
    let Recording { source, trial, target, normalisers, consent } = *recording;
    let options = &source.options;
    let suite = trial.session.normalise.clone();
    let taping = Taping::On(Normalisers { built_in: normalisers.to_vec(), suite });
    let plays = Plays::scripted(source.scripted);
    let tried = options.try_scenario(trial, (plays, consent), taping, environment, output)?;
    let failing = if source.allow_failing { Failing::Recorded } else { Failing::NotRecorded };
    let recorded = Recorded::of(trial, tried, normalisers, (target, failing), (environment, consent));
    let matters = recorded.tape().is_none() || !recorded.changed_meanwhile.is_empty();
    let said = !output.json && (matters || !options.quiet);
    if said && recorded.conclusion != Conclusion::Interrupted {
        output.say(&recorded_text(&RecordedRow::read(&recorded.json()), environment));
    }
    Ok(recorded)
}

/// What a row says about its tape.
struct RecordedRow {
    tape: Option<AbsPath>,
    /// Why no tape could be made of a run, and its directory.
    not_recorded: Option<(String, AbsPath)>,
    exchanges: u64,
    answered_by: BTreeMap<String, u64>,
    normalisers: Vec<TapeNormaliser>,
    leaks: TapeLeaks,
    changed_meanwhile: Vec<String>,
}

impl RecordedRow {
    /// The row of a recording, which has no members of a tape where there is none.
    fn read(row: &Value) -> Self {
        let not_recorded = &row["not_recorded"];
        let run = from_value(not_recorded["run"].clone()).ok();
        Self {
            tape: from_value(row["tape"].clone()).unwrap_or_default(),
            not_recorded: not_recorded["why"].as_str().map(str::to_owned).zip(run),
            exchanges: row["exchanges"].as_u64().unwrap_or_default(),
            answered_by: from_value(row["answered_by"].clone()).unwrap_or_default(),
            normalisers: from_value(row["normalisers"].clone()).unwrap_or_default(),
            leaks: from_value(row["leaks"].clone()).unwrap_or_default(),
            changed_meanwhile: from_value(row["changed_meanwhile"].clone()).unwrap_or_default(),
        }
    }
}

/// Says where a recording is, or why there is none.
fn recorded_text(row: &RecordedRow, environment: &HostEnvironment) -> String {
    let RecordedRow { tape, not_recorded, exchanges, answered_by, normalisers, leaks, changed_meanwhile } =
        row;
    let Some(tape) = tape else {
        let Some((why, run)) = not_recorded else {
            return "belljar: not recorded, because it did not pass; --allow-failing records it all the same\n"
                .to_owned();
        };
        let id = run.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        return format!(
            "belljar: not recorded: {}\nthe run is kept in {}; `belljar trace {id}` shows it, `belljar judge {id}` judges it \
             again\n",
            visible(why),
            environment.shown(run)
        );
    };
    let mut text = format!("recorded {exchanges} exchanges in {}\n", environment.shown(tape));
    if !answered_by.is_empty() {
        let each: Vec<String> = answered_by.iter().map(|(by, count)| format!("{count} by {by}")).collect();
        text.push_str(&format!("answers: {}\n", visible(&each.join(", "))));
    }
    for one in normalisers {
        let idle = if one.values == 0 { "; leave it out of the session" } else { "" };
        text.push_str(&format!("normaliser {}{idle}\n", visible(&one.sentence())));
    }
    for TapeLeak { exchange, kind } in &leaks.found {
        text.push_str(&format!("belljar: exchange {exchange} sent private data to the model: {kind}\n"));
    }
    for sentence in changed_meanwhile {
        text.push_str(&format!(
            "belljar: changed during the recording, which is of what was there before: {}; record it again\n",
            visible(sentence)
        ));
    }
    text
}

/// Prints what became of a recording among others.
fn print_row(
    (verb, file): (SuiteVerb, &AbsPath),
    job: &JobResult,
    environment: &HostEnvironment,
    output: &Output,
) {
    if verb == SuiteVerb::Refresh {
        output.result(&refresh_text(&job.row, &environment.shown(file)));
    }
    let ran = job.run.as_ref().is_some_and(|run| run.error.is_none());
    if ran && job.exit != ExitCode::Interrupted {
        output.say(&recorded_text(&RecordedRow::read(&job.row), environment));
    }
}

/// What changed since a tape was recorded; nothing if it could not be compared.
pub fn refresh_text(row: &Value, shown: &str) -> String {
    match from_value::<Vec<Changed>>(row["changed"].clone()) {
        Err(_) => String::new(),
        Ok(changed) if changed.is_empty() => format!("{shown}: current\n"),
        Ok(changed) => {
            let why: Vec<&str> = changed.iter().map(|Changed { what, .. }| what.as_str()).collect();
            format!("{shown}: {} changed\n", visible(&why.join(", ")))
        }
    }
}
