use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{AskingState, DirectoryError, Gates, GatesWake};
use serde_json::json;
use std::path::PathBuf;

/// List the questions that wait in a decider's directory
///
/// One JSON object a line: the number of the question (`seq`), its name for `belljar answer --gate` (`gate`) and the
/// question itself; then `{"done":true}` when the run has ended. With --json it is one object with all questions. The
/// status is 0, 1 if the run ended without marking its end, 2 if no decider has asked in the directory, 130 after a signal.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar gates questions\n")]
pub struct GatesArgs {
    /// Directory given to `--decider-dir`
    #[arg(value_name = "DIR")]
    questions: PathBuf,
    /// Keep listing new questions until the run has ended; the run may begin later
    #[arg(short, long)]
    follow: bool,
    /// Print one JSON object; cannot be used with --follow
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
    let path = TryOptions::path(environment, &args.questions)?;
    let mut gates = match args.follow {
        true => Gates::follow(path),
        false => Gates::new(path),
    }
    .map_err(unusable)?;
    loop {
        // Asked first: what is written between the two is not missed.
        let state = gates.state();
        let mut questions = Vec::new();
        for gate in gates.open() {
            let mut line = json!({"seq": gate.name.number, "gate": gate.name.to_string()});
            if let Some(members) = line.as_object_mut() {
                members.extend(gate.request);
            }
            if output.json { questions.push(line) } else { output.json_line(&line) }
        }
        let done = state != AskingState::Asking;
        let exit = if state == AskingState::Lost { ExitCode::Failed } else { ExitCode::Passed };
        if output.json {
            let data = json!({"questions": questions, "done": done, "lost": state == AskingState::Lost});
            output.envelope(&Envelope::new("gates", exit, data));
        } else if done {
            output.json_line(&json!({"done": true}));
        }
        if state == AskingState::Lost && !output.json {
            output.say("belljar: the run that asked has ended without marking its end");
        }
        if done || !args.follow {
            return Ok(exit);
        }
        match gates.wait().map_err(|cause| CliError::io("cannot watch the directory", cause))? {
            GatesWake::Changed => {}
            GatesWake::Interrupted => return Ok(ExitCode::Interrupted),
        }
    }
}

fn unusable(error: DirectoryError) -> CliError {
    let hint = match &error {
        DirectoryError::NoQuestions { .. } => Some("name the directory that a run got with --decider-dir"),
        DirectoryError::Used { .. } | DirectoryError::Use { .. } => None,
    };
    hint.into_iter().fold(CliError::from_chain(ExitCode::Invalid, &error), CliError::hint)
}
