//! Protects the memory of a process that holds secrets from other processes of the same user.

use belljar_sys::privs::{self, PrivsError};

/// Disables debuggers, core files, and access to this process's memory, environment and descriptors under `/proc` by
/// other processes of its user. Must be called before the first secret is read. Children that execute another program
/// are not affected.
///
/// # Errors
/// If the kernel refuses; no secret should be read then.
pub fn guard_secrets() -> Result<(), PrivsError> {
    privs::no_core_files()?;
    privs::not_dumpable()
}
