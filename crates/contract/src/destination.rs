//! The destination of a request, parsed once from the bytes of the request. No other code in belljar parses
//! destinations.

use crate::{HostName, HostNameError, Port};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The longest text that can name a destination: a host name, a colon and a port.
const LONGEST: usize = 253 + 1 + 5;

/// A host by name or by address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name that is not resolved yet.
    Name(HostName),
    /// An address. An IPv4-mapped IPv6 address is stored as IPv4.
    Address(IpAddr),
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    pub host: Host,
    pub port: Port,
}

/// Why bytes do not name a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    #[error("destination must have at most {LONGEST} characters")]
    Long,
    #[error("destination must be plain ASCII")]
    NotAscii,
    /// The port is missing or out of range.
    #[error("`{0}` is not a port; ports are 1 to 65535")]
    Port(String),
    /// A malformed IPv6 address, or one with a zone.
    #[error("`{0}` is not an IPv6 address in brackets")]
    Bracketed(String),
    /// A user or password in front of the host.
    #[error("destination must not contain a user name")]
    UserInfo,
    /// Not a host name.
    #[error(transparent)]
    Name(#[from] HostNameError),
}

impl Host {
    /// Reads a name or an address; an IPv6 address must be in brackets. One trailing dot of a name is dropped.
    ///
    /// # Errors
    /// See [`DestinationError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DestinationError> {
        if bytes.len() > LONGEST {
            return Err(DestinationError::Long);
        }
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
        let text = text.ok_or(DestinationError::NotAscii)?;
        if let Some(inside) = text.strip_prefix('[') {
            let bad = || DestinationError::Bracketed(text.escape_debug().to_string());
            let address = inside.strip_suffix(']').and_then(|inside| inside.parse::<Ipv6Addr>().ok());
            return Ok(Host::of(IpAddr::V6(address.ok_or_else(bad)?)));
        }
        if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
            return Ok(Host::Address(IpAddr::V4(address)));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        Ok(Host::Name(HostName::new(name)?))
    }

    /// Normalises an address: an IPv4-mapped IPv6 address becomes IPv4.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Host::Address(address.to_canonical())
    }
}

impl Destination {
    /// Reads `host:port`, as CONNECT names it.
    ///
    /// # Errors
    /// See [`DestinationError`].
    pub fn parse_authority(bytes: &[u8]) -> Result<Self, DestinationError> {
        let (host, port) = split(bytes)?;
        let port = port.ok_or_else(|| DestinationError::Port(String::new()))?;
        Ok(Self { host: Host::parse(host)?, port: parse_port(port)? })
    }

    /// Reads `host` or `host:port`, as in a URL or a Host header; `default` is the port of the scheme.
    ///
    /// # Errors
    /// See [`DestinationError`].
    pub fn parse_with_default(bytes: &[u8], default: Port) -> Result<Self, DestinationError> {
        let (host, port) = split(bytes)?;
        let port = port.map_or(Ok(default), parse_port)?;
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl Destination {
    /// As a rule would write it: without the port if that is the default of a rule.
    #[must_use]
    pub fn pattern(&self) -> String {
        if self.port == Port::HTTPS { self.host.to_string() } else { self.to_string() }
    }
}

/// Splits at the colon that follows the brackets, or at the first one.
fn split(bytes: &[u8]) -> Result<(&[u8], Option<&[u8]>), DestinationError> {
    if bytes.len() > LONGEST {
        return Err(DestinationError::Long);
    }
    if bytes.contains(&b'@') {
        return Err(DestinationError::UserInfo);
    }
    let from = match bytes.iter().position(|byte| *byte == b']') {
        Some(end) if bytes.first() == Some(&b'[') => end + 1,
        _ => 0,
    };
    let colon = bytes.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b':'));
    match colon {
        Some(colon) => Ok((&bytes[..from + colon], Some(&bytes[from + colon + 1..]))),
        None => Ok((bytes, None)),
    }
}

fn parse_port(bytes: &[u8]) -> Result<Port, DestinationError> {
    let bad = || DestinationError::Port(String::from_utf8_lossy(bytes).escape_debug().to_string());
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(bytes).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok()).and_then(Port::new).ok_or_else(bad)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => name.fmt(f),
            Host::Address(IpAddr::V4(address)) => address.fmt(f),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Destination::parse_authority(text.as_bytes()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling() {
        for (text, shown) in [
            ("api.example.org:443", "api.example.org:443"),
            ("API.Example.org.:443", "api.example.org:443"),
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("[2001:DB8::1]:8443", "[2001:db8::1]:8443"),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80"),
            ("localhost:3000", "localhost:3000"),
        ] {
            let read = Destination::parse_authority(text.as_bytes()).unwrap();
            assert_eq!(read.to_string(), shown);
        }
        let plain = Destination::parse_with_default(b"example.org", Port::HTTPS).unwrap();
        assert_eq!(plain.to_string(), "example.org:443");
    }

    #[test]
    fn invalid_destinations_are_rejected() {
        for bytes in [
            &b"evil.test\0.allowed.test:80"[..],
            b"evil.test",
            b"evil.test:",
            b"evil.test:0",
            b"evil.test:99999",
            b"evil.test:+80",
            b"evil.test:80:80",
            b"evil.test..:80",
            b"..:80",
            b":80",
            b"",
            b"127.1:80",
            b"2130706433:80",
            b"0x7f.1:80",
            b"0177.0.0.1:80",
            b"::1:80",
            b"[::1:80",
            b"[fe80::1%eth0]:80",
            b"[127.0.0.1]:80",
            b"[::1]x:80",
            b"allowed.test@evil.test:80",
            b"b\xc3\xbccher.example:80",
            b"a%2eb.test:80",
            b"a b.test:80",
            b"allowed.test\r\nx:80",
            b"*.allowed.test:80",
        ] {
            let read = Destination::parse_authority(bytes);
            assert!(read.is_err(), "{:?} was read as {read:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn fuzz_destination() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            let Ok(read) = Destination::parse_authority(bytes) else { return };
            let shown = read.to_string();
            assert!(shown.bytes().all(|byte| byte.is_ascii_graphic()), "{shown:?}");
            assert_eq!(Destination::parse_authority(shown.as_bytes()), Ok(read));
        });
    }
}
