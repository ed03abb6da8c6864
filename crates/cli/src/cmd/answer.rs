use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use belljar_runner::HostEnvironment;
use belljar_runner::suite::{GateError, GateName, GateReply, leave_answer};
use serde_json::json;
use std::path::PathBuf;

/// Answer a question that waits in a decider's directory
///
/// An answer that does not fit the question is not written, and a question is answered once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar answer questions --gate 1 --choose PDF\n")]
pub struct AnswerArgs {
    /// Directory given to `--decider-dir`
    #[arg(value_name = "DIR")]
    questions: PathBuf,
    /// Name of the question, as `belljar gates` prints it: its number, in a suite RUN/NUMBER
    #[arg(long, value_name = "GATE", value_parser = gate)]
    gate: GateName,
    /// Label to choose where there is one question, repeatable if several may be chosen; `allow` or `deny` for a permission
    #[arg(long, value_name = "LABEL")]
    choose: Vec<String>,
    /// Label to choose for this question; repeatable
    #[arg(long, value_name = "QUESTION=LABEL")]
    answer: Vec<String>,
    /// Answer the only question with free text, or give the message of a denial
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
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

fn gate(text: &str) -> Result<GateName, String> {
    GateName::parse(text).ok_or_else(|| "a number, or RUN/NUMBER".to_owned())
}

fn run(args: &AnswerArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let path = TryOptions::path(environment, &args.questions)?;
    let reply = GateReply { choose: &args.choose, answers: &args.answer, say: args.say.as_deref() };
    let written = leave_answer(&path, &args.gate, reply).map_err(refused)?;
    if output.json {
        output.envelope(&Envelope::new("answer", ExitCode::Passed, json!({"file": written})));
    } else {
        output.say(&format!("wrote {}", environment.shown(&written)));
    }
    Ok(ExitCode::Passed)
}

fn refused(error: GateError) -> CliError {
    let hint = match &error {
        GateError::NoDecider { .. } => Some("name the directory that a run got with --decider-dir"),
        GateError::Absent { .. } => Some("`belljar gates DIR` lists the open questions"),
        GateError::Answered { .. }
        | GateError::Ended { .. }
        | GateError::Foreign { .. }
        | GateError::Unfit(_)
        | GateError::Write { .. } => None,
    };
    hint.into_iter().fold(CliError::from_chain(ExitCode::Invalid, &error), CliError::hint)
}
