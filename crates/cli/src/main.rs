//! The command line of belljar: arguments, environment, terminal and exit code. Nothing is decided here.

mod cmd;
mod confirm;
mod early;
mod env;
mod error;
mod output;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let waiting = early::start(std::env::args_os().skip(1));
    let arguments = match cmd::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // The process ends in the next line, without another chance to end what was started.
            drop(waiting);
            error.exit()
        }
    };
    let output = output::Output::new(arguments.color, arguments.verb.wants_json());
    let status = match cmd::run(&arguments, waiting, &output) {
        Ok(status) => status,
        Err(error) => error.print(arguments.verb.name(), &output).code(),
    };
    let status = match output.lost() {
        Some(cause) => {
            error::CliError::io("cannot write to standard output", cause).print_to_person(&output).code()
        }
        None => status,
    };
    ExitCode::from(status)
}
