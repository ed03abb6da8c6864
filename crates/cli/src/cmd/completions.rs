use super::Arguments;
use crate::cmd::{Call, Command};
use crate::error::CliError;
use crate::output::Output;
use belljar_contract::{Envelope, ExitCode};
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use serde_json::json;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  $ belljar completions bash\n  $ belljar completions zsh\n  $ belljar completions fish\n"
)]
pub struct CompletionsArgs {
    /// Shell to print the script for
    #[arg(value_enum)]
    shell: Kind,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The shells that are tested.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Bash,
    Zsh,
    Fish,
}

impl Command for CompletionsArgs {
    fn run(&self, call: &Call<'_>) -> Result<u8, CliError> {
        run(self, call.output).map(ExitCode::code)
    }

    fn json(&self) -> bool {
        self.json
    }
}

fn run(args: &CompletionsArgs, output: &Output) -> Result<ExitCode, CliError> {
    let shell = match args.shell {
        Kind::Bash => Shell::Bash,
        Kind::Zsh => Shell::Zsh,
        Kind::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "belljar", &mut script);
    let script = String::from_utf8_lossy(&script);
    if output.json {
        let data = json!({"shell": shell.to_string(), "script": script});
        output.envelope(&Envelope::new("completions", ExitCode::Passed, data));
    } else {
        output.file(&script);
    }
    Ok(ExitCode::Passed)
}
