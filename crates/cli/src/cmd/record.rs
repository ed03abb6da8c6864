use super::scenario_options::{Plays, TryOptions, in_turn, say_interrupted, say_skipped};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Conclusion, Envelope, ExitCode, TapeLeak, visible};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{Consent, Discovered, InTurn, Trial, TrialUse, scenario_files};
use belljar_runner::tape::{
    Failing, MakeError, Normaliser, Recorded, TapeWriteError, Taping, check_target, finds_its_scenario,
    tape_beside,
};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::PathBuf;

/// Record scenarios, so that they can be replayed without a model
///
/// Each scenario is run and judged as by `test`, and every exchange with the model is kept on a tape beside it,
/// NAME.tape. A run that did not pass is not recorded. An older tape is replaced only by a whole new one. Secrets that
/// belljar knows are replaced by their names.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar record --scripted scenarios/hello.yaml\n  \
    $ belljar record --json --scripted scenarios/hello.yaml --out tapes\n")]
pub struct RecordArgs {
    /// Scenario files, or directories to search for them
    #[arg(required = true, value_name = "SCENARIO")]
    paths: Vec<PathBuf>,
    /// Write the tapes to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
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
    /// Record a run even if it did not pass
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

impl Source {
    pub fn load(
        &self,
        file: &AbsPath,
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<Trial, CliError> {
        Ok(self.options.load((file, Plays::scripted(self.scripted)), environment, output)??)
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
    let Discovered { scenarios: files, skipped } =
        scenario_files(TryOptions::paths(environment, &args.paths)?, None, environment)?;
    say_skipped(&skipped, environment, output);
    if files.len() > 1 && args.source.options.deciders.decider_dir.is_some() {
        return Err(CliError::new(
            ExitCode::Invalid,
            "one directory of questions cannot serve several recordings",
        )
        .hint("record one scenario at a time, or answer with --decider-cmd"));
    }
    let normalisers = normalisers(&args.normalise)?;
    let out = args.out.as_ref().map(|path| TryOptions::path(environment, path)).transpose()?;
    let load = |file| {
        let target = tape_beside(file, out.as_ref());
        if !finds_its_scenario(&target, file, environment) {
            return Err(out_of_reach(&target, environment));
        }
        // Before the run, which may cost something.
        check_target(&target).map_err(|error| in_the_way(&error))?;
        Ok((args.source.load(file, environment, output)?, target))
    };
    let loaded: Vec<_> = files.iter().map(|file| (file, load(file))).collect();
    let trials = loaded.iter().filter_map(|(_, loaded)| loaded.as_ref().ok().map(|(trial, _)| trial));
    let consent = &args.source.options.consent(trials, TrialUse::Run, environment, output)?;
    let count = Cell::new(0_u64);
    let one = |loaded: Result<(Trial, AbsPath), CliError>| {
        let (trial, target) = &loaded?;
        let normalisers = &normalisers;
        let recording = Recording { source: &args.source, trial, target, normalisers, consent };
        let recorded = one(&recording, environment, output)?;
        count.set(count.get() + u64::from(recorded.tape.is_some()));
        Ok((recorded.exit(), recorded.json()))
    };
    let all = in_turn(loaded, one, "file", environment, output)?;
    let exit = all.exit();
    let InTurn { results: rows, not_started, was_interrupted } = all;
    if output.json {
        let results: Vec<&Value> = rows.iter().map(|(_, row)| row).collect();
        let data = json!({"results": results, "recorded": count.get(),
            "interrupted": was_interrupted, "not_started": not_started});
        output.envelope(&Envelope::new("record", exit, data));
    } else {
        say_interrupted(was_interrupted, not_started, output);
    }
    Ok(exit)
}

fn in_the_way(error: &TapeWriteError) -> CliError {
    CliError::from_chain(ExitCode::Invalid, error)
        .hint("nothing was run; move it away, or write with --out DIR")
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
    let taping = Taping::On(normalisers.to_vec());
    let plays = Plays::scripted(source.scripted);
    let tried = options.try_scenario(trial, (plays, consent), taping, environment, output)?;
    let failing = if source.allow_failing { Failing::Recorded } else { Failing::NotRecorded };
    let recorded = Recorded::of(trial, tried, normalisers, (target, failing)).map_err(not_made)?;
    let Recorded { tape, answered_by, taped, .. } = &recorded;
    if tape.is_none() && !output.json && recorded.conclusion != Conclusion::Interrupted {
        output
            .say("belljar: not recorded, because it did not pass; --allow-failing records it all the same\n");
    }
    if let Some(tape) = tape
        && !output.json
        && !options.quiet
    {
        output.say(&format!("recorded {} exchanges in {}\n", taped.exchanges, environment.shown(tape)));
        if !answered_by.is_empty() {
            let each: Vec<String> =
                answered_by.iter().map(|(by, count)| format!("{count} by {by}")).collect();
            output.say(&format!("answers: {}\n", visible(&each.join(", "))));
        }
        for TapeLeak { exchange, kind } in &taped.leaks.found {
            output.say(&format!("belljar: exchange {exchange} sent private data to the model: {kind}\n"));
        }
    }
    Ok(recorded)
}

fn not_made(error: MakeError) -> CliError {
    let hint = match &error {
        MakeError::Exchanges { .. }
        | MakeError::Read { .. }
        | MakeError::Inputs { .. }
        | MakeError::NoFile => None,
        MakeError::Write(_) => Some("what was recorded before is unchanged"),
    };
    let error = CliError::from_chain(ExitCode::Unverified, &error);
    hint.into_iter().fold(error, CliError::hint)
}
