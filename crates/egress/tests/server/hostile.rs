//! Hostile and faulty clients.

use std::io::Write;

use belljar_egress::script::{AnsweredBy, BodySeen, Exhausted, Script, ScriptedModel, SideRequests, Turn};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::client::{Client, DEADLINE, ask, asking, post, started};

const MAX_BODY: usize = 32 * 1024 * 1024;

#[test]
fn a_body_announced_as_too_large_is_not_read() {
    let model = started(Script::new());
    let mut client = Client::connect(&model);
    let announced =
        format!("POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", MAX_BODY + 1);
    client.send(announced.as_bytes());
    let response = client.response();
    assert_eq!(response.status, 413);
    assert_eq!(response.json()["error"]["type"], "request_too_large");
    assert_eq!(model.requests()[0].body, BodySeen::TooLarge);
    assert_eq!(model.requests()[0].answered_by, AnsweredBy::Refused(413));
}

#[test]
fn a_body_that_turns_out_too_large_is_not_read_further() {
    let model = started(Script::new());
    let mut client = Client::connect(&model);
    client.send(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    let mut chunk = format!("{:x}\r\n", 1 << 20).into_bytes();
    chunk.resize(chunk.len() + (1 << 20), b' ');
    chunk.write_all(b"\r\n").unwrap();
    // The server stops reading after the limit, so a later write may fail.
    let all_sent = (0..=MAX_BODY >> 20).try_for_each(|_| client.try_send(&chunk));
    let requests = model.wait_for_requests(1, DEADLINE).unwrap();
    assert_eq!(requests[0].body, BodySeen::TooLarge, "{all_sent:?}");
}

#[test]
fn a_client_that_leaves_in_the_middle_is_logged() {
    let model = started(Script::new().turn(Turn::text("a")));
    let mut client = Client::connect(&model);
    client.send(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"messages\"");
    drop(client);
    let requests = model.wait_for_requests(1, DEADLINE).unwrap();
    assert_eq!(requests[0].body, BodySeen::Broken);
    assert_eq!(ask(&model, &asking("x")).text(), "a");
}

#[test]
fn deep_nesting_is_refused() {
    let model = started(Script::new());
    let mut client = Client::connect(&model);
    client.send(&post("/v1/messages", "", "[".repeat(1 << 20).as_bytes()));
    assert_eq!(client.response().status, 400);
}

#[test]
fn more_connections_than_are_served_at_once_do_not_stop_the_model() {
    let model = started(Script::new().turn(Turn::text("a")));
    let idle: Vec<Client> = (0..256).map(|_| Client::connect(&model)).collect();
    let mut waiting = Client::connect(&model);
    waiting.send(&post("/v1/messages", "", asking("x").to_string().as_bytes()));
    drop(idle);
    assert_eq!(waiting.response().text(), "a");
}

fn any_json() -> impl Strategy<Value = Value> {
    let words =
        prop::sample::select(vec!["role", "system", "user", "content", "type", "text", "tool_result"]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        words.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((words.clone(), inner), 0..6).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

/// A model that has a reply for every request.
fn talkative() -> ScriptedModel {
    let script = Script::new().side_requests(SideRequests::TakeTurns);
    started(script.when_exhausted(Exhausted::Reply("more".into())))
}

fn runner() -> proptest::test_runner::TestRunner {
    let config = ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() };
    proptest::test_runner::TestRunner::new(config)
}

#[test]
fn every_body_gets_an_answer() {
    let model = talkative();
    let body = (any_json(), any_json(), any_json(), any_json(), any_json());
    let checked = runner().run(&body, |(messages, tools, stream, name, whole)| {
        let shaped = json!({"messages": messages, "tools": tools, "stream": stream, "model": name});
        let listed = json!({"messages": [whole.clone()], "stream": false});
        let mut client = Client::connect(&model);
        prop_assert!([200, 400].contains(&client.ask(&whole).status));
        prop_assert!([200, 400].contains(&client.ask(&shaped).status));
        prop_assert_eq!(client.ask(&listed).status, 200);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn every_byte_string_gets_an_answer_as_a_body() {
    let model = talkative();
    let checked = runner().run(&prop::collection::vec(any::<u8>(), 0..300), |bytes| {
        let mut client = Client::connect(&model);
        client.send(&post("/v1/messages", "", &bytes));
        prop_assert_eq!(client.response().status, 400);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn no_byte_string_stops_the_model() {
    let model = talkative();
    let checked = runner().run(&prop::collection::vec(any::<u8>(), 0..300), |bytes| {
        let mut client = Client::connect(&model);
        // The server may reject the bytes before it has received them all.
        let sent = client.try_send(&bytes);
        drop(client);
        prop_assert_eq!(ask(&model, &asking("x")).text(), "more", "{:?}", sent);
        Ok(())
    });
    checked.unwrap();
}
