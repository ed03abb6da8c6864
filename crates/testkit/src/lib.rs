//! What tests of belljar stand on: a model that follows a script, the door through which a test declares its
//! prerequisites, the place where the real agent is found, and filters for snapshots.
//!
//! The scripted model ([`model`]) speaks the Messages API over loopback TCP or a unix socket, so that the real
//! agent can be run to its end without a key, a token or a network. It knows nothing of tests and is usable
//! wherever a deterministic model is wanted; the other modules are for tests only.

pub mod agent;
pub mod model;
pub mod process;
pub mod require;
pub mod snapshot;
