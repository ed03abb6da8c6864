//! A network namespace of the sandbox's own: its loopback, and a range of addresses that leads back to it.

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;
use std::net::Ipv4Addr;

/// Why a network namespace could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No namespace of our own. `EPERM` means that `CAP_SYS_ADMIN` is not held.
    #[error("cannot make a network namespace")]
    Unshare(#[source] Errno),
    /// The loopback stays down.
    #[error("cannot bring the loopback up")]
    Loopback(#[source] Errno),
    /// The netlink socket failed.
    #[error("cannot reach the kernel's routing over netlink")]
    Talk(#[source] Errno),
    /// The kernel refused. `EPERM` means that `CAP_NET_ADMIN` is not held.
    #[error("cannot add a local route for {network}/{prefix}")]
    Refused {
        /// The range.
        network: Ipv4Addr,
        /// The length of its prefix.
        prefix: u8,
        /// The kernel's answer.
        #[source]
        cause: Errno,
    },
    /// The answer is not an acknowledgement.
    #[error("unexpected netlink answer from the kernel's routing")]
    Answer,
}

// Numbers of rtnetlink(7) that rustix has no names for.
const NEW_LINK: u16 = 16;
const NEW_ROUTE: u16 = 24;
const ANSWER: u16 = 2;
const REQUEST_ACKNOWLEDGE: u16 = 0x1 | 0x4;
const CREATE_EXCLUSIVE: u16 = 0x400 | 0x200;
const DEVICE_UP: u32 = 1;
const TABLE_LOCAL: u8 = 255;
const BY_AN_ADMINISTRATOR: u8 = 4;
const SCOPE_HOST: u8 = 254;
const KIND_LOCAL: u8 = 2;
const ATTRIBUTE_DESTINATION: u16 = 1;
const ATTRIBUTE_DEVICE: u16 = 4;
/// The loopback is the first device of every network namespace.
const LOOPBACK: u32 = 1;
const HEADER: usize = 16;

/// Moves the calling thread into a fresh network namespace, which belongs to its own user namespace, and brings the
/// loopback of it up.
///
/// # Errors
/// Without `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`.
pub fn enter_fresh() -> Result<(), NetworkError> {
    // SAFETY: CLONE_NEWNET touches no memory of ours and closes nothing; sockets that are open stay in the namespace
    // they were made in, and threads that exist stay in theirs.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(NetworkError::Unshare)?;
    bring_loopback_up()
}

/// Brings the loopback of this network namespace up.
///
/// # Errors
/// Without `CAP_NET_ADMIN` over the namespace.
pub fn bring_loopback_up() -> Result<(), NetworkError> {
    match ask(&message(NEW_LINK, REQUEST_ACKNOWLEDGE, &loopback_up()))? {
        None => Ok(()),
        Some(cause) => Err(NetworkError::Loopback(cause)),
    }
}

/// Makes every address of the range an address of this network namespace, so that sockets can listen on it.
///
/// # Errors
/// Without `CAP_NET_ADMIN` over the namespace.
pub fn add_local_range(network: Ipv4Addr, prefix: u8) -> Result<(), NetworkError> {
    let route = local_route(network, prefix);
    match ask(&message(NEW_ROUTE, REQUEST_ACKNOWLEDGE | CREATE_EXCLUSIVE, &route))? {
        None => Ok(()),
        Some(cause) => Err(NetworkError::Refused { network, prefix, cause }),
    }
}

/// Sends a request to the kernel's routing and gives the error that it answers with, if any.
fn ask(request: &[u8]) -> Result<Option<Errno>, NetworkError> {
    // Without a protocol it is that of routes.
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket =
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(NetworkError::Talk)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, request, SendFlags::empty(), &kernel).map_err(NetworkError::Talk)?;
    let mut answer = [0; 1024];
    let received = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty());
    let (length, _) = received.map_err(NetworkError::Talk)?;
    match error_in(answer.get(..length).unwrap_or_default()) {
        Some(0) => Ok(None),
        Some(number) => Ok(Some(Errno::from_raw_os_error(number.saturating_neg()))),
        None => Err(NetworkError::Answer),
    }
}

fn local_route(network: Ipv4Addr, prefix: u8) -> Vec<u8> {
    let family = u8::try_from(AddressFamily::INET.as_raw()).unwrap_or(2);
    let mut body =
        vec![family, prefix, 0, 0, TABLE_LOCAL, BY_AN_ADMINISTRATOR, SCOPE_HOST, KIND_LOCAL, 0, 0, 0, 0];
    for (kind, value) in
        [(ATTRIBUTE_DESTINATION, network.octets()), (ATTRIBUTE_DEVICE, LOOPBACK.to_ne_bytes())]
    {
        body.extend(8_u16.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    }
    body
}

/// The loopback, with the flag that says it is up, and that flag alone to be changed.
fn loopback_up() -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend(DEVICE_UP.to_ne_bytes());
    body.extend(DEVICE_UP.to_ne_bytes());
    body
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(u32::try_from(HEADER + body.len()).unwrap_or(0).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    message
}

/// The number in the kernel's acknowledgement: 0, or an errno below it.
fn error_in(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let number = i32::from_ne_bytes(answer.get(HEADER..HEADER + 4)?.try_into().ok()?);
    (kind == ANSWER && number <= 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let answer = |kind: u16, number: i32| {
            let mut bytes = vec![36, 0, 0, 0];
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(number.to_ne_bytes());
            bytes
        };
        assert_eq!(error_in(&answer(ANSWER, 0)), Some(0));
        assert_eq!(error_in(&answer(ANSWER, -1)), Some(-1));
        assert_eq!(error_in(&answer(3, 0)), None);
        assert_eq!(error_in(&answer(ANSWER, 0)[..10]), None);
        assert_eq!(error_in(&[]), None);
    }
}
