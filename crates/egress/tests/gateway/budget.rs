//! The cap: what is reserved before a request is sent, and how it is settled.

use std::io::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use belljar_egress::gateway::{GatewayTrouble, RequestEnd};
use serde_json::{Value, json};

use crate::client::{DEADLINE, Response, post};
use crate::host::{Host, STREAM_END, STREAM_HEAD, Then, chunk, events, message};
use crate::stage::{Stage, request};

/// Long enough for a request to arrive that should not be sent.
const A_WHILE: Duration = Duration::from_millis(500);

fn asking_for(max_tokens: u64) -> Value {
    let mut body = request();
    body["max_tokens"] = json!(max_tokens);
    body
}

fn words(response: &Response) -> String {
    response.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_request_above_the_cap_is_not_sent() {
    // A thousand output tokens cost 2.5 cents; each response costs 2 cents.
    let host = Host::always(message(0, 800));
    let gateway = Stage { cap: Some(0.06), ..Stage::before(&host) }.start();
    assert_eq!(gateway.ask(&request()).status, 200);
    gateway.heard.finished(1);
    assert_eq!(gateway.ask(&request()).status, 200);
    gateway.heard.finished(2);
    // Two cents are left.
    let refused = gateway.ask(&request());
    assert_eq!((refused.status, refused.header("x-should-retry")), (400, Some("false")));
    assert!(
        words(&refused).contains("the budget of $0.0600 is used up: $0.0400 are spent"),
        "{}",
        words(&refused)
    );
    assert!(words(&refused).contains("limits.cost_usd"), "{}", words(&refused));
    // A request that still fits is sent.
    assert_eq!(gateway.ask(&asking_for(500)).status, 200);
    assert_eq!(host.requests().len(), 3);
    assert!(matches!(gateway.heard.troubles()[..], [GatewayTrouble::BudgetReached { .. }]));
    assert!(matches!(gateway.heard.finished(4)[2].end, RequestEnd::Refused(_)));
    // The last response cost more than its request allowed: the host's count is charged.
    assert_eq!(gateway.live.spent().micros(), 60_000);
}

#[test]
fn requests_at_once_do_not_pass_the_cap_together() {
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, peak) = (Arc::clone(&under_way), Arc::clone(&most));
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (came, arrived) = mpsc::channel();
    let came = Mutex::new(came);
    let host = Host::start(move |stream, _| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        came.lock().unwrap().send(()).unwrap();
        wait.lock().unwrap().recv().unwrap();
        now.fetch_sub(1, Ordering::SeqCst);
        stream.write_all(&message(0, 1000)).unwrap();
        Then::Keep
    });
    // Each request may cost 2.5 cents for its output and a little for its input, and does cost 2.5 cents.
    let gateway = Stage { cap: Some(0.08), ..Stage::before(&host) }.start();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..10).map(|_| scope.spawn(|| gateway.ask(&request()).status)).collect();
        for _ in 0..3 {
            arrived.recv_timeout(DEADLINE).unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
        for _ in 0..3 {
            go.send(()).unwrap();
        }
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 3, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 7, "{statuses:?}");
    assert_eq!((host.requests().len(), most.load(Ordering::SeqCst)), (3, 3));
    assert_eq!(gateway.live.spent().micros(), 75_000);
}

#[test]
fn a_request_waits_for_money_that_is_only_claimed() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (came, arrived) = mpsc::channel();
    let came = Mutex::new(came);
    let host = Host::start(move |stream, _| {
        came.lock().unwrap().send(()).unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(&message(0, 1)).unwrap();
        Then::Keep
    });
    let gateway = Stage { cap: Some(0.03), ..Stage::before(&host) }.start();
    let mut clients: Vec<_> = (0..2).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.send(&post("/v1/messages", "", request().to_string().as_bytes()));
    }
    arrived.recv_timeout(DEADLINE).unwrap();
    assert!(arrived.recv_timeout(A_WHILE).is_err(), "both claims were granted at once");
    go.send(()).unwrap();
    arrived.recv_timeout(DEADLINE).unwrap();
    go.send(()).unwrap();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn a_model_without_a_price_is_refused_under_a_cap_and_counted_without_one() {
    let host = Host::start(|stream, _| {
        let answer =
            String::from_utf8(message(10, 10)).unwrap().replace("claude-opus-4-8", "claude-opus-9-9");
        stream.write_all(answer.as_bytes()).unwrap();
        Then::Keep
    });
    let mut body = request();
    body["model"] = json!("claude-opus-9-9");
    let gateway = Stage { cap: Some(100.0), ..Stage::before(&host) }.start();
    let refused = gateway.ask(&body);
    assert_eq!((refused.status, refused.header("x-should-retry")), (400, Some("false")));
    assert!(words(&refused).contains("the price of claude-opus-9-9 is not known"), "{}", words(&refused));
    body["model"] = json!("claude-opus-4-8");
    body["speed"] = json!("fast");
    body.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(gateway.ask(&body).status, 400);
    assert_eq!(host.connections(), 0);
    assert!(matches!(gateway.heard.troubles()[..], [GatewayTrouble::Unpriced { .. }]));

    let open = Stage::before(&host).start();
    body["model"] = json!("claude-opus-9-9");
    assert_eq!(open.ask(&body).status, 200);
    let finished = &open.heard.finished(1)[0];
    assert_eq!((finished.cost, finished.tokens.unwrap().count.output), (None, 10));
    assert_eq!(open.live.totals().models["claude-opus-9-9"].unpriced, 1);
}

#[test]
fn the_reservation_follows_the_real_input_once_it_is_known() {
    // The model has read 20 000 tokens, 10 cents, where the size suggested some sixty.
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (came, arrived) = mpsc::channel();
    let came = Mutex::new(came);
    let host = Host::start(move |stream, _| {
        came.lock().unwrap().send(()).unwrap();
        stream.write_all(STREAM_HEAD).unwrap();
        for event in events("x", 20_000, 10) {
            stream.write_all(&chunk(event.as_bytes())).unwrap();
            if event.contains("message_start") {
                wait.lock().unwrap().recv().unwrap();
            }
        }
        stream.write_all(STREAM_END).unwrap();
        Then::Keep
    });
    let gateway = Stage { cap: Some(0.15), ..Stage::before(&host) }.start();
    let mut first = gateway.client();
    first.send(&post("/v1/messages", "", request().to_string().as_bytes()));
    let crate::client::Client::Tcp(stream) = &mut first else { panic!() };
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains("message_start") {
        let mut buffer = [0; 4096];
        let read = std::io::Read::read(stream, &mut buffer).unwrap();
        got.extend_from_slice(&buffer[..read]);
    }
    arrived.recv_timeout(DEADLINE).unwrap();
    // Nothing is spent and 12.5 cents are reserved: a second request has to wait although it may cost little.
    let mut second = gateway.client();
    second.send(&post("/v1/messages", "", asking_for(1500).to_string().as_bytes()));
    assert!(arrived.recv_timeout(A_WHILE).is_err(), "the true input was not reserved");
    // The real cost leaves enough.
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(second.response().status, 200);
}

#[test]
fn an_interrupted_response_is_charged_for_the_received_text() {
    let host = Host::start(|stream, _| {
        stream.write_all(STREAM_HEAD).unwrap();
        for event in &events(&"abc".repeat(100), 1000, 500)[..2] {
            stream.write_all(&chunk(event.as_bytes())).unwrap();
        }
        Then::Close
    });
    let gateway = Stage { cap: Some(1.0), ..Stage::before(&host) }.start();
    gateway.ask(&request());
    let finished = &gateway.heard.finished(1)[0];
    assert_eq!(finished.tokens.unwrap().count.output, 100);
    // A thousand input tokens, two from the cache, a hundred output tokens.
    assert_eq!(gateway.live.spent().micros(), 5_000 + 1 + 2_500);
}
