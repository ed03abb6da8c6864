use super::super::scenario_options::TryOptions;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::tape::har;
use belljar_runner::{HostEnvironment, write_new};
use serde_json::json;
use std::path::PathBuf;

/// Write the exchanges of a tape for other tools
///
/// Writes an HTTP archive (HAR 1.2), which the developer tools of browsers open. Values that the tape has as digests remain
/// digests. An existing file is never overwritten.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar tape export scenarios/hello.tape --har hello.har\n")]
pub struct TapeExportArgs {
    /// Tape to export
    tape: PathBuf,
    /// Archive to write
    #[arg(long, value_name = "FILE")]
    har: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(
    args: &TapeExportArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let tape = super::open(&args.tape, environment)?;
    let archive = har(&tape).map_err(|error| CliError::from_chain(ExitCode::Unverified, &error))?;
    let path = TryOptions::path(environment, &args.har)?;
    write_new(&path, &format!("{archive:#}\n"))
        .map_err(|error| CliError::from_chain(ExitCode::Invalid, &error).hint("name a new file"))?;
    if output.json {
        let data = json!({"tape": tape.directory(), "written": path, "exchanges": tape.exchanges.len()});
        output.envelope(&Envelope::new("tape", ExitCode::Passed, data));
    } else {
        output.result(&format!("{} has {} exchanges\n", environment.shown(&path), tape.exchanges.len()));
    }
    Ok(ExitCode::Passed)
}
