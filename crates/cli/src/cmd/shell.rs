use super::start::{StartOptions, start, word};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::Errand;
use belljar_runner::{Model, Planner};

/// Open a shell in an agent's sandbox, to look around
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  $ belljar shell --dry-run\n")]
pub struct Args {
    /// The agent; the only one that is declared need not be named
    agent: Option<String>,
    #[command(flatten)]
    pub options: StartOptions,
}

pub fn run(args: &Args, planner: &Planner, output: &Output) -> Result<u8, CliError> {
    let errand = Errand::Command(vec![word("/bin/bash".into())?]);
    start(planner, args.agent.as_deref(), &errand, None, Model::Absent, &args.options, output)
}
