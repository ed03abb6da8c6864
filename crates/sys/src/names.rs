//! Names of hosts, as the C library looks them up.

use std::io;

/// Why names may be looked up in places that were not meant.
#[derive(Debug, thiserror::Error)]
#[error("the C library does not take where names of hosts are looked up")]
pub struct NamesError(#[source] io::Error);

/// From now on names of hosts are looked for in `/etc/hosts`, and asked of the servers in `/etc/resolv.conf`: by code of
/// this program. A C library that is linked statically would otherwise load the modules that `/etc/nsswitch.conf` names,
/// which were made for the machine's own.
///
/// # Errors
/// When there is no memory for it.
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
