//! The subcommands of `tape`.

mod diff;
mod export;
mod refresh;
mod scrub;
mod show;
mod to_script;
mod upgrade_report;
mod verify;

use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, ExitCode};
use belljar_runner::HostEnvironment;
use belljar_runner::tape::{FindError, Tape, find_tapes, is_named_tape};
use std::path::PathBuf;

/// Check, read, compare, export, convert, clean, refresh and upgrade tapes
///
/// `belljar record` writes a tape beside each scenario. Keep tapes in version control with the code that they test.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  $ belljar tape verify scenarios\n  $ belljar tape show scenarios/hello.tape\n"
)]
pub struct TapeArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Verify(verify::TapeVerifyArgs),
    Show(show::TapeShowArgs),
    Diff(diff::TapeDiffArgs),
    Export(export::TapeExportArgs),
    ToScript(to_script::TapeToScriptArgs),
    Scrub(scrub::TapeScrubArgs),
    Refresh(Box<refresh::TapeRefreshArgs>),
    UpgradeReport(Box<upgrade_report::TapeUpgradeReportArgs>),
}

impl Command for TapeArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        let environment = match &self.what {
            What::Refresh(args) => call.environment_with(&args.record.options.dotenv)?,
            What::UpgradeReport(args) => call.environment_with(&args.dotenv)?,
            What::Verify(_)
            | What::Show(_)
            | What::Diff(_)
            | What::Export(_)
            | What::ToScript(_)
            | What::Scrub(_) => call.environment()?,
        };
        run(self, &environment, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        match &self.what {
            What::Verify(args) => args.json,
            What::Show(args) => args.json,
            What::Diff(args) => args.json,
            What::Export(args) => args.json,
            What::ToScript(args) => args.json,
            What::Scrub(args) => args.json,
            What::Refresh(args) => args.record.options.json,
            What::UpgradeReport(args) => args.json,
        }
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &TapeArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    match &args.what {
        What::Verify(args) => verify::run(args, environment, output),
        What::Show(args) => show::run(args, environment, output),
        What::Diff(args) => diff::run(args, environment, output),
        What::Export(args) => export::run(args, environment, output),
        What::ToScript(args) => to_script::run(args, environment, output),
        What::Scrub(args) => scrub::run(args, environment, output),
        What::Refresh(args) => refresh::run(args, environment, output),
        What::UpgradeReport(args) => upgrade_report::run(args, environment, output),
    }
}

/// The tapes that paths mean, each once.
fn tapes(paths: &[PathBuf], environment: &HostEnvironment) -> Result<Vec<AbsPath>, CliError> {
    let mut out = Vec::new();
    for path in paths {
        let path = TryOptions::path(environment, path)?;
        out.extend(find_tapes(&path)?);
    }
    out.sort();
    out.dedup();
    Ok(out)
}

fn open(path: &PathBuf, environment: &HostEnvironment) -> Result<Tape, CliError> {
    let path = TryOptions::path(environment, path)?;
    if !is_named_tape(&path) {
        return Err(FindError::NoTape { path }.into());
    }
    Tape::open(&path).map_err(CliError::from)
}
