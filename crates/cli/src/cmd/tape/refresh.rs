use crate::cmd::many::{self, ManyOptions};
use crate::cmd::record::{self, ManyRecordings, Recording};
use crate::cmd::scenario_options::failure;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Digest, ExitCode};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{Consent, SuiteOutcome, SuiteVerb, Trial, TrialUse, selected};
use belljar_runner::tape::{Normaliser, Private, Tape, check_target, scenario_of, stale};
use serde_json::{Value, json};
use std::collections::BTreeMap;
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
    many: ManyOptions,
    #[command(flatten)]
    pub record: record::Source,
}

pub fn run(
    args: &TapeRefreshArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    args.many.begin()?;
    let tapes = super::tapes(&args.paths, environment)?;
    let tapes = selected(tapes, args.many.filter.as_deref(), ("tapes", environment))?;
    if args.many.list {
        return Ok(many::list(SuiteVerb::Refresh, (&tapes, &[]), environment, output));
    }
    let outcome = match tapes.as_slice() {
        [path] => alone(args, environment, path, output)?,
        _ => {
            let many = &args.many;
            let recordings =
                ManyRecordings { verb: SuiteVerb::Refresh, files: &tapes, many, options: Vec::new() };
            let agree = || agree(args, environment, &tapes, output);
            args.record.together(recordings, agree, environment, output)?
        }
    };
    let refreshed = outcome.jobs.iter().filter(|job| job.row["refreshed"] == true).count();
    Ok(many::finish(SuiteVerb::Refresh, &outcome, &[("refreshed", json!(refreshed))], output))
}

/// Has the user agree to what the scenarios of all tapes ask for. A tape that cannot be used is reported by its own worker.
fn agree(
    args: &TapeRefreshArgs,
    environment: &HostEnvironment,
    tapes: &[AbsPath],
    output: &Output,
) -> Result<BTreeMap<AbsPath, Digest>, CliError> {
    let options = &args.record.options;
    let mut loaded: Vec<(&AbsPath, Trial)> = Vec::new();
    for path in tapes {
        let found = Tape::open(path).ok();
        let Some(file) = found.and_then(|tape| scenario_of(path, &tape.head, environment).ok()) else {
            continue;
        };
        loaded.extend(args.record.load(&file, environment, output)?.ok().map(|trial| (path, trial)));
    }
    let trials = loaded.iter().map(|(_, trial)| trial);
    let consent = options.consent(trials, TrialUse::Run, environment, output)?;
    Ok(many::agreed(&consent, loaded.iter().map(|(path, trial)| (*path, trial))))
}

/// One tape, in this process, with everything it says.
fn alone(
    args: &TapeRefreshArgs,
    environment: &HostEnvironment,
    path: &AbsPath,
    output: &Output,
) -> Result<SuiteOutcome, CliError> {
    let tape = Tape::open(path)?;
    let scenario = scenario_of(path, &tape.head, environment)?;
    let trial = args.record.load(&scenario, environment, output)??;
    let consent = args.record.options.consent([&trial], TrialUse::Run, environment, output)?;
    many::alone(|| one(args, environment, (&tape, &trial, &consent), (path, output)))
}

fn one(
    args: &TapeRefreshArgs,
    environment: &HostEnvironment,
    (tape, trial, consent): (&Tape, &Trial, &Consent),
    (path, output): (&AbsPath, &Output),
) -> Result<(ExitCode, Value), CliError> {
    let agent = args.record.options.agent.asked();
    let compared = stale(trial, &tape.head, environment, (consent, agent.as_ref()))
        .map_err(|error| failure(error, environment))?;
    let changed = compared.changed;
    let current =
        json!({"tape": path, "refreshed": false, "changed": changed, "exit_code": ExitCode::Passed.code()});
    if !output.json && (!changed.is_empty() || !args.record.options.quiet) {
        output.result(&record::refresh_text(&current, &environment.shown(path)));
    }
    if changed.is_empty() {
        return Ok((ExitCode::Passed, current));
    }
    check_target(path).map_err(|error| record::not_writable(&error, environment))?;
    let normalisers = tape.head.normalisers.iter().map(|name| Normaliser::parse(name));
    let normalisers: Vec<Normaliser> = normalisers
        .collect::<Result<_, _>>()
        .map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
    let recording =
        Recording { source: &args.record, trial, target: path, normalisers: &normalisers, consent };
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
    Ok((recorded.exit(), row))
}
