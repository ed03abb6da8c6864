//! The subset of SOCKS 5 that is supported: user name and password, and CONNECT.
//!
//! Each function parses the bytes received so far, and returns a complete message or asks for more.

use belljar_contract::{Destination, Host, Port};
use std::net::IpAddr;

/// The first byte of a SOCKS 5 client.
pub const VERSION: u8 = 5;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;

/// SocksReply: the client has to authenticate with user name and password.
pub const USE_PASSWORD: [u8; 2] = [VERSION, PASSWORD];
/// SocksReply: none of the client's authentication methods is acceptable.
pub const NO_ACCEPTABLE_METHOD: [u8; 2] = [VERSION, 0xff];
/// SocksReply: the token is right.
pub const AUTHENTICATED: [u8; 2] = [1, 0];
/// SocksReply: the token is wrong.
pub const AUTHENTICATION_FAILED: [u8; 2] = [1, 1];

/// A message from the front of the bytes and its length; `None` if more bytes are needed.
pub type SocksMessage<T> = Result<Option<(T, usize)>, SocksFault>;

/// The bytes are not SOCKS 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is not valid SOCKS 5")]
pub struct SocksFault;

/// Whether the client offers to authenticate with a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthOffer {
    Password,
    Nothing,
}

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksRequest {
    Connect(Destination),
    /// CONNECT to an invalid destination, shown escaped.
    Invalid(String),
    /// BIND or UDP ASSOCIATE.
    UnsupportedCommand,
    /// An address of an unknown type.
    UnknownAddressType,
}

/// SocksReply codes of RFC 1928.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocksReply {
    Granted = 0,
    /// An error of the proxy itself.
    Failed = 1,
    NotAllowed = 2,
    Unreachable = 4,
    Refused = 5,
    CommandUnknown = 7,
    AddressUnknown = 8,
}

impl SocksReply {
    /// Encodes the reply. The bound address in it is zero, because clients do not use it.
    #[must_use]
    pub fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Parses the client's greeting.
///
/// # Errors
/// When the bytes are not a greeting.
pub fn read_greeting(bytes: &[u8]) -> SocksMessage<AuthOffer> {
    let [version, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION {
        return Err(SocksFault);
    }
    let Some((ways, _)) = counted(rest) else { return Ok(None) };
    let offer = if ways.contains(&PASSWORD) { AuthOffer::Password } else { AuthOffer::Nothing };
    Ok(Some((offer, 2 + ways.len())))
}

/// Parses the user name and password.
///
/// # Errors
/// When the bytes are not a password message.
pub fn read_password(bytes: &[u8]) -> SocksMessage<(Vec<u8>, Vec<u8>)> {
    let [version, rest @ ..] = bytes else { return Ok(None) };
    if *version != 1 {
        return Err(SocksFault);
    }
    let Some((user, rest)) = counted(rest) else { return Ok(None) };
    let Some((password, _)) = counted(rest) else { return Ok(None) };
    Ok(Some(((user.to_vec(), password.to_vec()), 3 + user.len() + password.len())))
}

/// Parses the request.
///
/// # Errors
/// When the bytes are not a request.
pub fn read_request(bytes: &[u8]) -> SocksMessage<SocksRequest> {
    let [version, command, reserved, kind, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION || *reserved != 0 {
        return Err(SocksFault);
    }
    if *command != CONNECT {
        return Ok(Some((SocksRequest::UnsupportedCommand, bytes.len())));
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
        _ => return Ok(Some((SocksRequest::UnknownAddressType, bytes.len()))),
    };
    let Some((port, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
    let port = u16::from_be_bytes(*port);
    let wish = match (host, Port::new(port)) {
        (Ok(host), Some(port)) => SocksRequest::Connect(Destination { host, port }),
        (Ok(host), None) => SocksRequest::Invalid(format!("{host}:0")),
        (Err(name), _) => SocksRequest::Invalid(format!("{name}:{port}")),
    };
    Ok(Some((wish, bytes.len() - rest.len())))
}

/// Splits off bytes that are preceded by their count.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(kind: u8, host: &[u8], port: u16) -> SocksRequest {
        let bytes = [&[5, 1, 0, kind], host, &port.to_be_bytes()].concat();
        for end in 0..bytes.len() {
            assert_eq!(read_request(&bytes[..end]), Ok(None), "{end} of {}", bytes.len());
        }
        let (wish, length) = read_request(&[&bytes[..], b"behind"].concat()).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        wish
    }

    fn named(name: &[u8]) -> Vec<u8> {
        [&[u8::try_from(name.len()).unwrap()], name].concat()
    }

    #[test]
    fn requests() {
        let to = |text: &str| SocksRequest::Connect(Destination::parse_authority(text.as_bytes()).unwrap());
        assert_eq!(wish(3, &named(b"A.test."), 443), to("a.test:443"));
        assert_eq!(wish(1, &[127, 0, 0, 1], 80), to("127.0.0.1:80"));
        assert_eq!(wish(4, &std::net::Ipv6Addr::LOCALHOST.octets(), 80), to("[::1]:80"));
        let mapped = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        assert_eq!(wish(4, &mapped, 80), to("127.0.0.1:80"));
    }

    #[test]
    fn invalid_names() {
        for name in
            [&b"evil.test\0.allowed.test"[..], b"", b"a b", b"2130706433", b"0x7f.1", b"a:80", b"a@b.test"]
        {
            assert!(
                matches!(wish(3, &named(name), 80), SocksRequest::Invalid(_)),
                "{:?}",
                String::from_utf8_lossy(name)
            );
        }
        assert_eq!(wish(3, &named(b"a.test"), 0), SocksRequest::Invalid("a.test:0".to_owned()));
    }

    #[test]
    fn connect_is_the_only_command() {
        assert_eq!(read_request(&[5, 2, 0, 1]), Ok(Some((SocksRequest::UnsupportedCommand, 4))));
        assert_eq!(read_request(&[5, 3, 0, 1]), Ok(Some((SocksRequest::UnsupportedCommand, 4))));
        assert_eq!(read_request(&[5, 1, 0, 9]), Ok(Some((SocksRequest::UnknownAddressType, 4))));
        assert_eq!(read_request(&[4, 1, 0, 1]), Err(SocksFault));
        assert_eq!(read_greeting(&[4, 1]), Err(SocksFault));
        assert_eq!(read_greeting(&[5, 1, 0]), Ok(Some((AuthOffer::Nothing, 3))));
        assert_eq!(read_greeting(&[5, 2, 0, 2, 9]), Ok(Some((AuthOffer::Password, 4))));
        assert_eq!(read_greeting(&[5, 0]), Ok(Some((AuthOffer::Nothing, 2))));
        assert_eq!(read_password(&[5, 0, 0]), Err(SocksFault));
        let both = (b"u".to_vec(), b"pw".to_vec());
        assert_eq!(read_password(b"\x01\x01u\x02pw"), Ok(Some((both, 6))));
    }

    #[test]
    fn fuzz_socks() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            let within = |length: Option<usize>| assert!(length.is_none_or(|length| length <= bytes.len()));
            within(read_greeting(bytes).ok().flatten().map(|(_, length)| length));
            within(read_password(bytes).ok().flatten().map(|(_, length)| length));
            let connect = [&[5, 1, 0], bytes].concat();
            if let Ok(Some((SocksRequest::Connect(to), length))) = read_request(&connect) {
                assert!(length <= connect.len());
                assert_eq!(Destination::parse_authority(to.to_string().as_bytes()), Ok(to));
            }
        });
    }
}
