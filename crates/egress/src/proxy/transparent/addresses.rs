//! The mapping between names and synthetic addresses.

use super::dns::Found;
use belljar_contract::{
    Destination, EgressPolicy, Host, HostName, Port, SyntheticAddress, SyntheticAddresses,
};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Which name has which synthetic address, and which addresses are still unassigned.
#[derive(Debug)]
pub(super) struct AddressMap {
    addresses: HashMap<HostName, Ipv4Addr>,
    names: HashMap<Ipv4Addr, HostName>,
    spare: Vec<Ipv4Addr>,
    spare_ports: Vec<Port>,
}

impl AddressMap {
    pub(super) fn new(assigned: &SyntheticAddresses) -> Self {
        let mut map = Self {
            addresses: HashMap::new(),
            names: HashMap::new(),
            spare: Vec::new(),
            spare_ports: Vec::new(),
        };
        // In reverse, so that the first spare address is assigned first.
        for SyntheticAddress { address, name, ports } in assigned.addresses.iter().rev() {
            match name {
                Some(name) => map.assign(name.clone(), *address),
                None => {
                    map.spare.push(*address);
                    map.spare_ports.clone_from(ports);
                }
            }
        }
        map
    }

    /// Looks up the synthetic address of a name. A name that only a wildcard allows gets a spare address for the rest of
    /// the run.
    pub(super) fn find(&mut self, name: &HostName, policy: &EgressPolicy) -> Found {
        if let Some(address) = self.addresses.get(name) {
            return Found::At(*address);
        }
        let allowed = self.spare_ports.iter().any(|port| {
            let destination = Destination { host: Host::Name(name.clone()), port: *port };
            policy.admit(&destination).is_ok()
        });
        if !allowed {
            return Found::NotAllowed;
        }
        match self.spare.pop() {
            Some(address) => {
                self.assign(name.clone(), address);
                Found::At(address)
            }
            None => Found::NoAddressLeft,
        }
    }

    /// The name that a synthetic address was assigned to.
    pub(super) fn name(&self, address: Ipv4Addr) -> Option<&HostName> {
        self.names.get(&address)
    }

    fn assign(&mut self, name: HostName, address: Ipv4Addr) {
        self.addresses.insert(name.clone(), address);
        self.names.insert(address, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_contract::{Egress, EgressRule, HostPattern, RuleEffect};

    #[test]
    fn names_below_a_wildcard_share_the_spare_addresses() {
        let rule = |id: &str, effect, text| EgressRule {
            id: id.to_owned(),
            effect,
            host: HostPattern::parse(text).unwrap(),
            request: None,
        };
        let rules = vec![
            rule("deny-1", RuleEffect::Deny, "no.b.test"),
            rule("allow-1", RuleEffect::Allow, "a.test"),
            rule("allow-2", RuleEffect::Allow, "*.b.test"),
        ];
        let egress = Egress { model: true, rules };
        let policy = EgressPolicy::new(&egress);
        let assigned = SyntheticAddresses::of(&egress);
        let spare = assigned.addresses.len() - 1;
        let mut map = AddressMap::new(&assigned);
        let mut find = |name: &str| map.find(&HostName::new(name).unwrap(), &policy);
        assert_eq!(find("a.test"), Found::At(Ipv4Addr::new(198, 18, 0, 1)));
        assert_eq!(find("x.b.test"), Found::At(Ipv4Addr::new(198, 18, 64, 1)));
        assert_eq!(find("x.b.test"), find("x.b.test"), "a name keeps its address");
        assert_eq!(find("b.test"), Found::NotAllowed);
        assert_eq!(find("no.b.test"), Found::NotAllowed);
        assert_eq!(find("evil.test"), Found::NotAllowed);
        for number in 1..spare {
            assert!(matches!(find(&format!("n{number}.b.test")), Found::At(_)));
        }
        assert_eq!(find("last.b.test"), Found::NoAddressLeft);
        let first = Ipv4Addr::new(198, 18, 64, 1);
        assert_eq!(map.name(first).map(HostName::as_str), Some("x.b.test"));
    }
}
