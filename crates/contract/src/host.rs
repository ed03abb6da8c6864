//! Host names and the host patterns of egress rules.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;

/// A TCP port; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Port(u16);

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u16::deserialize(deserializer)?;
        Port::new(number).ok_or_else(|| serde::de::Error::custom("port must be 1 to 65535"))
    }
}

impl Port {
    /// The port of plain HTTP.
    pub const HTTP: Port = Port(80);

    /// The port of HTTPS, the default of a rule that allows.
    pub const HTTPS: Port = Port(443);

    /// `None` for 0.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A DNS name in normal form: lower case, ASCII, no trailing dot, at least one letter in the last label.
///
/// The last rule excludes every numeric spelling of an address (`127.1`, `0x7f000001`, `2130706433`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// Why a text is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostNameError {
    /// Nothing there, or an empty label.
    #[error("host name has an empty part")]
    EmptyLabel,
    /// A character no host name has.
    #[error("{0:?} cannot be part of a host name")]
    Character(char),
    #[error("{0:?} is not ASCII; write the name in its `xn--` form")]
    NotAscii(char),
    /// A label that begins or ends with a hyphen, or has more than 63 characters.
    #[error(
        "`{0}` is not a valid part of a host name: it must have 1 to 63 characters and no hyphen at either end"
    )]
    Label(String),
    /// More than 253 characters.
    #[error("host name must have at most 253 characters")]
    Long,
    /// A numeric spelling of an address.
    #[error("`{0}` is a number, not a name; write an address as `192.0.2.1` or `[2001:db8::1]`")]
    Numeric(String),
}

impl HostName {
    /// Checks a name and converts it to lower case.
    ///
    /// # Errors
    /// See [`HostNameError`].
    pub fn new(text: &str) -> Result<Self, HostNameError> {
        if let Some(c) = text.chars().find(|c| !c.is_ascii()) {
            return Err(HostNameError::NotAscii(c));
        }
        let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if let Some(c) = text.chars().find(|c| !allowed(c)) {
            return Err(HostNameError::Character(c));
        }
        if text.len() > 253 {
            return Err(HostNameError::Long);
        }
        let name = text.to_ascii_lowercase();
        for label in name.split('.') {
            if label.is_empty() {
                return Err(HostNameError::EmptyLabel);
            }
            if label.len() > 63 || label.starts_with('-') || label.ends_with('-') {
                return Err(HostNameError::Label(label.to_owned()));
            }
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        let hexadecimal =
            last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
        if hexadecimal || last.bytes().all(|b| b.is_ascii_digit()) {
            return Err(HostNameError::Numeric(name));
        }
        Ok(Self(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name is a subdomain of `other`, by whole labels; a name is not a subdomain of itself.
    #[must_use]
    pub fn is_under(&self, other: &HostName) -> bool {
        self.0.strip_suffix(&other.0).is_some_and(|rest| rest.ends_with('.'))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for HostName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A range of addresses, such as `10.0.0.0/8`; the bits below the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Takes a network address and the length of its prefix; `None` when bits below the prefix are set.
    ///
    /// A range of IPv4-mapped IPv6 addresses becomes the range of IPv4 addresses. Addresses are converted to IPv4
    /// before they are compared, so the mapped range would match nothing and a deny rule with it would have no
    /// effect.
    #[must_use]
    pub fn new(network: IpAddr, prefix: u8) -> Option<Self> {
        let cidr = match (network, network.to_canonical()) {
            (IpAddr::V6(_), network @ IpAddr::V4(_)) => Self { network, prefix: prefix.checked_sub(96)? },
            (network, _) => Self { network, prefix },
        };
        let Self { network, prefix } = cidr;
        let width = if network.is_ipv4() { 32 } else { 128 };
        (prefix <= width && bits(network) & !cidr.mask() == 0).then_some(cidr)
    }

    fn mask(&self) -> u128 {
        let width = if self.network.is_ipv4() { 32 } else { 128 };
        let host_bits = width - u32::from(self.prefix);
        u128::MAX.checked_shl(host_bits).unwrap_or(0)
    }

    /// Whether the range contains `address`. An IPv4 range never contains an IPv6 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4() && bits(address) & self.mask() == bits(self.network)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// What a pattern matches, apart from the port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostTarget {
    Exact(HostName),
    /// Every subdomain, `*.example.org`; not `example.org` itself.
    AnyUnder(HostName),
    Address(IpAddr),
    /// A range of addresses.
    Range(Cidr),
}

/// The port of a pattern. The meaning of an omitted port depends on the rule: see [`crate::EgressRule::covers_port`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatternPort {
    Unwritten,
    Written(Port),
}

/// A host and a port as a rule writes them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPattern {
    pub target: HostTarget,
    pub port: PatternPort,
}

/// Why a text is not a host pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    #[error("expected a host or `*.domain`, found a URL")]
    Scheme {
        /// What to write instead, if that can be determined.
        instead: Option<String>,
    },
    /// A path after the host.
    #[error("expected a host or `*.domain`, found a path after it")]
    Path {
        /// What to write instead.
        instead: String,
    },
    #[error("host pattern must not contain spaces")]
    Space,
    /// A wildcard that is not a whole first label.
    #[error("`*` stands only at the front and before a dot, as in `*.example.org`")]
    Wildcard,
    /// A port that is out of range or not a number.
    #[error("`{0}` is not a port; ports are 1 to 65535")]
    Port(String),
    #[error("`{0}` is not a range of addresses; write one as `10.0.0.0/8`, with no bit set below the prefix")]
    Range(String),
    #[error("write an IPv6 address in brackets, as in `[2001:db8::1]:443`")]
    Brackets,
    /// Not a host name.
    #[error(transparent)]
    Name(#[from] HostNameError),
}

impl HostPatternError {
    /// What to write instead, if that can be determined.
    #[must_use]
    pub fn instead(&self) -> Option<&str> {
        match self {
            HostPatternError::Scheme { instead } => instead.as_deref(),
            HostPatternError::Path { instead } => Some(instead),
            HostPatternError::Space
            | HostPatternError::Wildcard
            | HostPatternError::Port(_)
            | HostPatternError::Range(_)
            | HostPatternError::Brackets
            | HostPatternError::Name(_) => None,
        }
    }
}

impl HostPattern {
    /// Reads `host`, `*.domain`, an address or a range, each with an optional `:port`.
    ///
    /// # Errors
    /// See [`HostPatternError`].
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        if text.contains(char::is_whitespace) {
            return Err(HostPatternError::Space);
        }
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = host.rsplit('@').next().unwrap_or_default();
            let instead = Self::parse(host).ok().map(|_| host.to_owned());
            return Err(HostPatternError::Scheme { instead });
        }
        if let Some(rest) = text.strip_prefix('[') {
            return Self::parse_bracketed(text, rest);
        }
        if text.matches(':').count() > 1 {
            return Err(HostPatternError::Brackets);
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, PatternPort::Written(parse_port(port)?)),
            None => (text, PatternPort::Unwritten),
        };
        let target = Self::parse_target(host)?;
        Ok(Self { target, port })
    }

    /// Whether the pattern matches this name, on any port.
    #[must_use]
    pub fn covers(&self, name: &HostName) -> bool {
        match &self.target {
            HostTarget::Exact(exact) => exact == name,
            HostTarget::AnyUnder(domain) => name.is_under(domain),
            HostTarget::Address(_) | HostTarget::Range(_) => false,
        }
    }

    fn parse_bracketed(text: &str, rest: &str) -> Result<Self, HostPatternError> {
        let (inside, behind) = rest.split_once(']').ok_or(HostPatternError::Brackets)?;
        let port = match behind.strip_prefix(':') {
            Some(port) => PatternPort::Written(parse_port(port)?),
            None if behind.is_empty() => PatternPort::Unwritten,
            None => return Err(HostPatternError::Port(behind.to_owned())),
        };
        let target = match inside.split_once('/') {
            Some((network, prefix)) => range(text, network, prefix)?,
            None => {
                let address: IpAddr =
                    IpAddr::V6(inside.parse().map_err(|_error| HostPatternError::Brackets)?);
                HostTarget::Address(address.to_canonical())
            }
        };
        Ok(Self { target, port })
    }

    fn parse_target(host: &str) -> Result<HostTarget, HostPatternError> {
        if let Some((network, prefix)) = host.split_once('/') {
            if network.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
                return range(host, network, prefix);
            }
            return Err(HostPatternError::Path { instead: network.to_owned() });
        }
        if let Ok(address) = host.parse::<std::net::Ipv4Addr>() {
            return Ok(HostTarget::Address(IpAddr::V4(address)));
        }
        if let Some(domain) = host.strip_prefix("*.") {
            if domain.contains('*') {
                return Err(HostPatternError::Wildcard);
            }
            return Ok(HostTarget::AnyUnder(HostName::new(domain)?));
        }
        if host.contains('*') {
            return Err(HostPatternError::Wildcard);
        }
        Ok(HostTarget::Exact(HostName::new(host)?))
    }
}

fn parse_port(text: &str) -> Result<Port, HostPatternError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.and_then(Port::new).ok_or_else(|| HostPatternError::Port(text.to_owned()))
}

fn range(text: &str, network: &str, prefix: &str) -> Result<HostTarget, HostPatternError> {
    let bad = || HostPatternError::Range(text.to_owned());
    let network = network.parse().map_err(|_error| bad())?;
    let prefix = prefix.parse().map_err(|_error| bad())?;
    Cidr::new(network, prefix).map(HostTarget::Range).ok_or_else(bad)
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            HostTarget::Exact(name) => write!(f, "{name}")?,
            HostTarget::AnyUnder(name) => write!(f, "*.{name}")?,
            HostTarget::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            HostTarget::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            HostTarget::Range(cidr) if cidr.network.is_ipv6() => write!(f, "[{cidr}]")?,
            HostTarget::Range(cidr) => write!(f, "{cidr}")?,
        }
        match self.port {
            PatternPort::Unwritten => Ok(()),
            PatternPort::Written(port) => write!(f, ":{port}"),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_one_spelling() {
        for (text, shown) in [
            ("api.github.com", "api.github.com"),
            ("API.GitHub.com:443", "api.github.com:443"),
            ("*.example.org", "*.example.org"),
            ("db.internal:5432", "db.internal:5432"),
            ("localhost:80", "localhost:80"),
            ("192.0.2.7", "192.0.2.7"),
            ("10.0.0.0/8:5432", "10.0.0.0/8:5432"),
            ("[2001:DB8::1]:8443", "[2001:db8::1]:8443"),
            ("[fd00::/8]", "[fd00::/8]"),
            ("[::ffff:10.0.0.0/104]:80", "10.0.0.0/8:80"),
            ("[::ffff:192.0.2.1]", "192.0.2.1"),
        ] {
            let pattern = HostPattern::parse(text).unwrap();
            assert_eq!(pattern.to_string(), shown);
            assert_eq!(HostPattern::parse(shown), Ok(pattern), "what is printed reads back as the same");
        }
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for (text, reason) in [
            ("https://api.github.com/x", "expected a host or `*.domain`, found a URL"),
            ("api.github.com/repos", "expected a host or `*.domain`, found a path after it"),
            ("api github.com", "host pattern must not contain spaces"),
            ("a.*.org", "`*` stands only at the front and before a dot, as in `*.example.org`"),
            ("*", "`*` stands only at the front and before a dot, as in `*.example.org`"),
            ("a.org:0", "`0` is not a port; ports are 1 to 65535"),
            ("a.org:65536", "`65536` is not a port; ports are 1 to 65535"),
            ("a.org:+80", "`+80` is not a port; ports are 1 to 65535"),
            ("a.org:", "`` is not a port; ports are 1 to 65535"),
            ("a..org", "host name has an empty part"),
            ("a.org.", "host name has an empty part"),
            ("", "host name has an empty part"),
            ("a.org\0.b.org", "'\\0' cannot be part of a host name"),
            ("a%2eorg", "'%' cannot be part of a host name"),
            ("bücher.example", "'ü' is not ASCII; write the name in its `xn--` form"),
            ("user@a.org", "'@' cannot be part of a host name"),
            (
                "-a.org",
                "`-a` is not a valid part of a host name: it must have 1 to 63 characters and no hyphen at either end",
            ),
            (
                "2130706433",
                "`2130706433` is a number, not a name; write an address as `192.0.2.1` or `[2001:db8::1]`",
            ),
            ("127.1", "`127.1` is a number, not a name; write an address as `192.0.2.1` or `[2001:db8::1]`"),
            (
                "0x7f.0x1",
                "`0x7f.0x1` is a number, not a name; write an address as `192.0.2.1` or `[2001:db8::1]`",
            ),
            ("::1", "write an IPv6 address in brackets, as in `[2001:db8::1]:443`"),
            (
                "10.1.0.0/8",
                "`10.1.0.0/8` is not a range of addresses; write one as `10.0.0.0/8`, with no bit set below the prefix",
            ),
            (
                "10.0.0.0/33",
                "`10.0.0.0/33` is not a range of addresses; write one as `10.0.0.0/8`, with no bit set below the prefix",
            ),
        ] {
            assert_eq!(HostPattern::parse(text).unwrap_err().to_string(), reason, "{text:?}");
        }
        let url = HostPattern::parse("https://ann:pw@api.example.org:8443/v1").unwrap_err();
        assert_eq!(url.instead(), Some("api.example.org:8443"));
    }

    /// A parsed pattern is printed in its normal form, and that parses to the same pattern.
    fn round_trip(text: &str) {
        let Ok(pattern) = HostPattern::parse(text) else { return };
        let shown = pattern.to_string();
        assert_eq!(HostPattern::parse(&shown).as_ref(), Ok(&pattern), "{text:?} {shown:?}");
        assert!(shown.bytes().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase()), "{shown:?}");
    }

    #[test]
    fn fuzz_host_pattern() {
        let pieces = [
            "*.",
            "*",
            ".",
            ":",
            "[",
            "]",
            "/",
            "a",
            "B",
            "-",
            "_",
            "0x",
            "1",
            "255",
            "::",
            "80",
            "65536",
            "/8",
            "/128",
            "://",
            "@",
            " ",
            "é",
            "%",
            "example.org",
            "10.0.0.0",
            "fd00::",
            "\0",
        ];
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            round_trip(&String::from_utf8_lossy(bytes));
            let made: String = bytes.iter().take(8).map(|b| pieces[usize::from(*b) % pieces.len()]).collect();
            round_trip(&made);
        });
    }

    #[test]
    fn a_suffix_is_not_a_domain() {
        let name = |text| HostName::new(text).unwrap();
        assert!(name("a.example.org").is_under(&name("example.org")));
        assert!(!name("evilexample.org").is_under(&name("example.org")));
        assert!(!name("example.org").is_under(&name("example.org")));
    }

    #[test]
    fn ranges() {
        let cidr = Cidr::new("10.0.0.0".parse().unwrap(), 8).unwrap();
        assert!(cidr.contains("10.255.0.1".parse().unwrap()));
        assert!(!cidr.contains("11.0.0.1".parse().unwrap()));
        assert!(!cidr.contains("::ffff:10.0.0.1".parse().unwrap()));
        let all = Cidr::new("0.0.0.0".parse().unwrap(), 0).unwrap();
        assert!(all.contains("255.255.255.255".parse().unwrap()));
        assert!(Cidr::new("::".parse().unwrap(), 0).unwrap().contains("ff::1".parse().unwrap()));
    }
}
