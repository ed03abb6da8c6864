//! One yes or no at the terminal.

use crate::error::CliError;
use belljar_contract::ExitCode;
use std::io::{BufRead, IsTerminal, Write};

/// Asks. Without a terminal nobody can answer, and `instead` says what to do.
pub fn confirmed(question: &str, instead: &str) -> Result<bool, CliError> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(CliError::new(ExitCode::Invalid, "there is no terminal to ask at").hint(instead));
    }
    let mut err = std::io::stderr().lock();
    // A terminal that cannot be written to cannot be read from either; the next line tells.
    write!(err, "{question} [y/N] ").and_then(|()| err.flush()).ok();
    let mut line = String::new();
    input.lock().read_line(&mut line).map_err(|cause| CliError::io("cannot read the answer", cause))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
