//! The proxy as its clients see it: raw sockets and curl on one side, servers on loopback on the other.
//!
//! Every way around the rules is first shown to work with a proxy without rules ([`naive`]): a probe that cannot succeed
//! anywhere would prove nothing.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod ask;
mod bypass;
mod curl;
mod hostile;
mod life;
mod naive;
mod nowhere;
mod peers;
mod plain;
mod tls;
mod tunnels;
mod world;
