use super::scenario_options::{LastWord, TryOptions, failure, limit_time, print_result, show, warn};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Envelope, ExitCode, RunVerb};
use belljar_runner::suite::{
    Conversation, ConversationName, Keep, Planning, Subject, Trial, TrialRequest, TrialUse, load_subject,
};
use belljar_runner::tape::Taping;
use belljar_runner::{HostEnvironment, Then};
use serde_json::json;
use std::io::Read;
use std::path::PathBuf;

/// Try a skill, a plugin or a marketplace once
///
/// The directory is copied to a new workspace, and the prompt is sent to the real agent in a sandbox of its own. Its
/// questions are answered by `--answer`, a policy, a program, or by you at a terminal.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("said").required(true),
    override_usage = "belljar skill [OPTIONS] <DIR> <PROMPT|--prompt-file <FILE>>",
    after_help = "Examples:\n  $ belljar skill skills/changelog \"Write the release notes\" --dry-run\n  $ belljar skill skills/changelog \"Write the release notes\" --script hello.json\n"
)]
pub struct SkillArgs {
    #[command(flatten)]
    pub subject: SubjectOptions,
    /// Prompt for the agent
    #[arg(group = "said")]
    prompt: Option<String>,
    /// Read the prompt from this file; `-` is standard input
    #[arg(long, value_name = "FILE", group = "said")]
    prompt_file: Option<PathBuf>,
    /// Show the plan and start nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub options: TryOptions,
}

/// The option that continues a conversation, for hints.
pub const RESUME: &str = "resume";
pub const SESSION_ID: &str = "session-id";

/// What to try, and what the agent gets besides it.
#[derive(Debug, clap::Args)]
pub struct SubjectOptions {
    /// Skill, directory of skills, plugin or marketplace to try
    #[arg(value_name = "DIR")]
    tested: PathBuf,
    /// Load this plugin as well; repeatable
    #[arg(long, value_name = "DIR")]
    plugin: Vec<PathBuf>,
    /// Marketplace whose plugins `--enable` can name; repeatable
    #[arg(long, value_name = "DIR")]
    marketplace: Vec<PathBuf>,
    /// Enable this plugin of a marketplace; repeatable
    #[arg(long, value_name = "NAME@MARKETPLACE")]
    enable: Vec<String>,
    /// Copy this file to the agent's `uploads`; repeatable
    #[arg(long, value_name = "FILE")]
    upload: Vec<PathBuf>,
    /// Give the agent a copy of this directory to work on; repeatable
    #[arg(long = "folder", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Allow the agent to reach this host
    #[arg(long, value_name = "HOST")]
    allow: Vec<String>,
    /// Model to use [default: the agent's own]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Name the conversation, so that it can be resumed
    #[arg(long = SESSION_ID, value_name = "NAME", conflicts_with = "resume")]
    session_id: Option<String>,
    /// Resume the conversation of this name
    #[arg(long = RESUME, value_name = "NAME")]
    resume: Option<String>,
}

impl SubjectOptions {
    pub fn trial(
        &self,
        options: &TryOptions,
        prompt: String,
        (environment, output): (&HostEnvironment, &Output),
    ) -> Result<Trial, CliError> {
        let paths = |list: &[PathBuf]| {
            list.iter().map(|path| TryOptions::path(environment, path)).collect::<Result<Vec<AbsPath>, _>>()
        };
        let subject = Subject {
            directory: TryOptions::path(environment, &self.tested)?,
            plugins: paths(&self.plugin)?,
            marketplaces: paths(&self.marketplace)?,
            enabled: self.enable.clone(),
            uploads: paths(&self.upload)?,
            directories: paths(&self.folders)?,
            hosts: self.allow.clone(),
            model: self.model.clone(),
            prompt,
        };
        Ok(options
            .loaded(environment, output, |permit| load_subject(environment, subject.clone(), permit))??)
    }

    pub fn conversation(&self) -> Result<Conversation, CliError> {
        let name = |text: &String| {
            ConversationName::new(text).ok_or_else(|| {
                CliError::new(ExitCode::Invalid, format!("`{text}` cannot be the name of a conversation"))
                    .hint("letters, digits, `-` and `_`, at most 64")
            })
        };
        match (&self.session_id, &self.resume) {
            (Some(text), _) => Ok(Conversation::Named(name(text)?)),
            (None, Some(text)) => Ok(Conversation::Resumed(name(text)?)),
            (None, None) => Ok(Conversation::Fresh),
        }
    }
}

impl Command for SkillArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, &call.environment_with(&self.options.dotenv)?, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.options.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &SkillArgs, environment: &HostEnvironment, output: &Output) -> Result<ExitCode, CliError> {
    let options = &args.options;
    let trial = args.subject.trial(options, prompt(args)?, (environment, output))?;
    let mut trial = Trial { cost: options.max_cost_usd, untracked: options.untracked(), ..trial };
    limit_time(&mut trial, options.timeout);
    let conversation = args.subject.conversation()?;
    let (sandbox, agent) = (options.sandbox.asked(), options.agent.asked());
    let used_for = if args.dry_run { TrialUse::Inspect } else { TrialUse::Run };
    let consent = &options.consent([&trial], used_for, environment, output)?;
    if args.dry_run {
        let planning = Planning {
            environment,
            sandbox: &sandbox,
            agent: agent.as_ref(),
            conversation: &conversation,
            consent,
        };
        return plan(&trial, planning, output);
    }
    if !options.quiet {
        warn(&trial, output);
    }
    options.say_where_to_answer(output);
    let detail = options.detail();
    let tried = trial
        .run(TrialRequest {
            verb: RunVerb::Skill,
            environment,
            model: options.model(environment)?,
            sandbox,
            agent,
            consent,
            name: None,
            answering: options.deciders.answering(environment, LastWord::PersonAtTerminal)?,
            then: Then::End,
            conversation,
            keep: if options.keep { Keep::Workspace } else { Keep::Changes },
            taping: Taping::Off,
            watch: &mut |event| show(event, detail, output),
        })
        .map_err(|error| failure(error, environment))?;
    let exit = tried.judgement.conclusion.exit();
    if output.json {
        output.envelope(&Envelope::new("skill", exit, json!(tried.result(&trial))));
    } else {
        print_result(&trial, &tried, options, environment, output);
    }
    Ok(exit)
}

fn prompt(args: &SkillArgs) -> Result<String, CliError> {
    const LONGEST: u64 = 4 << 20;
    let Some(file) = &args.prompt_file else { return Ok(args.prompt.clone().unwrap_or_default()) };
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().take(LONGEST + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|opened| opened.take(LONGEST + 1).read_to_string(&mut text))
    };
    let size = read.map_err(|cause| CliError::io(format!("cannot read `{}`", file.display()), cause))?;
    if size as u64 > LONGEST {
        let text = format!("the prompt in `{}` is longer than 4 MiB", file.display());
        return Err(CliError::new(ExitCode::Invalid, text));
    }
    Ok(text)
}

fn plan(trial: &Trial, planning: Planning<'_>, output: &Output) -> Result<ExitCode, CliError> {
    let environment = planning.environment;
    let (stage, mut planned) = trial.planned(&planning).map_err(|error| failure(error, environment))?;
    let limits = &mut planned.compiled.plan.limits;
    limits.time = trial.time.or(limits.time);
    if let Some(line) = stage.left_out_line() {
        output.say(&format!("belljar: {line}"));
    }
    let plan = &planned.compiled.plan;
    if output.json {
        let data = json!({"digest": plan.digest(), "plan": plan, "secrets": planned.entering, "default_limits": planned.defaults, "not_isolated": planned.open, "started": false});
        output.envelope(&Envelope::new("skill", ExitCode::Passed, data));
        return Ok(ExitCode::Passed);
    }
    output.result(&super::plan::page(
        &planned,
        &environment.home,
        super::plan::Beside::default(),
        output.out_style(),
    ));
    Ok(ExitCode::Passed)
}
