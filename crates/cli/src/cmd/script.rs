use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, visible};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{Overwrite, Scaffold, ScaffoldError, scaffold_script};
use serde_json::json;
use std::path::PathBuf;

/// Write a first script: answers in the place of the model, without a key
///
/// `belljar test --script FILE` plays a script, `belljar check FILE` reports every fault of one, and
/// `belljar tape to-script` makes one from a recording.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  $ belljar script new first\n  $ belljar script new scenarios/hello.yaml --force\n"
)]
pub struct ScriptArgs {
    #[command(subcommand)]
    what: Scripting,
}

#[derive(Debug, clap::Subcommand)]
enum Scripting {
    /// Write a script with one tool call and a sentence
    ///
    /// The notes in the file say what to edit. For a scenario it is the script that `test --scripted` plays, and
    /// it calls the first of the scenario's `skills`.
    #[command(
        after_help = "Examples:\n  $ belljar script new first\n  $ belljar script new scenarios/hello.yaml --force --json\n"
    )]
    New(NewScriptArgs),
}

#[derive(Debug, clap::Args)]
struct NewScriptArgs {
    /// Scenario that the script is for, or name of the script [default: first]
    #[arg(value_name = "NAME", default_value = "first", hide_default_value = true)]
    named: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Command for ScriptArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        let Scripting::New(args) = &self.what;
        new(args, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        let Scripting::New(args) = &self.what;
        args.json
    }
}

fn new(args: &NewScriptArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let named = TryOptions::path(environment, &args.named)?;
    let scaffold = scaffold_script(environment, &named)?;
    scaffold.write(if args.force { Overwrite::Always } else { Overwrite::Never }).map_err(|error| {
        let out = CliError::from_chain(ExitCode::Invalid, &error);
        match error {
            ScaffoldError::Exists { .. } => {
                out.hint("nothing was written; another NAME writes another file, --force replaces this one")
            }
            ScaffoldError::Write { .. } => out,
        }
    })?;
    let Scaffold { files, notes } = &scaffold;
    if output.json {
        let paths: Vec<_> = files.iter().map(|(path, _)| path).collect();
        let data = json!({"script": paths.first(), "notes": notes});
        output.envelope(&Envelope::new("script", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    for (path, _) in files {
        output.result(&format!("wrote {}\n", visible(&environment.shown(path))));
    }
    notes.iter().for_each(|note| output.say(&format!("note: {}", visible(note))));
    Ok(ExitCode::Passed)
}
