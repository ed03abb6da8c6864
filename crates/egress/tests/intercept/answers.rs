//! Responses in intercepted tunnels.

use crate::client::{Client, Sender, get, text};
use crate::stage::{Stage, VALUE, allow_only};
use crate::world::{Speaks, World};
use http_body_util::{BodyExt, Full};

const BOTH: [Speaks; 2] = [Speaks::Http1, Speaks::Http2];

#[tokio::test]
async fn the_value_is_redacted_from_responses() {
    for inside in BOTH {
        for outside in BOTH {
            let world = World::start(&["api.test"], outside).await;
            let stage = Stage::with_credential(&world);
            let mut client = Client::connect(&stage, inside).await;
            assert_eq!(client.get("/literal").await.1, "you sent Bearer [redacted:TOKEN], thank you");
            assert_eq!(client.get("/split").await.1, "Bearer [redacted:TOKEN]", "{inside:?} {outside:?}");
            let encoded = client.get("/base64").await.1;
            assert!(encoded.starts_with("Basic ") && encoded.contains("[redacted:TOKEN]"), "{encoded}");
            let response = client.send(get("/header").body(Full::default()).unwrap()).await;
            assert_eq!(response.headers()["x-echo"], "Bearer [redacted:TOKEN]");
            assert_eq!(response.headers()["location"], "/?t=Bearer [redacted:TOKEN]");
        }
    }
}

#[tokio::test]
async fn concurrent_tunnels_are_served_alike_and_end_when_aborted() {
    for outside in BOTH {
        let world = World::start(&["api.test"], outside).await;
        let stage = Stage::with_credential(&world);
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(Client::connect(&stage, Speaks::Http1).await);
        }
        for client in &mut clients {
            assert_eq!(client.get("/literal").await.1, "you sent Bearer [redacted:TOKEN], thank you");
        }
        assert_eq!(stage.rows().len(), 4);
        // Each one waits for a response that is not sent.
        let mut late = Vec::new();
        for client in &mut clients {
            let request = get("/late").header("host", "api.test").body(Full::default()).unwrap();
            let Sender::Http1(sender) = &mut client.sender else { panic!("it is HTTP/1") };
            sender.ready().await.unwrap();
            late.push(tokio::spawn(sender.send_request(request)));
        }
        while world.seen().len() < 8 {
            tokio::task::yield_now().await;
        }
        clients.iter().for_each(|client| client.end.abort());
        for answer in late {
            assert!(answer.await.unwrap().is_err());
        }
    }
}

#[tokio::test]
async fn the_value_is_redacted_from_trailers() {
    let world = World::start(&["api.test"], Speaks::Http2).await;
    let stage = Stage::with_credential(&world);
    let mut client = Client::connect(&stage, Speaks::Http2).await;
    let request = get("/trailers").header("te", "trailers").body(Full::default()).unwrap();
    let body = client.send(request).await.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "Bearer [redacted:TOKEN]");
    assert_eq!(body.to_bytes(), "body");
}

#[tokio::test]
async fn the_value_is_redacted_from_the_log_and_from_refusals() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let rules = vec![allow_only("api.test", &["GET"], &["/ok/**"])];
    let stage = Stage::new(&world, rules, vec![crate::stage::bearer("api.test:443")]);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    // A client that guesses the value and sends it must not get it into the log.
    let (status, refusal) = client.get(&format!("/evil/{VALUE}?{VALUE}")).await;
    assert_eq!(status, 403);
    assert!(refusal.contains("/evil/[redacted:TOKEN]") && !refusal.contains(VALUE), "{refusal}");
    client.get(&format!("/ok/{VALUE}")).await;
    client.get(&format!("/ok//{VALUE}")).await;
    let rows = format!("{:?}", stage.rows());
    assert_eq!(stage.rows().len(), 3);
    assert!(!rows.contains(VALUE) && rows.contains("/ok/[redacted:TOKEN]"), "{rows}");
}

#[tokio::test]
async fn compressed_responses_are_not_accepted_and_not_forwarded() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = Stage::with_credential(&world);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let request = get("/gzip").header("accept-encoding", "gzip, br").header("range", "bytes=0-3");
    let response = client.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(response.status(), 502);
    let reported = text(response).await;
    assert!(reported.contains("api.test:443 sent the encoding `gzip`"), "{reported}");
    assert!(!reported.contains("not really"), "{reported}");
    let seen = &world.seen()[0];
    assert_eq!(seen.headers["accept-encoding"], "identity");
    assert!(!seen.headers.contains_key("range"));
    let rows = stage.rows();
    assert_eq!(rows.iter().map(|row| row.allowed).collect::<Vec<_>>(), [true, false]);
    assert!(rows[1].reason.as_ref().unwrap().contains("api.test:443 sent the encoding `gzip`"), "{rows:?}");
    assert_eq!((&rows[1].path, &rows[1].rule), (&rows[0].path, &rows[0].rule));
    // A host must not be able to smuggle the value out as the name of an encoding.
    let (status, reported) = client.get("/coded-as-the-value").await;
    assert_eq!(status, 502);
    let reported = format!("{reported} {:?}", stage.rows());
    assert!(reported.contains("[redacted:TOKEN]") && !reported.contains(VALUE), "{reported}");
}

#[tokio::test]
async fn a_host_without_a_credential_may_compress() {
    let world = World::start(&["api.test"], Speaks::Http1).await;
    let stage = Stage::new(&world, vec![allow_only("api.test", &["GET"], &["/**"])], vec![]);
    let mut client = Client::connect(&stage, Speaks::Http1).await;
    let request = get("/gzip").header("accept-encoding", "gzip");
    let response = client.send(request.body(Full::default()).unwrap()).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-encoding"]),
        (200, &"gzip".parse().unwrap())
    );
    assert_eq!(world.seen()[0].headers["accept-encoding"], "gzip");
}

#[tokio::test]
async fn events_are_forwarded_one_by_one() {
    for inside in BOTH {
        let world = World::start(&["api.test"], Speaks::Http1).await;
        let stage = Stage::with_credential(&world);
        let mut client = Client::connect(&stage, inside).await;
        let mut body = client.send(get("/events").body(Full::default()).unwrap()).await.into_body();
        // The host sends the second event only after the first was received here.
        for event in ["data: one\n\n", "data: two\n\n"] {
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), event);
            world.go_on.notify_one();
        }
        assert_eq!(body.collect().await.unwrap().to_bytes(), "");
    }
}

#[tokio::test]
async fn responses_without_a_body_and_redirects_are_forwarded_unchanged() {
    for inside in BOTH {
        for outside in BOTH {
            let world = World::start(&["api.test"], outside).await;
            let stage = Stage::with_credential(&world);
            let mut client = Client::connect(&stage, inside).await;
            let head = get("/length").method("HEAD").body(Full::default()).unwrap();
            let response = client.send(head).await;
            assert_eq!(response.headers()["content-length"], "5");
            assert_eq!(text(response).await, "");
            assert_eq!(client.get("/nothing").await, (204, String::new()));
            assert_eq!(client.get("/length").await, (200, "hello".to_owned()));
            let response = client.send(get("/redirect").body(Full::default()).unwrap()).await;
            assert_eq!(
                (response.status().as_u16(), response.headers()["location"].as_bytes()),
                (302, &b"https://elsewhere.test/"[..])
            );
            assert_eq!(world.seen().len(), 4, "the redirect was not followed");
        }
    }
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    for outside in BOTH {
        let world = World::start(&["api.test"], outside).await;
        let stage = Stage::with_credential(&world);
        let mut client = Client::connect(&stage, Speaks::Http1).await;
        for _ in 0..5 {
            assert_eq!(client.get("/").await.0, 200);
        }
        assert_eq!(world.connections.load(std::sync::atomic::Ordering::SeqCst), 1);
        drop(client.sender);
        let end = client.end.await.unwrap();
        assert!(end.sent > 0 && end.received > 0 && end.failure.is_none(), "{end:?}");
    }
}

#[tokio::test]
async fn a_large_body_passes_both_ways() {
    let world = World::start(&["api.test"], Speaks::Http2).await;
    let stage = Stage::with_credential(&world);
    let mut client = Client::connect(&stage, Speaks::Http2).await;
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let request = get("/echo").method("POST").body(Full::from(large.clone())).unwrap();
    let answer = client.send(request).await.into_body().collect().await.unwrap().to_bytes();
    assert!(answer == large, "{} bytes came back of {}", answer.len(), large.len());
}
