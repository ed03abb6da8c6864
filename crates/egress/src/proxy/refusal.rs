//! A refusal as the client and the user see it: what was refused, why, and which line of the manifest would allow it.

use belljar_contract::{AgentName, Destination, EgressRefusal, EgressWay, Host, Port};
use std::fmt;
use std::net::IpAddr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRefusal {
    /// How the client asked.
    pub way: EgressWay,
    pub target: RefusedTarget,
    /// The address that was refused, if it was an address.
    pub address: Option<IpAddr>,
    /// The rule that decided, if there is one.
    pub rule: Option<String>,
    pub reason: EgressRefusal,
}

/// What the client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedTarget {
    Destination(Destination),
    /// Bytes that are not a destination, escaped and truncated.
    Other(String),
}

/// How many bytes of an invalid destination are kept.
const OTHER_LIMIT: usize = 200;

impl RefusedTarget {
    /// Keeps bytes that are not a destination.
    #[must_use]
    pub fn other(bytes: &[u8]) -> Self {
        let cut = bytes.get(..OTHER_LIMIT).unwrap_or(bytes);
        Self::Other(cut.escape_ascii().to_string())
    }
}

impl fmt::Display for RefusedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination(destination) => destination.fmt(f),
            Self::Other(text) => text.fmt(f),
        }
    }
}

impl ProxyRefusal {
    /// The rule's id, or a stable word for the reason.
    #[must_use]
    pub fn rule_or_reason(&self) -> &str {
        if let Some(rule) = &self.rule {
            return rule;
        }
        match self.reason {
            EgressRefusal::NotAllowed => "not-allowed",
            EgressRefusal::Denied => "denied",
            EgressRefusal::Port { .. } => "port",
            EgressRefusal::Address { .. } => "address",
            EgressRefusal::Unresolved => "unresolved",
            EgressRefusal::Malformed { .. } => "malformed",
            EgressRefusal::Token => "token",
            EgressRefusal::HostMismatch => "host-mismatch",
            EgressRefusal::Upgrade => "upgrade",
            EgressRefusal::NotTls => "not-tls",
            EgressRefusal::Sni { .. } => "sni",
            EgressRefusal::Request { .. } => "request",
        }
    }

    /// The destination that a rule would have to name to allow this; `None` if no rule could.
    #[must_use]
    pub fn needed(&self) -> Option<Destination> {
        let RefusedTarget::Destination(target) = &self.target else { return None };
        match (&self.reason, self.address) {
            (EgressRefusal::NotAllowed | EgressRefusal::Port { .. }, _) => Some(target.clone()),
            (EgressRefusal::Address { .. }, Some(address)) => {
                Some(Destination { host: Host::of(address), port: target.port })
            }
            (
                EgressRefusal::Address { .. }
                | EgressRefusal::Denied
                | EgressRefusal::Unresolved
                | EgressRefusal::Malformed { .. }
                | EgressRefusal::Token
                | EgressRefusal::HostMismatch
                | EgressRefusal::Upgrade
                | EgressRefusal::NotTls
                | EgressRefusal::Sni { .. }
                | EgressRefusal::Request { .. },
                _,
            ) => None,
        }
    }

    /// What was refused and why.
    #[must_use]
    pub fn sentence(&self) -> String {
        let target = &self.target;
        match &self.reason {
            EgressRefusal::NotAllowed => format!("{target} is not allowed: no rule allows it"),
            EgressRefusal::Denied => {
                format!("{target} is not allowed: the rule {} denies it", self.rule_or_reason())
            }
            EgressRefusal::Port { allowed } => {
                let allowed: Vec<String> = allowed.iter().map(Port::to_string).collect();
                format!("{target} is not allowed: this host is allowed on port {} only", allowed.join(", "))
            }
            EgressRefusal::Address { class } => {
                let address = self.address.map_or("an address".to_owned(), |address| address.to_string());
                let class = class.describe();
                format!("{target} is not allowed: it resolves to {address}, {class}, which no rule names")
            }
            EgressRefusal::Unresolved => format!("{target} cannot be reached: the name has no address"),
            EgressRefusal::Malformed { what } => format!("the request is malformed: {what}"),
            EgressRefusal::Token => "the proxy's user and password are missing or wrong".to_owned(),
            EgressRefusal::HostMismatch => {
                format!("the request is for {target}, but its `Host` header names another host")
            }
            EgressRefusal::Upgrade => {
                format!("the connection to {target} must not be upgraded; use CONNECT for other protocols")
            }
            EgressRefusal::NotTls => format!("the tunnel to {target} must start with TLS"),
            EgressRefusal::Sni { found: Some(found) } => {
                format!("the tunnel is for {target}, but the TLS handshake in it is for {found}")
            }
            EgressRefusal::Sni { found: None } => {
                format!("the tunnel is for {target}, but the TLS handshake in it names no host")
            }
            EgressRefusal::Request { what } => format!("{target}: {what}"),
        }
    }

    /// What to change in the manifest to allow it, if the manifest can.
    #[must_use]
    pub fn advice(&self, agent: &AgentName) -> Option<String> {
        if self.reason == EgressRefusal::Denied {
            let rule = self.rule_or_reason();
            return Some(format!("take {rule} out of [agents.{agent}.egress] deny"));
        }
        self.needed().map(|needed| format!("add \"{}\" to [agents.{agent}.egress] allow", needed.pattern()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::AddressClass;

    fn refusal(target: &str, reason: EgressRefusal) -> ProxyRefusal {
        let target = RefusedTarget::Destination(Destination::parse_authority(target.as_bytes()).unwrap());
        ProxyRefusal { way: EgressWay::Connect, target, address: None, rule: None, reason }
    }

    #[test]
    fn the_advice_names_the_line_to_add() {
        let agent = AgentName::new("reviewer").unwrap();
        let advice = |refusal: &ProxyRefusal| refusal.advice(&agent);
        let add = |pattern: &str| Some(format!("add \"{pattern}\" to [agents.reviewer.egress] allow"));
        assert_eq!(advice(&refusal("evil.test:80", EgressRefusal::NotAllowed)), add("evil.test:80"));
        assert_eq!(advice(&refusal("evil.test:443", EgressRefusal::NotAllowed)), add("evil.test"));
        assert_eq!(
            advice(&refusal("[fd00::1]:22", EgressRefusal::Port { allowed: vec![] })),
            add("[fd00::1]:22")
        );
        let class = AddressClass::Loopback;
        let mut address = refusal("a.test:80", EgressRefusal::Address { class });
        address.address = Some(IpAddr::from([127, 0, 0, 1]));
        assert_eq!(advice(&address), add("127.0.0.1:80"));
        let mut denied = refusal("a.test:80", EgressRefusal::Denied);
        denied.rule = Some("deny-1".to_owned());
        assert_eq!(advice(&denied).as_deref(), Some("take deny-1 out of [agents.reviewer.egress] deny"));
        assert_eq!(advice(&refusal("a.test:80", EgressRefusal::Token)), None);
    }
}
