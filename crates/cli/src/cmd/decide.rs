use super::scenario_options::TryOptions;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, visible};
use belljar_runner::suite::{Rehearsal, load_scenario_alone, rehearse};
use belljar_runner::{HostEnvironment, answer_rule};
use serde_json::json;
use std::path::PathBuf;

/// Rehearse one question: who would answer it, and how
///
/// No agent runs. The status is 0 if there is an answer, and 1 if not; then rules that would answer it are printed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar decide --question \"Which format?\" --option PDF --option HTML --answer \"format=HTML\"\n  $ belljar decide --tool Bash --input '{\"command\": \"ls\"}' --strict\n"
)]
pub struct DecideArgs {
    /// Text of the question
    #[arg(long, value_name = "TEXT", conflicts_with = "tool", required_unless_present = "tool")]
    question: Option<String>,
    /// Header of the question
    #[arg(long, value_name = "TEXT", default_value = "", requires = "question")]
    header: String,
    /// Option of the question; repeatable
    #[arg(long = "option", value_name = "LABEL", requires = "question")]
    options: Vec<String>,
    /// Allow several options
    #[arg(long, requires = "question")]
    multi: bool,
    /// Ask for permission to run this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Input of the tool, as JSON
    #[arg(long, value_name = "JSON", requires = "tool")]
    input: Option<String>,
    /// Use the answers of this scenario
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Use the rules of this answer policy
    #[arg(long, value_name = "FILE")]
    answer_policy: Option<PathBuf>,
    /// Use this answer; repeatable
    #[arg(long = "answer", value_name = "PATTERN=LABEL")]
    answers: Vec<String>,
    /// Take the first option when no rule answers
    #[arg(long)]
    first: bool,
    /// Deny tools that no rule names
    #[arg(long)]
    strict: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for DecideArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment()?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &DecideArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let invalid = |message: String| CliError::new(ExitCode::Invalid, message);
    let input = match &args.input {
        None => serde_json::Map::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| invalid(format!("`--input` is not a JSON object: {error}")))?,
    };
    let mut rules = args
        .answers
        .iter()
        .map(|flag| answer_rule(flag).map_err(|error| CliError::from_chain(ExitCode::Invalid, &error)))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(file) = &args.scenario {
        rules.extend(load_scenario_alone(environment, &TryOptions::path(environment, file)?)?.rules);
    }
    if let Some(file) = &args.answer_policy {
        let path = TryOptions::path(environment, file)?;
        rules.extend(belljar_runner::suite::load_policy(environment, &path)?);
    }
    let rehearsal = match (&args.question, &args.tool) {
        (Some(question), _) => Rehearsal::question(question, &args.header, &args.options, args.multi),
        (None, Some(tool)) => Rehearsal::tool(tool, input),
        (None, None) => return Err(invalid("name a question or a tool".to_owned())),
    };
    match rehearse(rehearsal, rules, args.strict, args.first) {
        Ok(answer) => {
            if output.json {
                let data = json!({"answered": true, "answer": answer.what, "by": answer.by, "reason": answer.reason});
                output.envelope(&Envelope::new("decide", ExitCode::Passed, data));
            } else {
                let (what, reason) = (visible(&answer.what), visible(&answer.reason));
                output.result(&format!("{what}  ({}: {reason})\n", answer.by));
            }
            Ok(ExitCode::Passed)
        }
        Err(open) => {
            if output.json {
                let data = json!({"answered": false, "notes": open.notes, "paste": open.paste});
                output.envelope(&Envelope::new("decide", ExitCode::Failed, data));
            } else {
                let mut text = "no rule answers this\n".to_owned();
                open.notes.iter().for_each(|note| text.push_str(&format!("  {}\n", visible(note))));
                if let Some(paste) = &open.paste {
                    text.push_str("these lines in `answers` would:\n");
                    paste.lines().for_each(|line| text.push_str(&format!("  {}\n", visible(line))));
                }
                output.result(&text);
            }
            Ok(ExitCode::Failed)
        }
    }
}
