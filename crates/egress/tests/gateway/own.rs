//! Requests of belljar itself take the same path as the agent's, and use the same budget.

use belljar_egress::gateway::{GatewayEvent, OwnRequestError, ask};
use serde_json::{Value, json};

use crate::host::{Host, answer, message};
use crate::stage::{Gateway, REAL_KEY, Stage};

fn wanted() -> Value {
    json!({"model": "claude-opus-4-8", "max_tokens": 100, "messages": [{"role": "user", "content": "which?"}]})
}

fn asked(gateway: &Gateway) -> Result<String, OwnRequestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(ask(&gateway.live, &wanted())).map(|reply| reply.text)
}

#[test]
fn a_request_of_belljar_is_answered_counted_and_logged() {
    let host = Host::always(message(100, 20));
    let gateway = Stage::before(&host).start();
    assert_eq!(asked(&gateway), Ok("hi".to_owned()));
    let seen = &host.requests()[0];
    assert_eq!(
        (seen.header("x-api-key"), seen.header("anthropic-version")),
        (Some(REAL_KEY), Some("2023-06-01"))
    );
    assert_eq!(gateway.heard.finished(1)[0].tokens.unwrap().count.output, 20);
    assert_eq!(gateway.live.spent().micros(), gateway.live.totals().cost().micros());
    assert!(gateway.live.spent().micros() > 0);
    assert!(matches!(gateway.heard.events()[0], GatewayEvent::Started(_)));
}

#[test]
fn a_request_of_belljar_stays_within_the_cap() {
    let host = Host::always(message(100, 20));
    let gateway = Stage { cap: Some(0.000_001), ..Stage::before(&host) }.start();
    let refused = asked(&gateway);
    assert!(matches!(&refused, Err(OwnRequestError::Withheld { .. })), "{refused:?}");
    assert_eq!(host.requests().len(), 0, "nothing was sent");
}

#[test]
fn a_response_without_a_message_is_an_error() {
    for (body, expected) in [
        (json!({"type": "message", "content": []}), OwnRequestError::Form),
        (
            json!({"type": "message", "content": [{"type": "tool_use", "id": "t"}]}),
            OwnRequestError::NoAnswer { why: "it has a block `tool_use`".to_owned() },
        ),
        (json!([]), OwnRequestError::Form),
    ] {
        let host =
            Host::always(answer("200 OK", "content-type: application/json\r\n", body.to_string().as_bytes()));
        assert_eq!(asked(&Stage::before(&host).start()), Err(expected), "{body}");
    }
}
