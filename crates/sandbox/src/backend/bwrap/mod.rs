//! bubblewrap makes the namespaces and the mounts; the guest finishes from inside.

mod etc;
mod lower;

pub(super) use lower::{GUEST, guest, lower};
pub use lower::{MODEL_LISTENER, PROXY_ADDRESS, PROXY_LISTENER, SSH_LISTENER};
