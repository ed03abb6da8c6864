//! Synthetic addresses inside the sandbox that stand for allowed hosts.
//!
//! A program that does not know proxies resolves a name and connects. The resolver inside answers an allowed name
//! with a synthetic address; a connection to that address and port is passed to the proxy, which decides on it by
//! name with the usual policy. A name that no rule allows has no address.

use crate::{Egress, GuestAddress, GuestListener, GuestRange, HostName, HostTarget, Port, RuleEffect};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The maximum number of sockets for synthetic addresses.
const SOCKETS: usize = 96;
/// The maximum number of addresses reserved for names that only a wildcard allows. They are assigned when a name is
/// looked up.
const SPARE: usize = 24;

/// The address of the resolver inside the sandbox.
pub const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);
/// The name of the resolver's listener.
pub const RESOLVER_LISTENER: &str = "resolver";

/// One synthetic address and its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticAddress {
    pub address: Ipv4Addr,
    /// The host that it stands for; `None` until a lookup assigns one.
    pub name: Option<HostName>,
    /// The ports that it listens on.
    pub ports: Vec<Port>,
}

/// All synthetic addresses of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticAddresses {
    pub addresses: Vec<SyntheticAddress>,
    /// Allowed hosts that there was no socket left for.
    pub left_out: Vec<HostName>,
}

impl SyntheticAddresses {
    /// The range that contains all synthetic addresses.
    pub const RANGE: GuestRange = GuestRange { network: Ipv4Addr::new(198, 18, 0, 0), prefix: 16 };

    /// The addresses for a policy: one for each name that a rule spells out, and reserved ones for names below
    /// `*.domain`. Hosts beyond the number of sockets get no address and are reached only through the proxy.
    #[must_use]
    pub fn of(egress: &Egress) -> Self {
        let mut named: BTreeMap<&HostName, BTreeSet<Port>> = BTreeMap::new();
        let mut spare_ports = BTreeSet::new();
        for rule in egress.rules.iter().filter(|rule| rule.effect == RuleEffect::Allow) {
            match &rule.host.target {
                HostTarget::Exact(name) => {
                    named.entry(name).or_default().insert(rule.port_when_allowing());
                }
                HostTarget::AnyUnder(_) => {
                    spare_ports.insert(rule.port_when_allowing());
                }
                HostTarget::Address(_) | HostTarget::Range(_) => {}
            }
        }
        let mut left = SOCKETS;
        let (mut addresses, mut left_out) = (Vec::new(), Vec::new());
        for (number, (name, ports)) in (1_u16..).zip(named) {
            let Some(rest) = left.checked_sub(ports.len()).filter(|_| left_out.is_empty()) else {
                left_out.push(name.clone());
                continue;
            };
            left = rest;
            let ports = ports.into_iter().collect();
            addresses.push(SyntheticAddress { address: at(0, number), name: Some(name.clone()), ports });
        }
        let spare = left.checked_div(spare_ports.len()).unwrap_or(0).min(SPARE);
        let ports: Vec<Port> = spare_ports.into_iter().collect();
        addresses.extend((1_u16..).take(spare).map(|number| SyntheticAddress {
            address: at(64, number),
            name: None,
            ports: ports.clone(),
        }));
        Self { addresses, left_out }
    }

    /// The sockets that the guest opens: the resolver's, and one for each address and port.
    #[must_use]
    pub fn listeners(&self) -> Vec<GuestListener> {
        let sockets = self.addresses.iter().flat_map(|synthetic| {
            synthetic.ports.iter().map(|port| {
                let address = SocketAddr::from((synthetic.address, port.get()));
                GuestListener { name: format!("transparent {address}"), at: GuestAddress::Tcp { address } }
            })
        });
        let resolver =
            GuestListener { name: RESOLVER_LISTENER.to_owned(), at: GuestAddress::Udp { address: RESOLVER } };
        std::iter::once(resolver).chain(sockets).collect()
    }
}

fn at(block: u8, number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(198, 18, block | (high & 0x3f), low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EgressRule, HostPattern};

    fn addresses(allow: &[String]) -> SyntheticAddresses {
        let rule = |text: &String| EgressRule {
            id: text.clone(),
            effect: RuleEffect::Allow,
            host: HostPattern::parse(text).unwrap(),
            request: None,
        };
        SyntheticAddresses::of(&Egress { model: true, rules: allow.iter().map(rule).collect() })
    }

    #[test]
    fn hosts_beyond_the_sockets_are_named() {
        let allow: Vec<String> = (100..200).map(|number| format!("h{number}.example.org")).collect();
        let found = addresses(&allow);
        assert_eq!((found.addresses.len(), found.left_out.len()), (96, 4));
        assert_eq!(found.left_out[0].to_string(), "h196.example.org");
        assert!(addresses(&allow[..96]).left_out.is_empty());
    }

    #[test]
    fn a_name_has_an_address_and_a_wildcard_reserved_ones() {
        let made = addresses(&["a.test".into(), "a.test:80".into(), "*.b.test".into(), "10.0.0.0/8".into()]);
        assert_eq!(made.addresses.len(), 1 + SPARE);
        assert_eq!(made.addresses[0].address.to_string(), "198.18.0.1");
        assert_eq!(made.addresses[0].ports.iter().map(|port| port.get()).collect::<Vec<_>>(), [80, 443]);
        assert_eq!(made.addresses[1].name, None);
        assert_eq!(made.listeners().len(), 1 + 2 + SPARE);
        let by_address = addresses(&["10.0.0.0/8".into()]).listeners();
        assert!(matches!(&by_address[..], [resolver] if resolver.name == RESOLVER_LISTENER));
    }

    #[test]
    fn they_are_few_and_all_in_the_range() {
        let many: Vec<String> =
            (0..300).map(|n| format!("host{n}.test")).chain(["*.c.test".into()]).collect();
        let made = addresses(&many);
        assert!(made.listeners().len() <= SOCKETS + 1);
        assert!(made.listeners().len() < crate::GUEST_LISTENERS_MAX);
        let addresses: BTreeSet<_> = made.addresses.iter().map(|synthetic| synthetic.address).collect();
        assert_eq!(addresses.len(), made.addresses.len(), "addresses must be unique");
        assert!(addresses.iter().all(|address| SyntheticAddresses::RANGE.contains(IpAddr::V4(*address))));
        assert!(SyntheticAddresses::RANGE.is_reserved());
    }
}
