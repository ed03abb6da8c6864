//! Requests that the rules do not allow.

use crate::client::{Client, get, text};
use crate::stage::{Stage, allow, allow_only, bearer};
use crate::world::{Speaks, World};
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn strict(world: &World) -> Stage {
    Stage::new(world, vec![allow_only("api.test", &["GET"], &["/repos/ok/**"])], vec![bearer("api.test:443")])
}

#[tokio::test]
async fn an_allowed_path_is_sent_as_it_was_checked() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = strict(&world);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    assert_eq!(client.get("/repos/%6fk/a%2db?x=../y").await.0, 200);
    assert_eq!(world.seen()[0].target, "/repos/ok/a-b?x=../y");
}

#[tokio::test]
async fn paths_in_other_spellings() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = strict(&world);
    for path in [
        "/repos/evil",
        "/repos/ok/../evil",
        "/repos/ok/./../evil",
        "/repos/ok/%2e%2e/evil",
        "/repos/ok/%2E%2E/evil",
        "/repos/ok/.%2e/evil",
        "/repos/ok/%252e%252e/evil",
        "//repos/ok/x",
        "/repos//ok/x",
        "/repos/ok//x",
        "/repos/ok;x/y",
        "/repos/ok/..;/evil",
        "/repos/ok%3bx/y",
        "/repos/ok%2F..%2Fevil",
        "/repos/ok%2f..%2fevil",
        "/repos/ok/%2F../evil",
        "/repos/ok%5C..%5Cevil",
        "/repos/ok%5c..%5cevil",
        "/repos/ok/%00",
        "/repos/ok/%0d%0a",
        "/repos/ok/%c0%ae%c0%ae/evil",
        "/repos/ok/%zz",
        "/repos/OK/x",
        "/repos/ok",
    ] {
        for speaks in [Speaks::Http1, Speaks::Http2] {
            let mut client = Client::connect(&stage, speaks).await;
            let (status, words) = client.get(path).await;
            assert_eq!(status, 403, "{path}");
            assert!(words.contains("allow-1") && words.contains("hint: "), "{path}: {words}");
        }
    }
    assert_eq!(world.seen().len(), 0);
    assert!(stage.rows().iter().all(|row| !row.allowed && row.rule.as_deref() == Some("allow-1")));
}

/// Bytes that no HTTP library would send.
#[tokio::test]
async fn invalid_bytes_in_requests() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = strict(&world);
    for line in [
        &b"GET /repos/ok/x#/../../evil HTTP/1.1"[..],
        b"GET /repos/ok\\..\\evil HTTP/1.1",
        b"GET /repos/ok/caf\xc3\xa9 HTTP/1.1",
        b"GET /repos/ok/\x01 HTTP/1.1",
        b"GET /repos/ok/\x00 HTTP/1.1",
        b"GET repos/ok/x HTTP/1.1",
        b"GET * HTTP/1.1",
        b"GET https://evil.test/repos/ok/x HTTP/1.1",
        b"CONNECT api.test:443 HTTP/1.1",
        b"TRACE /repos/ok/x HTTP/1.1",
        b"get /repos/ok/x HTTP/1.1",
    ] {
        let tls = belljar_egress::tls::TlsClient::new(&belljar_egress::tls::ExtraRoots(vec![
            stage.ca.certificate().clone(),
        ]));
        let name = rustls::pki_types::ServerName::try_from("api.test").unwrap();
        let (stream, _end) = stage.tunnel("api.test:443");
        let handshake = tls.unwrap();
        let (mut stream, _) =
            handshake.handshake(stream, name, belljar_egress::tls::Offer::Http1).await.unwrap();
        let request = [line, b"\r\nHost: api.test\r\nConnection: close\r\n\r\n"].concat();
        stream.write_all(&request).await.unwrap();
        let mut answer = Vec::new();
        // A client whose connection is closed gets no response, which also counts as refused.
        stream.read_to_end(&mut answer).await.ok();
        let status = String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or("none").to_owned();
        let sent: Vec<String> = world.seen().iter().map(|seen| seen.target.clone()).collect();
        // The library drops the fragment, and the dropped part is not sent.
        let harmless = line.contains(&b'#') && sent == ["/repos/ok/x"];
        assert!(
            harmless || ["400", "403", "421", "none"].contains(&status.as_str()),
            "{line:?}: {status} {sent:?}"
        );
        world.seen.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn another_method_is_refused_in_every_form() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = strict(&world);
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let mut client = Client::connect(&stage, speaks).await;
        for method in ["POST", "DELETE", "HEAD", "PROPFIND"] {
            let request = get("/repos/ok/x").method(method).body(Full::default()).unwrap();
            assert_eq!(client.send(request).await.status(), 403, "{method}");
        }
        for (header, value) in [
            ("x-http-method-override", "DELETE"),
            ("x-original-url", "/repos/evil"),
            ("x_http_method_override", "DELETE"),
            ("x-original-method", "DELETE"),
            ("destination", "/repos/evil"),
        ] {
            let request = get("/repos/ok/x").header(header, value).body(Full::default()).unwrap();
            let response = client.send(request).await;
            assert_eq!(response.status(), 403, "{header}");
            assert!(text(response).await.contains(&header.replace('_', "-")));
        }
        for query in ["_method=DELETE", "x=1&%5Fmethod=delete"] {
            let request = get(&format!("/repos/ok/x?{query}")).body(Full::default()).unwrap();
            assert_eq!(client.send(request).await.status(), 403, "{query}");
        }
    }
    assert_eq!(world.seen().len(), 0);
}

#[tokio::test]
async fn another_protocol() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    for stage in [strict(&world), Stage::new(&world, vec![allow("api.test")], vec![bearer("api.test:443")])] {
        for protocol in ["websocket", "h2c", "TLS/1.0"] {
            let mut client = Client::connect(&stage, Speaks::Http1).await;
            let request = get("/repos/ok/x").header("connection", "upgrade").header("upgrade", protocol);
            let response = client.send(request.body(Full::default()).unwrap()).await;
            assert_eq!(response.status(), 403, "{protocol}");
        }
        let mut client = Client::connect(&stage, Speaks::Http1).await;
        let request = get("/repos/ok/x").header("http2-settings", "AAMAAABkAAQAAP__");
        assert_eq!(client.send(request.body(Full::default()).unwrap()).await.status(), 403);
    }
    assert_eq!(world.seen().len(), 0);
}

#[tokio::test]
async fn a_request_that_cannot_be_logged_is_not_sent() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = strict(&world);
    *stage.rows.full.lock().unwrap() = true;
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    assert_eq!(client.get("/repos/ok/x").await.0, 502);
    assert_eq!(world.seen().len(), 0);
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = strict(&world);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let request = get("/repos/ok/x").header("x-long", "x".repeat(100 << 10)).body(Full::default()).unwrap();
    assert_eq!(client.send(request).await.status(), 431);
    assert_eq!(world.seen().len(), 0);
}
