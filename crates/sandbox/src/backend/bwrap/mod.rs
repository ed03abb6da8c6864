//! bubblewrap makes the namespaces and the mounts; the guest finishes from inside.

mod etc;
mod lower;

pub(super) use lower::{GUEST, guest, lower};
