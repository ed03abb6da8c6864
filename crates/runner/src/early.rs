//! A sandbox that is started while the plan for it is being made.

use crate::planning::Surroundings;
use belljar_sandbox::Waiting;

/// Starts the namespaces of a launch that is likely to come. Nothing is written for it: where the guest has never been
/// unpacked there is none. What fails here is tried again by the launch, which tells.
#[must_use]
pub fn start_early(surroundings: &Surroundings) -> Option<Waiting> {
    let bwrap = surroundings.program("bwrap")?;
    let guest = surroundings.guest.found()?;
    Waiting::begin(&bwrap, surroundings.guest.path(), guest).ok()
}
