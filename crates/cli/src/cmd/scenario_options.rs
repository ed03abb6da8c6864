//! Options and output that `skill`, `test`, `record` and `chat` share: deciders, model, result.

mod output;

pub use output::{failure, print_result, say_interrupted, show, warn};

use super::agree::AgreeOptions;
use super::start::SandboxOptions;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, ExitCode, PathUse, RunVerb, TimeSpan, Usd, visible};
use belljar_report::Detail;
use belljar_runner::suite::{
    Answering, CommandDecider, Consent, Conversation, DECIDER_MODEL, DirectoryDecider, InTurn, Keep,
    LastResort, LoadError, ModelWish, Person, Trial, TrialRequest, Tried, Untracked, load_policy,
    load_scenario, run_in_turn, script_beside,
};
use belljar_runner::tape::Taping;
use belljar_runner::{HostEnvironment, Model, Rule, Then, allow_tool_rule, answer_rule, deny_tool_rule};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Options of every verb that runs a trial.
#[derive(Debug, clap::Args)]
pub struct TryOptions {
    /// Answer questions matching PATTERN with LABEL; repeatable
    ///
    /// `PATTERN==TEXT` answers with free text; write a `=` of the pattern as `\=`.
    #[arg(long = "answer", value_name = "PATTERN=LABEL")]
    pub answers: Vec<String>,
    /// Allow the tool of exactly this name; repeatable
    #[arg(long, value_name = "NAME")]
    pub allow_tool: Vec<String>,
    /// Deny the tool of exactly this name, even if it is allowed; repeatable
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub deny_tool: Vec<String>,
    /// Answer with the rules of this file, after those of the scenario
    #[arg(long, value_name = "FILE")]
    pub answer_policy: Option<PathBuf>,
    /// Answer with this program, one JSON line each way; it runs outside the sandbox
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["decider_dir", "first"])]
    pub decider_cmd: Option<String>,
    /// Write questions to this directory and wait for answers there
    ///
    /// `belljar gates` lists them, `belljar answer` answers them.
    #[arg(long, value_name = "DIR", conflicts_with = "first")]
    pub decider_dir: Option<PathBuf>,
    /// Answer with a model, within the run's budget
    #[arg(long, conflicts_with_all = ["decider_cmd", "decider_dir", "first"])]
    pub decider_llm: bool,
    /// Describe your intent to the model that answers
    #[arg(long, value_name = "TEXT", requires = "decider_llm", hide_short_help = true)]
    pub intent: Option<String>,
    /// Model that answers
    #[arg(long, value_name = "MODEL", requires = "decider_llm", default_value = DECIDER_MODEL, hide_short_help = true)]
    pub decider_model: String,
    /// Time limit for an answer of a decider
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = patience, hide_short_help = true)]
    pub decider_timeout: TimeSpan,
    /// Fail, ask you or take the first option if nothing answers
    ///
    /// The `on_unanswered` of a scenario wins. By default `skill` and `chat` ask at a terminal; the others fail.
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["decider_cmd", "decider_dir", "decider_llm"])]
    pub on_unanswered: Option<WhenUnanswered>,
    /// Take the first option of a question that no rule answers; short for `--on-unanswered first`
    #[arg(long, conflicts_with = "on_unanswered", hide_short_help = true)]
    pub first: bool,
    /// Answer as the model with this script; needs no key and no tokens
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    #[command(flatten)]
    pub sandbox: SandboxOptions,
    #[command(flatten)]
    pub agree: AgreeOptions,
    /// Refuse requests that would make a run cost more than this
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub max_cost_usd: Option<Usd>,
    /// End a run after this time, overriding the scenario [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    pub timeout: Option<TimeSpan>,
    /// Stage files of skills and plugins that git does not track, too
    #[arg(long, hide_short_help = true)]
    pub include_untracked: bool,
    /// Keep the whole workspace in the run's directory
    #[arg(long)]
    pub keep: bool,
    /// Print failures only
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print everything: thoughts, whole results, the evidence behind each check
    #[arg(short, long)]
    pub verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `--on-unanswered` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WhenUnanswered {
    /// Fail the run
    Fail,
    /// Ask you at the terminal
    Ask,
    /// Take the first option
    First,
}

impl WhenUnanswered {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Ask => "ask",
            Self::First => "first",
        }
    }
}

/// Who answers if the options name no decider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastWord {
    /// No one: the question fails.
    NoOne,
    /// A person, where there is a terminal.
    PersonAtTerminal,
}

/// Who answers in the model's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plays {
    /// The provider, or the script that `--script` names.
    AsAsked,
    /// The script beside the scenario.
    ScriptBeside,
}

impl Plays {
    pub const fn scripted(scripted: bool) -> Self {
        if scripted { Self::ScriptBeside } else { Self::AsAsked }
    }
}

pub fn patience(text: &str) -> Result<TimeSpan, String> {
    TimeSpan::parse(text).map_err(|error| error.to_string())
}

fn dollars(text: &str) -> Result<Usd, String> {
    let number: f64 = text.parse().map_err(|_error| "an amount in dollars, as in 0.50".to_owned())?;
    Usd::new(number).map_err(|error| error.to_string())
}

/// What `--include-untracked` means.
pub fn untracked(included: bool) -> Untracked {
    if included { Untracked::Included } else { Untracked::LeftOut }
}

impl TryOptions {
    pub fn detail(&self) -> Detail {
        match (self.quiet || self.json, self.verbose) {
            (true, _) => Detail::Quiet,
            (false, true) => Detail::Verbose,
            (false, false) => Detail::Normal,
        }
    }

    pub fn untracked(&self) -> Untracked {
        untracked(self.include_untracked)
    }

    pub fn path(environment: &HostEnvironment, path: &PathBuf) -> Result<AbsPath, CliError> {
        let path = environment.directory.join(path);
        path.map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))
    }

    pub fn paths(environment: &HostEnvironment, paths: &[PathBuf]) -> Result<Vec<AbsPath>, CliError> {
        paths.iter().map(|path| Self::path(environment, path)).collect()
    }

    pub fn model(&self, environment: &HostEnvironment) -> Result<Model, CliError> {
        match &self.script {
            None => Ok(Model::Live),
            Some(file) => script(&Self::path(environment, file)?),
        }
    }

    pub fn answering(&self, environment: &HostEnvironment, last: LastWord) -> Result<Answering, CliError> {
        let flags = self.flag_rules()?;
        let policy = match &self.answer_policy {
            None => Vec::new(),
            Some(file) => load_policy(environment, &Self::path(environment, file)?)?,
        };
        let model = self.decider_llm.then(|| ModelWish {
            intent: self.intent.clone(),
            model: self.decider_model.clone(),
            patience: self.decider_timeout.duration(),
        });
        let mut answering = Answering { flags, policy, outside: None, model, last: self.last_resort(last)? };
        if let Some(command) = &self.decider_cmd {
            answering.outside =
                Some(Box::new(CommandDecider::new(command.clone(), self.decider_timeout.duration())));
        } else if let Some(questions) = &self.decider_dir {
            let decider =
                DirectoryDecider::new(Self::path(environment, questions)?, self.decider_timeout.duration())
                    .map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
            answering.outside = Some(Box::new(decider));
        }
        Ok(answering)
    }

    /// The rules of `--answer`, `--deny-tool` and `--allow-tool`.
    pub fn flag_rules(&self) -> Result<Vec<Rule>, CliError> {
        flag_rules(&self.answers, &self.allow_tool, &self.deny_tool)
    }

    /// What `--on-unanswered` says; without it a person at the terminal, where the verb has one.
    fn last_resort(&self, last: LastWord) -> Result<LastResort, CliError> {
        let named = self.decider_llm || self.decider_cmd.is_some() || self.decider_dir.is_some();
        let person = || match std::io::stdin().is_terminal() {
            true => Person::new().ok().map(|person| LastResort::Person(Box::new(person))),
            false => None,
        };
        match (self.on_unanswered, self.first) {
            (Some(WhenUnanswered::First), _) | (None, true) => Ok(LastResort::First),
            (Some(WhenUnanswered::Fail), _) => Ok(LastResort::Fail),
            (Some(WhenUnanswered::Ask), _) => person().ok_or_else(|| {
                CliError::new(
                    ExitCode::Invalid,
                    "`--on-unanswered ask` needs a terminal, and standard input is not one",
                )
                .hint("answer with --answer 'PATTERN=LABEL', --allow-tool NAME or --on-unanswered first")
            }),
            // Without a terminal a question that no rule answers fails.
            (None, false) if last == LastWord::PersonAtTerminal && !named => Ok(person().unwrap_or_default()),
            (None, false) => Ok(LastResort::Fail),
        }
    }

    /// Reads a scenario and what it names. Nothing is staged, and the script is not read yet.
    ///
    /// The inner error is that of the files; the outer one is that the user did not agree.
    pub fn load(
        &self,
        (file, plays): (&AbsPath, Plays),
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<Result<Trial, LoadError>, CliError> {
        let loaded = self.loaded(environment, output, |permit| load_scenario(environment, file, permit))?;
        let trial = match loaded {
            Ok(trial) => trial,
            Err(error) => return Ok(Err(error)),
        };
        let mut trial = Trial { cost: self.max_cost_usd, untracked: self.untracked(), ..trial };
        limit_time(&mut trial, self.timeout);
        match plays {
            Plays::ScriptBeside => trial.reads(PathUse::Script, script_beside(file)),
            Plays::AsAsked => {}
        }
        Ok(Ok(trial))
    }

    /// Runs a scenario unattended and prints its result.
    pub fn try_scenario(
        &self,
        trial: &Trial,
        (plays, consent): (Plays, &Consent),
        taping: Taping,
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<Tried, CliError> {
        if !self.quiet {
            warn(trial, output);
        }
        let model = match (plays, &trial.file) {
            (Plays::ScriptBeside, Some(file)) => own_script(trial, &script_beside(file), consent)?,
            (Plays::ScriptBeside, None) | (Plays::AsAsked, _) => self.model(environment)?,
        };
        let detail = self.detail();
        let tried = trial
            .run(TrialRequest {
                verb: match taping {
                    Taping::Off => RunVerb::Test,
                    Taping::On(_) => RunVerb::Record,
                },
                environment,
                model,
                sandbox: self.sandbox.asked(),
                consent,
                name: None,
                answering: self.answering(environment, LastWord::NoOne)?,
                then: Then::End,
                conversation: Conversation::Fresh,
                keep: if self.keep { Keep::Workspace } else { Keep::Changes },
                taping,
                watch: &mut |event| show(event, detail, output),
            })
            .map_err(|error| failure(error, environment))?;
        if !output.json {
            print_result(trial, &tried, self, environment, output);
        }
        Ok(tried)
    }
}

/// The rules of the command line. A denial comes before a permission for the same tool.
pub fn flag_rules(answers: &[String], allow: &[String], deny: &[String]) -> Result<Vec<Rule>, CliError> {
    let rules = answers.iter().map(|flag| (answer_rule(flag), "as in --answer 'which format=PDF'"));
    let denied = deny.iter().map(|tool| (deny_tool_rule(tool), "as in --deny-tool Bash"));
    let allowed = allow.iter().map(|tool| (allow_tool_rule(tool), "as in --allow-tool Bash"));
    let all = rules.chain(denied).chain(allowed);
    all.map(|(rule, hint)| rule.map_err(|error| CliError::from_chain(ExitCode::Invalid, &error).hint(hint)))
        .collect()
}

/// Takes the time of the command line in the place of the scenario's, where there is one.
pub fn limit_time(trial: &mut Trial, time: Option<TimeSpan>) {
    if let Some(time) = time {
        trial.scenario.timeout = Some(time.duration());
    }
}

/// A script that the suite names. Of one beyond the suite no fault quotes the text.
fn own_script(trial: &Trial, path: &AbsPath, consent: &Consent) -> Result<Model, CliError> {
    let (text, own) = trial.read_agreed(path, consent, Model::LONGEST_SCRIPT).map_err(|error| {
        let text = format!("cannot read the script {path}");
        CliError::new(ExitCode::Invalid, text).caused_by(&error)
    })?;
    Model::script_text(&text).map_err(|error| match own {
        true => {
            let text = format!("{path} is not a script");
            CliError::new(ExitCode::Invalid, text).caused_by(&error)
        }
        false => {
            let text =
                format!("`{path}` cannot be played; it lies beyond the suite, so its text is not shown");
            CliError::new(ExitCode::Invalid, text)
        }
    })
}

fn script(path: &AbsPath) -> Result<Model, CliError> {
    Model::script(path).map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))
}

/// What came of one file among others; `what` says which kind of file it is.
pub fn among_others(
    found: Result<(ExitCode, Value), CliError>,
    environment: &HostEnvironment,
    (what, path): (&str, &AbsPath),
    output: &Output,
) -> (ExitCode, Value) {
    found.unwrap_or_else(|error| {
        if !output.json {
            output.say(&format!("{}: {}\n", environment.shown(path), visible(&error.line())));
        }
        (error.exit(), json!({what: path, "exit_code": error.exit().code(), "error": error.line()}))
    })
}

/// Runs one after another, until an interrupt. One bad file does not stop the others; alone, it is the error of the verb.
pub fn in_turn<T>(
    opened: Vec<(&AbsPath, T)>,
    mut one: impl FnMut(T) -> Result<(ExitCode, Value), CliError>,
    what: &str,
    environment: &HostEnvironment,
    output: &Output,
) -> Result<InTurn<Value>, CliError> {
    let alone = opened.len() == 1;
    let mut failed = None;
    let all = run_in_turn(opened, |(path, item)| match one(item) {
        Err(error) if alone => {
            let exit = error.exit();
            failed = Some(error);
            (exit, Value::Null)
        }
        found => among_others(found, environment, (what, path), output),
    });
    match failed {
        Some(error) => Err(error),
        None => all.map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error)),
    }
}
