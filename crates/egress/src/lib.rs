//! What stands between the sandbox and the world.
//!
//! - [`gateway`]: where the agent believes the model is: one HTTP front end, and behind it the live model with the
//!   credential that stays outside, or a script.
//! - [`intercept`]: TLS that is opened, for hosts whose requests are looked at or get a credential.
//! - [`log`]: what was decided, written before the first byte moves.
//! - [`model_log`]: what was served in the place of the model, to compare the agent's frames with.
//! - [`proxy`]: the way out for everything that speaks HTTP or SOCKS, or nothing of the kind; closed unless a rule
//!   opens it.
//! - [`resolve`]: names to addresses, once per connection.
//! - [`script`]: a scripted model, so that the real agent can be run to its end without a key, a token or a network.
//! - [`ssh`]: signatures for logins at declared hosts, by keys that stay outside.
//! - [`tape`]: exchanges with the model, taken down and given again.
//! - [`tls`]: TLS towards the world.

mod coding;
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

/// Worker threads of a run's egress services. TLS interception decrypts and encrypts every byte, so that one thread would
/// bound all tunnels together; many threads would only cost a run that waits most of the time.
const WORKERS: usize = 2;

/// The runtime that the egress services of a run share.
///
/// # Errors
/// When the system refuses a thread or an event queue.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("egress")
        .enable_all()
        .build()
}
