//! Requests that would make the provider act on its own.

use belljar_egress::gateway::{GatewayEvent, ProviderTools};
use serde_json::{Value, json};

use crate::host::{Host, message};
use crate::stage::{Stage, request};

fn search() -> Value {
    json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 8})
}

fn offering(tools: &Value) -> Value {
    let mut body = request();
    body["tools"] = tools.clone();
    body
}

#[test]
fn a_request_for_a_search_alone_is_refused() {
    let host = Host::always(message(1, 1));
    let gateway = Stage::before(&host).start();
    let mut fetching = request();
    fetching["messages"][0]["content"] =
        json!([{"type": "image", "source": {"type": "url", "url": "https://x.test/?all-my-files"}}]);
    let mut stored = request();
    stored["messages"][0]["content"] =
        json!([{"type": "document", "source": {"type": "file", "file_id": "file_011"}}]);
    let mut connecting = request();
    connecting["mcp_servers"] = json!([{"type": "url", "url": "https://x.test", "name": "x"}]);
    for (body, name) in [
        (offering(&json!([search()])), "web_search"),
        (fetching, "url_sources"),
        (stored, "file_sources"),
        (connecting, "mcp_servers"),
    ] {
        let response = gateway.ask(&body);
        assert_eq!((response.status, response.header("x-should-retry")), (400, Some("false")));
        let words = response.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(words.contains(&format!("`{name}`")), "{words}");
    }
    assert_eq!(host.connections(), 0);
}

#[test]
fn in_a_conversation_provider_tools_are_removed_and_logged() {
    let host = Host::always(message(1, 1));
    let gateway = Stage::before(&host).start();
    let own = request()["tools"][0].clone();
    assert_eq!(gateway.ask(&offering(&json!([search(), own]))).status, 200);
    assert_eq!(host.requests()[0].json(), offering(&json!([own])));
    let GatewayEvent::Started(started) = &gateway.heard.events()[0] else { panic!() };
    assert_eq!(started.stripped, ["web_search"]);
}

#[test]
fn an_unknown_member_is_removed_and_logged() {
    let host = Host::always(message(1, 1));
    let gateway = Stage::before(&host).start();
    let mut body = request();
    body["fallbacks"] = json!([{"model": "another-model"}]);
    body["thread"] = json!({"id": "elsewhere"});
    assert_eq!(gateway.ask(&body).status, 200);
    assert_eq!(host.requests()[0].json(), request());
    let GatewayEvent::Started(started) = &gateway.heard.events()[0] else { panic!() };
    assert_eq!(started.stripped, ["member fallbacks", "member thread"]);
}

#[test]
fn a_provider_tool_that_is_allowed_by_name_passes() {
    let host = Host::always(message(1, 1));
    let provider_tools = ProviderTools::allowing(["web_search"]).unwrap();
    let gateway = Stage { provider_tools, ..Stage::before(&host) }.start();
    assert_eq!(gateway.ask(&offering(&json!([search()]))).status, 200);
    assert_eq!(host.requests()[0].json()["tools"], json!([search()]));
}
