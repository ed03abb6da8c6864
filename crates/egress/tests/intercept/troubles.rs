//! Hosts that are not who they should be, do not answer, or break off.

use crate::client::{Client, get};
use crate::stage::{Stage, allow, bearer, waits};
use crate::world::{Speaks, World};
use belljar_egress::intercept::Waits;
use http_body_util::{BodyExt, Full};
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage =
        Stage::waiting(&world, vec![allow("api.test")], vec![bearer("api.test:443")], waits(), vec![]);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let (status, words) = client.get("/").await;
    assert_eq!(status, 502);
    assert!(words.contains("api.test did not show a certificate that this machine trusts"), "{words}");
    assert_eq!(world.seen().len(), 0, "and the credential did not leave");
}

#[tokio::test]
async fn a_certificate_for_somebody_else() {
    let world = World::start(&["evil.test"], Speaks::Http1).await;
    let stage = Stage::with_credential(&world);
    let mut client = Client::connect(&stage, Speaks::Http2).await;
    let (status, words) = client.get("/").await;
    assert_eq!(status, 502);
    assert!(words.contains("certificate"), "{words}");
    assert_eq!(world.seen().len(), 0);
}

#[tokio::test]
async fn nobody_there() {
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
async fn no_answer_in_time() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let short = Waits { answer: Duration::from_millis(300), ..waits() };
    let roots = vec![world.root.clone()];
    let stage = Stage::waiting(&world, vec![allow("api.test")], vec![bearer("api.test:443")], short, roots);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let (status, words) = client.get("/late").await;
    assert_eq!((status, words.as_str()), (504, "belljar: api.test gave no answer in time\n"));
    assert_eq!(client.get("/").await.0, 200, "the client's connection goes on");
}

#[tokio::test]
async fn a_body_that_stands_still_or_breaks_off_is_not_taken_for_a_whole_one() {
    for outside in [Speaks::Http1, Speaks::Http2] {
        let world = World::start(&["api.test"], outside).await;
        let short = Waits { stall: Duration::from_millis(300), ..waits() };
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
