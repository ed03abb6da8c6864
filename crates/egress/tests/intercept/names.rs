//! One name from end to end, and a CA for the names of one run only.

use crate::client::{Client, get};
use crate::stage::{Stage, allow_only};
use crate::world::{Speaks, World};
use belljar_contract::HostName;
use belljar_egress::intercept::CertificateAuthority;
use belljar_egress::tls::{ExtraRoots, Offer, TlsClient};
use http_body_util::Full;
use hyper::Uri;
use rustls::pki_types::ServerName;
use std::time::SystemTime;

#[tokio::test]
async fn the_name_in_tls_must_be_the_tunnels() {
    let world = World::start(&["api.test", "evil.test"], Speaks::Http1).await;
    let stage = Stage::with_credential(&world);
    let tls = TlsClient::new(&ExtraRoots(vec![stage.ca.certificate().clone()])).unwrap();
    for wrong in ["evil.test", "sub.api.test", "127.0.0.1"] {
        let (stream, end) = stage.tunnel("api.test:443");
        let name = ServerName::try_from(wrong).unwrap();
        assert!(tls.handshake(stream, name, Offer::Http1).await.is_err());
        let failure = end.await.unwrap().failure.unwrap();
        assert!(
            failure.starts_with("the tunnel is for api.test, but the TLS handshake in it is for "),
            "{failure}"
        );
    }
    assert_eq!((stage.rows().len(), world.seen().len()), (0, 0));
}

#[tokio::test]
async fn a_tunnel_without_tls_is_closed() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = Stage::with_credential(&world);
    let (mut stream, end) = stage.tunnel("api.test:443");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"));
    assert!(end.await.unwrap().failure.unwrap().starts_with("the client did not start TLS"));
}

#[tokio::test]
async fn an_address_is_not_intercepted() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = Stage::new(&world, vec![allow_only("192.0.2.1", &["GET"], &["/**"])], vec![]);
    let (_stream, end) = stage.tunnel("192.0.2.1:443");
    assert_eq!(
        end.await.unwrap().failure.as_deref(),
        Some("TLS to an address cannot be intercepted, only to a name")
    );
}

#[tokio::test]
async fn the_name_in_a_request_must_be_the_tunnels() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = Stage::with_credential(&world);
    for wrong in ["evil.test", "api.test:8443", "sub.api.test", "api.test@evil.test", ""] {
        let mut client = Client::connect(&stage, Speaks::Http1).await;
        let response = client.send(get("/").header("host", wrong).body(Full::default()).unwrap()).await;
        assert_eq!(response.status(), 421, "{wrong}");
        let mut client = Client::connect(&stage, Speaks::Http1).await;
        let two = get("/").header("host", "api.test").header("host", wrong);
        assert_eq!(client.send(two.body(Full::default()).unwrap()).await.status(), 421, "{wrong}");
    }
    // A complete URL in the request line, and the authority of HTTP/2.
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    for wrong in ["https://evil.test/", "http://api.test/"] {
        let request = get(wrong).header("host", "api.test").body(Full::default()).unwrap();
        assert_eq!(client.send(request).await.status(), 421, "{wrong}");
    }
    let mut client = Client::connect(&stage, Speaks::Http2).await;
    let request = get("https://evil.test/").body(Full::default()).unwrap();
    assert_eq!(client.send(request).await.status(), 421);
    let request = get("https://api.test/").header("host", "evil.test").body(Full::default()).unwrap();
    assert_eq!(client.send(request).await.status(), 421);
    assert_eq!(world.seen().len(), 0);
    // Other spellings of the same name.
    let uri: Uri = "https://api.test:443/".parse().unwrap();
    assert_eq!(client.send(get("/").uri(uri).body(Full::default()).unwrap()).await.status(), 200);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let request = get("/").header("host", "API.test:443").body(Full::default()).unwrap();
    assert_eq!(client.send(request).await.status(), 200);
}

#[tokio::test]
async fn the_ca_of_one_run_is_not_trusted_in_another() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let (one, two) = (Stage::with_credential(&world), Stage::with_credential(&world));
    let of_one = TlsClient::new(&ExtraRoots(vec![one.ca.certificate().clone()])).unwrap();
    let name = || ServerName::try_from("api.test").unwrap();
    let (stream, end) = two.tunnel("api.test:443");
    let error = of_one.handshake(stream, name(), Offer::Http1).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    assert!(end.await.unwrap().failure.is_some());
    let (stream, _end) = one.tunnel("api.test:443");
    of_one.handshake(stream, name(), Offer::Http1).await.unwrap();
}

#[test]
fn the_private_key_cannot_be_printed() {
    let ca = CertificateAuthority::new(&[HostName::new("api.test").unwrap()], SystemTime::now()).unwrap();
    assert_eq!(format!("{ca:?}"), "CertificateAuthority(…)");
    assert!(!ca.pem().contains("PRIVATE"));
}
