//! bubblewrap makes the namespaces; the guest builds the root in them and closes what is left.

mod etc;
mod lower;

pub(super) use etc::USER;
pub(super) use lower::{
    GUEST, Mechanism, bounds, control, controls, guest, lower, no_agent, no_image, opening, root, texts,
    with_doors,
};
pub use lower::{MODEL_LISTENER, PROXY_ADDRESS, PROXY_LISTENER, SSH_LISTENER};
