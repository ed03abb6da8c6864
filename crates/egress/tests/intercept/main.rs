//! Tunnels that are opened: what goes out, what comes back, and what does neither.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod answers;
mod client;
mod credentials;
mod names;
mod requests;
mod stage;
mod tools;
mod troubles;
mod world;
