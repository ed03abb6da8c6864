//! A proxy that decides and logs but dials nothing.

use crate::ask::{connect, say, status, token};
use crate::peers::{ALLOWED, Peer};
use crate::world::Setup;
use belljar_contract::{EGRESS_NOT_DIALLED, EgressRow, EgressVerdict};
use belljar_egress::proxy::Reach;

#[test]
fn an_allowed_request_is_logged_and_neither_resolved_nor_dialled() {
    let peer = Peer::start(ALLOWED, drop);
    let port = peer.address.port();
    let (by_name, by_address) = (format!("allowed.test:{port}"), peer.address.to_string());
    let setup = || {
        let names = Setup::allowing(&[&by_name, &by_address]);
        names.name("allowed.test", &peer.address.ip().to_string())
    };
    // The same request succeeds with a proxy that dials.
    let open = setup().start();
    assert_eq!(status(&connect(open.address, &by_address).0), 200);
    peer.wait_for(1);

    let proxy = Setup { reach: Reach::Nowhere, ..setup() }.start();
    for authority in [&by_name, &by_address] {
        let (answer, mut stream) = connect(proxy.address, authority);
        let said = format!("{answer}{}", crate::ask::rest(&mut stream));
        assert_eq!(status(&answer), 403, "{said}");
        assert!(said.contains("--network"), "the fix is named: {said}");
        let request = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", token());
        assert_eq!(status(&say(proxy.address, request.as_bytes())), 403);
    }
    assert_eq!(status(&connect(proxy.address, "evil.test:443").0), 403);
    assert_eq!(proxy.names.asked(), [""; 0], "no name was resolved");
    // Connections are accepted in order: one that the proxy made would be counted before this one.
    std::net::TcpStream::connect(peer.address).unwrap();
    peer.wait_for(2);
    assert_eq!(peer.count(), 2, "only the first proxy dialled");
    let (summary, _, reading) = proxy.finish();
    assert_eq!((summary.allowed, summary.denied), (4, 1));
    let ended = |number: u64| {
        reading.rows.iter().find_map(|row| match row {
            EgressRow::Finished { seq, end, .. } if *seq == number => Some(end.clone()),
            _ => None,
        })
    };
    for row in &reading.rows {
        let EgressRow::Decided { seq, decision, .. } = row else { continue };
        if decision.verdict == EgressVerdict::Allowed {
            let end = ended(*seq).unwrap();
            assert_eq!((end.sent, end.address), (0, None));
            assert_eq!(end.failure.as_deref(), Some(EGRESS_NOT_DIALLED));
            assert!(decision.rule.is_some(), "{decision:?}");
        }
    }
}
