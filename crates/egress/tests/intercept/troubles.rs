//! Hosts with a wrong certificate, hosts that do not respond, and interrupted connections.

use crate::client::{Client, get};
use crate::stage::{Stage, allow, bearer, timeouts};
use crate::world::{Speaks, World};
use belljar_egress::intercept::InterceptTimeouts;
use http_body_util::{BodyExt, Full};
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::test]
async fn an_untrusted_certificate() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage =
        Stage::waiting(&world, vec![allow("api.test")], vec![bearer("api.test:443")], timeouts(), vec![]);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let (status, words) = client.get("/").await;
    assert_eq!(status, 502);
    assert!(words.contains("the TLS handshake with api.test failed"), "{words}");
    assert_eq!(world.seen().len(), 0, "and the credential did not leave");
}

#[tokio::test]
async fn a_certificate_for_another_host() {
    let world = World::start(&["evil.test"], Speaks::Http1).await;
    let stage = Stage::with_credential(&world);
    let mut client = Client::connect(&stage, Speaks::Http2).await;
    let (status, words) = client.get("/").await;
    assert_eq!(status, 502);
    assert!(words.contains("certificate"), "{words}");
    assert_eq!(world.seen().len(), 0);
}

#[tokio::test]
async fn a_host_that_cannot_be_reached() {
    let mut world = World::start(&["api.test"], Speaks::Http1).await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    world.address = free.local_addr().unwrap();
    drop(free);
    let stage = Stage::with_credential(&world);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let (status, words) = client.get("/").await;
    assert_eq!(status, 502);
    assert!(words.contains("api.test cannot be reached"), "{words}");
}

#[tokio::test]
async fn a_response_that_is_late() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let short = InterceptTimeouts { answer: Duration::from_millis(300), ..timeouts() };
    let roots = vec![world.root.clone()];
    let stage = Stage::waiting(&world, vec![allow("api.test")], vec![bearer("api.test:443")], short, roots);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let (status, words) = client.get("/late").await;
    assert_eq!((status, words.as_str()), (504, "belljar: api.test did not respond in time\n"));
    assert_eq!(client.get("/").await.0, 200, "the client's connection goes on");
}

#[tokio::test]
async fn a_stalled_or_interrupted_body_does_not_look_complete() {
    for outside in [Speaks::Http1, Speaks::Http2] {
        let world = World::start(&["api.test"], outside).await;
        let short = InterceptTimeouts { stall: Duration::from_millis(300), ..timeouts() };
        let roots = vec![world.root.clone()];
        let stage =
            Stage::waiting(&world, vec![allow("api.test")], vec![bearer("api.test:443")], short, roots);
        for breaks in [false, true] {
            let mut client = Client::connect(&stage, Speaks::Http1).await;
            let mut body = client.send(get("/cut").body(Full::default()).unwrap()).await.into_body();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
            if breaks {
                world.go_on.notify_one();
            }
            assert!(body.frame().await.unwrap().is_err(), "{outside:?} {breaks}");
        }
    }
}
