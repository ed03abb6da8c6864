//! Responses that are cut off on purpose.

use belljar_egress::script::{CutEnd, Script, ScriptReply, Turn};
use serde_json::json;

use crate::client::{Client, End, ask, asking, asking_for_a_stream, on_both, post, started};

const EVENTS: usize = 7;

fn cut(after_events: usize, end: CutEnd) -> Script {
    Script::new().turn(Turn::reply(ScriptReply::new().text("hi").cut(after_events, end)))
}

#[test]
fn a_stream_is_closed_after_exactly_as_many_events_as_said() {
    for after_events in 0..EVENTS {
        on_both(&cut(after_events, CutEnd::Close), |model| {
            let response = ask(model, &asking_for_a_stream("x"));
            assert_eq!(response.status, 200);
            assert_eq!(response.events().len(), after_events);
            assert_eq!(response.end, End::Closed);
        });
    }
}

#[test]
fn a_cut_after_the_last_event_has_no_effect() {
    on_both(&cut(EVENTS, CutEnd::Close), |model| {
        let response = ask(model, &asking_for_a_stream("x"));
        assert_eq!((response.events().len(), response.end), (EVENTS, End::Complete));
    });
}

#[test]
fn a_large_stream_arrives_up_to_its_cut() {
    // More than the buffers of hyper and of the socket hold, so that the cut has to wait for the client.
    let text = "x".repeat(8 * 1024 * 1024);
    let script = Script::new().turn(Turn::reply(ScriptReply::new().text(&text).cut(4, CutEnd::Close)));
    on_both(&script, |model| {
        let mut client = Client::connect(model);
        client.send(&post("/v1/messages", "", asking_for_a_stream("x").to_string().as_bytes()));
        let (bytes, end) = client.rest();
        assert_eq!(end, End::Closed);
        assert!(bytes.ends_with(b"x\"}}\n\n\r\n"));
        assert!(bytes.len() > text.len());
    });
}

#[test]
fn a_reset_is_a_reset_on_tcp_and_a_close_on_a_unix_socket() {
    on_both(&cut(3, CutEnd::Reset), |model| {
        let response = ask(model, &asking_for_a_stream("x"));
        assert_eq!(response.events().len(), 3);
        assert_eq!(response.end, if model.tcp_address().is_some() { End::Reset } else { End::Closed });
    });
}

#[test]
fn a_body_can_end_well_with_its_message_unfinished() {
    on_both(&cut(3, CutEnd::EndOfBody).turn(Turn::text("again")), |model| {
        let mut client = Client::connect(model);
        let response = client.ask(&asking_for_a_stream("x"));
        assert_eq!((response.events().len(), response.end), (3, End::Complete));
        assert_eq!(client.ask(&asking("x")).text(), "again");
    });
    on_both(&cut(3, CutEnd::EndOfBody), |model| {
        let response = ask(model, &asking("x"));
        assert_eq!(response.end, End::Complete);
        assert!(serde_json::from_str::<serde_json::Value>(&response.chunks.concat()).is_err());
    });
}

#[test]
fn a_document_loses_its_second_half() {
    on_both(&cut(3, CutEnd::Close), |model| {
        let response = ask(model, &asking("x"));
        assert_eq!((response.status, response.end), (200, End::Closed));
        let promised: usize = response.header("content-length").unwrap().parse().unwrap();
        assert_eq!(response.chunks.concat().len(), promised / 2);
    });
}

#[test]
fn a_hang_up_leaves_not_a_byte_and_spends_its_turn() {
    on_both(&Script::new().turn(Turn::hang_up()).turn(Turn::text("again")), |model| {
        let mut client = Client::connect(model);
        client.send(&post("/v1/messages", "", asking("x").to_string().as_bytes()));
        assert_eq!(client.rest(), (Vec::new(), End::Closed));
        assert_eq!(ask(model, &asking("x")).text(), "again");
    });
}

#[test]
fn a_broken_stream_leaves_the_completed_blocks() {
    let reply =
        ScriptReply::new().tool_use("Bash", json!({"command": "ls"})).text("and").cut(6, CutEnd::Close);
    let model = started(Script::new().turn(Turn::reply(reply)));
    let response = ask(&model, &asking_for_a_stream("x"));
    assert_eq!(response.events().last(), Some(&"content_block_start"));
    assert!(response.events().contains(&"content_block_stop"));
}
