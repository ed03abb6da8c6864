use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::Gates;
use serde_json::json;
use std::path::PathBuf;

/// List the questions that wait in a decider's directory
///
/// One JSON object a line: the number of the question and the question itself; then `{"done":true}` when the run has
/// ended. With --json it is one object with all questions.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar gates questions\n")]
pub struct GatesArgs {
    /// Directory given to `--decider-dir`
    #[arg(value_name = "DIR")]
    questions: PathBuf,
    /// Keep listing new questions until the run has ended
    #[arg(short, long)]
    follow: bool,
    /// Print one JSON object; a list that goes on is printed without it
    #[arg(long, conflicts_with = "follow")]
    json: bool,
}

impl Command for GatesArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &GatesArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let failed = |error: &(dyn std::error::Error + 'static)| CliError::from_chain(ExitCode::Invalid, error);
    let path = TryOptions::path(environment, &args.questions)?;
    let mut gates = Gates::new(path).map_err(|error| failed(&error))?;
    loop {
        let done = gates.is_done();
        let mut questions = Vec::new();
        for gate in gates.open() {
            let mut line = json!({"seq": gate.number});
            if let Some(members) = line.as_object_mut() {
                members.extend(gate.request);
            }
            if output.json { questions.push(line) } else { output.json_line(&line) }
        }
        if output.json {
            let data = json!({"questions": questions, "done": done});
            output.envelope(&Envelope::new("gates", ExitCode::Passed, data));
        } else if done {
            output.json_line(&json!({"done": true}));
        }
        if done || !args.follow {
            return Ok(ExitCode::Passed);
        }
        gates.wait().map_err(|error| failed(&error))?;
    }
}
