//! Options that name who answers the agent, for every verb that runs or rehearses something.

use super::{TryOptions, patience};
use crate::cmd::many::option;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, ExitCode, TimeSpan, visible};
use belljar_runner::suite::{
    Answering, CommandDecider, DECIDER_MODEL, DirectoryDecider, LastResort, ModelWish, Person, load_policy,
};
use belljar_runner::{HostEnvironment, Rule, allow_tool_rule, answer_rule, deny_tool_rule};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Who answers the agent's questions.
#[derive(Debug, clap::Args)]
pub struct AnswerOptions {
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

impl AnswerOptions {
    /// Says where the questions of a run wait for answers.
    pub fn say_where_to_answer(&self, output: &Output) {
        if let Some(directory) = self.decider_dir.as_ref().filter(|_| !output.json) {
            let directory = directory.display().to_string();
            let directory = visible(&directory);
            output.say(&format!(
                "questions wait in {directory}: `belljar gates {directory} --follow` lists them, `belljar answer \
                 {directory} --gate NUMBER` answers one\n"
            ));
        }
    }

    pub fn answering(&self, environment: &HostEnvironment, last: LastWord) -> Result<Answering, CliError> {
        let flags = self.flag_rules()?;
        let policy = match &self.answer_policy {
            None => Vec::new(),
            Some(file) => load_policy(environment, &TryOptions::path(environment, file)?)?,
        };
        let model = self.decider_llm.then(|| ModelWish {
            intent: self.intent.clone(),
            model: self.decider_model.clone(),
            patience: self.decider_timeout.duration(),
        });
        let mut answering = Answering { flags, policy, outside: None, model, last: self.last_resort(last)? };
        if let Some(command) = &self.decider_cmd {
            let decider = CommandDecider::new(command.clone(), self.decider_timeout.duration())
                .map_err(|cause| CliError::io("cannot prepare the decider", cause))?;
            answering.outside = Some(Box::new(decider));
        } else if let Some(questions) = &self.decider_dir {
            let decider = DirectoryDecider::new(
                TryOptions::path(environment, questions)?,
                self.decider_timeout.duration(),
            )
            .map_err(|error| CliError::from_chain(ExitCode::Invalid, &error))?;
            answering.outside = Some(Box::new(decider));
        }
        Ok(answering)
    }

    /// The rules of `--answer`, `--deny-tool` and `--allow-tool`. A denial comes before a permission for the same tool.
    pub fn flag_rules(&self) -> Result<Vec<Rule>, CliError> {
        let Self { answers, allow_tool, deny_tool, .. } = self;
        let rules = answers.iter().map(|flag| (answer_rule(flag), "as in --answer 'which format=PDF'"));
        let denied = deny_tool.iter().map(|tool| (deny_tool_rule(tool), "as in --deny-tool Bash"));
        let allowed = allow_tool.iter().map(|tool| (allow_tool_rule(tool), "as in --allow-tool Bash"));
        let all = rules.chain(denied).chain(allowed);
        all.map(|(rule, hint)| {
            rule.map_err(|error| CliError::from_chain(ExitCode::Invalid, &error).hint(hint))
        })
        .collect()
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

    /// These options for the worker of one run of a suite, which asks in a directory of its own.
    pub fn for_worker(&self, questions: Option<&AbsPath>) -> Vec<OsString> {
        let Self {
            answers,
            allow_tool,
            deny_tool,
            answer_policy,
            decider_cmd,
            decider_dir: _,
            decider_llm,
            intent,
            decider_model,
            decider_timeout,
            on_unanswered,
            first,
        } = self;
        let mut out: Vec<OsString> = Vec::new();
        out.extend(answers.iter().map(|answer| option("--answer", answer)));
        out.extend(allow_tool.iter().map(|tool| option("--allow-tool", tool)));
        out.extend(deny_tool.iter().map(|tool| option("--deny-tool", tool)));
        out.extend(answer_policy.iter().map(|policy| option("--answer-policy", policy)));
        out.extend(decider_cmd.iter().map(|command| option("--decider-cmd", command)));
        out.extend(questions.map(|directory| option("--decider-dir", directory.as_path())));
        out.extend(on_unanswered.iter().map(|what| option("--on-unanswered", what.name())));
        out.push(option("--decider-timeout", decider_timeout.to_string()));
        if *decider_llm {
            out.push(option("--decider-model", decider_model));
            out.extend(intent.iter().map(|intent| option("--intent", intent)));
            out.push("--decider-llm".into());
        }
        out.extend(first.then(|| "--first".into()));
        out
    }
}
