use super::agent_options::AgentOptions;
use super::by_hand::WordOptions;
use super::start::{Begun, Start, StartOptions, Work, argument, start};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{EnvName, ExitCode, ModelAccess, RunName, RunVerb};
use belljar_runner::suite::load_script;
use belljar_runner::{Harnesses, Model};
use std::ffi::OsString;
use std::path::PathBuf;

/// Start an agent in its sandbox
#[derive(Debug, clap::Args)]
#[command(long_about = long_about(), after_help = "Examples:\n  $ belljar run --dry-run\n")]
pub struct RunArgs {
    /// Agent of the manifest to start [default: the only declared agent]
    #[arg(value_name = "AGENT")]
    agent: Option<String>,
    /// Name of the run; an error if it is taken
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Answer as the model with this script; needs no key and no tokens
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    #[command(flatten)]
    words: WordOptions,
    #[command(flatten)]
    version: AgentOptions,
    #[command(flatten)]
    pub options: StartOptions,
    /// Arguments for the agent, which replace the manifest's prompt
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

fn long_about() -> String {
    let access = &Harnesses::built_in().usual().profile().model;
    let ModelAccess { login_program, base_url, .. } = access;
    let variables: Vec<&str> = access.variables().map(EnvName::as_str).collect();
    let variables = variables.join(", ");
    format!(
        "Start an agent in its sandbox\n\n\
         The agent speaks to its model through a gateway outside, which holds the credential: {variables}, \
         or the login of `{login_program}`, in this order. {base_url} names another model's host. belljar exits \
         with the agent's own status; 125 means that the sandbox could not be built."
    )
}

impl Command for RunArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, self.options.begin(call)?.with_agent(self.version.asked()), call.output)
    }

    fn json(&self) -> bool {
        self.options.json
    }

    fn holds_secrets(&self) -> bool {
        true
    }
}

fn run(args: &RunArgs, begun: Begun, output: &Output) -> Result<u8, CliError> {
    let arguments = args.arguments.iter().cloned().map(argument).collect::<Result<Vec<_>, _>>()?;
    let name = args.name.as_deref().map(RunName::new).transpose();
    let name = name.map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?;
    let model = match &args.script {
        None => Model::Live,
        Some(file) => {
            let path = begun.planner.environment().directory.join(file);
            let path = path.map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?;
            load_script(begun.planner.environment(), &path)
                .map_err(|error| CliError::from(error).into_launch())?
        }
    };
    let (agent, work) = (args.agent.as_deref(), Work::Agent(args.words.spoken(arguments)));
    let (verb, options) = (RunVerb::Run, &args.options);
    let version = Some(&args.version);
    start(Start { verb, begun, agent, version, work, name, model, options }, output)
}
