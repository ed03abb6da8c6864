//! Starts a sandbox while the plan for it is still being made.

use crate::environment::system_program;
use crate::launch::guest_program::GuestProgram;
use belljar_sandbox::Waiting;
use std::ffi::OsStr;

/// Starts the namespaces of a probable launch with the system's bubblewrap from the search path. A bubblewrap elsewhere
/// is not used: it may be the project's, and the project is not known yet. Writes no file: if the guest was never
/// unpacked, nothing is started. A failure here is not reported, because the launch tries again and reports its own.
#[must_use]
pub fn start_early(search_path: &OsStr, guest: &GuestProgram) -> Option<Waiting> {
    let bwrap = system_program(search_path, "bwrap")?;
    Waiting::begin(&bwrap, guest.path(), guest.found()?).ok()
}
