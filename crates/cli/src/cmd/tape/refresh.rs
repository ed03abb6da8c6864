use crate::cmd::record::{self, Recording};
use crate::cmd::scenario_options::{failure, in_turn, say_interrupted};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, visible};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{Consent, InTurn, Trial, TrialUse};
use belljar_runner::tape::{Changed, Normaliser, Private, Tape, check_target, scenario_of, stale};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::PathBuf;

/// Record again the tapes whose scenario, skills or agent changed
///
/// Current tapes are left alone. A tape that is recorded again keeps its normalisers. The model is chosen as in `record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar tape refresh --scripted scenarios\n  \
    $ belljar tape refresh --json --scripted scenarios/hello.tape\n")]
pub struct TapeRefreshArgs {
    /// Tapes, or directories to search for them
    #[arg(required = true, value_name = "TAPE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    pub record: record::Source,
}

pub fn run(
    args: &TapeRefreshArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let tapes = super::tapes(&args.paths, environment)?;
    let opened: Vec<_> = tapes.iter().map(|path| (path, open(args, environment, path, output))).collect();
    let trials = opened.iter().filter_map(|(_, opened)| opened.as_ref().ok().map(|(_, trial)| trial));
    let consent = args.record.options.consent(trials, TrialUse::Run, environment, output)?;
    let opened = opened.into_iter().map(|(path, opened)| (path, (path, opened))).collect();
    let count = Cell::new(0_u64);
    let one = |(path, opened): (&AbsPath, Result<_, CliError>)| {
        let (refreshed, exit, row) = one(args, environment, (opened?, &consent), (path, output))?;
        count.set(count.get() + u64::from(refreshed));
        Ok((exit, row))
    };
    let all = in_turn(opened, one, "tape", environment, output)?;
    let exit = all.exit();
    let InTurn { results: rows, not_started, was_interrupted } = all;
    if output.json {
        let results: Vec<&Value> = rows.iter().map(|(_, row)| row).collect();
        let data = json!({"results": results, "refreshed": count.get(),
            "interrupted": was_interrupted, "not_started": not_started});
        output.envelope(&Envelope::new("tape", exit, data));
    } else {
        say_interrupted(was_interrupted, not_started, output);
    }
    Ok(exit)
}

fn open(
    args: &TapeRefreshArgs,
    environment: &HostEnvironment,
    path: &AbsPath,
    output: &Output,
) -> Result<(Tape, Trial), CliError> {
    let tape = Tape::open(path)?;
    let scenario = scenario_of(path, &tape.head, environment)?;
    Ok((tape, args.record.load(&scenario, environment, output)?))
}

fn one(
    args: &TapeRefreshArgs,
    environment: &HostEnvironment,
    ((tape, trial), consent): ((Tape, Trial), &Consent),
    (path, output): (&AbsPath, &Output),
) -> Result<(bool, ExitCode, Value), CliError> {
    let changed =
        stale(&trial, &tape.head, environment, consent).map_err(|error| failure(error, environment))?;
    if changed.is_empty() {
        if !output.json && !args.record.options.quiet {
            output.result(&format!("{}: current\n", environment.shown(path)));
        }
        let row = json!({"tape": path, "refreshed": false, "changed": changed});
        return Ok((false, ExitCode::Passed, row));
    }
    if !output.json {
        let why: Vec<&str> = changed.iter().map(|Changed { what, .. }| what.as_str()).collect();
        output.result(&format!("{}: {} changed\n", environment.shown(path), visible(&why.join(", "))));
    }
    check_target(path).map_err(|error| record::not_writable(&error, environment))?;
    let normalisers = tape.head.normalisers.iter().map(|name| Normaliser::parse(name));
    let normalisers: Vec<Normaliser> = normalisers
        .collect::<Result<_, _>>()
        .map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
    let recording =
        Recording { source: &args.record, trial: &trial, target: path, normalisers: &normalisers, consent };
    let recorded = record::one(&recording, environment, output)?;
    let refreshed = recorded.tape().is_some();
    let mut row = recorded.json();
    row["refreshed"] = json!(refreshed);
    row["changed"] = json!(changed);
    // A tape that was scrubbed is scrubbed again.
    let kinds: Vec<Private> =
        Private::ALL.into_iter().filter(|kind| normalisers.contains(&kind.normaliser())).collect();
    if refreshed && !kinds.is_empty() {
        let fresh = Tape::open(path)?;
        super::scrub::cleaned(&fresh, &kinds)?;
    }
    Ok((refreshed, recorded.exit(), row))
}
