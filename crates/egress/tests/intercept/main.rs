//! TLS interception: what is sent, what is returned, and what is withheld.

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
