use super::start::{Begun, Start, StartOptions, Work, argument, start};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::RunVerb;
use belljar_runner::Model;
use std::ffi::OsString;

/// Run a command in an agent's sandbox
///
/// The command sees what the agent would see. belljar exits with the command's own status; 125 means that the
/// sandbox could not be built, 126 that the command is not executable, 127 that it was not found.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar exec --yes -- ls -a\n  $ belljar exec --yes --env LOG_LEVEL=debug -- env\n"
)]
pub struct ExecArgs {
    /// Agent name [default: the only declared agent]
    agent: Option<String>,
    #[command(flatten)]
    pub options: StartOptions,
    /// Command and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Command for ExecArgs {
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

fn run(args: &ExecArgs, begun: Begun, output: &Output) -> Result<u8, CliError> {
    let command = args.command.iter().cloned().map(argument).collect::<Result<Vec<_>, _>>()?;
    let (agent, work) = (args.agent.as_deref(), Work::Command(command));
    start(
        Start {
            verb: RunVerb::Exec,
            begun,
            agent,
            version: None,
            work,
            name: None,
            model: Model::Absent,
            options: &args.options,
        },
        output,
    )
}
