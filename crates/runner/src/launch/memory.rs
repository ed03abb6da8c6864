//! A process that holds secrets keeps other processes of the same user out of its memory.

use belljar_sys::privs::{self, PrivsError};

/// Closes this process to debuggers, to core files and to readers of its memory, environment and descriptors under
/// `/proc`, of its own user. To be called before the first secret is read; children that execute a program are not
/// concerned.
///
/// # Errors
/// When the kernel refuses; no secret should be read then.
pub fn guard_secrets() -> Result<(), PrivsError> {
    privs::no_core_files()?;
    privs::not_dumpable()
}
