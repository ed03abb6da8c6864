//! Host names, as the C library looks them up.

use std::io;

/// The C library refused the lookup configuration.
#[derive(Debug, thiserror::Error)]
#[error("cannot configure the host name lookup of the C library")]
pub struct NamesError(#[source] io::Error);

/// Restricts host name lookups to `/etc/hosts` and the servers in `/etc/resolv.conf`, with the code in this program. A
/// statically linked C library would otherwise load the modules that `/etc/nsswitch.conf` names, which were built for
/// the C library of the machine.
///
/// # Errors
/// Fails if memory is used up.
pub fn without_modules() -> Result<(), NamesError> {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn __nss_configure_lookup(
                database: *const libc::c_char,
                services: *const libc::c_char,
            ) -> libc::c_int;
        }
        // SAFETY: both are strings that end with a nul and live for ever; the library copies what it keeps, and guards its
        // table with a lock.
        let answer = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
        if answer != 0 {
            return Err(NamesError(io::Error::last_os_error()));
        }
    }
    Ok(())
}
