//! The command line of belljar: arguments, environment, terminal and exit code. Nothing is decided here.

mod cmd;
mod env;
mod error;
mod output;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = cmd::Arguments::parse();
    let output = output::Output::new(arguments.color, arguments.verb.wants_json());
    match cmd::run(&arguments, &output) {
        Ok(status) => ExitCode::from(status),
        Err(error) => ExitCode::from(error.print(arguments.verb.name(), &output).code()),
    }
}
