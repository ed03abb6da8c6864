//! What stands between the sandbox and the world.
//!
//! So far this is the scripted model ([`script`]): it speaks the Messages API over loopback TCP or a unix
//! socket, so that the real agent can be run to its end without a key, a token or a network; and the part that opens
//! TLS to hosts whose requests are looked at or get a credential ([`intercept`]).

pub mod intercept;
pub mod proxy;
pub mod script;
pub mod tls;
