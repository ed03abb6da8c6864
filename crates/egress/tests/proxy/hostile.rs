//! Hostile clients: ambiguous requests, endless heads, slow clients.

use crate::ask::{connection, get, head, rest, say, status, token};
use crate::peers::Hosts;
use crate::plain::proxy_for;
use crate::world::Setup;
use belljar_contract::{EgressRefusal, EgressRow, EgressVerdict};
use belljar_egress::proxy::ProxyLimits;
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn ambiguous_requests_are_refused_and_nothing_is_sent() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let smuggled =
        format!("GET http://{authority}/smuggled HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", token());
    for header in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5,5",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: \x0bchunked",
        "X: y\r\n folded: z",
        "X: a\rTransfer-Encoding: chunked",
        "X: a\nTransfer-Encoding: chunked",
        "X: a\0b",
        "No colon",
        ": no name",
        "Sp ace: x",
    ] {
        let request = format!(
            "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}{header}\r\n\r\n0\r\n\r\n{smuggled}",
            token()
        );
        let answer = say(proxy.address, request.as_bytes());
        assert_eq!(status(&answer), 400, "{header:?}: {answer}");
        assert!(!answer.contains("WELCOME"), "{header:?}: {answer}");
    }
    assert_eq!(hosts.allowed.count(), 0, "no byte of these reached the host");
    let rows = proxy.rows();
    let logged = rows.iter().filter(|row| {
        matches!(row, EgressRow::Decided { decision, .. }
            if matches!(decision.verdict, EgressVerdict::Denied { reason: EgressRefusal::Malformed { .. } }))
    });
    assert_eq!(logged.count(), 20);
}

#[test]
fn the_usual_request_smuggling_fails() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    // Malformed chunks in the middle: the body sent so far is cut off, and the rest is not a request.
    let body = format!(
        "5\r\nhello\r\nZZ\r\n\r\nGET http://{authority}/smuggled HTTP/1.1\r\nHost: {authority}\r\n{}\r\n",
        token()
    );
    let request = format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}Transfer-Encoding: chunked\r\n\r\n{body}",
        token()
    );
    let answer = say(proxy.address, request.as_bytes());
    assert!(!answer.contains("WELCOME"), "{answer}");
    assert!(hosts.got().is_empty(), "{:?}", hosts.got());
}

#[test]
fn a_body_that_stops_short_is_not_sent_as_whole() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let request = format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}Content-Length: 100\r\n\r\nshort",
        token()
    );
    let answer = say(proxy.address, request.as_bytes());
    assert!(!answer.contains("WELCOME"), "{answer}");
    assert!(hosts.got().is_empty());
}

#[test]
fn heads_without_end() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let with = |headers: &str| {
        format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}{headers}\r\n", token())
    };
    let long = with(&format!("X: {}\r\n", "y".repeat(17 * 1024)));
    assert_eq!(status(&say(proxy.address, long.as_bytes())), 431);
    let many = with(&"A: b\r\n".repeat(101));
    assert_eq!(status(&say(proxy.address, many.as_bytes())), 431);
    let url = get(&format!("http://{authority}/{}", "a".repeat(20_000)), &authority);
    assert_eq!(status(&say(proxy.address, url.as_bytes())), 431);
    // An endless head is not read to its end: the proxy closes the connection early.
    let mut stream = connection(proxy.address);
    stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    let piece = vec![b'x'; 64 * 1024];
    let sent = (0..1024).take_while(|_| stream.write_all(&piece).is_ok()).count();
    assert!(sent < 512, "{sent} pieces were taken");
    assert_eq!(hosts.allowed.count(), 0);
}

#[test]
fn garbage_is_answered_and_survived() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
        b"\0\0\0\0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n\r\n",
        b"\n\n",
    ] {
        assert_eq!(status(&say(proxy.address, bytes)), 400, "{:?}", String::from_utf8_lossy(bytes));
    }
    for bytes in [&b""[..], b"G", b"\x05", b"\x05\x01", b"\x05\x01\x02\x01\x07bell", b"\x04\x01"] {
        say(proxy.address, bytes);
    }
    let answer = say(proxy.address, get(&format!("http://{authority}/"), &authority).as_bytes());
    assert!(answer.ends_with("WELCOME"), "{answer}");
}

#[test]
fn slow_clients_are_disconnected() {
    let hosts = Hosts::start();
    let mut setup = Setup::allowing(&[]);
    setup.limits = ProxyLimits { head: Duration::from_millis(200), ..ProxyLimits::default() };
    let proxy = setup.start();
    // One client sends nothing, one never ends its head, one never ends its SOCKS greeting.
    let mut silent = connection(proxy.address);
    assert_eq!(status(&head(&mut silent)), 408);
    let mut slow = connection(proxy.address);
    let began = Instant::now();
    slow.write_all(b"GET http://evil.test/ HTTP/1.1\r\n").unwrap();
    while slow.write_all(b"X: y\r\n").is_ok() && began.elapsed() < Duration::from_secs(20) {
        slow.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        if status(&head(&mut slow)) == 408 {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    let mut socks = connection(proxy.address);
    socks.write_all(b"\x05\x01").unwrap();
    assert_eq!(rest(&mut socks), "");
    assert_eq!(hosts.allowed.count(), 0);
}

#[test]
fn an_idle_connection_is_closed() {
    let hosts = Hosts::start();
    let port = hosts.port;
    let mut setup = Setup::allowing(&[]).name("allowed.test", crate::peers::ALLOWED);
    setup.allow = vec![format!("allowed.test:{port}"), format!("{}:{port}", crate::peers::ALLOWED)];
    setup.limits = ProxyLimits { idle_keep_alive: Duration::from_millis(100), ..ProxyLimits::default() };
    let proxy = setup.start();
    let mut stream = connection(proxy.address);
    stream
        .write_all(
            format!(
                "GET http://allowed.test:{port}/ HTTP/1.1\r\nHost: allowed.test:{port}\r\n{}\r\n",
                token()
            )
            .as_bytes(),
        )
        .unwrap();
    assert!(rest(&mut stream).ends_with("WELCOME"));
}
