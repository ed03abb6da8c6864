//! Plain HTTP through the proxy.

use crate::ask::{connection, get, head, rest, say, status, token};
use crate::peers::{ALLOWED, Hosts, Peer, request};
use crate::world::{Proxy, Setup};
use belljar_contract::{EgressRow, EgressVerdict, EgressWay, Method, Methods, Paths, RequestRule};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

/// A proxy that allows one peer by the name `allowed.test`.
pub fn proxy_for(peer: &Peer) -> (Proxy, String) {
    let port = peer.address.port();
    let rules = [format!("allowed.test:{port}"), format!("{ALLOWED}:{port}")];
    let setup = Setup::allowing(&rules.each_ref().map(String::as_str)).name("allowed.test", ALLOWED);
    (setup.start(), format!("allowed.test:{port}"))
}

#[test]
fn headers_for_the_proxy_are_not_forwarded() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let request = format!(
        "GET http://{authority}/path?query HTTP/1.1\r\nHost: {authority}\r\n{}Proxy-Connection: keep-alive\r\n\
         Connection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nX-Kept: yes\r\n\r\n",
        token()
    );
    let answer = say(proxy.address, request.as_bytes());
    assert!(answer.ends_with("\r\n\r\nWELCOME"), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("x-secret-hop"), "{answer}");
    let sent = hosts.got()[0].head.to_ascii_lowercase();
    assert!(sent.starts_with("get /path?query http/1.1\r\n"), "{sent}");
    assert!(sent.contains(&format!("host: {authority}\r\n")) && sent.contains("x-kept: yes\r\n"), "{sent}");
    for word in ["proxy-", "x-mine", "keep-alive", "te:", "basic"] {
        assert!(!sent.contains(word), "{word}: {sent}");
    }
}

#[test]
fn a_request_that_means_another_one_is_refused_where_rules_look_at_requests() {
    let hosts = Hosts::start();
    let port = hosts.allowed.address.port();
    let rules = [format!("allowed.test:{port}"), format!("{ALLOWED}:{port}")];
    let setup = || Setup::allowing(&rules.each_ref().map(String::as_str)).name("allowed.test", ALLOWED);
    let methods = Methods::Only(vec![Method::new("GET").unwrap()]);
    let strict = Setup { request: Some(RequestRule { methods, paths: Paths::Any }), ..setup() }.start();
    let authority = format!("allowed.test:{port}");
    let ask = |proxy: &Proxy, target: &str, header: &str| {
        let request = format!(
            "GET http://{authority}{target} HTTP/1.1\r\nHost: {authority}\r\n{}{header}Connection: close\r\n\r\n",
            token()
        );
        say(proxy.address, request.as_bytes())
    };
    assert!(ask(&strict, "/", "").ends_with("WELCOME"));
    let refused = [
        ("/", "X-HTTP-Method-Override: DELETE\r\n"),
        ("/", "Accept: a\r\nx_http_method_override: DELETE\r\n"),
        ("/", "X-Original-URL: /evil\r\n"),
        ("/", "X-Rewrite-URL: /evil\r\nX-Rewrite-URL: /ok\r\n"),
        ("/?a=1&_method=DELETE", ""),
        ("/?%5fmethod=DELETE", ""),
    ];
    for (target, header) in refused {
        let answer = ask(&strict, target, header);
        assert!(answer.starts_with("HTTP/1.1 403"), "{target} {header}: {answer}");
        assert!(answer.contains("can replace the method or path that was checked"), "{answer}");
    }
    assert_eq!(hosts.got().len(), 1, "none of them reached the host");
    let log = strict.text();
    assert!(log.contains("x-http-method-override") && log.contains("allow-1"), "{log}");
    // Where no rule restricts requests, there is nothing to get around.
    assert!(ask(&setup().start(), "/", "X-HTTP-Method-Override: DELETE\r\n").ends_with("WELCOME"));
}

#[test]
fn one_connection_for_many_requests_each_of_them_decided() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let mut stream = connection(proxy.address);
    for number in 0..5 {
        let request =
            format!("GET http://{authority}/{number} HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", token());
        stream.write_all(request.as_bytes()).unwrap();
        assert_eq!(status(&head(&mut stream)), 200);
        let mut word = [0; 7];
        stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"WELCOME");
    }
    assert_eq!(hosts.allowed.count(), 1, "the connection to the host is used again");
    assert_eq!(proxy.names.asked().len(), 1);
    // A refused request does not pass because an earlier one was allowed.
    let request = format!("GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n{}\r\n", token());
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(status(&head(&mut stream)), 403);
    let rows = proxy.rows();
    let decided = rows.iter().filter_map(|row| match row {
        EgressRow::Decided { decision, .. } => {
            Some((decision.path.clone(), decision.verdict == EgressVerdict::Allowed))
        }
        _ => None,
    });
    let wanted =
        (0..5).map(|number| (Some(format!("/{number}")), true)).chain([(Some("/".to_owned()), false)]);
    assert_eq!(decided.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
}

#[test]
fn a_second_request_without_the_token_is_refused() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let mut stream = connection(proxy.address);
    let first = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", token());
    let second = format!("GET http://{authority}/second HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    stream.write_all(format!("{first}{second}").as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let answers = rest(&mut stream);
    assert!(answers.starts_with("HTTP/1.1 200") && answers.contains("HTTP/1.1 407"), "{answers}");
    assert_eq!(hosts.got().len(), 1);
}

#[test]
fn bodies_arrive_as_they_were_sent() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let long = vec![b'x'; 300_000];
    let post = |framing: &str, body: &[u8]| {
        let head = format!(
            "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}{framing}\r\nConnection: close\r\n\r\n",
            token()
        );
        say(proxy.address, &[head.as_bytes(), body].concat())
    };
    assert!(post(&format!("Content-Length: {}", long.len()), &long).ends_with("WELCOME"));
    assert!(
        post("Transfer-Encoding: chunked", b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: gone\r\n\r\n")
            .ends_with("WELCOME")
    );
    assert!(post("Content-Length: 2\r\nExpect: 100-continue", b"hi").ends_with("WELCOME"));
    let got = hosts.got();
    assert_eq!(got[0].body, long);
    assert_eq!(got[1].body, b"hello world");
    assert!(!got[1].head.to_ascii_lowercase().contains("trailer"), "{}", got[1].head);
    assert_eq!(got[2].body, b"hi");
    assert!(!got[2].head.to_ascii_lowercase().contains("expect"));
}

#[test]
fn a_client_that_waits_for_leave_gets_it() {
    let hosts = Hosts::start();
    let (proxy, authority) = proxy_for(&hosts.allowed);
    let mut stream = connection(proxy.address);
    let head_of = format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        token()
    );
    stream.write_all(head_of.as_bytes()).unwrap();
    assert_eq!(status(&head(&mut stream)), 100);
    stream.write_all(b"hi").unwrap();
    assert_eq!(status(&head(&mut stream)), 200);
}

/// The complete response of a proxied peer that sends exactly this after the request.
fn answered(answer: &'static [u8], method: &str, version: &str) -> (String, Proxy) {
    let peer = Peer::start(ALLOWED, move |mut stream| {
        request(&mut BufReader::new(stream.try_clone().unwrap()));
        stream.write_all(answer).ok();
    });
    let (proxy, authority) = proxy_for(&peer);
    let request = format!("{method} http://{authority}/ {version}\r\nHost: {authority}\r\n{}\r\n", token());
    (say(proxy.address, request.as_bytes()), proxy)
}

#[test]
fn answers_of_every_form() {
    let (answer, _) = answered(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "GET",
        "HTTP/1.1",
    );
    assert!(
        answer.contains("transfer-encoding: chunked") && answer.ends_with("3\r\nabc\r\n0\r\n\r\n"),
        "{answer}"
    );
    let (answer, _) = answered(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "GET",
        "HTTP/1.0",
    );
    assert!(!answer.contains("chunked") && answer.ends_with("\r\n\r\nabc"), "{answer}");
    let (answer, _) = answered(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", "GET", "HTTP/1.1");
    assert!(answer.contains("until the end"), "{answer}");
    let (answer, _) = answered(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", "HEAD", "HTTP/1.1");
    assert!(
        answer.to_ascii_lowercase().contains("content-length: 12\r\n") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    let (answer, _) = answered(b"HTTP/1.1 204 No Content\r\n\r\n", "GET", "HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 204 ") && !answer.contains("transfer-encoding"), "{answer}");
    let (answer, _) = answered(
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "GET",
        "HTTP/1.1",
    );
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"), "{answer}");
}

#[test]
fn a_redirection_is_not_followed() {
    let hosts = Hosts::start();
    let away = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://evil.test:{}/\r\nContent-Length: 0\r\n\r\n",
        hosts.port
    );
    let (answer, proxy) = answered(away.leak().as_bytes(), "GET", "HTTP/1.1");
    assert_eq!(status(&answer), 302);
    assert_eq!((hosts.evil.count(), proxy.names.asked().len()), (0, 1));
}

#[test]
fn answers_that_are_none() {
    for answer in [
        &b""[..],
        b"SSH-2.0-nothing here\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"\0\0\0\0",
    ] {
        let (got, proxy) = answered(answer, "GET", "HTTP/1.1");
        assert_eq!(status(&got), 502, "{:?}: {got:?}", String::from_utf8_lossy(answer));
        let rows = proxy.wait_for_rows(|rows| rows.iter().any(crate::world::is_end));
        let failed =
            rows.iter().any(|row| matches!(row, EgressRow::Finished { end, .. } if end.failure.is_some()));
        assert!(failed, "{rows:?}");
    }
}

#[test]
fn a_response_with_too_large_a_head_is_an_error() {
    let large = [&b"HTTP/1.1 200 OK\r\nX: "[..], &vec![b'x'; 1 << 20], b"\r\n\r\n"].concat();
    let (answer, _) = answered(large.leak(), "GET", "HTTP/1.1");
    assert_eq!(status(&answer), 502, "{}", answer.len());
}

#[test]
fn an_answer_that_breaks_off_is_seen_to_do_so() {
    let peer = Peer::start(ALLOWED, |mut stream: TcpStream| {
        request(&mut BufReader::new(stream.try_clone().unwrap()));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
    });
    let (proxy, authority) = proxy_for(&peer);
    let mut stream = connection(proxy.address);
    stream.write_all(get(&format!("http://{authority}/"), &authority).as_bytes()).unwrap();
    let mut all = Vec::new();
    assert!(stream.read_to_end(&mut all).is_err(), "a clean end would look like a whole answer");
}

#[test]
fn a_host_that_has_hung_up_is_connected_to_again() {
    let (notify, closed) = mpsc::channel();
    let peer = Peer::start(ALLOWED, move |mut stream| {
        request(&mut BufReader::new(stream.try_clone().unwrap()));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        drop(stream);
        notify.send(()).ok();
    });
    let (proxy, authority) = proxy_for(&peer);
    let mut stream = connection(proxy.address);
    for _ in 0..3 {
        let request = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", token());
        stream.write_all(request.as_bytes()).unwrap();
        let answer = head(&mut stream);
        assert_eq!(status(&answer), 200, "{answer}");
        stream.read_exact(&mut [0; 2]).unwrap();
        closed.recv().unwrap();
    }
    assert_eq!(peer.count(), 3);
    assert!(
        proxy.rows().iter().all(
            |row| !matches!(row, EgressRow::Decided { decision, .. } if decision.way != EgressWay::Http)
        )
    );
}
