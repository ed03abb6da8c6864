//! A refusal as the client and the terminal are told it: what, why, and the line that would change it.

use belljar_contract::{AgentName, Destination, EgressRefusal, EgressWay, Host, Port};
use std::fmt;
use std::net::IpAddr;

/// Something that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// How it was asked for.
    pub way: EgressWay,
    /// What was asked for.
    pub asked: Asked,
    /// The address that decided, where one did.
    pub address: Option<IpAddr>,
    /// The rule that decided, where one did.
    pub rule: Option<String>,
    /// Why.
    pub reason: EgressRefusal,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A destination.
    Destination(Destination),
    /// Bytes that name none, escaped and cut.
    Other(String),
}

/// The most that is kept of bytes that name no destination.
const OTHER_LIMIT: usize = 200;

impl Asked {
    /// Bytes that name no destination.
    #[must_use]
    pub fn other(bytes: &[u8]) -> Self {
        let cut = bytes.get(..OTHER_LIMIT).unwrap_or(bytes);
        Self::Other(cut.escape_ascii().to_string())
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination(destination) => destination.fmt(f),
            Self::Other(text) => text.fmt(f),
        }
    }
}

impl Refusal {
    /// The rule's id, or one word for the reason.
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

    /// The destination that a rule would have to name, where a rule could open this.
    #[must_use]
    pub fn needed(&self) -> Option<Destination> {
        let Asked::Destination(asked) = &self.asked else { return None };
        match (&self.reason, self.address) {
            (EgressRefusal::NotAllowed | EgressRefusal::Port { .. }, _) => Some(asked.clone()),
            (EgressRefusal::Address { .. }, Some(address)) => {
                Some(Destination { host: Host::of(address), port: asked.port })
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

    /// What was refused and why, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let asked = &self.asked;
        match &self.reason {
            EgressRefusal::NotAllowed => format!("{asked} may not be reached: no rule allows it"),
            EgressRefusal::Denied => {
                format!("{asked} may not be reached: the rule {} denies it", self.rule_or_reason())
            }
            EgressRefusal::Port { allowed } => {
                let allowed: Vec<String> = allowed.iter().map(Port::to_string).collect();
                format!(
                    "{asked} may not be reached: this host is allowed on port {} only",
                    allowed.join(", ")
                )
            }
            EgressRefusal::Address { class } => {
                let address = self.address.map_or("an address".to_owned(), |address| address.to_string());
                let class = class.describe();
                format!("{asked} may not be reached: it leads to {address}, {class}, which no rule names")
            }
            EgressRefusal::Unresolved => format!("{asked} cannot be reached: the name has no address"),
            EgressRefusal::Malformed { what } => format!("the request was not understood: {what}"),
            EgressRefusal::Token => "the proxy's user and password are missing or wrong".to_owned(),
            EgressRefusal::HostMismatch => {
                format!("the request is for {asked}, and its `Host` names something else")
            }
            EgressRefusal::Upgrade => {
                format!("the connection to {asked} may not be upgraded; use CONNECT for other protocols")
            }
            EgressRefusal::NotTls => format!("the tunnel to {asked} must begin with TLS"),
            EgressRefusal::Sni { found: Some(found) } => {
                format!("the tunnel is for {asked}, and the TLS in it asks for {found}")
            }
            EgressRefusal::Sni { found: None } => {
                format!("the tunnel is for {asked}, and the TLS in it does not say for which host it is")
            }
            EgressRefusal::Request { what } => format!("{asked}: {what}"),
        }
    }

    /// What to change so that it would be allowed, where the manifest can.
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

    fn refusal(asked: &str, reason: EgressRefusal) -> Refusal {
        let asked = Asked::Destination(Destination::parse_authority(asked.as_bytes()).unwrap());
        Refusal { way: EgressWay::Connect, asked, address: None, rule: None, reason }
    }

    #[test]
    fn the_line_to_add_is_told() {
        let agent = AgentName::new("reviewer").unwrap();
        let advice = |refusal: &Refusal| refusal.advice(&agent);
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
