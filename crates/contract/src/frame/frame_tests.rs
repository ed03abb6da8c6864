use super::super::{AfterDeny, HostRequest, Initialize, Outbound, PermissionReply, Reply, UserMessage};
use super::*;
use serde_json::json;

fn body(value: Value) -> Inbound {
    Frame::from_value(value).unwrap().body
}

#[test]
fn unknown_frames_are_kept_and_known_ones_are_checked() {
    let comet = json!({"type": "comet", "tail": [1]});
    let frame = Frame::from_value(comet.clone()).unwrap();
    assert_eq!(frame, Frame { raw: comet, body: Inbound::Unknown { kind: "comet".to_owned() } });
    assert_eq!(
        body(json!({"type": "system", "subtype": "weather"})),
        Inbound::System { subtype: "weather".to_owned() }
    );
    for malformed in [
        json!({"type": 5}),
        json!({}),
        json!({"type": "result"}),
        json!({"type": "result", "is_error": "false"}),
        json!({"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {}}]}}),
        json!({"type": "assistant", "parent_tool_use_id": 7, "message": {"content": "x"}}),
        json!({"type": "control_request", "request_id": "", "request": {"subtype": "can_use_tool"}}),
        json!({"type": "control_response", "response": {"subtype": "maybe", "request_id": "a"}}),
        json!({"type": "system", "subtype": "session_state_changed", "state": "asleep"}),
    ] {
        assert!(matches!(body(malformed.clone()), Inbound::Malformed { .. }), "{malformed}");
    }
}

#[test]
fn a_request_with_an_id_can_always_be_answered() {
    for (request, expected) in [
        (json!({"subtype": "sing"}), AgentRequest::Unknown { subtype: "sing".to_owned() }),
        (
            json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": []}),
            AgentRequest::Malformed {
                subtype: "can_use_tool".to_owned(),
                why: "`input` is not an object".to_owned(),
            },
        ),
        (
            json!(1),
            AgentRequest::Malformed { subtype: String::new(), why: "`request` is not an object".to_owned() },
        ),
    ] {
        let frame = json!({"type": "control_request", "request_id": "r", "request": request});
        assert_eq!(
            body(frame),
            Inbound::Request { id: RequestId::new("r").unwrap(), request: expected },
            "{request}"
        );
    }
}

#[test]
fn ambiguous_lines_are_rejected() {
    let refused = |line: &str| Frame::parse(line).unwrap_err().to_string();
    assert!(
        refused(r#"{"type":"result","is_error":true,"is_error":false}"#)
            .contains("\"is_error\" occurs twice")
    );
    assert!(refused(r#"{"type":"x","a":[{"b":1,"b":1}]}"#).contains("twice"));
    assert!(
        refused(&format!("{}{}", r#"{"type":"x","a":"#, "[".repeat(200_000))).contains("recursion limit")
    );
    assert!(refused(r#"{"type":"x","n":1e400}"#).contains("out of range"));
    assert_eq!(refused("[]"), "frame must be a JSON object");
}

#[test]
fn numbers_of_every_size_are_read() {
    let frame = Frame::parse(r#"{"type":"x","a":18446744073709551615,"b":-9223372036854775808,"c":123456789012345678901234567890,"d":0.1}"#).unwrap();
    assert_eq!(frame.raw["a"], json!(u64::MAX));
    assert_eq!(frame.raw["b"], json!(i64::MIN));
    assert_eq!(frame.raw["c"], json!(123456789012345678901234567890.0_f64));
    let result =
        json!({"type": "result", "is_error": false, "total_cost_usd": 0.000175, "api_error_status": null});
    let Inbound::Result(result) = body(result) else { panic!() };
    assert_eq!(result.total_cost_micros_usd, Some(175));
    for sum in [json!(-1), json!(1e300), json!("1")] {
        let Inbound::Result(result) =
            body(json!({"type": "result", "is_error": false, "total_cost_usd": sum}))
        else {
            panic!()
        };
        assert_eq!(result.total_cost_micros_usd, None);
    }
}

#[test]
fn questions_with_equal_texts_are_refused() {
    let asked = |questions: Value| {
        let request = json!({"subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": {"questions": questions}});
        let frame = json!({"type": "control_request", "request_id": "r", "request": request});
        let Inbound::Request { request: AgentRequest::CanUseTool(request), .. } = body(frame) else {
            panic!()
        };
        request.questions().unwrap()
    };
    let one = json!({"question": "Which?", "options": [{"label": "A"}], "multiSelect": true});
    assert_eq!(asked(json!([one])).unwrap()[0].options[0].label, "A");
    assert!(asked(json!([one, one])).unwrap_err().contains("twice"));
    assert_eq!(asked(json!([])).unwrap_err(), "`questions` is empty");
    assert!(asked(json!([{"header": "only"}])).unwrap_err().contains("`question` is missing"));
}

#[test]
fn sent_frames_have_one_form() {
    let id = RequestId::new("b1").unwrap();
    let response = |reply| Outbound::Response { id: id.clone(), reply }.to_json()["response"].clone();
    assert_eq!(
        response(Reply::Permission(PermissionReply::Deny {
            message: "no".to_owned(),
            then: AfterDeny::Interrupt
        }))["response"],
        json!({"behavior": "deny", "message": "no", "interrupt": true})
    );
    let allow = PermissionReply::Allow { input: serde_json::Map::new(), permissions: Vec::new() };
    assert_eq!(
        response(Reply::Permission(allow))["response"],
        json!({"behavior": "allow", "updatedInput": {}})
    );
    assert_eq!(
        response(Reply::Error("e".to_owned())),
        json!({"subtype": "error", "request_id": "b1", "error": "e"})
    );
    let mut further = serde_json::Map::new();
    further.insert("subtype".to_owned(), json!("bash_command"));
    let request = HostRequest::Initialize(Box::new(Initialize { further, ..Initialize::default() }));
    let sent = Outbound::Request { id, request }.to_json();
    assert_eq!(sent["request"], json!({"subtype": "initialize"}));
    let message =
        UserMessage { id: MessageId::new("m").unwrap(), text: "a\n{\"type\":\"bash_command\"}".to_owned() };
    assert!(!Outbound::User(message).to_json().to_string().contains('\n'));
}

#[test]
fn fuzz_frames() {
    let everyday = std::time::Duration::from_millis(300);
    bolero::check!().with_test_time(everyday).for_each(|bytes: &[u8]| {
        if let Ok(frame) = Frame::parse(&String::from_utf8_lossy(bytes)) {
            assert_eq!(Frame::parse(&frame.raw.to_string()).unwrap(), frame);
        }
        // Random bytes rarely make a frame, so they pick members instead.
        let members = bytes.chunks(2).map(|pair| {
            let key = KEYS[usize::from(pair[0]) % KEYS.len()];
            let value = VALUES[usize::from(pair.get(1).copied().unwrap_or(0)) % VALUES.len()];
            (key.to_owned(), serde_json::from_str::<Value>(value).unwrap())
        });
        let object: serde_json::Map<String, Value> = members.collect();
        let frame = Frame::from_value(Value::Object(object)).unwrap();
        if let Inbound::Result(result) = &frame.body {
            assert_eq!(frame.raw["is_error"], json!(result.is_error));
        }
    });
}

const KEYS: [&str; 14] = [
    "type",
    "subtype",
    "request_id",
    "request",
    "response",
    "message",
    "is_error",
    "state",
    "session_id",
    "uuid",
    "parent_tool_use_id",
    "task_id",
    "total_cost_usd",
    "isReplay",
];
const VALUES: [&str; 20] = [
    "\"system\"",
    "\"assistant\"",
    "\"user\"",
    "\"result\"",
    "\"control_request\"",
    "\"control_response\"",
    "\"control_cancel_request\"",
    "\"init\"",
    "\"session_state_changed\"",
    "\"idle\"",
    "\"task_started\"",
    "true",
    "false",
    "null",
    "\"\"",
    "1e99",
    "[]",
    "{\"subtype\":\"can_use_tool\",\"tool_name\":\"Bash\",\"input\":{}}",
    "{\"subtype\":\"success\",\"request_id\":\"a\"}",
    "{\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"is_error\":1}]}",
];
