use super::agree::{AgreeOptions, Agreeing};
use super::scenario_options::{AnswerOptions, LastWord, TryOptions};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode, SandboxChoice, visible};
use belljar_runner::suite::{
    Rehearsal, RehearsalError, RehearsalRequest, Rehearsed, RehearsedAnswer, TrialUse, load_scenario,
    rehearse,
};
use belljar_runner::{HostEnvironment, Model, Unanswered};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Rehearse one question: who would answer it, and how
///
/// No agent runs. The deciders are asked as in a run: rules, a program, a directory, a model, you. The status is 0 if there
/// is an answer, and 1 if not or if the decider failed; then its reason and rules that would answer are printed. It is 130
/// after a signal.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("asked").required(true),
    after_help = "Examples:\n  $ belljar decide --question \"Which format?\" --option PDF --option HTML --answer \"format=HTML\"\n  $ belljar decide --tool Bash --input '{\"command\": \"ls\"}' --strict\n"
)]
pub struct DecideArgs {
    /// Text of the question
    #[arg(long, value_name = "TEXT", group = "asked")]
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
    /// Ask for permission to run this tool; `AskUserQuestion` with the `questions` of `--input` asks several at once
    #[arg(long, value_name = "NAME", group = "asked")]
    tool: Option<String>,
    /// Input of the tool, as JSON
    #[arg(long, value_name = "JSON", requires = "tool")]
    input: Option<String>,
    /// Use the answers of this scenario and the `permission_parity` of its session
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    deciders: AnswerOptions,
    /// Answer as the model of `--decider-llm` with this script; needs no key and no tokens
    #[arg(long, value_name = "FILE", requires = "decider_llm")]
    script: Option<PathBuf>,
    /// Deny tools that no rule names
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    agree: AgreeOptions,
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
    let question = question(args)?;
    let path = |file: &PathBuf| TryOptions::path(environment, file);
    let scenario = match &args.scenario {
        None => None,
        Some(file) => {
            let file = path(file)?;
            let agreeing = Agreeing {
                options: &args.agree,
                sandbox: &SandboxChoice::default(),
                used_for: TrialUse::Inspect,
                environment,
                output,
            };
            Some(agreeing.load(|permit| load_scenario(environment, &file, permit))??)
        }
    };
    let model = match &args.script {
        None => Model::Absent,
        Some(file) => belljar_runner::suite::load_script(environment, &path(file)?)?,
    };
    let rehearsed = rehearse(RehearsalRequest {
        question,
        scenario: scenario.as_ref(),
        strict: args.strict,
        answering: args.deciders.answering(environment, LastWord::NoOne)?,
        model,
    });
    match rehearsed.map_err(not_rehearsed)? {
        Rehearsed::Answered(answer) => Ok(answered(&answer, output)),
        Rehearsed::Open(open) => Ok(left_open(&open, output)),
        Rehearsed::Interrupted => {
            if output.json {
                output.envelope(&Envelope::new("decide", ExitCode::Interrupted, json!({"answered": false})));
            }
            Ok(ExitCode::Interrupted)
        }
    }
}

fn question(args: &DecideArgs) -> Result<Rehearsal, CliError> {
    let invalid = |message: String| CliError::new(ExitCode::Invalid, message);
    let input: Map<String, Value> = match &args.input {
        None => Map::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| invalid(format!("`--input` is not a JSON object: {error}")))?,
    };
    match (&args.question, &args.tool) {
        (Some(question), _) => Ok(Rehearsal::question(question, &args.header, &args.options, args.multi)),
        (None, Some(tool)) => Ok(Rehearsal::tool(tool, input)),
        (None, None) => Err(invalid("name a question or a tool".to_owned())),
    }
}

fn answered(RehearsedAnswer { what, by, reason }: &RehearsedAnswer, output: &Output) -> ExitCode {
    if output.json {
        let data = json!({"answered": true, "answer": what, "by": by, "reason": reason});
        output.envelope(&Envelope::new("decide", ExitCode::Passed, data));
    } else {
        output.result(&format!("{}  ({by}: {})\n", visible(what), visible(reason)));
    }
    ExitCode::Passed
}

fn left_open(Unanswered { about: _, notes, paste }: &Unanswered, output: &Output) -> ExitCode {
    if output.json {
        let data = json!({"answered": false, "notes": notes, "paste": paste});
        output.envelope(&Envelope::new("decide", ExitCode::Failed, data));
        return ExitCode::Failed;
    }
    let mut text = "no decider answers this\n".to_owned();
    notes.iter().for_each(|note| text.push_str(&format!("  {}\n", visible(note))));
    if let Some(paste) = paste {
        text.push_str("these lines in `answers` would:\n");
        paste.lines().for_each(|line| text.push_str(&format!("  {}\n", visible(line))));
    }
    output.result(&text);
    ExitCode::Failed
}

fn not_rehearsed(error: RehearsalError) -> CliError {
    let (exit, hint) = match &error {
        RehearsalError::NoScript => (ExitCode::Invalid, Some("name a script with --script FILE")),
        RehearsalError::Script(_) => (ExitCode::Invalid, None),
        RehearsalError::Signals(_) | RehearsalError::Start(_) => (ExitCode::LaunchFailed, None),
    };
    hint.into_iter().fold(CliError::from_chain(exit, &error), CliError::hint)
}
