//! SOCKS 5 as far as it is spoken here: a user and password, CONNECT, nothing else.
//!
//! Each function is total on the bytes that have come so far: it takes a whole message, or says that more must come.

use belljar_contract::{Destination, Host, Port};
use std::net::IpAddr;

/// The first byte of a client that speaks SOCKS 5.
pub const VERSION: u8 = 5;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;

/// The answers to a client's first message.
pub const USE_PASSWORD: [u8; 2] = [VERSION, PASSWORD];
/// None of the ways that the client offers to show who it is will do.
pub const NO_WAY: [u8; 2] = [VERSION, 0xff];
/// The token is right.
pub const WELCOME: [u8; 2] = [1, 0];
/// The token is wrong.
pub const UNWELCOME: [u8; 2] = [1, 1];

/// A message taken from the front of the bytes, and its length.
pub type Message<T> = Result<Option<(T, usize)>, SocksFault>;

/// What is not SOCKS 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is not one of SOCKS 5")]
pub struct SocksFault;

/// Whether a client offers to send a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It does.
    Password,
    /// It does not.
    Nothing,
}

/// What a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// A connection.
    Connect(Destination),
    /// A connection to something that is no destination, shown escaped.
    Nowhere(String),
    /// To listen, or datagrams.
    OtherCommand,
    /// An address of an unknown kind.
    OtherAddress,
}

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The tunnel stands.
    Granted = 0,
    /// Something failed here.
    Failed = 1,
    /// The rules do not allow it.
    NotAllowed = 2,
    /// The host has no address or cannot be reached.
    Unreachable = 4,
    /// The host refuses connections.
    Refused = 5,
    /// Only CONNECT is spoken.
    CommandUnknown = 7,
    /// Only names and addresses of IPv4 and IPv6 are known.
    AddressUnknown = 8,
}

impl Reply {
    /// As it is sent. The address in it means nothing and says nothing.
    #[must_use]
    pub fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// The client's first message.
///
/// # Errors
/// When it is none.
pub fn read_offer(bytes: &[u8]) -> Message<Offer> {
    let [version, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION {
        return Err(SocksFault);
    }
    let Some((ways, _)) = counted(rest) else { return Ok(None) };
    let offer = if ways.contains(&PASSWORD) { Offer::Password } else { Offer::Nothing };
    Ok(Some((offer, 2 + ways.len())))
}

/// The user and password.
///
/// # Errors
/// When it is none.
pub fn read_password(bytes: &[u8]) -> Message<(Vec<u8>, Vec<u8>)> {
    let [version, rest @ ..] = bytes else { return Ok(None) };
    if *version != 1 {
        return Err(SocksFault);
    }
    let Some((user, rest)) = counted(rest) else { return Ok(None) };
    let Some((password, _)) = counted(rest) else { return Ok(None) };
    Ok(Some(((user.to_vec(), password.to_vec()), 3 + user.len() + password.len())))
}

/// The request.
///
/// # Errors
/// When it is none.
pub fn read_wish(bytes: &[u8]) -> Message<Wish> {
    let [version, command, reserved, kind, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION || *reserved != 0 {
        return Err(SocksFault);
    }
    if *command != CONNECT {
        return Ok(Some((Wish::OtherCommand, bytes.len())));
    }
    let (host, rest) = match kind {
        1 => match rest.split_first_chunk::<4>() {
            Some((address, rest)) => (Ok(Host::of(IpAddr::from(*address))), rest),
            None => return Ok(None),
        },
        4 => match rest.split_first_chunk::<16>() {
            Some((address, rest)) => (Ok(Host::of(IpAddr::from(*address))), rest),
            None => return Ok(None),
        },
        3 => match counted(rest) {
            Some((name, rest)) => (Host::parse(name).map_err(|_error| name.escape_ascii().to_string()), rest),
            None => return Ok(None),
        },
        _ => return Ok(Some((Wish::OtherAddress, bytes.len()))),
    };
    let Some((port, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
    let port = u16::from_be_bytes(*port);
    let wish = match (host, Port::new(port)) {
        (Ok(host), Some(port)) => Wish::Connect(Destination { host, port }),
        (Ok(host), None) => Wish::Nowhere(format!("{host}:0")),
        (Err(name), _) => Wish::Nowhere(format!("{name}:{port}")),
    };
    Ok(Some((wish, bytes.len() - rest.len())))
}

/// Bytes behind their count, and the rest.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(kind: u8, host: &[u8], port: u16) -> Wish {
        let bytes = [&[5, 1, 0, kind], host, &port.to_be_bytes()].concat();
        for end in 0..bytes.len() {
            assert_eq!(read_wish(&bytes[..end]), Ok(None), "{end} of {}", bytes.len());
        }
        let (wish, length) = read_wish(&[&bytes[..], b"behind"].concat()).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        wish
    }

    fn named(name: &[u8]) -> Vec<u8> {
        [&[u8::try_from(name.len()).unwrap()], name].concat()
    }

    #[test]
    fn requests() {
        let to = |text: &str| Wish::Connect(Destination::parse_authority(text.as_bytes()).unwrap());
        assert_eq!(wish(3, &named(b"A.test."), 443), to("a.test:443"));
        assert_eq!(wish(1, &[127, 0, 0, 1], 80), to("127.0.0.1:80"));
        assert_eq!(wish(4, &std::net::Ipv6Addr::LOCALHOST.octets(), 80), to("[::1]:80"));
        let mapped = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        assert_eq!(wish(4, &mapped, 80), to("127.0.0.1:80"));
    }

    #[test]
    fn names_that_are_none() {
        for name in
            [&b"evil.test\0.allowed.test"[..], b"", b"a b", b"2130706433", b"0x7f.1", b"a:80", b"a@b.test"]
        {
            assert!(
                matches!(wish(3, &named(name), 80), Wish::Nowhere(_)),
                "{:?}",
                String::from_utf8_lossy(name)
            );
        }
        assert_eq!(wish(3, &named(b"a.test"), 0), Wish::Nowhere("a.test:0".to_owned()));
    }

    #[test]
    fn nothing_but_connect() {
        assert_eq!(read_wish(&[5, 2, 0, 1]), Ok(Some((Wish::OtherCommand, 4))));
        assert_eq!(read_wish(&[5, 3, 0, 1]), Ok(Some((Wish::OtherCommand, 4))));
        assert_eq!(read_wish(&[5, 1, 0, 9]), Ok(Some((Wish::OtherAddress, 4))));
        assert_eq!(read_wish(&[4, 1, 0, 1]), Err(SocksFault));
        assert_eq!(read_offer(&[4, 1]), Err(SocksFault));
        assert_eq!(read_offer(&[5, 1, 0]), Ok(Some((Offer::Nothing, 3))));
        assert_eq!(read_offer(&[5, 2, 0, 2, 9]), Ok(Some((Offer::Password, 4))));
        assert_eq!(read_offer(&[5, 0]), Ok(Some((Offer::Nothing, 2))));
        assert_eq!(read_password(&[5, 0, 0]), Err(SocksFault));
        let both = (b"u".to_vec(), b"pw".to_vec());
        assert_eq!(read_password(b"\x01\x01u\x02pw"), Ok(Some((both, 6))));
    }

    #[test]
    fn fuzz_socks() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            let within = |length: Option<usize>| assert!(length.is_none_or(|length| length <= bytes.len()));
            within(read_offer(bytes).ok().flatten().map(|(_, length)| length));
            within(read_password(bytes).ok().flatten().map(|(_, length)| length));
            let connect = [&[5, 1, 0], bytes].concat();
            if let Ok(Some((Wish::Connect(to), length))) = read_wish(&connect) {
                assert!(length <= connect.len());
                assert_eq!(Destination::parse_authority(to.to_string().as_bytes()), Ok(to));
            }
        });
    }
}
