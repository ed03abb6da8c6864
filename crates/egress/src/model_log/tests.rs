#![allow(clippy::wildcard_enum_match_arm, reason = "a test selects the variants that it is about")]

use super::remembered::MOST_BYTES as REMEMBERED_BYTES;
use super::*;
use belljar_contract::{ModelItem, Repeated, ServedBlock, input_forms, read_model_log, text_digest};
use hyper::Uri;
use serde_json::json;

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn redact() -> RedactValue {
    fn walk(value: &mut Value) {
        match value {
            Value::String(text) => *text = text.replace("s3cret", "[redacted]"),
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Object(members) => members.values_mut().for_each(walk),
            _ => {}
        }
    }
    Arc::new(walk)
}

fn asked(messages: Value) -> GatewayRequest {
    let mut headers = HeaderMap::new();
    headers.insert(SESSION_ID_HEADER, "session-1".parse().unwrap());
    let body = json!({"model": "m", "messages": messages}).to_string();
    GatewayRequest {
        method: Method::POST,
        uri: Uri::from_static("/v1/messages?beta=true"),
        headers,
        body: Ok(Bytes::from(body)),
    }
}

fn stream(pieces: &[Value]) -> Bytes {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    Bytes::from(pieces.iter().map(event).collect::<String>())
}

#[test]
fn requests_and_responses_are_logged_as_digests_without_repetition() {
    let sink = Sink::default();
    let log = ModelLog::open(sink.clone(), RunId::new(7), Instant::now(), redact());
    let first = json!([{"role": "user", "content": [{"type": "text", "text": "go s3cret"}]},
        {"role": "system", "content": "note"}]);
    let mut watch = log.asked(&asked(first.clone()));
    watch.head(StatusCode::OK, &HeaderMap::new(), Instant::now());
    let start = json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}});
    let answer = stream(&[
        json!({"type": "message_start", "message": {"id": "msg_1", "content": []}}),
        start,
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\"command\":\"echo s3"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "cret\"}"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "half s3cret"}}),
    ]);
    watch.chunk(&answer, Instant::now());
    drop(watch);
    let mut second = first;
    second.as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "echo"}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true,
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "<system-reminder>b</system-reminder>"}]}]}),
    ]);
    let watch = log.asked(&asked(second));
    drop(watch);
    let head = log.close().unwrap();
    assert!(!sink.text().contains("s3cret"), "{}", sink.text());
    let read = read_model_log(&sink.text(), head).unwrap();
    assert_eq!(read[0].request.session.as_deref(), Some("session-1"));
    assert_eq!(read[0].request.items, [ModelItem::Text { text: text_digest("go [redacted]") }]);
    let served = read[0].answer.as_ref().unwrap();
    assert_eq!((served.status, served.end), (Some(200), ExchangeEnd::Left));
    let input = json!({"command": "echo [redacted]"});
    let input = input_forms("Bash", input.as_object().unwrap());
    let call = ServedBlock::ToolUse { call: "toolu_1".to_owned(), tool: "Bash".to_owned(), input };
    let open = Some("half [redacted]".to_owned());
    let text = ServedBlock::Text { text: text_digest("half [redacted]"), open };
    assert_eq!(served.message.as_ref().unwrap().blocks, [call, text]);
    assert_eq!(read[1].request.repeats, Some(Repeated { exchange: 0, items: 1 }));
    let returned = ModelItem::Returned {
        call: "toolu_1".to_owned(),
        text: text_digest("a\n<system-reminder>b</system-reminder>"),
        bare: Some(text_digest("a")),
        is_error: true,
    };
    assert_eq!(read[1].request.items[1], returned);
}

#[test]
fn a_log_with_a_failed_row_has_no_last_row() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk full"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let log = ModelLog::open(Full, RunId::new(7), Instant::now(), redact());
    assert!(log.close().unwrap_err().contains("disk full"));
    let log = ModelLog::open(Sink::default(), RunId::new(7), Instant::now(), redact());
    let mut watch = log.asked(&asked(json!([])));
    watch.head(StatusCode::OK, &HeaderMap::new(), Instant::now());
    let long = Bytes::from(vec![b' '; LONGEST_ANSWER / 2 + 1]);
    watch.chunk(&long, Instant::now());
    watch.chunk(&long, Instant::now());
    drop(watch);
    assert!(log.close().unwrap_err().contains("longer than"));
}

fn result_of(call: &str) -> Value {
    json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "x"}]}])
}

/// Bytes of the remembered texts.
fn remembered(log: &ModelLog) -> usize {
    let state = log.shared.state();
    let items = state.known.requests.iter().flat_map(|(_, items)| items);
    let text = |item: &ModelItem| match item {
        ModelItem::Called { call, .. } | ModelItem::Returned { call, .. } => call.len(),
        ModelItem::Text { .. } | ModelItem::Said { .. } => 0,
    };
    items.map(|item| size_of::<ModelItem>() + text(item)).sum()
}

#[test]
fn the_memory_for_requests_is_limited() {
    let log = ModelLog::open(Sink::default(), RunId::new(7), Instant::now(), redact());
    let long = |at: usize| format!("{at}{}", "c".repeat(REMEMBERED_BYTES / 5));
    for at in 0..12 {
        drop(log.asked(&asked(result_of(&long(at)))));
        assert!(remembered(&log) <= REMEMBERED_BYTES, "{} after {at}", remembered(&log));
    }
    assert!(remembered(&log) > REMEMBERED_BYTES / 2);
    // A single request that is too large.
    drop(log.asked(&asked(result_of(&"c".repeat(REMEMBERED_BYTES + 1)))));
    assert!(remembered(&log) <= REMEMBERED_BYTES);
}

#[test]
fn a_log_that_failed_remembers_nothing() {
    let log = ModelLog::open(Sink::default(), RunId::new(7), Instant::now(), redact());
    drop(log.asked(&asked(result_of("toolu_1"))));
    assert_ne!(remembered(&log), 0);
    log.shared.state().fail("disk full".to_owned());
    assert_eq!(remembered(&log), 0);
    drop(log.asked(&asked(result_of("toolu_2"))));
    assert_eq!(remembered(&log), 0);
    assert!(log.close().is_err());
}

#[test]
fn a_request_with_too_many_items_fails_the_log() {
    let log = ModelLog::open(Sink::default(), RunId::new(7), Instant::now(), redact());
    let many = vec![json!({"role": "user", "content": ""}); MOST_ITEMS + 1];
    drop(log.asked(&asked(Value::Array(many))));
    assert!(log.close().unwrap_err().contains("items"));
}

#[test]
fn a_body_must_be_json_as_a_whole() {
    let items = |body: &str| request::items(body.as_bytes(), &|_| {}, without_reminders).len();
    let messages = r#""messages":[{"role":"user","content":"go"}]"#;
    assert_eq!(items(&format!(r#"{{"tools":[{{"a":[null,true,-1,1.5]}}],{messages},"n":1}}"#)), 1);
    assert_eq!(items(&format!(r#"{{"messages":[],{messages}}}"#)), 1);
    for rest in [r#""system":"\ud800""#, r#""n":1e999"#, r#""n":"#, r#""n":[1,]"#] {
        assert_eq!(items(&format!("{{{messages},{rest}}}")), 0, "{rest}");
    }
    assert_eq!(items(&format!("[{{{messages}}}]")), 0);
}
