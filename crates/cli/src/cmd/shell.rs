use super::start::{Begun, StartOptions, start, word};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::Errand;
use belljar_runner::Model;

/// Open a shell in an agent's sandbox, to look around
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar shell --dry-run\n")]
pub struct Args {
    /// The agent; the only one that is declared need not be named
    agent: Option<String>,
    #[command(flatten)]
    pub options: StartOptions,
}

pub fn run(args: &Args, begun: Begun, output: &Output) -> Result<u8, CliError> {
    let errand = Errand::Command(vec![word("/bin/bash".into())?]);
    start(begun, args.agent.as_deref(), &errand, None, Model::Absent, &args.options, output)
}
