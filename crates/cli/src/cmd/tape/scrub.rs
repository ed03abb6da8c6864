use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, visible};
use belljar_runner::HostEnvironment;
use belljar_runner::tape::{Private, Tape, own_names, private_findings, replaceable, scrub};
use serde_json::json;
use std::path::PathBuf;

/// Remove private data from a tape
///
/// Replaces home directories, addresses and what looks like a key with marks such as [redacted:email], atomically and with
/// new digests. The tape records this, and a replay treats its requests alike, so that they still match. Data that cannot be
/// replaced is listed, and the status is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar tape scrub scenarios/hello.tape\n  \
    $ belljar tape scrub --json scenarios/hello.tape\n")]
pub struct TapeScrubArgs {
    /// Tape to clean
    tape: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(
    args: &TapeScrubArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let unread =
        |error: &(dyn std::error::Error + 'static)| CliError::from_chain(ExitCode::Unverified, error);
    let mut tape = super::open(&args.tape, environment)?;
    let kinds: Vec<Private> = replaceable(&tape).map_err(|error| unread(&error))?;
    if !kinds.is_empty() {
        tape = cleaned(&tape, &kinds)?;
    }
    let left = private_findings(&tape, &own_names(environment)).map_err(|error| unread(&error))?;
    let exit = if left.is_empty() { ExitCode::Passed } else { ExitCode::Failed };
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    if output.json {
        let data = json!({"tape": tape.directory(), "replaced": names, "left": left});
        output.envelope(&Envelope::new("tape", exit, data));
        return Ok(exit);
    }
    let shown = environment.shown(tape.directory());
    let done = match names.as_slice() {
        [] => "nothing can be replaced".to_owned(),
        names => format!("replaced {}", names.join(", ")),
    };
    output.result(&format!("{shown}: {done}\n"));
    for one in &left {
        output.result(&format!("  left: {} in {}:{}\n", one.kind, visible(&one.file), one.line));
    }
    Ok(exit)
}

pub(super) fn cleaned(tape: &Tape, kinds: &[Private]) -> Result<Tape, CliError> {
    scrub(tape, kinds).map_err(|error| {
        CliError::from_chain(ExitCode::Unverified, &error).hint("what was recorded is unchanged")
    })
}
