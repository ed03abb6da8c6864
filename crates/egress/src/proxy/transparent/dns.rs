//! The DNS server inside the sandbox: an allowed name resolves to its synthetic address, every other name to NXDOMAIN.

use belljar_contract::{Host, HostName};
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};
use std::net::Ipv4Addr;

/// TTL in seconds. A spare address keeps its name for the whole run.
const TTL: u32 = 60;

/// The result of looking up a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// The synthetic address of the name.
    At(Ipv4Addr),
    /// No rule allows the name.
    NotAllowed,
    /// The name is allowed, but every spare address is taken.
    NoAddressLeft,
}

/// Builds the reply to a packet; `None` for a packet that is not a query.
pub(super) fn answer(query: &[u8], mut find: impl FnMut(&HostName) -> Found) -> Option<Vec<u8>> {
    let packet = Packet::parse(query).ok()?;
    if packet.has_flags(PacketFlag::RESPONSE) {
        return None;
    }
    let mut reply = Packet::new_reply(packet.id());
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if packet.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let [question] = packet.questions.as_slice() else {
        *reply.rcode_mut() = RCODE::FormatError;
        return reply.build_bytes_vec().ok();
    };
    reply.questions.push(question.clone());
    if packet.opcode() != OPCODE::StandardQuery || question.qclass != QCLASS::CLASS(CLASS::IN) {
        *reply.rcode_mut() = RCODE::NotImplemented;
        return reply.build_bytes_vec().ok();
    }
    // The raw labels are compared, not their printed form: a dot inside a label does not separate labels.
    let labels: Vec<&[u8]> = question.qname.as_bytes().collect();
    let dotted = labels.iter().any(|label| label.contains(&b'.'));
    let name = match Host::parse(&labels.join(&b"."[..])) {
        Ok(Host::Name(name)) if !dotted => name,
        Ok(Host::Name(_) | Host::Address(_)) | Err(_) => {
            *reply.rcode_mut() = RCODE::NameError;
            return reply.build_bytes_vec().ok();
        }
    };
    match find(&name) {
        Found::At(address) => {
            // Synthetic addresses are IPv4. For other record types the name exists and has no records.
            if matches!(question.qtype, QTYPE::TYPE(TYPE::A) | QTYPE::ANY) {
                let data = RData::A(A::from(address));
                reply.answers.push(ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL, data));
            }
        }
        Found::NotAllowed => *reply.rcode_mut() = RCODE::NameError,
        Found::NoAddressLeft => *reply.rcode_mut() = RCODE::ServerFailure,
    }
    reply.build_bytes_vec().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::{Name, Question};

    const SYNTHETIC: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

    fn ask(name: &str, kind: TYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new_unchecked(name);
        packet.questions.push(Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
        packet.build_bytes_vec().unwrap()
    }

    fn find(name: &HostName) -> Found {
        match name.as_str() {
            "allowed.test" => Found::At(SYNTHETIC),
            "crowded.test" => Found::NoAddressLeft,
            _ => Found::NotAllowed,
        }
    }

    fn answered(query: &[u8]) -> (RCODE, Vec<Ipv4Addr>) {
        let bytes = answer(query, find).unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.id(), 7);
        assert!(packet.has_flags(PacketFlag::RESPONSE));
        let addresses = packet.answers.iter().filter_map(|record| {
            let RData::A(address) = &record.rdata else { return None };
            Some(Ipv4Addr::from(address.address))
        });
        (packet.rcode(), addresses.collect())
    }

    #[test]
    fn only_allowed_names_have_an_address() {
        assert_eq!(answered(&ask("allowed.test", TYPE::A)), (RCODE::NoError, vec![SYNTHETIC]));
        assert_eq!(answered(&ask("ALLOWED.test", TYPE::A)), (RCODE::NoError, vec![SYNTHETIC]));
        assert_eq!(answered(&ask("allowed.test", TYPE::AAAA)), (RCODE::NoError, Vec::new()));
        assert_eq!(answered(&ask("allowed.test", TYPE::TXT)), (RCODE::NoError, Vec::new()));
        assert_eq!(answered(&ask("evil.test", TYPE::A)), (RCODE::NameError, Vec::new()));
        assert_eq!(answered(&ask("secret.evil.test", TYPE::TXT)), (RCODE::NameError, Vec::new()));
        assert_eq!(answered(&ask("crowded.test", TYPE::A)), (RCODE::ServerFailure, Vec::new()));
    }

    #[test]
    fn a_dot_inside_a_label_does_not_separate_labels() {
        // One label of twelve bytes, "allowed.test": printed, it would look like the allowed name.
        let mut query = ask("x.test", TYPE::A);
        let mut named = query[..12].to_vec();
        named.extend(b"\x0callowed.test\x00\x00\x01\x00\x01");
        query = named;
        assert_eq!(answered(&query), (RCODE::NameError, Vec::new()));
    }

    #[test]
    fn packets_that_are_not_queries() {
        assert_eq!(answer(b"", find), None);
        assert_eq!(answer(b"\0\0\x80\0\0\0\0\0\0\0\0\0", find), None);
        let mut none = Packet::new_query(7);
        none.set_flags(PacketFlag::RECURSION_DESIRED);
        assert_eq!(answered(&none.build_bytes_vec().unwrap()).0, RCODE::FormatError);
    }

    #[test]
    fn fuzz_dns_query() {
        let everyday = std::time::Duration::from_millis(300);
        bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
            if let Some(reply) = answer(bytes, find) {
                assert!(Packet::parse(&reply).is_ok_and(|reply| reply.answers.len() <= 1));
            }
        });
    }
}
