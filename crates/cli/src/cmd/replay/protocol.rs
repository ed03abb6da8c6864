//! Judging recordings again without running anything.

use super::text::{basis_text, mutation_text, stale_hint};
use super::{ReplayArgs, across, shown_by, stale_rule};
use crate::cmd::agree::to_type;
use crate::cmd::many;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Conclusion, ExitCode, visible};
use belljar_report::render_judgement;
use belljar_runner::suite::{JobResult, SuiteOutcome, SuiteVerb};
use belljar_runner::tape::{
    Changed, Mutate, RejudgePool, Rejudged, Rejudging, Scenarios, cassette, rejudge, rejudge_many,
};
use belljar_runner::{AgreementStanding, Agreements, HostEnvironment};

/// Judges recordings again. One bad tape does not stop the others; alone, it is the error of the verb.
pub(super) fn rejudge_all(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    tapes: &[AbsPath],
    output: &Output,
) -> Result<SuiteOutcome, CliError> {
    let scenarios = Scenarios::default();
    let agreements = Agreements::new(&environment.config);
    let how = Rejudging {
        mutate: if args.mutate { Mutate::Yes } else { Mutate::No },
        stale: stale_rule(args),
        across: across(args),
        permit: &|wishes| {
            args.agree.yes || matches!(agreements.standing(wishes), Ok(AgreementStanding::Agreed))
        },
    };
    if let [tape] = tapes {
        let read = rejudge(tape, environment, &scenarios, how)?;
        print_rejudged(args, environment, tape, &read, output);
        return Ok(SuiteOutcome::alone(read.exit(), read.json()));
    }
    let mut jobs = Vec::new();
    let pool = RejudgePool { at_once: args.many.jobs, fail_fast: args.many.fail_fast };
    let end = rejudge_many(tapes, (environment, &scenarios), how, pool, &mut |path, read| {
        let (exit, row) = match read.map_err(CliError::from) {
            Ok(read) => {
                print_rejudged(args, environment, path, &read, output);
                (read.exit(), read.json())
            }
            Err(error) => {
                let line = error.line();
                if !output.json {
                    output.say(&format!("{}: {}\n", environment.shown(path), visible(&line)));
                }
                (error.exit(), SuiteVerb::Replay.row_of_error(path, error.exit(), &line))
            }
        };
        jobs.push(JobResult { exit, row, run: None });
        exit
    });
    let end = end.map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?;
    let outcome = SuiteOutcome { jobs, end };
    if !output.json {
        output.say(&many::summary(&outcome, output));
    }
    Ok(outcome)
}

fn print_rejudged(
    args: &ReplayArgs,
    environment: &HostEnvironment,
    path: &AbsPath,
    read: &Rejudged,
    output: &Output,
) {
    let exit = read.exit();
    if !output.json && (!args.quiet || exit != ExitCode::Passed) {
        let style = output.err_style();
        let shown = shown_by(args);
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
        text.push_str(&basis_text(&read.normalise, &read.origins, shown));
        text.push_str(&read.mutations.as_ref().map(|found| mutation_text(found, style)).unwrap_or_default());
        text.push_str(&match read.cassette {
            Some(_) => cassette_hint(args, &read.changed).to_owned(),
            None => stale_hint(args, &read.changed, (&to_type(path, environment), read.trial.file.as_ref())),
        });
        let unnoticed = read.mutations.as_ref().map_or(0, |found| found.unnoticed.len());
        let meaning = match (read.found.judgement.conclusion, unnoticed) {
            (Conclusion::Passed, 1) => "1 change was not noticed".to_owned(),
            (Conclusion::Passed, 2..) => format!("{unnoticed} changes were not noticed"),
            (Conclusion::Passed, 0) if exit == ExitCode::Passed => "passed".to_owned(),
            (_, _) => exit.meaning().to_owned(),
        };
        text.push_str(&format!("{}: {meaning}\n", environment.shown(path)));
        output.say(&text);
    }
    if read.cassette.is_some() && !output.json && !args.quiet {
        output.say(&format!("note: {}\n", cassette::UNSAID));
    }
}

/// A cassette cannot be recorded again here.
fn cassette_hint(args: &ReplayArgs, changed: &[Changed]) -> &'static str {
    match !args.allow_stale && !changed.is_empty() {
        true => "hint: --allow-stale judges the cassette by the scenario that is frozen in it\n",
        false => "",
    }
}
