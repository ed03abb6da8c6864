//! What stands between the sandbox and the world.
//!
//! - [`proxy`]: the way out for everything that speaks HTTP or SOCKS, closed unless a rule opens it.
//! - [`intercept`]: TLS that is opened, for hosts whose requests are looked at or get a credential.
//! - [`log`]: what was decided, written before the first byte moves.
//! - [`resolve`]: names to addresses, once per connection.
//! - [`script`]: a scripted model that speaks the Messages API over loopback TCP or a unix socket, so that the real
//!   agent can be run to its end without a key, a token or a network.
//! - [`tls`]: TLS towards the world.

pub mod intercept;
pub mod log;
pub mod proxy;
pub mod resolve;
pub mod script;
pub mod tls;
