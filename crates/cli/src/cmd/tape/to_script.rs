use super::super::scenario_options::TryOptions;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, visible};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{Overwrite, Scaffold};
use belljar_runner::tape::{ScriptOfTape, to_script};
use serde_json::json;
use std::path::PathBuf;

/// Turn the model's recorded answers into a script that can be edited
///
/// `belljar test --script FILE SCENARIO` plays it. The script answers at once, without the pauses of the
/// recording. Each other part of the recording that a script cannot express is a warning, and the status is 3 then: an
/// answer that was broken off, a redacted value, an answer that neither the model nor the scenario gave.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar tape to-script scenarios/hello.tape\n  \
    $ belljar tape to-script scenarios/hello.tape --out edited.json --force --json\n")]
pub struct TapeToScriptArgs {
    /// Tape to convert
    tape: PathBuf,
    /// Write the script to a file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long, requires = "out")]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(
    args: &TapeToScriptArgs,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<ExitCode, CliError> {
    let tape = super::open(&args.tape, environment)?;
    let ScriptOfTape { script, text, warnings } =
        to_script(&tape).map_err(|error| CliError::from_chain(ExitCode::Unverified, &error))?;
    let out = args.out.as_ref().map(|path| TryOptions::path(environment, path)).transpose()?;
    if let Some(path) = &out {
        let overwrite = if args.force { Overwrite::Always } else { Overwrite::Never };
        Scaffold { files: vec![(path.clone(), text.clone())], notes: Vec::new() }.write(overwrite)?;
    }
    let exit = if warnings.is_empty() { ExitCode::Passed } else { ExitCode::Unverified };
    if output.json {
        let script = out.is_none().then_some(&script);
        let data = json!({"tape": tape.directory(), "written": out, "script": script, "warnings": warnings});
        output.envelope(&Envelope::new("tape", exit, data));
        return Ok(exit);
    }
    match &out {
        Some(path) => {
            let count = script.turns.len();
            output.result(&format!("{} has {count} turns\n", visible(&environment.shown(path))));
        }
        None => output.file(&text),
    }
    warnings.iter().for_each(|warning| output.say(&format!("warning: {}\n", visible(warning))));
    Ok(exit)
}
