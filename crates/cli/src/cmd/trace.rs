use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, Lane};
use belljar_report::{Trace, render_trace};
use belljar_runner::suite::{evidence, unvouched};
use belljar_runner::{HostEnvironment, find_run};
use serde_json::json;
use std::path::PathBuf;

/// Show what a run did: tools, questions, sub-agents, files, egress, usage
///
/// A run is named by its directory, by the end of the directory's name, or by `last`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar trace last\n  $ belljar trace last --json\n")]
pub struct TraceArgs {
    /// Run to show: its directory, the end of the directory's name, or `last`
    run: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for TraceArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &TraceArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let directory = find_run(&args.run, environment)?;
    let (run, evidence) =
        evidence(&directory, Lane::Local).map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
    let mut trace = Trace::of(&evidence);
    trace.incomplete = trace.incomplete.or_else(|| unvouched(&evidence));
    let exit = if trace.incomplete.is_some() { ExitCode::Unverified } else { ExitCode::Passed };
    if output.json {
        let data = json!({"run": run.head.id, "directory": directory, "trace": trace});
        output.envelope(&Envelope::new("trace", exit, data));
    } else {
        output.result(&render_trace(&trace, output.out_style()));
    }
    Ok(exit)
}
