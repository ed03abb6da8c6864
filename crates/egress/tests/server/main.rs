//! The scripted model as a client sees it, over TCP and over unix sockets.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod answers;
mod breaks;
mod client;
mod hostile;
mod life;
mod log;
