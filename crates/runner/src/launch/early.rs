//! A sandbox that is started while the plan for it is being made.

use crate::environment::system_program;
use crate::launch::guest_program::GuestProgram;
use belljar_sandbox::Waiting;
use std::ffi::OsStr;

/// Starts the namespaces of a launch that is likely to come, with the system's bubblewrap from the search path; one that lies
/// elsewhere may be the project's, which is not known yet. Nothing is written for
/// it: where the guest has never been unpacked there is none. What fails here is tried again by the launch, which tells.
#[must_use]
pub fn start_early(search_path: &OsStr, guest: &GuestProgram) -> Option<Waiting> {
    let bwrap = system_program(search_path, "bwrap")?;
    Waiting::begin(&bwrap, guest.path(), guest.found()?).ok()
}
