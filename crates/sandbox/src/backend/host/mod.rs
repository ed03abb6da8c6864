//! No walls: the home and the configuration are redirected, the environment is cleared, and what nothing enforces
//! is said by name.

mod lower;
mod running;

pub(super) use lower::lower;
pub use running::Unwalled;
pub(super) use running::launch;
