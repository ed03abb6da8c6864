use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, Lane};
use belljar_runner::HostEnvironment;
use belljar_runner::record::RunStore;
use belljar_runner::report::{Trace, render_trace};
use belljar_runner::suite::{evidence, unvouched};
use serde_json::json;
use std::path::PathBuf;

/// Show what a run did: tools, questions, sub-agents, files, egress, usage
///
/// A run is named by its folder, by the end of the folder's name, or by `last`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar trace last\n  $ belljar trace last --json\n")]
pub struct TraceArgs {
    /// The run
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
    let folder = find(args, environment)?;
    let (run, evidence) =
        evidence(&folder, Lane::Local).map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
    let mut trace = Trace::of(&evidence);
    trace.incomplete = trace.incomplete.or_else(|| unvouched(&evidence));
    let exit = if trace.incomplete.is_some() { ExitCode::Unverified } else { ExitCode::Passed };
    if output.json {
        let data = json!({"run": run.head.id, "directory": folder, "trace": trace});
        output.envelope(&Envelope::new("trace", exit, data));
    } else {
        output.result(&render_trace(&trace, output.out_style()));
    }
    Ok(exit)
}

fn find(args: &TraceArgs, environment: &HostEnvironment) -> Result<AbsPath, CliError> {
    let written = environment.directory.join(&args.run);
    let written = written.map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
    if written.child("run.json").as_path().is_file() {
        return Ok(written);
    }
    let store = RunStore::new(&environment.state);
    let runs = store.list().map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
    let wanted = args.run.to_string_lossy();
    let found = match &*wanted {
        "last" => runs.last(),
        text => runs.iter().rev().find(|run| run.directory.to_string().ends_with(text)),
    };
    found.map(|run| run.directory.clone()).ok_or_else(|| {
        CliError::new(ExitCode::Invalid, format!("there is no run `{wanted}`"))
            .hint(format!("runs are in {}", environment.shown_from_home(&environment.state.child("runs"))))
    })
}
