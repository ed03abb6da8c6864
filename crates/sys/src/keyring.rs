//! Session keyrings.
//!
//! A session keyring is inherited through `fork`, `exec` and namespaces: what the caller's login session keeps
//! there (tickets, disk keys, tokens) would be readable inside a sandbox. A fresh one ends that.

use rustix::io::Errno;

/// Why the keyring of the caller could not be left.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The kernel refused a new session keyring.
    #[error("cannot join a fresh session keyring")]
    Join(#[source] Errno),
}

/// Whether a keyring was left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// The process now has an empty session keyring of its own.
    Fresh,
    /// The kernel has no key service, so there is no keyring to inherit.
    NoKeyService,
}

/// Gives the calling process an empty, anonymous session keyring and lets go of the inherited one.
///
/// # Errors
/// Fails if the kernel has a key service and refuses, for instance because the user's key quota is used up.
pub fn join_fresh() -> Result<Joined, KeyringError> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: with a null name the kernel reads no memory of ours; the call only replaces the session keyring in
    // the credentials of the calling thread.
    let answer = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    match crate::raw::check(answer) {
        Ok(_) => Ok(Joined::Fresh),
        Err(Errno::NOSYS) => Ok(Joined::NoKeyService),
        Err(cause) => Err(KeyringError::Join(cause)),
    }
}
