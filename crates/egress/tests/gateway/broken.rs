//! Hosts and clients that stall, fail, send invalid data or disconnect.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use belljar_egress::gateway::{CountedBy, FrontLimits, RequestEnd};

use crate::client::{Client, DEADLINE, End, post};
use crate::host::{Host, STREAM_END, STREAM_HEAD, Then, answer, chunk, events, message, stream};
use crate::stage::{Stage, impatient, request};

/// Sends nothing until the gateway closes the connection.
fn wait_for_close(stream: &mut TcpStream) {
    while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {}
}

#[test]
fn a_host_that_does_not_begin_is_given_up() {
    let host = Host::start(|stream, _| {
        wait_for_close(stream);
        Then::Close
    });
    let gateway = Stage { times: impatient(), ..Stage::before(&host) }.start();
    let response = gateway.ask(&request());
    assert_eq!(response.status, 504);
    assert_eq!(response.json()["error"]["type"], "timeout_error");
    let finished = &gateway.heard.finished(1)[0];
    assert!(
        matches!(&finished.end, RequestEnd::Failed(why) if why.contains("did not respond")),
        "{finished:?}"
    );
    // The model may have read it, so its input is charged.
    assert!(finished.cost.unwrap().micros() > 0);
}

#[test]
fn a_host_that_falls_silent_is_given_up_and_the_received_text_is_counted() {
    let host = Host::start(|stream, _| {
        stream.write_all(STREAM_HEAD).unwrap();
        let [start, text, ..] = &events("123456789", 50, 9)[..] else { panic!() };
        stream.write_all(&chunk(format!("{start}{text}").as_bytes())).unwrap();
        wait_for_close(stream);
        Then::Close
    });
    let gateway = Stage { times: impatient(), ..Stage::before(&host) }.start();
    let response = gateway.ask(&request());
    assert_eq!((response.status, response.end), (200, End::Closed));
    assert!(response.chunks.concat().contains("123456789"));
    let finished = &gateway.heard.finished(1)[0];
    assert!(matches!(&finished.end, RequestEnd::Failed(why) if why.contains("silent")), "{finished:?}");
    let tokens = finished.tokens.unwrap();
    assert_eq!((tokens.count.input, tokens.count.output, tokens.by), (50, 3, CountedBy::ReceivedText));
    assert_eq!(gateway.live.spent(), finished.cost.unwrap());
}

#[test]
fn a_stream_that_is_reset_is_broken_for_the_agent_too() {
    let host = Host::start(|stream, _| {
        stream.write_all(STREAM_HEAD).unwrap();
        let [start, text, ..] = &events("123456789", 50, 9)[..] else { panic!() };
        stream.write_all(&chunk(format!("{start}{text}").as_bytes())).unwrap();
        stream.write_all(b"ff\r\nhalf a chu").unwrap();
        Then::Close
    });
    let gateway = Stage::before(&host).start();
    let response = gateway.ask(&request());
    assert_eq!((response.status, response.end), (200, End::Closed));
    let finished = &gateway.heard.finished(1)[0];
    assert!(matches!(&finished.end, RequestEnd::Failed(why) if why.contains("interrupted")), "{finished:?}");
    assert_eq!(finished.tokens.unwrap().by, CountedBy::ReceivedText);
}

#[test]
fn invalid_http_is_an_error_of_the_host() {
    for garbage in [
        &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
        b"\x00\x01\x02\x03\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunk",
        b"",
    ] {
        let host = Host::start(move |stream, _| {
            stream.write_all(garbage).unwrap();
            Then::Close
        });
        let gateway = Stage::before(&host).start();
        let response = gateway.ask(&request());
        assert_eq!((response.status, response.json()["error"]["type"].as_str()), (502, Some("api_error")));
        // A failed request on a new connection is not repeated.
        assert_eq!(host.requests().len(), 1, "{garbage:?}");
    }
}

#[test]
fn a_head_without_end_is_not_read_to_its_end() {
    let host = Host::start(|stream, _| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
        let line = format!("x-long: {}\r\n", "x".repeat(8000));
        while stream.write_all(line.as_bytes()).is_ok() {}
        Then::Close
    });
    let gateway = Stage::before(&host).start();
    assert_eq!(gateway.ask(&request()).status, 502);
}

#[test]
fn a_redirect_is_not_followed() {
    let host = Host::always(answer("307 Temporary Redirect", "location: http://elsewhere.test/\r\n", b""));
    let gateway = Stage::before(&host).start();
    let response = gateway.ask(&request());
    assert_eq!((response.status, response.header("location")), (502, None));
}

#[test]
fn a_connection_is_used_again() {
    let host = Host::always(stream("x", 1, 1));
    let gateway = Stage::before(&host).start();
    for _ in 0..5 {
        assert_eq!(gateway.ask(&request()).end, End::Complete);
    }
    assert_eq!((host.requests().len(), host.connections()), (5, 1));
}

#[test]
fn a_used_connection_that_was_closed_without_a_byte_is_replaced_once() {
    let requests = AtomicUsize::new(0);
    let host = Host::start(move |stream, _| match requests.fetch_add(1, Ordering::SeqCst) {
        // The second request is read and not answered, so that the gateway cannot notice the close before it sends.
        1 => Then::Close,
        _ => {
            stream.write_all(&message(1, 1)).unwrap();
            Then::Keep
        }
    });
    let gateway = Stage::before(&host).start();
    assert_eq!(gateway.ask(&request()).status, 200);
    assert_eq!(gateway.ask(&request()).status, 200);
    assert_eq!((host.requests().len(), host.connections()), (3, 2));
    assert_eq!(gateway.heard.finished(2).len(), 2);
}

#[test]
fn a_used_connection_that_gave_a_byte_is_not() {
    let requests = AtomicUsize::new(0);
    let host = Host::start(move |stream, _| match requests.fetch_add(1, Ordering::SeqCst) {
        1 => {
            stream.write_all(b"H").unwrap();
            Then::Close
        }
        _ => {
            stream.write_all(&message(1, 1)).unwrap();
            Then::Keep
        }
    });
    let gateway = Stage::before(&host).start();
    assert_eq!(gateway.ask(&request()).status, 200);
    assert_eq!(gateway.ask(&request()).status, 502);
    assert_eq!(host.requests().len(), 2);
}

#[test]
fn an_unreachable_host_is_reported_to_the_agent_and_the_user() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gateway = Stage::at(&format!("http://127.0.0.1:{port}")).start();
    let response = gateway.ask(&request());
    assert_eq!((response.status, response.header("x-should-retry")), (502, None));
    assert_eq!(gateway.heard.troubles().len(), 1);
    assert!(gateway.heard.troubles()[0].to_string().contains("cannot be reached"));
    assert_eq!(gateway.live.spent().micros(), 0);
}

#[test]
fn an_answer_that_cannot_be_searched_does_not_pass_and_is_charged_as_claimed() {
    for (status, charged) in [("200 OK", true), ("400 Bad Request", false), ("529 Overloaded", false)] {
        let host = Host::always(answer(
            status,
            "content-type: application/json\r\ncontent-encoding: gzip\r\n",
            b"not really gzip",
        ));
        let gateway = Stage { cap: Some(1.0), ..Stage::before(&host) }.start();
        let response = gateway.ask(&request());
        assert_eq!((response.status, response.header("content-encoding")), (502, None), "{status}");
        let reported = response.json()["error"]["message"].to_string();
        assert!(reported.contains("127.0.0.1:") && reported.contains("the encoding `gzip`"), "{reported}");
        let finished = &gateway.heard.finished(1)[0];
        assert!(matches!(&finished.end, RequestEnd::Failed(why) if why.contains("`gzip`")), "{finished:?}");
        assert_eq!(finished.tokens, None);
        assert_eq!(gateway.live.totals().uncounted, u64::from(charged));
        // At least the output that the request allows.
        assert_eq!(gateway.live.spent().micros() > 25_000, charged, "{}", gateway.live.spent());
    }
}

#[test]
fn pieces_may_end_within_lines_and_letters() {
    let whole = events("größer 🌍 als", 100, 20).concat();
    for size in [1, 2, 3, 7] {
        let mut bytes = STREAM_HEAD.to_vec();
        whole.as_bytes().chunks(size).for_each(|piece| bytes.extend(chunk(piece)));
        bytes.extend(STREAM_END);
        let host = Host::always(bytes);
        let gateway = Stage::before(&host).start();
        let mut client = gateway.client();
        client.send(&post("/v1/messages", "connection: close\r\n", request().to_string().as_bytes()));
        assert_eq!(client.rest().1, End::Closed);
        let tokens = gateway.heard.finished(1)[0].tokens.unwrap();
        assert_eq!((tokens.count.input, tokens.count.output), (100, 20));
    }
}

/// Reports when the gateway has closed a connection.
fn watched_host(pieces: usize) -> (Host, mpsc::Receiver<usize>) {
    let (gone, left) = mpsc::channel();
    let gone = Mutex::new(gone);
    let host = Host::start(move |stream, _| {
        stream.write_all(STREAM_HEAD).unwrap();
        let piece = chunk(&[b'x'; 64 * 1024]);
        let mut sent = 0;
        while sent < pieces && stream.write_all(&piece).is_ok() {
            sent += 1;
        }
        wait_for_close(stream);
        gone.lock().unwrap().send(sent).unwrap();
        Then::Close
    });
    (host, left)
}

#[test]
fn a_client_that_leaves_ends_the_request_at_the_host() {
    let (host, left) = watched_host(1);
    let gateway = Stage::before(&host).start();
    let mut client = gateway.client();
    client.send(&post("/v1/messages", "", request().to_string().as_bytes()));
    let Client::Tcp(mut stream) = client else { panic!() };
    stream.read_exact(&mut [0; 1024]).unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    left.recv_timeout(DEADLINE).unwrap();
    assert_eq!(gateway.heard.finished(1)[0].end, RequestEnd::ClientLeft);
}

#[test]
fn a_client_that_leaves_before_the_answer_does_too() {
    let (gone, left) = mpsc::channel();
    let (came, arrived) = mpsc::channel();
    let channels = Mutex::new((came, gone));
    let host = Host::start(move |stream, _| {
        channels.lock().unwrap().0.send(()).unwrap();
        wait_for_close(stream);
        channels.lock().unwrap().1.send(()).unwrap();
        Then::Close
    });
    let gateway = Stage::before(&host).start();
    let mut client = gateway.client();
    client.send(&post("/v1/messages", "", request().to_string().as_bytes()));
    arrived.recv_timeout(DEADLINE).unwrap();
    drop(client);
    left.recv_timeout(DEADLINE).unwrap();
    let finished = &gateway.heard.finished(1)[0];
    assert_eq!((&finished.end, finished.status), (&RequestEnd::ClientLeft, None));
}

#[test]
fn a_client_that_does_not_read_holds_up_the_host_and_is_given_up() {
    // Far more than sockets hold: 256 MiB.
    let (host, left) = watched_host(4096);
    let limits = FrontLimits { stalled_within: Duration::from_millis(500), ..FrontLimits::default() };
    let gateway = Stage { limits, ..Stage::before(&host) }.start();
    let mut client = gateway.client();
    client.send(&post("/v1/messages", "", request().to_string().as_bytes()));
    let sent = left.recv_timeout(DEADLINE).unwrap();
    assert!(sent < 1024, "{sent} pieces of 64 KiB left the host");
    assert_eq!(gateway.heard.finished(1)[0].end, RequestEnd::ClientLeft);
    drop(client);
}

#[test]
fn a_request_has_a_deadline_even_while_its_answer_flows() {
    let host = Host::start(|stream, _| {
        stream.write_all(STREAM_HEAD).unwrap();
        while stream.write_all(&chunk(b": on and on\n\n")).is_ok() {}
        Then::Close
    });
    let limits = FrontLimits { request_within: Duration::from_millis(500), ..FrontLimits::default() };
    let gateway = Stage { limits, ..Stage::before(&host) }.start();
    let mut client = gateway.client();
    client.send(&post("/v1/messages", "", request().to_string().as_bytes()));
    assert!(matches!(client.rest().1, End::Closed | End::Reset));
}
