//! A host that checks of the egress log look for.

use belljar_contract::decode::{Decode, Fault, Faults, Kind, Node};
use belljar_contract::{Destination, Host, HostName, Port};
use serde_json::{Value, json};

/// A name with everything below it, only what lies below a name, or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostMatch {
    /// `example.org`: that and what lies below.
    NameAndBelow(HostName),
    /// `*.example.org`: what lies below.
    Below(HostName),
    Address(std::net::IpAddr),
}

impl HostMatch {
    /// Reads one; the error says what is wrong.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.contains("://") || text.contains('/') {
            return Err("expected a host, found a URL or a path".to_owned());
        }
        if let Some(name) = text.strip_prefix("*.") {
            let name = name.strip_suffix('.').unwrap_or(name);
            return HostName::new(name).map(Self::Below).map_err(|error| error.to_string());
        }
        let bracketed = text.parse::<std::net::Ipv6Addr>().map(|address| format!("[{address}]"));
        let spelling = bracketed.as_deref().unwrap_or(text);
        match Host::parse(spelling.as_bytes()) {
            Ok(Host::Name(name)) => Ok(Self::NameAndBelow(name)),
            Ok(Host::Address(address)) => Ok(Self::Address(address)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether a destination of the log is meant. What names no destination is none of them.
    pub(crate) fn fits(&self, destination: &str) -> bool {
        let Some(host) = host_of(destination) else { return false };
        match (self, host) {
            (Self::NameAndBelow(name), Host::Name(host)) => host == *name || host.is_under(name),
            (Self::Below(name), Host::Name(host)) => host.is_under(name),
            (Self::Address(address), Host::Address(host)) => host == *address,
            (Self::NameAndBelow(_) | Self::Below(_), Host::Address(_))
            | (Self::Address(_), Host::Name(_)) => false,
        }
    }
}

/// The host of `host:port`, or of a name alone, as a lookup has it.
fn host_of(destination: &str) -> Option<Host> {
    let destination = Destination::parse_with_default(destination.as_bytes(), Port::HTTPS);
    destination.ok().map(|destination| destination.host)
}

impl std::fmt::Display for HostMatch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NameAndBelow(name) => write!(out, "`{name}`"),
            Self::Below(name) => write!(out, "`*.{name}`"),
            Self::Address(address) => write!(out, "`{address}`"),
        }
    }
}

impl Decode for HostMatch {
    fn decode(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let Kind::String(text) = &node.kind else {
            return faults.mismatch(node, "a host");
        };
        let refused = |why| {
            let help = "write `example.org`, or `*.example.org` for the names below it";
            faults.invalid(node, Fault::new(why).help(help))
        };
        Self::new(text).map_or_else(refused, Some)
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[^/\\s]+$"})
    }
}
