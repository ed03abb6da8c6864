//! The egress policy. The proxy, `plan --why` and replay all use it.
//!
//! A decision has two steps. [`EgressPolicy::admit`] looks at the destination as it was requested, before any name is
//! resolved, so that a name that is not allowed never reaches a resolver. [`EgressPolicy::check`] looks at each
//! address that the name resolved to; only an address that passed is dialled. A deny rule wins in both steps.

use crate::{
    Destination, Digest, Egress, EgressRule, Host, HostPattern, HostTarget, PatternPort, Port, RuleEffect,
};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kinds of address. A rule that names a host reaches only [`AddressClass::Public`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressClass {
    /// A globally routable address.
    Public,
    /// An address of the machine itself.
    Loopback,
    /// A private network, including site-local and unique-local addresses.
    Private,
    LinkLocal,
    /// Carrier-grade NAT, which providers share among customers.
    SharedByProviders,
    /// Where cloud providers hand out the machine's credentials.
    Metadata,
    Multicast,
    /// Not the address of a host: unspecified, broadcast, documentation, benchmarking, translation, reserved.
    Special,
}

impl AddressClass {
    /// The class of an address. An IPv6 address that embeds an IPv4 address has the class of that address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => class_of_4(address),
            IpAddr::V6(address) => class_of_6(address),
        }
    }

    /// For a sentence such as "it is …".
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            AddressClass::Public => "a public address",
            AddressClass::Loopback => "this machine's own loopback",
            AddressClass::Private => "a private address",
            AddressClass::LinkLocal => "a link-local address",
            AddressClass::SharedByProviders => "an address shared by providers",
            AddressClass::Metadata => "a metadata service",
            AddressClass::Multicast => "a multicast address",
            AddressClass::Special => "a special-purpose address",
        }
    }
}

fn class_of_4(address: Ipv4Addr) -> AddressClass {
    let [a, b, c, d] = address.octets();
    match (a, b, c, d) {
        (169, 254, 169, 254) | (100, 100, 100, 200) | (192, 0, 0, 192) => AddressClass::Metadata,
        (127, ..) => AddressClass::Loopback,
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => AddressClass::Private,
        (169, 254, ..) => AddressClass::LinkLocal,
        (100, 64..=127, ..) => AddressClass::SharedByProviders,
        (224..=239, ..) => AddressClass::Multicast,
        (0 | 240..=255, ..)
        | (192, 0, 0 | 2, _)
        | (192, 88, 99, _)
        | (198, 18 | 19, ..)
        | (198, 51, 100, _)
        | (203, 0, 113, _) => AddressClass::Special,
        (1..=223, ..) => AddressClass::Public,
    }
}

fn class_of_6(address: Ipv6Addr) -> AddressClass {
    let segments = address.segments();
    if address == Ipv6Addr::LOCALHOST {
        return AddressClass::Loopback;
    }
    if address == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254) {
        return AddressClass::Metadata;
    }
    match segments[0] {
        0xff00..=0xffff => AddressClass::Multicast,
        0xfc00..=0xfdff | 0xfec0..=0xfeff => AddressClass::Private,
        0xfe80..=0xfebf => AddressClass::LinkLocal,
        // Documentation, and the two forms (Teredo, 6to4) that embed an IPv4 address, which a check of the address
        // would miss.
        0x2001 if segments[1] == 0xdb8 || segments[1] < 0x200 => AddressClass::Special,
        0x2002 => AddressClass::Special,
        0x3fff if segments[1] < 0x1000 => AddressClass::Special,
        0x2000..=0x3fff => AddressClass::Public,
        _ => AddressClass::Special,
    }
}

/// Why a destination is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DenialReason {
    /// No rule allows it.
    NotAllowed,
    /// A rule denies it.
    Denied,
    /// A rule allows the host, but on other ports.
    Port {
        /// The ports that are allowed.
        allowed: Vec<Port>,
    },
    /// The name resolves to an address that needs a rule for that address.
    Address { class: AddressClass },
}

/// A refusal and the rule behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Denial {
    /// The rule that denies; `None` if no rule allows it.
    pub rule: Option<String>,
    pub reason: DenialReason,
}

/// A destination that a rule allows by its name and port. Its addresses still have to be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission<'p> {
    /// The rule that allows it.
    pub rule: &'p EgressRule,
    pub destination: Destination,
}

/// The rules of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressPolicy {
    rules: Vec<EgressRule>,
}

impl EgressPolicy {
    /// The policy of a plan. Without rules nothing can be reached.
    #[must_use]
    pub fn new(egress: &Egress) -> Self {
        Self { rules: egress.rules.clone() }
    }

    /// Decides on the destination as it was requested, before any name is resolved.
    ///
    /// # Errors
    /// The refusal.
    pub fn admit(&self, destination: &Destination) -> Result<Admission<'_>, Denial> {
        if let Some(rule) = self.with(RuleEffect::Deny).find(|rule| rule.names(destination)) {
            return Err(Denial { rule: Some(rule.id.clone()), reason: DenialReason::Denied });
        }
        if let Some(rule) = self.with(RuleEffect::Allow).find(|rule| rule.names(destination)) {
            return Ok(Admission { rule, destination: destination.clone() });
        }
        let mut allowed: Vec<Port> = self
            .with(RuleEffect::Allow)
            .filter(|rule| names_host(&rule.host, &destination.host))
            .map(EgressRule::port_when_allowing)
            .collect();
        allowed.sort_unstable();
        allowed.dedup();
        let reason =
            if allowed.is_empty() { DenialReason::NotAllowed } else { DenialReason::Port { allowed } };
        Err(Denial { rule: None, reason })
    }

    /// Decides on one address of an admitted destination. Returns the id of the rule that allows it.
    ///
    /// # Errors
    /// The refusal.
    pub fn check<'p>(&'p self, admission: &Admission<'p>, address: IpAddr) -> Result<&'p EgressRule, Denial> {
        let reached = Destination { host: Host::of(address), port: admission.destination.port };
        if let Some(rule) = self.with(RuleEffect::Deny).find(|rule| rule.names(&reached)) {
            return Err(Denial { rule: Some(rule.id.clone()), reason: DenialReason::Denied });
        }
        let class = AddressClass::of(address);
        if class == AddressClass::Public {
            return Ok(admission.rule);
        }
        // Only a rule that names the address allows a non-public one, whichever name led to it.
        let opener = self.with(RuleEffect::Allow).find(|rule| rule.names(&reached));
        opener.ok_or(Denial { rule: None, reason: DenialReason::Address { class } })
    }

    /// A digest for the log: the same rules in the same order have the same digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let line = |rule: &EgressRule| {
            let effect = match rule.effect {
                RuleEffect::Allow => "allow",
                RuleEffect::Deny => "deny",
            };
            let request = rule.request.as_ref().map(|request| format!(" {request}")).unwrap_or_default();
            format!("{} {effect} {}{request}\n", rule.id, rule.host)
        };
        Digest::of(self.rules.iter().map(line).collect::<String>().as_bytes())
    }

    /// All rules, in their order.
    #[must_use]
    pub fn rules(&self) -> &[EgressRule] {
        &self.rules
    }

    fn with(&self, effect: RuleEffect) -> impl Iterator<Item = &EgressRule> {
        self.rules.iter().filter(move |rule| rule.effect == effect)
    }
}

impl EgressRule {
    /// Whether the rule applies to this port. A rule without a port means 443 if it allows and every port if it
    /// denies, so that an omitted port never allows more.
    #[must_use]
    pub fn covers_port(&self, port: Port) -> bool {
        match (self.effect, self.host.port) {
            (RuleEffect::Allow | RuleEffect::Deny, PatternPort::Written(written)) => written == port,
            (RuleEffect::Allow, PatternPort::Unwritten) => port == Port::HTTPS,
            (RuleEffect::Deny, PatternPort::Unwritten) => true,
        }
    }

    /// The port that the rule opens if it allows.
    #[must_use]
    pub fn port_when_allowing(&self) -> Port {
        match self.host.port {
            PatternPort::Written(port) => port,
            PatternPort::Unwritten => Port::HTTPS,
        }
    }

    /// Whether this rule, which denies, leaves nothing of what `allow` allows.
    #[must_use]
    pub fn denies_all_of(&self, allow: &EgressRule) -> bool {
        let host = match (&allow.host.target, &self.host.target) {
            (HostTarget::Exact(name), _) => self.host.covers(name),
            (HostTarget::AnyUnder(domain), HostTarget::AnyUnder(denied)) => {
                domain == denied || domain.is_under(denied)
            }
            (HostTarget::Address(address), _) => {
                names_host(&self.host, &Host::Address(address.to_canonical()))
            }
            (HostTarget::Range(range), HostTarget::Range(denied)) => range == denied,
            (HostTarget::AnyUnder(_) | HostTarget::Range(_), _) => false,
        };
        host && self.covers_port(allow.port_when_allowing())
    }

    fn names(&self, destination: &Destination) -> bool {
        self.covers_port(destination.port) && names_host(&self.host, &destination.host)
    }
}

fn names_host(pattern: &HostPattern, host: &Host) -> bool {
    match (host, &pattern.target) {
        (Host::Name(name), _) => pattern.covers(name),
        (Host::Address(address), HostTarget::Address(named)) => named.to_canonical() == *address,
        (Host::Address(address), HostTarget::Range(range)) => range.contains(*address),
        (Host::Address(_), HostTarget::Exact(_) | HostTarget::AnyUnder(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str], deny: &[&str]) -> EgressPolicy {
        let rules = |effect: RuleEffect, word: &str, texts: &[&str]| -> Vec<EgressRule> {
            let rule = |(index, text): (usize, &&str)| EgressRule {
                id: format!("{word}-{}", index + 1),
                effect,
                host: HostPattern::parse(text).unwrap(),
                request: None,
            };
            texts.iter().enumerate().map(rule).collect()
        };
        let rules = [rules(RuleEffect::Deny, "deny", deny), rules(RuleEffect::Allow, "allow", allow)];
        EgressPolicy::new(&Egress { model: true, rules: rules.concat() })
    }

    fn decide(policy: &EgressPolicy, destination: &str, address: &str) -> Result<String, Denial> {
        let destination = Destination::parse_authority(destination.as_bytes()).unwrap();
        let admission = policy.admit(&destination)?;
        policy.check(&admission, address.parse().unwrap()).map(|rule| rule.id.clone())
    }

    const PUBLIC: &str = "93.184.215.14";

    #[test]
    fn what_is_allowed() {
        let policy = policy(&["a.test", "*.b.test", "db.test:5432", "10.1.0.0/16:5432", "192.168.0.9"], &[]);
        for (destination, address, rule) in [
            ("a.test:443", PUBLIC, "allow-1"),
            ("x.b.test:443", PUBLIC, "allow-2"),
            ("db.test:5432", "10.1.2.3", "allow-4"),
            ("10.1.2.3:5432", "10.1.2.3", "allow-4"),
            ("192.168.0.9:443", "192.168.0.9", "allow-5"),
        ] {
            assert_eq!(decide(&policy, destination, address).as_deref(), Ok(rule), "{destination}");
        }
    }

    #[test]
    fn what_is_denied() {
        let policy = policy(&["a.test", "*.b.test", "c.test"], &["bad.b.test", "93.184.0.0/16"]);
        let denied = |rule: &str| Denial { rule: Some(rule.to_owned()), reason: DenialReason::Denied };
        let not = Denial { rule: None, reason: DenialReason::NotAllowed };
        let class = |class| Denial { rule: None, reason: DenialReason::Address { class } };
        let port = Denial { rule: None, reason: DenialReason::Port { allowed: vec![Port::HTTPS] } };
        for (destination, address, denial) in [
            ("evil.test:443", "8.8.8.8", not.clone()),
            ("b.test:443", "8.8.8.8", not.clone()),
            ("evila.test:443", "8.8.8.8", not.clone()),
            ("8.8.8.8:443", "8.8.8.8", not),
            ("a.test:22", "8.8.8.8", port),
            ("bad.b.test:443", "8.8.8.8", denied("deny-1")),
            ("a.test:443", PUBLIC, denied("deny-2")),
            ("a.test:443", "127.0.0.1", class(AddressClass::Loopback)),
            ("a.test:443", "::1", class(AddressClass::Loopback)),
            ("a.test:443", "::ffff:10.0.0.1", class(AddressClass::Private)),
            ("a.test:443", "0.0.0.0", class(AddressClass::Special)),
            ("a.test:443", "169.254.169.254", class(AddressClass::Metadata)),
            ("a.test:443", "169.254.1.1", class(AddressClass::LinkLocal)),
            ("a.test:443", "100.64.0.1", class(AddressClass::SharedByProviders)),
            ("a.test:443", "fd00::1", class(AddressClass::Private)),
            ("a.test:443", "fe80::1", class(AddressClass::LinkLocal)),
            ("a.test:443", "64:ff9b::7f00:1", class(AddressClass::Special)),
            ("a.test:443", "2002:7f00:1::", class(AddressClass::Special)),
            ("a.test:443", "ff02::1", class(AddressClass::Multicast)),
        ] {
            assert_eq!(decide(&policy, destination, address), Err(denial), "{destination} {address}");
        }
    }

    #[test]
    fn a_denial_without_a_port_is_for_every_port() {
        let everywhere =
            policy(&["a.test", "a.test:22", "*.b.test:22"], &["a.test", "10.0.0.0/8", "x.b.test:22"]);
        for (destination, address) in [
            ("a.test:443", PUBLIC),
            ("a.test:22", PUBLIC),
            ("y.b.test:22", "10.1.1.1"),
            ("x.b.test:22", PUBLIC),
        ] {
            let denial = decide(&everywhere, destination, address).unwrap_err();
            assert_eq!(denial.reason, DenialReason::Denied, "{destination}");
        }
        assert!(decide(&everywhere, "y.b.test:22", PUBLIC).is_ok());
        let one_port = policy(&["a.test", "a.test:22"], &["a.test:22"]);
        assert!(decide(&one_port, "a.test:443", PUBLIC).is_ok());
        assert!(decide(&one_port, "a.test:22", PUBLIC).is_err());
    }

    #[test]
    fn an_address_has_one_spelling_in_rules() {
        let policy = policy(&["a.test"], &["[::ffff:93.184.0.0/112]"]);
        assert!(decide(&policy, "a.test:443", PUBLIC).is_err());
        assert!(decide(&policy, "a.test:443", "::ffff:93.184.215.14").is_err());
    }

    #[test]
    fn different_rules_have_different_digests() {
        let digests = [policy(&["a.test"], &[]), policy(&[], &["a.test"]), policy(&["a.test:443"], &[])];
        let digests: std::collections::BTreeSet<Digest> = digests.iter().map(EgressPolicy::digest).collect();
        assert_eq!(digests.len(), 3);
        assert_eq!(policy(&["a.test"], &[]).digest(), policy(&["A.test"], &[]).digest());
    }

    /// Written without any code of the policy: whether only a rule for addresses may allow this address.
    fn plainly_inside(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => {
                a.is_loopback()
                    || a.is_private()
                    || a.is_link_local()
                    || a.is_unspecified()
                    || a.is_multicast()
            }
            IpAddr::V6(a) => {
                let embedded = a.to_ipv4_mapped().or_else(|| match a.segments() {
                    [0x64, 0xff9b, 0, 0, 0, 0, high, low]
                    | [0x2002, high, low, ..]
                    | [0, 0, 0, 0, 0, 0, high, low] => {
                        Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
                    }
                    _ => None,
                });
                a.is_loopback()
                    || a.is_unspecified()
                    || a.is_multicast()
                    || a.is_unique_local()
                    || a.is_unicast_link_local()
                    || embedded.is_some_and(|a| plainly_inside(IpAddr::V4(a)))
            }
        }
    }

    /// Written on the texts alone: whether a deny rule applies to the requested name or to the address that it
    /// resolved to.
    fn plainly_names(pattern: &str, asked: &str, address: IpAddr) -> bool {
        let (asked_host, asked_port) = asked.rsplit_once(':').unwrap();
        let (host, port) = match pattern.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (pattern, None),
        };
        if port.is_some_and(|port| port != asked_port) {
            return false;
        }
        let plain = |text: &str| text.trim_matches(['[', ']']).to_owned();
        let numbers = [plain(asked_host).parse::<IpAddr>().ok(), Some(address)];
        let mut numbers = numbers.into_iter().flatten().map(|number| number.to_canonical());
        let same_bits = |network: IpAddr, prefix: u32, number: IpAddr| match (network, number) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= prefix,
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= prefix,
            (IpAddr::V6(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_ipv6_mapped().to_bits()).leading_zeros() >= prefix
            }
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        };
        match (host.strip_prefix('*'), plain(host).split_once('/')) {
            (Some(suffix), _) => asked_host.ends_with(suffix),
            (None, Some((network, prefix))) => {
                let (network, prefix) = (network.parse().unwrap(), prefix.parse().unwrap());
                numbers.any(|number| same_bits(network, prefix, number))
            }
            (None, None) => match plain(host).parse::<IpAddr>() {
                Ok(named) => numbers.any(|number| number == named),
                Err(_) => asked_host == host,
            },
        }
    }

    #[test]
    fn fuzz_egress_policy() {
        const PIECES: [&str; 14] = [
            "a.test",
            "a.test:22",
            "*.a.test",
            "x.a.test",
            "*.test:80",
            "127.0.0.1:80",
            "10.0.0.0/8",
            "10.1.0.0/16:80",
            "93.184.215.14",
            "93.184.0.0/16:22",
            "[fd00::/8]",
            "[::1]:80",
            "[::ffff:127.0.0.0/104]",
            "169.254.169.254:80",
        ];
        const ASKED: [&str; 9] = [
            "a.test:443",
            "a.test:22",
            "x.a.test:443",
            "y.x.a.test:80",
            "127.0.0.1:80",
            "10.1.2.3:80",
            "[::1]:80",
            "93.184.215.14:443",
            "169.254.169.254:80",
        ];
        let everyday = std::time::Duration::from_millis(400);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            let [asked, kind, count, rest @ ..] = bytes else { return };
            let piece = |byte: &u8| PIECES[usize::from(*byte) % PIECES.len()];
            let (allow, deny) = rest.split_at(usize::from(*count % 5).min(rest.len()));
            let allow: Vec<&str> = allow.iter().map(piece).collect();
            let deny: Vec<&str> = deny.iter().take(3).map(piece).collect();
            let mut octets = [0; 16];
            octets.iter_mut().zip(rest.iter().rev()).for_each(|(octet, byte)| *octet = *byte);
            let [a, b, c, d, ..] = octets;
            let address = match kind % 4 {
                0 => IpAddr::from([a, b, c, d]),
                1 => IpAddr::V6(Ipv4Addr::new(a, b, c, d).to_ipv6_mapped()),
                2 => IpAddr::from(octets),
                _ => ["127.0.0.1", "10.1.2.3", "::1", "fd00::1", PUBLIC, "169.254.169.254"]
                    [usize::from(a) % 6]
                    .parse()
                    .unwrap(),
            };
            let asked = ASKED[usize::from(*asked) % ASKED.len()];
            let destination = Destination::parse_authority(asked.as_bytes()).unwrap();
            let both = policy(&allow, &deny);
            let opened = decide(&both, asked, &address.to_string());
            let reached = Destination { host: Host::of(address), port: destination.port };
            if plainly_inside(address) && opened.is_ok() {
                let named =
                    both.rules.iter().any(|rule| rule.effect == RuleEffect::Allow && rule.names(&reached));
                assert!(named, "{asked} {address} {allow:?}");
            }
            // A denied destination stays closed whatever other rules allow.
            let named = deny.iter().any(|pattern| plainly_names(pattern, asked, address));
            assert!(!(named && opened.is_ok()), "{asked} {address} {allow:?} {deny:?}");
            // One more deny rule never opens anything.
            if opened.is_ok() {
                assert!(decide(&policy(&allow, &[]), asked, &address.to_string()).is_ok());
            }
        });
    }

    #[test]
    fn no_rule_means_nothing() {
        assert!(decide(&policy(&[], &[]), "a.test:443", PUBLIC).is_err());
        assert!(decide(&policy(&[], &["b.test"]), "a.test:443", PUBLIC).is_err());
    }
}
