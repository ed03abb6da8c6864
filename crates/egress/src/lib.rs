//! What stands between the sandbox and the world.
//!
//! So far this is the scripted model ([`script`]): it speaks the Messages API over loopback TCP or a unix
//! socket, so that the real agent can be run to its end without a key, a token or a network.

pub mod script;
pub mod ssh;
pub mod tls;
