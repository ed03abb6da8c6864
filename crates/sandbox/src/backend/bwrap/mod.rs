//! bubblewrap makes the namespaces; the guest builds the root in them and closes what is left.

mod etc;
mod lower;

pub(super) use etc::USER;
pub(super) use lower::{GUEST, guest, lower, opening};
pub use lower::{MODEL_LISTENER, PROXY_ADDRESS, PROXY_LISTENER, SSH_LISTENER};
