//! The verbs, one file each. A verb is its file, which implements [`Command`], and its line in `verbs!`.

mod agent_options;
mod agree;
mod by_hand;
mod changes;
mod dotenv_options;
mod many;
mod scenario_options;
mod start;

use crate::env;
use crate::error::CliError;
use crate::output::{Color, Output};
use belljar_contract::ExitCode;
use belljar_runner::{
    DotenvBeside, HostEnvironment, Planner, Rest, Waiting, guard_secrets, names_without_modules,
};
use clap::{Parser, Subcommand};
use dotenv_options::DotenvOptions;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Declares the modules of the verbs and the enum over them.
macro_rules! verbs {
    ($($variant:ident $module:ident $args:ident),* $(,)?) => {
        $(mod $module;)*

        /// The verb of a command line.
        #[derive(Debug, Subcommand)]
        pub enum Verb {
            $($variant($module::$args),)*
        }

        impl Verb {
            /// All names, as they are typed.
            pub const NAMES: &[&str] = &[$(stringify!($module)),*];

            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($module),)*
                }
            }

            fn command(&self) -> &dyn Command {
                match self {
                    $(Self::$variant(args) => args,)*
                }
            }
        }
    };
}

// In the order of the help.
verbs! {
    Run run RunArgs,
    Exec exec ExecArgs,
    Shell shell ShellArgs,
    Plan plan PlanArgs,
    Check check CheckArgs,
    Init init InitArgs,
    Import import ImportArgs,
    Trust trust TrustArgs,
    Findings findings FindingsArgs,
    Diff diff DiffArgs,
    Apply apply ApplyArgs,
    Discard discard DiscardArgs,
    Instances instances InstancesArgs,
    Gc gc GcArgs,
    Image image ImageArgs,
    Agent agent AgentArgs,
    Doctor doctor DoctorArgs,
    Prove prove ProveArgs,
    Skill skill SkillArgs,
    Scenario scenario ScenarioArgs,
    Script script ScriptArgs,
    Test test TestArgs,
    Record record RecordArgs,
    Replay replay ReplayArgs,
    Tape tape TapeArgs,
    Chat chat ChatArgs,
    Runs runs RunsArgs,
    Trace trace TraceArgs,
    Judge judge JudgeArgs,
    Decide decide DecideArgs,
    Gates gates GatesArgs,
    Answer answer AnswerArgs,
    Schema schema SchemaArgs,
    Completions completions CompletionsArgs,
    Man man ManArgs,
}

/// A subcommand.
pub trait Command {
    /// Runs the verb and returns the exit status.
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError>;

    /// Whether to print one JSON object.
    fn json(&self) -> bool;

    /// Whether the verb reads values that no other process may see.
    fn holds_secrets(&self) -> bool {
        false
    }

    /// The cleanup after an interruption, for a command that creates something on the host that outlives its process.
    fn cleanup(&self) -> Option<Cleanup> {
        None
    }
}

/// What ends with a verb, and what removes its traces.
pub type Cleanup = (Rest, fn(&HostEnvironment));

/// One call of belljar: where it was made, and where its output goes.
pub struct Call<'a> {
    directory: Option<&'a Path>,
    /// A sandbox that was started before the command line was parsed.
    waiting: RefCell<Option<Waiting>>,
    pub output: &'a Output,
}

impl Call<'_> {
    pub fn environment(&self) -> Result<HostEnvironment, CliError> {
        env::environment(self.directory)
    }

    pub fn planner(&self) -> Result<Planner, CliError> {
        Ok(Planner::new(self.environment()?)?)
    }

    /// The environment with the values of `.env` files, for a trial.
    pub fn environment_with(&self, options: &DotenvOptions) -> Result<HostEnvironment, CliError> {
        options.read(self.environment()?, DotenvBeside::Read)
    }

    /// The planner of the project, with the values of `.env` files outside it.
    pub fn planner_with(&self, options: &DotenvOptions) -> Result<Planner, CliError> {
        Ok(Planner::new(options.read(self.environment()?, DotenvBeside::Ignored)?)?)
    }

    /// Takes the sandbox that was started early. One that is not taken is ended unused.
    pub fn waiting(&self) -> Option<Waiting> {
        self.waiting.take()
    }
}

/// Run coding agents sealed in a sandbox, and test agent skills in it.
///
/// An agent sees the skills, servers and hosts that a manifest names and nothing else of this machine; keys
/// stay outside.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  $ belljar init --stdout\n  $ belljar plan\n")]
pub struct Arguments {
    /// Work as if started in this directory
    #[arg(short = 'C', long = "directory", value_name = "DIR", global = true)]
    pub directory: Option<PathBuf>,
    /// When to use colours
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN", global = true)]
    pub color: Color,
    #[command(subcommand)]
    pub verb: Verb,
}

impl Verb {
    pub fn json(&self) -> bool {
        self.command().json()
    }

    pub fn cleanup(&self) -> Option<Cleanup> {
        self.command().cleanup()
    }
}

/// Runs the verb of a command line. The sandbox that was started early is used or ended.
pub fn run(arguments: &Arguments, waiting: Option<Waiting>, output: &Output) -> Result<u8, CliError> {
    let command = arguments.verb.command();
    if command.holds_secrets() {
        guard_secrets().map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?;
    }
    names_without_modules().map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?;
    let directory = arguments.directory.as_deref();
    command.run(&Call { directory, waiting: RefCell::new(waiting), output })
}
