use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::leave_answer;
use serde_json::json;
use std::path::PathBuf;

/// Answer a question that waits in a decider's directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar answer questions --gate 1 --choose PDF\n")]
pub struct AnswerArgs {
    /// Directory given to `--decider-dir`
    #[arg(value_name = "DIR")]
    questions: PathBuf,
    /// Number of the question, as `belljar gates` prints it
    #[arg(long, value_name = "NUMBER")]
    gate: u64,
    /// Label to choose where there is one question; `allow` or `deny` for a permission
    #[arg(long, value_name = "LABEL")]
    choose: Vec<String>,
    /// Label to choose for this question; repeatable
    #[arg(long, value_name = "QUESTION=LABEL")]
    answer: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for AnswerArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &AnswerArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let pair = |text: &String| match text.rsplit_once('=') {
        Some((question, label)) => Ok((question.to_owned(), label.trim().to_owned())),
        None => {
            Err(CliError::new(ExitCode::Invalid, format!("`{text}` has no `=` between question and label")))
        }
    };
    let answers = args.answer.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
    let path = TryOptions::path(environment, &args.questions)?;
    let written = leave_answer(&path, args.gate, &args.choose, &answers)
        .map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
    if output.json {
        output.envelope(&Envelope::new("answer", ExitCode::Passed, json!({"file": written})));
    } else {
        output.say(&format!("wrote {}", environment.shown(&written)));
    }
    Ok(ExitCode::Passed)
}
