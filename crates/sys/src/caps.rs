//! Capabilities: all five sets emptied, and read back.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Why the capabilities could not be emptied.
#[derive(Debug, thiserror::Error)]
pub enum CapsError {
    /// A capability stays in the bounding set. `EPERM` means that `CAP_SETPCAP` is not held.
    #[error("cannot drop capability {number} from the bounding set")]
    Bounding {
        /// The number of the capability.
        number: u32,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The ambient set stays.
    #[error("cannot clear the ambient capabilities")]
    Ambient(#[source] Errno),
    /// The effective, permitted and inheritable sets stay.
    #[error("cannot clear the effective, permitted and inheritable capabilities")]
    Process(#[source] Errno),
}

/// Empties the bounding, ambient, inheritable, permitted and effective sets of the calling thread.
///
/// The bounding set goes first: leaving it takes `CAP_SETPCAP`, which the last step gives away. A bounding set
/// that is empty already needs no capability.
///
/// # Errors
/// Fails at the first set that cannot be emptied; the sets after it are untouched.
pub fn drop_all() -> Result<(), CapsError> {
    drop_bounding()?;
    rustix::thread::clear_ambient_capability_set().map_err(CapsError::Ambient)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(CapsError::Process)
}

/// Walks by number until the kernel knows no further capability, so that one added after this was written does
/// not stay.
fn drop_bounding() -> Result<(), CapsError> {
    for number in 0..64 {
        match drop_one(number).or_else(|cause| is_gone(number, cause)) {
            Ok(()) => {}
            Err(Errno::INVAL) => return Ok(()),
            Err(cause) => return Err(CapsError::Bounding { number, cause }),
        }
    }
    Ok(())
}

/// Accepts a failed drop if the capability is not in the set; otherwise returns the cause.
fn is_gone(number: u32, cause: Errno) -> Result<(), Errno> {
    // SAFETY: PR_CAPBSET_READ takes its argument by value and touches no memory of ours.
    let answer = unsafe { libc::prctl(libc::PR_CAPBSET_READ, libc::c_ulong::from(number), 0, 0, 0) };
    if crate::raw::check(answer.into())? == 0 { Ok(()) } else { Err(cause) }
}

fn drop_one(number: u32) -> Result<(), Errno> {
    // SAFETY: PR_CAPBSET_DROP takes its argument by value and only shrinks the thread's own bounding set.
    let answer = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
    crate::raw::check(answer.into()).map(drop)
}
