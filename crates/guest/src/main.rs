//! The binary: passes the command line to the library and exits with its status.

use dlmalloc::GlobalDlmalloc;
use std::process::ExitCode;

/// Asks the kernel for memory only a few times. musl's allocator asks for every few pages and gives them back, about a
/// hundred times until the command is started.
#[global_allocator]
static MEMORY: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    ExitCode::from(belljar_guest::run(std::env::args_os().skip(1)))
}
