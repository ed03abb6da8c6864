//! Responses, byte for byte where it matters.

use std::time::{Duration, Instant};

use belljar_egress::script::{
    AnsweredBy, ErrorReply, Exhausted, RequestConditions, Script, ScriptReply, Sender, SideRequests, Tools,
    Turn,
};
use serde_json::json;

use crate::client::{Client, End, ask, asking, asking_for_a_stream, on_both, post, started};

#[test]
fn a_stream_is_chunked_one_event_a_chunk() {
    let script = Script::new().turn(Turn::text("hi"));
    on_both(&script, |model| {
        let mut client = Client::connect(model);
        let body = asking_for_a_stream("x").to_string();
        client.send(&post("/v1/messages", "connection: close\r\n", body.as_bytes()));
        let (bytes, end) = client.rest();
        assert_eq!(end, End::Closed);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("content-type: text/event-stream; charset=utf-8\r\n"), "{head}");
        assert!(head.contains("request-id: req_scripted_0000\r\n"), "{head}");
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let usage = r#""cache_creation_input_tokens":0,"cache_read_input_tokens":0"#;
        let events = [
            format!(
                "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\
                 \"id\":\"msg_scripted_0000\",\"type\":\"message\",\"role\":\"assistant\",\
                 \"model\":\"asked-for\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\
                 \"usage\":{{\"input_tokens\":10,\"output_tokens\":1,{usage}}}}}}}\n\n"
            ),
            "event: ping\ndata: {\"type\":\"ping\"}\n\n".to_owned(),
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
             \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
                .to_owned(),
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
             \"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n"
                .to_owned(),
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n".to_owned(),
            format!(
                "event: message_delta\ndata: {{\"type\":\"message_delta\",\
                 \"delta\":{{\"stop_reason\":\"end_turn\",\"stop_sequence\":null}},\
                 \"usage\":{{\"input_tokens\":10,\"output_tokens\":5,{usage}}}}}\n\n"
            ),
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n".to_owned(),
        ];
        let chunk = |event: &String| format!("{:X}\r\n{event}\r\n", event.len());
        let expected: String = events.iter().map(chunk).chain(["0\r\n\r\n".to_owned()]).collect();
        assert_eq!(body, expected);
    });
}

#[test]
fn a_reply_that_is_not_streamed_is_one_document() {
    let reply = ScriptReply::new().thinking("hm", "sig").tool_use("Bash", json!({"command": "ls"}));
    on_both(&Script::new().turn(Turn::reply(reply)), |model| {
        let response = ask(model, &asking("x"));
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert!(response.header("content-length").is_some());
        assert_eq!(
            response.json(),
            json!({
                "id": "msg_scripted_0000",
                "type": "message",
                "role": "assistant",
                "model": "asked-for",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "tool_use", "id": "toolu_scripted_0000_1", "name": "Bash", "input": {"command": "ls"}},
                ],
                "stop_reason": "tool_use",
                "stop_sequence": null,
                "usage": {
                    "input_tokens": 10,
                    "output_tokens": 5,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                },
            })
        );
    });
}

#[test]
fn a_connection_serves_many_requests() {
    let script = Script::new().turn(Turn::text("a")).turn(Turn::text("b")).turn(Turn::text("c"));
    on_both(&script, |model| {
        let mut client = Client::connect(model);
        assert_eq!(client.ask(&asking("x")).text(), "a");
        assert_eq!(client.ask(&asking_for_a_stream("x")).events().len(), 7);
        assert_eq!(client.ask(&asking("x")).text(), "c");
        assert_eq!(model.unplayed(), [0_usize; 0]);
    });
}

#[test]
fn errors_have_status_type_message_and_headers() {
    let statuses = [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ];
    let error = |status| ErrorReply::new(status, "scripted").retry_after(7).header("X-Should-Retry", "false");
    let script =
        statuses.iter().fold(Script::new(), |script, (status, _)| script.turn(Turn::error(error(*status))));
    let model = started(script.turn(Turn::error(ErrorReply::new(418, "tea").kind("teapot_error"))));
    for (index, (status, kind)) in statuses.into_iter().enumerate() {
        let response = ask(&model, &asking_for_a_stream("x"));
        assert_eq!(response.status, status);
        assert_eq!(response.header("retry-after"), Some("7"));
        assert_eq!(response.header("x-should-retry"), Some("false"));
        let id = format!("req_scripted_{index:04}");
        assert_eq!(response.header("request-id"), Some(id.as_str()));
        let error = json!({"type": kind, "message": "scripted"});
        assert_eq!(response.json(), json!({"type": "error", "error": error, "request_id": id}));
    }
    assert_eq!(ask(&model, &asking("x")).json()["error"]["type"], "teapot_error");
}

#[test]
fn delays_before_and_between_events_are_kept() {
    let (before, between) = (Duration::from_millis(120), Duration::from_millis(20));
    let script = Script::new().turn(Turn::reply(ScriptReply::new().text("hi").pause(between)).delay(before));
    on_both(&script, |model| {
        let began = Instant::now();
        let response = ask(model, &asking_for_a_stream("x"));
        assert_eq!(response.events().len(), 7);
        assert!(began.elapsed() >= before + between * 6, "{:?}", began.elapsed());
    });
}

#[test]
fn a_prefix_and_a_query_are_accepted() {
    let model = started(Script::new().turn(Turn::text("a")));
    let mut client = Client::connect(&model);
    client.send(&post("/run42/v1/messages?beta=true", "", asking("x").to_string().as_bytes()));
    assert_eq!(client.response().text(), "a");
    let request = &model.requests()[0];
    assert_eq!(request.path, "/run42/v1/messages");
    assert_eq!(request.query.as_deref(), Some("beta=true"));
}

#[test]
fn requests_for_other_paths_are_answered_and_logged() {
    let model = started(Script::new().turn(Turn::text("a")));
    let mut client = Client::connect(&model);
    client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(client.response_to("HEAD").status, 200);
    client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(client.response().status, 200);
    client.send(&post("/v1/messages/count_tokens", "", br#"{"messages": []}"#));
    assert_eq!(client.response().json(), json!({"input_tokens": 4}));
    client.send(&post("/v1/complete", "", b"{}"));
    let response = client.response();
    assert_eq!((response.status, &response.json()["error"]["type"]), (404, &json!("not_found_error")));
    client.send(b"GET /v1/messages HTTP/1.1\r\nhost: x\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.header("allow")), (405, Some("POST")));
    assert_eq!(response.json()["type"], "error");

    let answered: Vec<AnsweredBy> = model.requests().iter().map(|request| request.answered_by).collect();
    assert_eq!(
        answered,
        [
            AnsweredBy::Greeting,
            AnsweredBy::Greeting,
            AnsweredBy::TokenCount,
            AnsweredBy::Refused(404),
            AnsweredBy::Refused(405),
        ]
    );
    assert_eq!(model.unplayed(), [0]);
}

#[test]
fn a_request_without_tools_takes_no_turn_by_default() {
    let toolless = json!({"messages": [{"role": "user", "content": "name this"}], "tools": []});
    let script = Script::new().turn(Turn::text("turn")).side_requests(SideRequests::Reply("title".into()));
    let model = started(script.clone());
    assert_eq!(ask(&model, &toolless).text(), "title");
    assert_eq!(model.unplayed(), [0]);
    assert_eq!(model.requests()[0].answered_by, AnsweredBy::SideReply);

    let named = script.clone().turn(Turn::text("named").when(RequestConditions::any().tools(Tools::Absent)));
    assert_eq!(ask(&started(named), &toolless).text(), "named");
    assert_eq!(ask(&started(script.side_requests(SideRequests::TakeTurns)), &toolless).text(), "turn");
}

#[test]
fn turns_find_the_sender_they_are_meant_for() {
    let sub = RequestConditions::any().sender(Sender::SubAgent);
    let script = Script::new().turn(Turn::text("sub").when(sub)).turn(Turn::text("main"));
    let model = started(script);
    assert_eq!(ask(&model, &asking("x")).text(), "main");
    let mut client = Client::connect(&model);
    let header = "X-Claude-Code-Agent-Id: a0123\r\n";
    client.send(&post("/v1/messages", header, asking("x").to_string().as_bytes()));
    assert_eq!(client.response().text(), "sub");
}

#[test]
fn the_end_of_the_script_is_an_error_that_counts() {
    let model = started(Script::new().turn(Turn::text("a")).turn(Turn::text("b")));
    ask(&model, &asking("x"));
    ask(&model, &asking("x"));
    let response = ask(&model, &asking("x"));
    assert_eq!(response.status, 400);
    let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("exhausted: this request came after all 2 turns"), "{message}");
    assert_eq!(model.requests()[2].answered_by, AnsweredBy::Exhausted);

    let model = started(Script::new().when_exhausted(Exhausted::Reply("more".into())));
    assert_eq!(ask(&model, &asking("x")).text(), "more");
}

#[test]
fn a_request_that_no_turn_accepts_is_an_error_that_quotes_it() {
    let only = RequestConditions::any().last_message_contains("blue");
    let model = started(Script::new().turn(Turn::text("a").when(only)));
    let response = ask(&model, &asking("the red one"));
    let message = response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(response.status, 400);
    assert!(message.contains("(0 of 1 turns played)") && message.ends_with("the red one"), "{message}");
    assert_eq!(model.requests()[0].answered_by, AnsweredBy::NoTurnAccepts);
    assert_eq!(ask(&model, &asking("the blue one")).text(), "a");
}
