//! Options and output that `skill`, `test`, `record` and `chat` share: deciders, model, result.

mod answers;
mod output;

pub use answers::{AnswerOptions, LastWord, WhenUnanswered};
pub use output::{failure, print_result, say_skipped, show, warn};

use super::agent_options::AgentOptions;
use super::agree::AgreeOptions;
use super::dotenv_options::DotenvOptions;
use super::many::{self, option};
use super::start::SandboxOptions;
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{AbsPath, Digest, ExitCode, PathUse, RunVerb, TimeSpan, Usd};
use belljar_report::Detail;
use belljar_runner::suite::{
    Consent, Conversation, Keep, LoadError, Trial, TrialRequest, TrialUse, Tried, Untracked, load_scenario,
    load_script, script_beside, script_model,
};
use belljar_runner::tape::Taping;
use belljar_runner::{HostEnvironment, Model, Then};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of every verb that runs a trial.
#[derive(Debug, clap::Args)]
pub struct TryOptions {
    #[command(flatten)]
    pub deciders: AnswerOptions,
    /// Answer as the model with this script; needs no key and no tokens
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    #[command(flatten)]
    pub sandbox: SandboxOptions,
    #[command(flatten)]
    pub agent: AgentOptions,
    #[command(flatten)]
    pub agree: AgreeOptions,
    #[command(flatten)]
    pub dotenv: DotenvOptions,
    /// Refuse requests that would make a run cost more than this
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub max_cost_usd: Option<Usd>,
    /// End a run after this time, overriding the scenario [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    pub timeout: Option<TimeSpan>,
    /// Also stage files of skills and plugins that git does not track
    #[arg(long, hide_short_help = true)]
    pub include_untracked: bool,
    /// Keep the whole workspace in the run's directory
    #[arg(long)]
    pub keep: bool,
    /// Print failures only
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print thoughts, whole results and the evidence behind each check
    #[arg(short, long)]
    pub verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
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

/// As for the `timeout_ms` of a scenario.
const LONGEST_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub fn patience(text: &str) -> Result<TimeSpan, String> {
    let time = TimeSpan::parse(text).map_err(|error| error.to_string())?;
    match time.duration() <= LONGEST_TIME {
        true => Ok(time),
        false => Err("at most 720h, which is 30 days".to_owned()),
    }
}

pub fn dollars(text: &str) -> Result<Usd, String> {
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
            Some(file) => Ok(load_script(environment, &Self::path(environment, file)?)?),
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

    /// Says where the questions of a run wait for answers.
    pub fn say_where_to_answer(&self, output: &Output) {
        if !self.quiet {
            self.deciders.say_where_to_answer(output);
        }
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
        self.say_where_to_answer(output);
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
                agent: self.agent.asked(),
                consent,
                name: None,
                answering: self.deciders.answering(environment, LastWord::NoOne)?,
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

impl TryOptions {
    /// These options for the worker of one run of a suite, which asks in a directory of its own and agrees to what the user
    /// agreed to.
    pub fn for_worker(&self, questions: Option<&AbsPath>, agreed: Option<Digest>) -> Vec<OsString> {
        let Self {
            deciders,
            script,
            sandbox,
            agent,
            agree: _,
            dotenv,
            max_cost_usd,
            timeout,
            include_untracked,
            keep,
            quiet: _,
            verbose: _,
            json: _,
        } = self;
        let mut out = deciders.for_worker(questions);
        out.extend(sandbox.arguments());
        out.extend(agent.arguments());
        out.extend(dotenv.arguments());
        out.extend(script.iter().map(|script| option("--script", script)));
        let cost = |usd: &Usd| option("--max-cost-usd", usd.to_string().trim_start_matches('$'));
        out.extend(max_cost_usd.iter().map(cost));
        out.extend(agreed.iter().map(|digest| option("--agree-to", digest.to_string())));
        out.extend(timeout.iter().map(|time| option("--timeout", time.to_string())));
        out.extend(keep.then(|| "--keep".into()));
        out.extend(include_untracked.then(|| "--include-untracked".into()));
        out
    }

    /// Has the user agree to what all scenarios ask for; gives the digest for each that asks for something. A file that
    /// cannot be read is reported by its own worker, which has no agreement then.
    pub fn agree_to_all(
        &self,
        (files, plays): (&[AbsPath], Plays),
        environment: &HostEnvironment,
        output: &Output,
    ) -> Result<BTreeMap<AbsPath, Digest>, CliError> {
        let mut loaded: Vec<(&AbsPath, Trial)> = Vec::new();
        for file in files {
            loaded.extend(self.load((file, plays), environment, output)?.ok().map(|trial| (file, trial)));
        }
        let trials = loaded.iter().map(|(_, trial)| trial);
        let consent = self.consent(trials, TrialUse::Run, environment, output)?;
        // What was shown, not what the files ask for by now.
        Ok(many::agreed(&consent, loaded.iter().map(|(file, trial)| (*file, trial))))
    }
}

/// Takes the time of the command line in the place of the scenario's, where there is one.
pub fn limit_time(trial: &mut Trial, time: Option<TimeSpan>) {
    trial.time = time.or(trial.time);
}

/// A script that the suite names. Of one beyond the suite no fault quotes the text.
fn own_script(trial: &Trial, path: &AbsPath, consent: &Consent) -> Result<Model, CliError> {
    let (text, own) = trial.read_agreed(path, consent, Model::LONGEST_SCRIPT).map_err(|error| {
        let text = format!("cannot read the script {path}");
        CliError::new(ExitCode::Invalid, text)
            .caused_by(&error)
            .hint("--script FILE plays another one, and without both options the model answers")
    })?;
    script_model(path.to_string(), text).map_err(|error| match own {
        true => CliError::from(error),
        false => {
            let text =
                format!("`{path}` cannot be played; it lies beyond the suite, so its text is not shown");
            CliError::new(ExitCode::Invalid, text)
        }
    })
}
