//! Listening sockets, opened inside and handed out.
//!
//! A socket belongs to the network namespace it was made in, so the supervisor accepts connections of the sandbox
//! on it without being there.

use std::ffi::OsStr;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use belljar_contract::{GuestAddress, GuestListener, GuestRange, GuestStep};
use belljar_sys::network;

use super::Refusal;

#[derive(Debug, thiserror::Error)]
#[error("cannot open the listener `{name}`")]
struct ListenError {
    name: String,
    #[source]
    cause: std::io::Error,
}

/// Makes the range lead here, so that listeners can stand for other hosts.
///
/// This needs a network namespace of this process's own: the sandbox may have been built with the user in a namespace
/// below the one that owns the network, and then no capability reaches it.
pub(super) fn take_range(range: Option<GuestRange>) -> Result<(), Refusal> {
    let Some(GuestRange { network, prefix }) = range else { return Ok(()) };
    let taken = network::enter_fresh().and_then(|()| network::add_local_range(network, prefix));
    taken.map_err(|error| Refusal::new(GuestStep::Range, &error))
}

/// Opens all, in order, or none.
pub(super) fn open_all(specs: &[GuestListener]) -> Result<Vec<OwnedFd>, Refusal> {
    specs
        .iter()
        .map(|spec| {
            open(&spec.at).map_err(|cause| {
                Refusal::new(GuestStep::Listeners, &ListenError { name: spec.name.clone(), cause })
            })
        })
        .collect()
}

fn open(at: &GuestAddress) -> std::io::Result<OwnedFd> {
    match at {
        GuestAddress::Tcp { address } => Ok(TcpListener::bind(address)?.into()),
        GuestAddress::Udp { address } => Ok(UdpSocket::bind(address)?.into()),
        GuestAddress::Unix { path, mode } => {
            let path = Path::new(OsStr::from_bytes(path.as_bytes()));
            let listener = UnixListener::bind(path)?;
            // No other process exists in the sandbox yet, so the mode between these two calls cannot be abused.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o777))?;
            Ok(listener.into())
        }
    }
}
