use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::{MANIFEST_NAME, Planner, import, write_new};
use serde_json::json;
use std::path::PathBuf;

/// Turn a `claude-bottle.json` into a manifest
///
/// The file of that name in your home, when there is one, is the base; the one you name lies on top. What
/// means something else in belljar is said in comments and on standard error. A manifest that is there is
/// never overwritten.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar import claude-bottle.json --stdout\n")]
pub struct Args {
    /// The file to import
    file: PathBuf,
    /// Print the manifest instead of writing it
    #[arg(long)]
    stdout: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "stdout")]
    pub json: bool,
}

pub fn run(args: &Args, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let directory = &planner.surroundings().directory;
    let file =
        directory.join(&args.file).map_err(|error| CliError::new(ExitCode::Invalid, error.to_string()))?;
    let (imported, files) = import(planner, &file)?;
    if args.stdout {
        output.result(&imported.toml);
    } else {
        let path = directory.child(MANIFEST_NAME);
        write_new(&path, &imported.toml)?;
        if output.json {
            let data = json!({"read": files, "written": path, "notes": imported.notes});
            output.envelope(&Envelope::new("import", ExitCode::Passed, data));
            return Ok(ExitCode::Passed);
        }
        output.result(&format!("{MANIFEST_NAME} was written from {}\n", files.join(" and ")));
    }
    for note in &imported.notes {
        output.say(&format!("note: {note}"));
    }
    Ok(ExitCode::Passed)
}
