//! The egress services of a run: everything between the sandbox and the network.
//!
//! - [`fetch`]: downloads of belljar itself, such as versions of an agent. It is no part of a run.
//! - [`gateway`]: the model's address inside the sandbox. One HTTP front end, and behind it the live model with the
//!   credential that stays outside, a script or a tape.
//! - [`intercept`]: TLS interception, for hosts whose requests are checked or get a credential.
//! - [`log`]: the log of decisions, written before the first byte is sent.
//! - [`model_log`]: the log of requests and answers of the model, to compare the agent's frames with.
//! - [`proxy`]: the HTTP and SOCKS proxy, and transparent proxying for other programs; closed unless a rule allows it.
//! - [`resolve`]: name resolution, once per connection.
//! - [`script`]: a scripted model, so that the real agent can be run without a key, a token or a network.
//! - [`ssh`]: signatures for logins at declared hosts, with keys that stay outside.
//! - [`tape`]: recorded exchanges with the model, and their replay.
//! - [`tls`]: the TLS client.

mod coding;
pub mod fetch;
pub mod gateway;
pub mod intercept;
pub mod log;
pub mod model_log;
mod overrides;
pub mod proxy;
pub mod resolve;
pub mod script;
pub mod ssh;
pub mod tape;
pub mod tls;
