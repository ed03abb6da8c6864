//! What is kept of a request, and what is not.

use std::time::Duration;

use belljar_egress::script::{AnsweredBy, BodySeen, Fingerprint, HeaderText, Script, Turn};
use serde_json::json;

use crate::client::{Client, DEADLINE, ask, asking, post, started};

#[test]
fn a_request_is_kept_with_all_its_parts() {
    let model = started(Script::new().turn(Turn::text("a")));
    let body = json!({
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "out"}]},
            {"role": "system", "content": "note"},
        ],
        "tools": [{"name": "Bash"}],
    });
    let mut client = Client::connect(&model);
    client.send(&post("/v1/messages?beta=true", "User-Agent: agent/1\r\n", body.to_string().as_bytes()));
    client.response();
    let requests = model.requests();
    let request = &requests[0];
    assert_eq!(requests.len(), 1);
    assert_eq!((request.index, request.method.as_str()), (0, "POST"));
    assert_eq!((request.path.as_str(), request.query.as_deref()), ("/v1/messages", Some("beta=true")));
    assert_eq!(request.header("user-agent"), Some("agent/1"));
    assert_eq!(request.json(), Some(body));
    assert_eq!(request.answered_by, AnsweredBy::Turn(0));
    assert_eq!(request.last_message(), "out");
    assert_eq!(request.tool_results(), [("t1".to_owned(), "out".to_owned())]);
}

#[test]
fn credentials_are_not_kept_but_can_be_recognised() {
    let model = started(Script::new().turn(Turn::text("a")));
    let headers = "X-Api-Key: sk-very-secret\r\nAuthorization: Bearer sk-very-secret\r\n\
                   Proxy-Authorization: Basic sk-very-secret\r\nCookie: sk-very-secret\r\n";
    let mut client = Client::connect(&model);
    client.send(&post("/v1/messages", headers, asking("x").to_string().as_bytes()));
    client.response();
    let request = &model.requests()[0];
    assert!(!format!("{request:?}").contains("sk-very-secret"), "{request:?}");
    assert!(request.sent_secret("x-api-key", "sk-very-secret"));
    assert!(request.sent_secret("authorization", "Bearer sk-very-secret"));
    assert!(!request.sent_secret("x-api-key", "sk-other"));
    assert!(!request.sent_secret("x-absent", "sk-very-secret"));
    assert_eq!(request.header("x-api-key"), None);
    let secrets = request.headers.iter().filter(|header| matches!(header.value, HeaderText::Secret(_)));
    assert_eq!(secrets.count(), 4);
    assert_eq!(Fingerprint::of("abc").to_string(), "sha256:ba7816bf8f01cfea");
}

#[test]
fn waiting_ends_with_the_awaited_request_or_with_the_time() {
    let model = started(Script::new().turn(Turn::text("a")));
    let late = model.wait_for_requests(1, Duration::from_millis(10)).unwrap_err();
    assert_eq!(late.to_string(), "the expected requests did not arrive within 10ms; 0 arrived");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| model.wait_for_requests(2, DEADLINE));
        ask(&model, &asking("one"));
        ask(&model, &asking("two"));
        assert_eq!(waiting.join().unwrap().unwrap().len(), 2);
    });
    let blue =
        |request: &std::sync::Arc<belljar_egress::script::LoggedRequest>| request.last_message() == "two";
    assert!(model.wait_until(Duration::ZERO, |requests| requests.iter().any(blue)).is_ok());
}

#[test]
fn invalid_json_is_refused_and_logged() {
    let model = started(Script::new().turn(Turn::text("a")));
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let mut client = Client::connect(&model);
        client.send(&post(path, "", b"{\"messages\": [\xff"));
        let response = client.response();
        assert_eq!(response.status, 400);
        assert_eq!(response.json()["error"]["type"], "invalid_request_error");
        client.send(&post(path, "", b""));
        assert_eq!(client.response().status, 400);
    }
    assert_eq!(ask(&model, &json!({"messages": "none"})).status, 400);
    let requests = model.requests();
    assert_eq!(requests.len(), 5);
    assert!(matches!(requests[0].body, BodySeen::NotJson { bytes: 15, .. }), "{:?}", requests[0].body);
    assert_eq!(requests[1].body, BodySeen::Empty);
    assert!(requests.iter().all(|request| request.answered_by == AnsweredBy::Refused(400)));
    assert_eq!(model.unplayed(), [0]);
}
