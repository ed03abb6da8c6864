//! The SSH broker: ssh inside the sandbox can have the declared key sign a login at the declared host, and nothing else.
//!
//! The broker is an ssh agent between a socket inside the sandbox and an agent outside. The outer agent holds the key; the
//! broker holds none. A client binds its connection to a host with the host's signature of the session
//! (`session-bind@openssh.com`). The broker verifies that signature with the pinned keys, and has only that session's
//! login signed.
//!
//! Before a run, [`look_up`] finds the keys and [`hold`] makes an agent hold them. [`serve`] runs the broker.

mod gate;
mod grant;
mod holder;
mod host_key;
mod known_hosts;
mod message;
mod outer_agent;
mod public_half;
mod rate;
mod report;
mod serve;
mod signable;
mod tool;
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
pub use tool::SshTools;
