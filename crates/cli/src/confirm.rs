//! A question at the terminal.

use crate::error::CliError;
use crate::output::prompt;
use belljar_contract::{ExitCode, visible};
use std::io::{BufRead, IsTerminal};

/// Asks for a yes or no. Without a terminal this is an error, with `instead` as its hint.
pub fn confirmed(question: &str, instead: &str) -> Result<bool, CliError> {
    Ok(matches!(answer(question, "[y/N]", instead)?.as_str(), "y" | "Y" | "yes"))
}

/// Asks and returns the answer. Without a terminal this is an error, with `instead` as its hint.
pub fn answer(question: &str, choices: &str, instead: &str) -> Result<String, CliError> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(CliError::new(ExitCode::Invalid, "there is no terminal to ask at").hint(instead));
    }
    prompt(&format!("{} {choices} ", visible(question)));
    let mut line = String::new();
    input.lock().read_line(&mut line).map_err(|cause| CliError::io("cannot read the answer", cause))?;
    Ok(line.trim().to_owned())
}
