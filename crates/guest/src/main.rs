//! The binary: the command line goes to the library, the status comes back.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(belljar_guest::run(std::env::args_os().skip(1)))
}
