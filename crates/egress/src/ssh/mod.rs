//! The broker of ssh: inside, ssh can have the declared key sign a login at the declared host, and nothing else.
//!
//! It is an agent that stands between a socket inside and an agent outside. The outer one holds the key; the broker
//! holds none. A connection says which host it is for, with that host's signature of the session
//! (`session-bind@openssh.com`); the broker checks that against the pinned keys, and signs for that session only.
//!
//! Before a run: [`look_up`] finds the keys, [`hold`] sees to it that an agent has them. During it: [`serve`].

mod gate;
mod grant;
mod holder;
mod host_key;
mod known_hosts;
mod message;
mod public_half;
mod rate;
mod report;
mod serve;
mod signable;
mod tool;
mod upstream;
mod wire;

#[cfg(test)]
mod gate_tests;

pub use gate::{BindRefusal, SignRefusal};
pub use grant::SshGrant;
pub use holder::{Asking, HeldKeys, HoldError, HoldRequest, LookUpError, hold, look_up};
pub use host_key::{HostKey, HostKeyError};
pub use known_hosts::{KnownHostError, host_keys, known_hosts_files};
pub use public_half::{PrivateHalf, PublicHalf, PublicHalfError, public_half};
pub use report::{SshAct, SshRefusal, SshSink, SshSummary, SshUse, SshVerdict};
pub use serve::{SshConfig, SshLimits, serve};
pub use tool::Tools;
