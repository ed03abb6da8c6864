//! What is forwarded, what the gateway answers itself, and what is refused before anything is sent.

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc;

use belljar_egress::gateway::{CountedBy, FrontLimits, GatewayEvent, RequestEnd};
use serde_json::{Value, json};

use crate::client::{DEADLINE, End, post};
use crate::host::{Host, STREAM_END, STREAM_HEAD, Then, answer, chunk, events, message, stream};
use crate::stage::{Stage, request};

#[test]
fn a_stream_passes_and_is_counted() {
    let host = Host::always(stream("größer", 100, 20));
    let gateway = Stage::before(&host).start();
    let mut client = gateway.client();
    client.send(&post(
        "/v1/messages?beta=true",
        "x-api-key: placeholder\r\nauthorization: Bearer placeholder\r\naccept-encoding: gzip\r\n\
         x-claude-code-agent-id: a1\r\nanthropic-version: 2023-06-01\r\n",
        request().to_string().as_bytes(),
    ));
    let response = client.response();
    assert_eq!((response.status, response.end), (200, End::Complete));
    assert_eq!(response.chunks.concat(), events("größer", 100, 20).concat());
    assert_eq!(response.header("transfer-encoding"), Some("chunked"));

    let seen = &host.requests()[0];
    assert!(seen.head.starts_with("POST /v1/messages?beta=true HTTP/1.1\n"), "{}", seen.head);
    assert_eq!(seen.header("x-api-key"), Some(crate::stage::REAL_KEY));
    assert_eq!(seen.header("authorization"), None);
    assert_eq!(seen.header("accept-encoding"), Some("identity"));
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(seen.header("host"), Some(format!("127.0.0.1:{}", host.port).as_str()));
    assert_eq!(seen.body, request().to_string().as_bytes());

    let finished = &gateway.heard.finished(1)[0];
    assert_eq!((finished.status, &finished.end), (Some(200), &RequestEnd::Complete));
    assert_eq!((finished.model.as_deref(), finished.agent.as_deref()), (Some("claude-opus-4-8"), Some("a1")));
    let tokens = finished.tokens.unwrap();
    assert_eq!((tokens.count.input, tokens.count.cache_read, tokens.count.output), (100, 2, 20));
    assert_eq!(tokens.by, CountedBy::Answer);
    // 100 at 5, 2 at 0.5 and 20 at 25 dollars per million.
    assert_eq!(finished.cost.unwrap().micros(), 1001);
    let totals = gateway.live.totals();
    assert_eq!((totals.tokens().output, totals.cost().micros()), (20, 1001));
    assert_eq!(gateway.live.spent().micros(), 1001);
    let GatewayEvent::Started(started) = &gateway.heard.events()[0] else { panic!() };
    assert_eq!(
        (started.path, started.upstream.as_str()),
        ("/v1/messages", &*format!("127.0.0.1:{}", host.port))
    );
}

#[test]
fn each_piece_is_relayed_at_once() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let host = Host::start(move |stream, _| {
        stream.write_all(STREAM_HEAD).unwrap();
        for piece in ["one", "two", "three"] {
            stream.write_all(&chunk(piece.as_bytes())).unwrap();
            // The next piece is sent only when the client has received this one.
            wait.lock().unwrap().recv().unwrap();
        }
        stream.write_all(STREAM_END).unwrap();
        Then::Keep
    });
    let gateway = Stage::before(&host).start();
    let mut client = gateway.client();
    client.send(&post("/v1/messages", "", request().to_string().as_bytes()));
    let crate::client::Client::Tcp(mut stream) = client else { panic!() };
    let mut got = Vec::new();
    for piece in ["one", "two", "three"] {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&got).contains(piece) {
            let read = std::io::Read::read(&mut stream, &mut buffer).unwrap();
            assert!(read > 0);
            got.extend_from_slice(&buffer[..read]);
        }
        go.send(()).unwrap();
    }
}

#[test]
fn a_document_passes_and_is_counted() {
    let host = Host::always(message(7, 3));
    let gateway = Stage::before(&host).start();
    let response = gateway.ask(&request());
    assert_eq!((response.status, response.text().as_str()), (200, "hi"));
    // Redaction would change an announced length.
    assert_eq!(response.header("content-length"), None);
    assert_eq!(gateway.heard.finished(1)[0].tokens.unwrap().count.output, 3);
}

#[test]
fn a_prefix_of_the_declared_address_stands_before_the_path() {
    let host = Host::always(message(1, 1));
    let gateway = Stage::at(&format!("{}/team/a/", host.url())).start();
    assert_eq!(gateway.ask(&request()).status, 200);
    assert!(
        host.requests()[0].head.starts_with("POST /team/a/v1/messages?beta=true "),
        "{}",
        host.requests()[0].head
    );
}

#[test]
fn counting_tokens_is_free_and_health_checks_are_answered_by_the_gateway() {
    let host = Host::always(answer("200 OK", "content-type: application/json\r\n", b"{\"input_tokens\":9}"));
    let gateway = Stage { cap: Some(0.000_001), ..Stage::before(&host) }.start();
    let mut client = gateway.client();
    client.send(&post("/v1/messages/count_tokens", "", request().to_string().as_bytes()));
    assert_eq!(client.response().json(), json!({"input_tokens": 9}));
    assert_eq!(
        (gateway.heard.finished(1)[0].cost.map(|cost| cost.micros()), gateway.live.spent().micros()),
        (Some(0), 0)
    );
    assert_eq!(gateway.live.totals().uncounted, 0);
    client.send(b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(client.response_to("HEAD").status, 200);
    client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(client.response_to("GET").status, 200);
    assert_eq!(host.requests().len(), 1);
}

#[test]
fn other_paths_are_not_served() {
    let host = Host::always(message(1, 1));
    let gateway = Stage::before(&host).start();
    let ask = |method: &str, path: &str| {
        let mut client = gateway.client();
        client
            .send(format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes());
        let response = client.response();
        assert_eq!(response.header("x-should-retry"), Some("false"));
        (response.status, response.json()["error"]["type"].as_str().unwrap().to_owned())
    };
    for (method, path, status, kind) in [
        ("POST", "/v1/messages/batches", 404, "not_found_error"),
        ("POST", "/v1/files", 404, "not_found_error"),
        ("GET", "/v1/models", 404, "not_found_error"),
        ("POST", "/api/event_logging/v2/batch", 404, "not_found_error"),
        ("POST", "http://elsewhere.test/v1/complete", 404, "not_found_error"),
        ("DELETE", "/v1/messages", 405, "invalid_request_error"),
    ] {
        assert_eq!(ask(method, path), (status, kind.to_owned()), "{method} {path}");
    }
    assert_eq!(host.connections(), 0);
}

#[test]
fn an_invalid_request_is_not_sent() {
    let host = Host::always(message(1, 1));
    let gateway = Stage::before(&host).start();
    for body in [
        &b"{"[..],
        b"",
        b"[]",
        b"{\"model\":\"\xff\",\"messages\":[]}",
        b"{\"model\":\"m\",\"messages\":[],\"model\":\"n\"}",
    ] {
        let mut client = gateway.client();
        client.send(&post("/v1/messages", "", body));
        let response = client.response();
        assert_eq!((response.status, response.header("x-should-retry")), (400, Some("false")), "{body:?}");
        assert_eq!(response.json()["type"], "error");
    }
    let mut client = gateway.client();
    client.send(b"POST /v1/messages HTTP/1.0\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    assert!(String::from_utf8(client.rest().0).unwrap().contains(" 505 "));
    let mut client = gateway.client();
    client.send(
        format!("POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 33 << 20).as_bytes(),
    );
    assert_eq!(client.response().status, 413);
    let mut client = gateway.client();
    client
        .try_send(format!("POST / HTTP/1.1\r\nhost: x\r\nbig: {}\r\n\r\n", "x".repeat(1 << 20)).as_bytes())
        .ok();
    let (answer, _) = client.rest();
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(host.connections(), 0);
}

#[test]
fn bodies_at_once_have_room_for_so_much_and_no_more() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (came, arrived) = mpsc::channel();
    let came = Mutex::new(came);
    let host = Host::start(move |stream, _| {
        came.lock().unwrap().send(()).unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(&message(1, 1)).unwrap();
        Then::Keep
    });
    let mut body = request();
    body["messages"][0]["content"] = json!("x".repeat(60_000));
    let limits = FrontLimits { all_bodies_bytes: 100_000, ..FrontLimits::default() };
    let gateway = Stage { limits, ..Stage::before(&host) }.start();
    let mut first = gateway.client();
    first.send(&post("/v1/messages", "", body.to_string().as_bytes()));
    arrived.recv_timeout(DEADLINE).unwrap();
    let second = gateway.ask(&body);
    assert_eq!((second.status, second.json()["error"]["type"].as_str()), (503, Some("overloaded_error")));
    go.send(()).unwrap();
    assert_eq!(first.response().status, 200);
    // The memory for bodies is free again.
    go.send(()).unwrap();
    assert_eq!(gateway.ask(&body).status, 200);
    assert_eq!(host.requests().len(), 2);
}

#[test]
fn a_request_that_cannot_be_logged_is_not_sent() {
    let host = Host::always(message(1, 1));
    let gateway = Stage::before(&host).start();
    *gateway.heard.full.lock().unwrap() = true;
    let response = gateway.ask(&request());
    assert_eq!(response.status, 502);
    assert!(response.json()["error"]["message"].as_str().unwrap().contains("could not be logged"));
    assert_eq!(host.connections(), 0);
    *gateway.heard.full.lock().unwrap() = false;
    assert_eq!(gateway.ask(&request()).status, 200);
}

#[test]
fn errors_of_the_host_are_relayed_with_their_headers() {
    for (status, headers) in [
        ("429 Too Many Requests", "retry-after: 7\r\nanthropic-ratelimit-requests-remaining: 0\r\n"),
        ("529 Overloaded", "retry-after: 1\r\nx-should-retry: true\r\n"),
        ("400 Bad Request", ""),
        ("500 Internal Server Error", ""),
    ] {
        let error: Value = json!({"type": "error", "error": {"type": "t", "message": "theirs"}});
        let host = Host::always(answer(
            status,
            &format!("{headers}content-type: application/json\r\nset-cookie: a=b\r\n"),
            error.to_string().as_bytes(),
        ));
        let gateway = Stage::before(&host).start();
        let response = gateway.ask(&request());
        assert_eq!(response.status.to_string(), status[..3]);
        assert_eq!(response.json(), error);
        assert_eq!(response.header("set-cookie"), None);
        for (name, value) in headers.lines().filter_map(|line| line.split_once(": ")) {
            assert_eq!(response.header(name), Some(value));
        }
        let finished = &gateway.heard.finished(1)[0];
        assert_eq!((finished.tokens, finished.cost.unwrap().micros()), (None, 0));
        assert_eq!(host.requests().len(), 1);
    }
}
