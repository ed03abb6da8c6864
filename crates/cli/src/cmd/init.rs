use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::{Planner, starting, write_new};
use serde_json::json;

/// Write a commented starting manifest
///
/// The manifest declares one agent, with what was found in the project and in your agent directory. An existing
/// manifest is never overwritten.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar init --stdout\n")]
pub struct InitArgs {
    /// Print the manifest instead of writing it
    #[arg(long)]
    stdout: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for InitArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.planner()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &InitArgs, planner: &Planner, output: &Output) -> Result<ExitCode, CliError> {
    let (path, text) = starting(planner);
    if args.stdout && output.json {
        let data = json!({"written": null, "text": text});
        output.envelope(&Envelope::new("init", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    if args.stdout {
        output.file(&text);
        return Ok(ExitCode::Passed);
    }
    write_new(&path, &text)?;
    if output.json {
        output.envelope(&Envelope::new("init", ExitCode::Passed, json!({"written": path})));
        return Ok(ExitCode::Passed);
    }
    let shown = planner.environment().shown(&path);
    output.result(&format!("{shown} was written; read it, then try `belljar plan`\n"));
    Ok(ExitCode::Passed)
}
