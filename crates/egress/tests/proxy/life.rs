//! How the proxy starts and ends, what it logs, and what it does when it cannot log.

use crate::ask::{connect, connection, get, rest, say, socks, socks_name, status, tunnel};
use crate::peers::{ALLOWED, Hosts, Peer};
use crate::plain::proxy_for;
use crate::world::{Setup, is_end};
use belljar_contract::{EgressLogState, EgressRow, EgressVerdict, read_egress_log};
use belljar_egress::log::LogError;
use belljar_egress::proxy::{EgressMode, ProxyLimits};
use std::io::{Read, Write};
use std::sync::mpsc;

#[test]
fn a_run_without_requests_has_an_empty_log() {
    let (summary, closed, reading) = Setup::default().start().finish();
    assert_eq!((summary.connections, closed.allowed, closed.denied), (0, 0, 0));
    assert_eq!((reading.state, reading.rows.len()), (EgressLogState::Complete, 2));
}

#[test]
fn a_decision_is_on_the_disk_before_the_first_byte_moves() {
    let (connected, seen) = mpsc::channel();
    let peer = Peer::start(ALLOWED, move |_stream| {
        connected.send(()).ok();
    });
    let (proxy, authority) = proxy_for(&peer);
    let mut stream = connection(proxy.address);
    stream.write_all(get(&format!("http://{authority}/"), &authority).as_bytes()).unwrap();
    seen.recv().unwrap();
    let rows = proxy.rows();
    assert!(
        rows.iter().any(|row| matches!(row, EgressRow::Decided { decision, .. } if decision.verdict == EgressVerdict::Allowed)),
        "the host was reached before it was written down: {rows:?}"
    );
}

#[test]
fn nothing_leaves_when_the_log_cannot_be_written() {
    let hosts = Hosts::start();
    let (mut proxy, authority) = proxy_for(&hosts.allowed);
    assert!(
        say(proxy.address, get(&format!("http://{authority}/"), &authority).as_bytes()).contains("WELCOME")
    );
    proxy.wait_for_rows(|rows| rows.iter().any(is_end));
    let asked = proxy.names.asked().len();
    *proxy.disk.full.lock().unwrap() = true;
    assert_eq!(status(&say(proxy.address, get(&format!("http://{authority}/"), &authority).as_bytes())), 503);
    // There is room again, but the log has a gap.
    *proxy.disk.full.lock().unwrap() = false;
    let (answer, mut stream) = connect(proxy.address, &authority);
    assert_eq!(status(&answer), 503);
    assert!(rest(&mut stream).contains("egress is closed for the rest of the run"));
    assert_eq!(socks(proxy.address, &socks_name(b"allowed.test", hosts.port)).0, 1);
    assert_eq!(hosts.allowed.count(), 1);
    assert_eq!(
        proxy.names.asked().len(),
        asked + 1,
        "once the log is known to be broken, not even names go out"
    );
    let summary = proxy.stop();
    assert!(matches!(summary.log_failure, Some(LogError::Write(_))), "{summary:?}");
    assert_eq!(read_egress_log(&proxy.text(), None).state, EgressLogState::Truncated);
}

#[test]
fn refusals_made_at_will_do_not_fill_the_disk() {
    let mut setup = Setup::allowing(&[]);
    setup.log_limit = 3000;
    let mut proxy = setup.start();
    let answers: Vec<u16> = (0..40).map(|_| status(&connect(proxy.address, "evil.test:80").0)).collect();
    assert!(answers.contains(&403) && answers.ends_with(&[503]), "{answers:?}");
    assert_eq!(proxy.stop().log_failure, Some(LogError::Limit(3000)));
    assert!(proxy.text().len() <= 3000);
}

#[test]
fn secrets_do_not_reach_the_log() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    say(proxy.address, get(&format!("http://{authority}/hush?key=hush"), &authority).as_bytes());
    connect(proxy.address, "hush.evil.test:80");
    connect(proxy.address, "hush evil.test:80");
    let text = proxy.text();
    assert!(!text.contains("hush") && !text.contains("key="), "{text}");
    assert!(!text.contains(crate::world::TOKEN), "{text}");
}

#[test]
fn learning_widens_nothing() {
    let hosts = Hosts::start();
    let port = hosts.port;
    let mut setup = Setup::allowing(&[]).name("allowed.test", ALLOWED).name("inside.test", "10.1.2.3");
    setup.allow = vec!["inside.test:80".to_owned()];
    setup.deny = vec!["never.test".to_owned()];
    setup.mode = EgressMode::Learn;
    let proxy = setup.start();
    for authority in [
        format!("allowed.test:{port}"),
        "b.test:443".to_owned(),
        "never.test:443".to_owned(),
        "inside.test:80".to_owned(),
    ] {
        for _ in 0..2 {
            assert_eq!(status(&connect(proxy.address, &authority).0), 403, "{authority}");
        }
    }
    assert_eq!(hosts.allowed.count(), 0);
    let (summary, _, _) = proxy.finish();
    let needed: Vec<String> = summary.needed.iter().map(ToString::to_string).collect();
    let mut wanted = vec![format!("allowed.test:{port}"), "b.test:443".to_owned(), "10.1.2.3:80".to_owned()];
    wanted.sort_by_key(|text| text.starts_with("10."));
    assert_eq!(needed, wanted);
}

#[test]
fn the_end_of_the_proxy_is_the_end_of_its_connections() {
    let peer = Peer::start(ALLOWED, |mut stream| {
        stream.read_exact(&mut [0; 1]).ok();
    });
    let (proxy, authority) = proxy_for(&peer);
    let address = proxy.address;
    let mut open = tunnel(address, &authority);
    let mut waiting = connection(address);
    proxy.wait_for_rows(|rows| rows.len() == 2);
    let (summary, _, reading) = proxy.finish();
    assert_eq!((rest(&mut open), rest(&mut waiting)), (String::new(), String::new()));
    assert!(std::net::TcpStream::connect(address).is_err());
    assert_eq!(summary.allowed, 1);
    assert_eq!(reading.state, EgressLogState::Complete);
    assert!(reading.rows.iter().any(is_end), "what was open is written down as ended: {:?}", reading.rows);
}

#[test]
fn a_proxy_that_is_dropped_takes_its_connections_along() {
    let peer = Peer::start(ALLOWED, |mut stream| {
        stream.read_exact(&mut [0; 1]).ok();
    });
    let port = peer.address.port();
    let rules = [format!("allowed.test:{port}"), format!("{ALLOWED}:{port}")];
    let setup = Setup::allowing(&rules.each_ref().map(String::as_str)).name("allowed.test", ALLOWED);
    let mut proxy = setup.start_to_drop();
    let mut open = tunnel(proxy.address, &format!("allowed.test:{port}"));
    assert_eq!(proxy.end(), None);
    assert_eq!(rest(&mut open), "");
    assert!(std::net::TcpStream::connect(proxy.address).is_err());
    assert!(proxy.rows().iter().any(is_end), "even so, its end is written down: {:?}", proxy.rows());
}

#[test]
fn further_connections_wait_for_a_place() {
    let peer = Peer::start(ALLOWED, |mut stream| {
        stream.read_exact(&mut [0; 1]).ok();
    });
    let port = peer.address.port();
    let rules = [format!("allowed.test:{port}"), format!("{ALLOWED}:{port}")];
    let mut setup = Setup::allowing(&rules.each_ref().map(String::as_str)).name("allowed.test", ALLOWED);
    setup.limits = ProxyLimits { connections: 2, ..ProxyLimits::default() };
    let proxy = setup.start();
    let authority = format!("allowed.test:{port}");
    let first = tunnel(proxy.address, &authority);
    let _second = tunnel(proxy.address, &authority);
    let mut third = connection(proxy.address);
    third
        .write_all(format!("CONNECT {authority} HTTP/1.1\r\n{}\r\n", crate::ask::token()).as_bytes())
        .unwrap();
    third.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    assert!(third.read(&mut [0; 1]).is_err(), "it was served beyond the limit");
    drop(first);
    third.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    assert_eq!(status(&crate::ask::head(&mut third)), 200);
}
