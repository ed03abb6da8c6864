use super::start::{Begun, Start, StartOptions, Work, argument, start};
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::RunVerb;
use belljar_runner::Model;

/// Open a shell in an agent's sandbox, to look around
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar shell --dry-run\n")]
pub struct ShellArgs {
    /// Agent name [default: the only declared agent]
    agent: Option<String>,
    #[command(flatten)]
    pub options: StartOptions,
}

/// Every system with a shell has this one; it starts a better one if there is one.
const SHELL: &str = "command -v bash >/dev/null && exec bash; exec /bin/sh";

impl Command for ShellArgs {
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

fn run(args: &ShellArgs, begun: Begun, output: &Output) -> Result<u8, CliError> {
    let arguments = ["/bin/sh", "-c", SHELL].map(|text| argument(text.into()));
    let work = Work::Command(arguments.into_iter().collect::<Result<_, _>>()?);
    let agent = args.agent.as_deref();
    start(
        Start {
            verb: RunVerb::Shell,
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
