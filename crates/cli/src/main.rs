//! The command line of belljar: arguments, environment, terminal and exit code. Nothing is decided here.

mod cmd;
mod confirm;
mod early;
mod env;
mod error;
mod output;

use belljar_runner::{Waiting, kept};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let waiting = early::start(std::env::args_os().skip(1));
    let arguments = match cmd::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // The process ends in the next lines, without another chance to end what was started.
            drop(waiting);
            if !error.use_stderr() {
                error.exit();
            }
            // Arguments may be names of a stranger's files.
            let line = early::guess(std::env::args_os().skip(1));
            let output = output::Output::new(output::Color::Auto, line.json);
            let usage = error::CliError::usage(&error);
            if output.json {
                usage.print(line.verb, &output);
            } else {
                output.say(&error.render().to_string());
            }
            return ExitCode::from(usage.exit().code());
        }
    };
    let output = output::Output::new(arguments.color, arguments.verb.json());
    let Some((rest, tidy)) = arguments.verb.cleanup() else {
        return ExitCode::from(spoken(&arguments, waiting, &output));
    };
    let status = kept(
        rest,
        || spoken(&arguments, waiting, &output),
        || {
            // Where there is no home to look at, nothing was made either.
            if let Ok(environment) = env::environment(arguments.directory.as_deref()) {
                tidy(&environment);
            }
        },
    );
    ExitCode::from(status.unwrap_or_else(|error| {
        let error = error::CliError::from_chain(belljar_contract::ExitCode::Unsupported, &error);
        error.print(arguments.verb.name(), &output).code()
    }))
}

/// Runs the verb and prints its error.
fn spoken(arguments: &cmd::Arguments, waiting: Option<Waiting>, output: &output::Output) -> u8 {
    let status = match cmd::run(arguments, waiting, output) {
        Ok(status) => status,
        Err(error) => error.print(arguments.verb.name(), output).code(),
    };
    match output.lost() {
        Some(cause) => {
            error::CliError::io("cannot write to standard output", cause).print_to_person(output).code()
        }
        None => status,
    }
}
