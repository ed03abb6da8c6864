use super::start::{Begun, Start, StartOptions, argument, start};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{ExitCode, RunName, RunVerb, Workload};
use belljar_runner::{API_KEY_VARIABLE, BASE_URL_VARIABLE, LOGIN_PROGRAM, Model, TOKEN_VARIABLE};
use std::ffi::OsString;
use std::path::PathBuf;

/// Start an agent in its sandbox
#[derive(Debug, clap::Args)]
#[command(long_about = long_about(), after_help = "Examples:\n  $ belljar run --dry-run\n")]
pub struct RunArgs {
    /// Agent name [default: the only declared agent]
    agent: Option<String>,
    /// Name of the run; an error if it is taken
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Answer as the model with this script; needs no key and no tokens
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    #[command(flatten)]
    pub options: StartOptions,
    /// Arguments for the agent, which replace the manifest's prompt
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

fn long_about() -> String {
    format!(
        "Start an agent in its sandbox\n\n\
         The agent speaks to its model through a gateway outside, which holds the credential: {API_KEY_VARIABLE}, \
         {TOKEN_VARIABLE}, or the login of `{LOGIN_PROGRAM}`, in this order. {BASE_URL_VARIABLE} names \
         another model's host. belljar exits with the agent's own status; 125 means that the sandbox could not be \
         built."
    )
}

impl Command for RunArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, self.options.begin(call)?, call.output)
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
            Model::script(&path).map_err(|error| CliError::from_chain(ExitCode::LaunchFailed, &error))?
        }
    };
    let (agent, workload) = (args.agent.as_deref(), &Workload::Agent(arguments));
    start(Start { verb: RunVerb::Run, begun, agent, workload, name, model, options: &args.options }, output)
}
