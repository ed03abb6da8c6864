//! Support for belljar's tests: prerequisites that a test declares, the path of the real agent, a made-up
//! agent's model, and filters for snapshots.

pub mod agent;
pub mod guest;
pub mod model_access;
pub mod process;
pub mod require;
pub mod schema;
pub mod snapshot;
pub mod wait;
