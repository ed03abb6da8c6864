//! The gateway to the live model, as the agent and the model's host see it. The host is a server of these tests on
//! loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod broken;
mod budget;
#[path = "../server/client.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod client;
mod credentials;
mod host;
mod load;
mod observed;
mod own;
mod passing;
mod provider_tools;
mod secure;
mod stage;
