//! What stands between the sandbox and the world.
//!
//! The model gateway ([`gateway`]) is where the agent believes the model is: one HTTP front end, and behind it the live
//! model with the credential that stays outside, or a script ([`script`]) that lets the real agent run to its end
//! without a key, a token or a network.

pub mod gateway;
pub mod script;
pub mod tls;
