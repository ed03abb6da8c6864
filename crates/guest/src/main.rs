//! The binary: the command line goes to the library, the status comes back.

use dlmalloc::GlobalDlmalloc;
use std::process::ExitCode;

/// Asks the kernel for memory a few times. That of musl asks for every few pages, and gives them back, until the command
/// is started a hundred times.
#[global_allocator]
static MEMORY: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    ExitCode::from(belljar_guest::run(std::env::args_os().skip(1)))
}
