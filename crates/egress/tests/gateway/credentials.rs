//! Credentials that are missing, refused or repeated by the host.

use std::io::Write;

use belljar_contract::Secret;
use belljar_egress::gateway::GatewayTrouble;
use belljar_testkit::model_access::{KEY, TOKEN};
use serde_json::json;

use crate::client::Response;
use crate::host::{Host, Then, answer, message};
use crate::stage::{REAL_KEY, Stage, request};

fn words(response: &Response) -> String {
    response.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn without_a_credential_nothing_is_dialled_and_the_fix_is_named() {
    let host = Host::always(message(1, 1));
    let gateway = Stage { credential: None, ..Stage::before(&host) }.start();
    for _ in 0..3 {
        let response = gateway.ask(&request());
        assert_eq!((response.status, response.header("x-should-retry")), (403, Some("false")));
        assert_eq!(response.json()["error"]["type"], "permission_error");
        assert!(words(&response).contains(KEY), "{}", words(&response));
    }
    assert_eq!(host.connections(), 0);
    assert!(matches!(gateway.heard.troubles()[..], [GatewayTrouble::NoCredential(_)]));
}

#[test]
fn a_refused_credential_is_tried_once_and_reported_once() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let error = json!({"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}});
        let host =
            Host::always(answer(status, "content-type: application/json\r\n", error.to_string().as_bytes()));
        let gateway = Stage::before(&host).start();
        for _ in 0..4 {
            let response = gateway.ask(&request());
            assert_eq!((response.status, response.header("x-should-retry")), (403, Some("false")));
            let words = words(&response);
            assert!(words.contains("invalid API key") && words.contains(&format!("from {KEY}")), "{words}");
        }
        assert_eq!(host.requests().len(), 1);
        let troubles = gateway.heard.troubles();
        assert!(matches!(troubles[..], [GatewayTrouble::CredentialRefused { .. }]), "{troubles:?}");
        assert!(troubles[0].fix().contains("check the key"), "{}", troubles[0].fix());
        assert_eq!(gateway.live.spent().micros(), 0);
    }
}

#[test]
fn a_login_goes_as_bearer_with_its_beta() {
    let host = Host::always(message(1, 1));
    let credential = Some((TOKEN, Secret::new("tok-real")));
    let gateway = Stage { credential, ..Stage::before(&host) }.start();
    assert_eq!(gateway.ask(&request()).status, 200);
    let seen = &host.requests()[0];
    assert_eq!(seen.header("authorization"), Some("Bearer tok-real"));
    assert_eq!(seen.header("anthropic-beta"), Some("oauth-2025-04-20"));
    assert_eq!(seen.header("x-api-key"), None);
}

#[test]
fn a_credential_that_the_host_repeats_does_not_reach_the_agent() {
    for status in ["200 OK", "400 Bad Request", "401 Unauthorized", "500 Internal Server Error"] {
        let host = Host::start(move |stream, seen| {
            let key = seen.header("x-api-key").unwrap();
            let body = json!({"error": {"message": key}}).to_string();
            let headers = format!("content-type: application/json\r\nx-echo: {key}\r\n");
            stream.write_all(&answer(status, &headers, body.as_bytes())).unwrap();
            Then::Keep
        });
        let gateway = Stage::before(&host).start();
        let response = gateway.ask(&request());
        assert!(!format!("{response:?}").contains(REAL_KEY), "{response:?}");
        assert!(!response.chunks.concat().contains(REAL_KEY), "{response:?}");
        if status.starts_with('2') {
            assert_eq!(response.chunks.concat(), r#"{"error":{"message":"[redacted:AGENT_KEY]"}}"#);
        }
        assert!(!format!("{:?}", gateway.heard.events()).contains(REAL_KEY));
    }
}

/// In a stream that is cut at every position.
#[test]
fn a_credential_split_over_pieces_of_a_stream_is_redacted() {
    for cut in 1..REAL_KEY.len() {
        let host = Host::start(move |stream, seen| {
            let key = seen.header("x-api-key").unwrap().to_owned();
            let events = format!("event: ping\ndata: {key}\n\nevent: ping\ndata: end\n\n");
            let at = events.find(&key).unwrap() + cut;
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            for piece in [&events[..at], &events[at..]] {
                stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).unwrap();
                stream.flush().unwrap();
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
            Then::Keep
        });
        let gateway = Stage::before(&host).start();
        let response = gateway.ask(&request());
        assert_eq!(
            response.chunks.concat(),
            "event: ping\ndata: [redacted:AGENT_KEY]\n\nevent: ping\ndata: end\n\n"
        );
    }
}
