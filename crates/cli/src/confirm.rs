//! One yes or no at the terminal.

use crate::error::CliError;
use crate::output::prompt;
use belljar_contract::{ExitCode, visible};
use std::io::{BufRead, IsTerminal};

/// Asks. Without a terminal nobody can answer, and `instead` says what to do.
pub fn confirmed(question: &str, instead: &str) -> Result<bool, CliError> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(CliError::new(ExitCode::Invalid, "there is no terminal to ask at").hint(instead));
    }
    prompt(&format!("{} [y/N] ", visible(question)));
    let mut line = String::new();
    input.lock().read_line(&mut line).map_err(|cause| CliError::io("cannot read the answer", cause))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
