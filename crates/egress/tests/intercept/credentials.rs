//! Which requests get a credential, and which do not.

use crate::client::{Client, get};
use crate::stage::{Stage, VALUE, allow, allow_only, bearer, destination};
use crate::world::{Speaks, World};
use belljar_contract::Secret;
use belljar_egress::intercept::{
    CertificateAuthority, HostCredential, InterceptTimeouts, Interception, Interceptor, ValuePart,
};
use belljar_egress::proxy::Intercept;
use belljar_egress::tls::{ExtraRoots, TlsClient};
use http_body_util::Full;
use std::sync::Arc;
use std::time::SystemTime;

const BOTH: [Speaks; 2] = [Speaks::Http1, Speaks::Http2];

#[tokio::test]
async fn the_credential_is_added_for_every_pair_of_protocols() {
    for inside in BOTH {
        for outside in BOTH {
            let world = World::start(&["api.test"], outside).await;
            let stage = Stage::with_credential(&world);
            let mut client = Client::connect(&stage, inside).await;
            // With the header and without it, on the same connection.
            assert_eq!(client.get("/v1?q=1").await, (200, "{}".to_owned()), "{inside:?} {outside:?}");
            let placeholder =
                get("/v1").header("authorization", "Bearer placeholder").header("authorization", "two");
            client.send(placeholder.body(Full::default()).unwrap()).await;
            for seen in world.seen() {
                let sent: Vec<_> = seen.headers.get_all("authorization").iter().collect();
                assert_eq!(sent, [&format!("Bearer {VALUE}")], "{inside:?} {outside:?}");
                assert_eq!(
                    seen.headers.get_all("host").iter().count(),
                    usize::from(outside == Speaks::Http1)
                );
            }
            assert_eq!(world.seen()[0].target, "/v1?q=1");
            let row = &stage.rows()[0];
            assert_eq!(
                (row.path.as_str(), row.allowed, row.credential.as_deref()),
                ("/v1?…", true, Some("TOKEN"))
            );
        }
    }
}

#[tokio::test]
async fn a_placeholder_in_another_place_is_not_replaced() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = Stage::with_credential(&world);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let request = get("/echo?key=placeholder").method("POST").header("x-other", "placeholder");
    client.send(request.body(Full::from("placeholder")).unwrap()).await;
    let seen = &world.seen()[0];
    assert_eq!(seen.target, "/echo?key=placeholder");
    assert_eq!(
        (seen.headers["x-other"].as_bytes(), &seen.body[..]),
        (&b"placeholder"[..], &b"placeholder"[..])
    );
}

#[tokio::test]
async fn another_host_or_port_does_not_get_the_credential() {
    let world = World::start(&["api.test", "other.test"], Speaks::Http1).await;
    let rules = vec![allow("api.test"), allow_only("other.test", &["GET"], &["/**"])];
    let mut other = bearer("other.test:443");
    (other.name, other.header) = ("OTHER".to_owned(), "X-Key".to_owned());
    other.value = vec![ValuePart::Secret(Arc::new(Secret::new("another-value")))];
    let stage = Stage::new(&world, rules, vec![bearer("api.test:443"), other]);
    let mut client = Client::connect_to(&stage, "other.test", Speaks::Http1).await;
    let request = get("/").header("host", "other.test").header("authorization", "Bearer placeholder");
    client.send(request.body(Full::default()).unwrap()).await;
    let seen = &world.seen()[0];
    assert_eq!(seen.headers["authorization"], "Bearer placeholder");
    assert_eq!(seen.headers["x-key"], "another-value");
    let wants = |to: &str| stage.interceptor.wants(&destination(to));
    assert!(wants("api.test:443") && wants("other.test:443"));
    assert!(!wants("api.test:22") && !wants("sub.api.test:443") && !wants("elsewhere.test:443"));
}

#[tokio::test]
async fn a_refused_request_carries_no_credential() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage =
        Stage::new(&world, vec![allow_only("api.test", &["GET"], &["/ok"])], vec![bearer("api.test:443")]);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    assert_eq!(client.get("/evil").await.0, 403);
    assert_eq!((world.seen().len(), stage.rows()[0].credential.as_deref()), (0, None));
}

#[tokio::test]
async fn connection_headers_cannot_remove_the_credential() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = Stage::with_credential(&world);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let request =
        get("/").header("connection", "authorization, x-secret, keep-alive").header("x-secret", "1");
    client
        .send(request.header("proxy-authorization", "Basic run-token").body(Full::default()).unwrap())
        .await;
    let seen = &world.seen()[0];
    assert_eq!(seen.headers["authorization"], format!("Bearer {VALUE}"));
    assert!(!seen.headers.contains_key("x-secret") && !seen.headers.contains_key("proxy-authorization"));
}

#[tokio::test]
async fn a_credential_that_cannot_be_sent_or_hidden_is_refused_before_anything_happens() {
    let refused = |header: &str, value: &str| {
        let credential = HostCredential {
            header: header.to_owned(),
            value: vec![ValuePart::Secret(Arc::new(Secret::new(value)))],
            ..bearer("api.test:443")
        };
        let interception = Interception {
            rules: vec![],
            credentials: vec![credential],
            ca: Arc::new(CertificateAuthority::new(&[], SystemTime::now()).unwrap()),
            tls: TlsClient::new(&ExtraRoots::default()).unwrap(),
            timeouts: InterceptTimeouts::default(),
        };
        Interceptor::new(interception).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (header, value, words) in [
        ("Authorization", "", "the value of the credential TOKEN must not be empty"),
        ("Authorization", "1234", "must have at least 5 characters"),
        ("Authorization", "line\nbreak", "line break"),
        ("Host", "api.evil.test", "cannot be put in the header `Host`"),
        ("Transfer-Encoding", "chunked", "cannot be put in the header"),
        ("no header", "some-value", "cannot be put in the header"),
    ] {
        let error = refused(header, value);
        assert!(error.contains(words), "{header}: {error}");
        assert!(value.is_empty() || !error.contains(value), "{error}");
    }
    assert_eq!(refused("Authorization", "long-enough"), "");
}
