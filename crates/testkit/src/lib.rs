//! What tests of belljar stand on: the door through which a test declares its prerequisites, the place where the
//! real agent is found, and filters for snapshots.

pub mod agent;
pub mod guest;
pub mod process;
pub mod require;
pub mod schema;
pub mod snapshot;
