use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::ExitCode;
use belljar_runner::HostEnvironment;
use belljar_runner::suite::Gates;
use serde_json::json;
use std::path::PathBuf;

/// List the questions that wait in a decider's directory
///
/// One JSON object a line: the number of the question and the question itself; then `{"done":true}` when the run has
/// ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar gates questions\n")]
pub struct GatesArgs {
    /// Directory given to `--decider-dir`
    #[arg(value_name = "DIR")]
    questions: PathBuf,
    /// Keep listing new questions until the run has ended
    #[arg(short, long)]
    follow: bool,
}

impl Command for GatesArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        false
    }
}

fn run(args: &GatesArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let failed = |error: &(dyn std::error::Error + 'static)| CliError::from_chain(ExitCode::Invalid, error);
    let path = TryOptions::path(environment, &args.questions)?;
    let mut gates = Gates::new(path).map_err(|error| failed(&error))?;
    loop {
        let done = gates.is_done();
        for gate in gates.open() {
            let mut line = json!({"seq": gate.number});
            if let Some(members) = line.as_object_mut() {
                members.extend(gate.request);
            }
            output.json_line(&line);
        }
        if done {
            output.json_line(&json!({"done": true}));
        }
        if done || !args.follow {
            return Ok(ExitCode::Passed);
        }
        gates.wait().map_err(|error| failed(&error))?;
    }
}
