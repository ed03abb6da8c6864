use super::*;
use crate::gateway::{Broken, Observe, Observed};
use crate::tape::{KeepExchanges, Parameter, Recorder};
use belljar_contract::ExchangeEnd;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Uri};
use serde_json::{Value, json};

/// A tape in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<MemoryTape>>);

#[derive(Default)]
struct MemoryTape(Vec<Exchange>, BTreeMap<String, Vec<u8>>);

impl KeepExchanges for Memory {
    fn request(&mut self, bytes: &[u8]) -> Result<BodyRef, String> {
        let body = BodyRef::of(bytes);
        self.0.lock().unwrap().1.insert(body.digest.hex(), bytes.to_vec());
        Ok(body)
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<BodyRef, String> {
        self.request(bytes)
    }

    fn exchange(&mut self, exchange: &Exchange) -> Result<(), String> {
        self.0.lock().unwrap().0.push(exchange.clone());
        Ok(())
    }
}

impl TapeBodies for Memory {
    fn body(&self, body: BodyRef) -> io::Result<Cow<'_, [u8]>> {
        self.0
            .lock()
            .unwrap()
            .1
            .get(&body.digest.hex())
            .cloned()
            .map(Cow::Owned)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Gives one response after the other, whatever is asked.
struct Says(Mutex<Vec<(u16, &'static str, String)>>);

impl Responder for Says {
    fn answer(&self, _asked: GatewayRequest) -> AnswerFuture {
        let (status, kind, text) = self.0.lock().unwrap().remove(0);
        Box::pin(async move {
            if status == 0 {
                return Err(HangUp);
            }
            let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
            let mut response = Response::new(body);
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            Ok(response)
        })
    }
}

fn asked(agent: Option<&str>, body: &Value) -> GatewayRequest {
    let mut headers = HeaderMap::new();
    if let Some(agent) = agent {
        headers.insert(AGENT_ID_HEADER, agent.parse().unwrap());
    }
    let uri = Uri::from_static("/v1/messages?beta=true");
    GatewayRequest { method: Method::POST, uri, headers, body: Ok(Bytes::from(body.to_string())) }
}

fn request(texts: &[&str]) -> Value {
    let messages: Vec<Value> = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
    json!({"model": "m", "stream": true, "messages": messages})
}

async fn said(answering: AnswerFuture) -> (u16, String) {
    match answering.await {
        Err(HangUp) => (0, String::new()),
        Ok(response) => {
            let status = response.status().as_u16();
            let body = response.into_body().collect().await;
            let text = body.map(|body| String::from_utf8(body.to_bytes().to_vec()).unwrap());
            (status, text.unwrap_or_else(|broken: Broken| format!("{broken}")))
        }
    }
}

fn nothing_secret() -> Scrub {
    Arc::new(|_: &[u8]| None)
}

/// Records these requests with these responses.
async fn record(exchanges: &[(Option<&str>, Value, u16, &'static str, &str)], scrub: Scrub) -> Memory {
    let memory = Memory::default();
    let recorder =
        Recorder::new(Box::new(memory.clone()), scrub, Normaliser::defaults().into(), BTreeMap::new());
    let answers = exchanges.iter().map(|(_, _, status, kind, text)| (*status, *kind, (*text).to_owned()));
    let says = Arc::new(Says(Mutex::new(answers.collect())));
    let observed = Observed::new(says, Arc::new(recorder.clone()) as Arc<dyn Observe>);
    for (agent, body, ..) in exchanges {
        said(observed.answer(asked(*agent, body))).await;
    }
    assert_eq!(recorder.finish().unwrap().exchanges, exchanges.len() as u64);
    memory
}

fn replay(memory: &Memory, on_drift: OnDrift) -> Replay {
    replay_by(memory, Matching::Whole, on_drift)
}

fn replay_by(memory: &Memory, matching: Matching, on_drift: OnDrift) -> Replay {
    replay_chosen(memory, (matching, ChosenParameters::default()), on_drift)
}

fn replay_chosen(
    memory: &Memory,
    (matching, chosen): (Matching, ChosenParameters),
    on_drift: OnDrift,
) -> Replay {
    Replay::new(ReplaySetup {
        exchanges: memory.0.lock().unwrap().0.clone(),
        bodies: Arc::new(memory.clone()),
        normalisers: Normaliser::defaults().into(),
        scrub: nothing_secret(),
        matching,
        chosen,
        on_drift,
        pace: Pace::Fast,
        live: None,
    })
}

const JSON: &str = "application/json";

#[tokio::test]
async fn responses_are_found_by_the_request_and_not_by_its_position() {
    let memory = record(
        &[(None, request(&["a"]), 200, JSON, "to a"), (None, request(&["b"]), 200, JSON, "to b")],
        nothing_secret(),
    )
    .await;
    let replay = replay(&memory, OnDrift::Fail);
    assert_eq!(said(replay.answer(asked(None, &request(&["b"])))).await, (200, "to b".into()));
    assert_eq!(replay.report().unconsumed.len(), 1);
    assert_eq!(said(replay.answer(asked(None, &request(&["a"])))).await, (200, "to a".into()));
    let report = replay.report();
    assert!(report.is_faithful() && report.exact == 2 && report.repeated == 0, "{report:?}");
    assert_eq!(report.reordered, 1, "the one that was overtaken");
}

#[tokio::test]
async fn a_recorded_failure_comes_first_and_a_repeat_gets_the_last_response() {
    let body = request(&["a"]);
    let memory = record(
        &[
            (None, body.clone(), 429, JSON, "slow"),
            (None, body.clone(), 0, JSON, ""),
            (None, body.clone(), 200, JSON, "fine"),
        ],
        nothing_secret(),
    )
    .await;
    assert!(memory.0.lock().unwrap().0[1].answer.is_none(), "a closed connection has no answer");
    let replay = replay(&memory, OnDrift::Fail);
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(said(replay.answer(asked(None, &body))).await);
    }
    let fine = (200, "fine".to_owned());
    assert_eq!(heard, [(429, "slow".into()), (0, String::new()), fine.clone(), fine]);
    assert_eq!(replay.report().repeated, 1);
}

#[tokio::test]
async fn a_repeat_without_streaming_gets_the_same_content() {
    let event = |data: Value| format!("event: x\ndata: {data}\n\n");
    let stream = event(json!({"type": "message_start", "message": {"id": "m", "role": "assistant"}}))
        + &event(
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        )
        + &event(
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        )
        + &event(json!({"type": "message_stop"}));
    let body = request(&["a"]);
    let memory = record(&[(None, body.clone(), 200, "text/event-stream", &stream)], nothing_secret()).await;
    let replay = replay(&memory, OnDrift::Fail);
    assert_eq!(said(replay.answer(asked(None, &body))).await, (200, stream));
    let mut whole = body;
    whole.as_object_mut().unwrap().remove("stream");
    whole["max_tokens"] = json!(7);
    let (status, text) = said(replay.answer(asked(None, &whole))).await;
    let message: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &message["content"]), (200, &json!([{"type": "text", "text": "hi"}])));
    assert!(replay.report().is_faithful());
}

#[tokio::test]
async fn sub_agents_with_the_same_task_are_kept_apart() {
    let (one, two) = ("a0000000000000001", "a0000000000000002");
    let memory = record(
        &[
            (Some(one), request(&["task"]), 200, JSON, "first"),
            (Some(two), request(&["task"]), 200, JSON, "second"),
            (Some(one), request(&["task", "more"]), 200, JSON, "first again"),
            (Some(two), request(&["task", "more"]), 200, JSON, "second again"),
            (None, request(&["task"]), 200, JSON, "main"),
        ],
        nothing_secret(),
    )
    .await;
    let replay = replay(&memory, OnDrift::Fail);
    let ask =
        |agent: Option<&'static str>, texts: &[&str]| said(replay.answer(asked(agent, &request(texts))));
    assert_eq!(ask(None, &["task"]).await.1, "main");
    assert_eq!(ask(Some("a00000000000000ff"), &["task"]).await.1, "first");
    assert_eq!(ask(Some("a00000000000000ee"), &["task"]).await.1, "second");
    assert_eq!(ask(Some("a00000000000000ee"), &["task", "more"]).await.1, "second again");
    assert_eq!(ask(Some("a00000000000000ff"), &["task", "more"]).await.1, "first again");
    assert!(replay.report().is_faithful());
    let (status, text) = ask(Some("a00000000000000dd"), &["task"]).await;
    assert_eq!(status, 400, "a third was not recorded: {text}");
}

#[tokio::test]
async fn a_drift_ends_the_run_and_nothing_is_answered_after_it() {
    let memory = record(
        &[(None, request(&["a"]), 200, JSON, "to a"), (None, request(&["b"]), 200, JSON, "to b")],
        nothing_secret(),
    )
    .await;
    let replay = replay(&memory, OnDrift::Fail);
    let response = replay.answer(asked(None, &request(&["c"]))).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-should-retry"]),
        (400, &"false".parse().unwrap())
    );
    assert_eq!(said(replay.answer(asked(None, &request(&["a"])))).await.0, 400);
    let report = replay.report();
    assert_eq!((report.drifts.len(), report.exact, report.unconsumed.len()), (1, 0, 2));
    assert_eq!(report.drifts[0].differences[0].pointer, "/messages/0/content");
}

#[tokio::test]
async fn continuing_uses_the_nearest_response_and_reports_the_drift() {
    let memory = record(
        &[(None, request(&["a"]), 200, JSON, "to a"), (None, request(&["a", "b"]), 200, JSON, "to b")],
        nothing_secret(),
    )
    .await;
    let replay = replay(&memory, OnDrift::Continue);
    assert_eq!(said(replay.answer(asked(None, &request(&["a", "x"])))).await, (200, "to b".into()));
    let report = replay.report();
    assert!(!report.is_faithful());
    assert_eq!((report.drifts[0].nearest, report.drifts[0].kind), (Some(1), DriftKind::Prompt));
}

#[tokio::test]
async fn ids_of_the_recorded_run_become_those_of_this_one() {
    let said_so = |id: &str| request(&["go", &format!("Command running in background with ID: {id}. Wait.")]);
    let memory =
        record(&[(None, said_so("bold00001"), 200, JSON, r#"{"task_id":"bold00001"}"#)], nothing_secret())
            .await;
    let replay = replay(&memory, OnDrift::Fail);
    let heard = said(replay.answer(asked(None, &said_so("bnew00002")))).await;
    assert_eq!(heard, (200, r#"{"task_id":"bnew00002"}"#.into()));
}

#[tokio::test]
async fn secrets_are_redacted_in_requests_and_responses() {
    let scrub = |secret: &'static str| -> Scrub {
        Arc::new(move |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.contains(secret).then(|| text.replace(secret, "[redacted:KEY]").into_bytes())
        })
    };
    let memory = record(&[(None, request(&["say hush1"]), 200, JSON, "it is hush1")], scrub("hush1")).await;
    let (exchanges, bodies) = {
        let kept = memory.0.lock().unwrap();
        (kept.0.clone(), kept.1.clone())
    };
    assert!(bodies.values().all(|body| !String::from_utf8_lossy(body).contains("hush1")));
    assert_eq!(exchanges[0].answer.as_ref().unwrap().end, ExchangeEnd::Complete);
    let replay = Replay::new(ReplaySetup {
        exchanges,
        bodies: Arc::new(memory.clone()),
        normalisers: Normaliser::defaults().into(),
        scrub: scrub("hush2"),
        matching: Matching::Whole,
        chosen: ChosenParameters::default(),
        on_drift: OnDrift::Fail,
        pace: Pace::Fast,
        live: None,
    });
    let heard = said(replay.answer(asked(None, &request(&["say hush2"])))).await;
    assert_eq!(heard, (200, "it is [redacted:KEY]".into()));
}

/// A request with texts of the agent itself.
fn with_words(system: &str, date: &str, kernel: &str) -> Value {
    let mut body = request(&["go"]);
    body["system"] = json!([{"type": "text", "text": format!("{system}\nOS Version: {kernel}\n")}]);
    body["messages"][0]["content"] = json!([
        {"type": "text", "text": format!("<system-reminder>\nToday's date is {date}.\n</system-reminder>")},
        {"type": "text", "text": "go"}]);
    body
}

#[tokio::test]
async fn the_agents_own_texts_are_compared_and_not_kept() {
    let body = with_words("You are an agent", "2026-11-16", "Linux 6.1");
    let memory = record(&[(None, body, 200, JSON, "fine")], nothing_secret()).await;
    for kept in memory.0.lock().unwrap().1.values() {
        let text = String::from_utf8_lossy(kept);
        assert!(!text.contains("You are an agent") && !text.contains("Today's date"), "{text}");
    }
    let same = replay(&memory, OnDrift::Fail);
    let heard =
        said(same.answer(asked(None, &with_words("You are an agent", "2027-01-02", "Linux 7")))).await;
    assert_eq!(heard, (200, "fine".into()), "another day and another kernel");
    let other = replay(&memory, OnDrift::Fail);
    let heard =
        said(other.answer(asked(None, &with_words("You are an Agent", "2026-11-16", "Linux 6.1")))).await;
    assert_eq!(heard.0, 400);
    let report = other.report();
    let difference = &report.drifts[0].differences[0];
    assert_eq!((difference.pointer.as_str(), difference.agent_texts), ("/system/0/text", true));
    assert!(difference.present.as_ref().unwrap().contains("You are an Agent"), "{difference:?}");
}

#[tokio::test]
async fn another_version_matches_by_the_users_side_and_its_differences_are_listed() {
    let body = with_words("You are an agent", "2026-11-16", "Linux 6.1");
    let memory = record(&[(None, body, 200, JSON, "fine")], nothing_secret()).await;
    let mut newer = with_words("You are another agent", "2026-11-16", "Linux 6.1");
    newer["model"] = json!("n");
    newer["messages"].as_array_mut().unwrap().insert(0, json!({"role": "system", "content": "be brief"}));
    let crossing = replay_by(&memory, Matching::UserSide, OnDrift::Fail);
    assert_eq!(said(crossing.answer(asked(None, &newer))).await, (200, "fine".into()));
    let report = crossing.report();
    assert!(report.is_faithful());
    assert_eq!((report.exact, report.crossed), (1, 1));
    assert_eq!(report.agent.lines().len(), 3, "{:?}", report.agent);
    assert!(report.agent.fixed_prompt.is_some() && report.agent.fixed_prompt == report.agent.system_prompt);
    let strict = replay(&memory, OnDrift::Fail);
    assert_eq!(said(strict.answer(asked(None, &newer))).await.0, 400);
    newer["messages"][1]["content"][1]["text"] = json!("stop");
    let drifting = replay_by(&memory, Matching::UserSide, OnDrift::Fail);
    assert_eq!(said(drifting.answer(asked(None, &newer))).await.0, 400);
    let report = drifting.report();
    let difference = &report.drifts[0].differences[0];
    assert_eq!(difference.pointer, "/messages/1/content/1/text");
    assert_eq!((difference.recorded.as_deref(), difference.present.as_deref()), (Some("go"), Some("stop")));
}

#[tokio::test]
async fn a_parameter_that_the_users_side_chose_is_not_the_agents() {
    let mut body = request(&["go"]);
    body["model"] = json!("m");
    let memory = record(
        &[(None, body.clone(), 200, JSON, "fine"), (Some("a"), body.clone(), 200, JSON, "below")],
        nothing_secret(),
    )
    .await;
    body["model"] = json!("n");
    let model = || BTreeSet::from([Parameter::Model]);
    for (main, sub_agents, heard) in [
        (BTreeSet::new(), BTreeSet::new(), [200, 200]),
        (model(), BTreeSet::new(), [400, 400]),
        (BTreeSet::new(), model(), [200, 400]),
    ] {
        let chosen = ChosenParameters { main, sub_agents };
        let crossing = replay_chosen(&memory, (Matching::UserSide, chosen), OnDrift::Fail);
        let main = said(crossing.answer(asked(None, &body))).await.0;
        let below = said(crossing.answer(asked(Some("a"), &body))).await.0;
        assert_eq!([main, below], heard);
        let report = crossing.report();
        let drifted = heard.contains(&400);
        assert_eq!(!report.drifts.is_empty(), drifted);
        if drifted {
            let difference = &report.drifts[0].differences[0];
            let values = (difference.recorded.as_deref(), difference.present.as_deref());
            assert_eq!((difference.pointer.as_str(), values), ("/model", (Some("m"), Some("n"))));
        }
    }
}

#[tokio::test]
async fn a_result_of_a_tool_that_is_gone_is_reported_as_such() {
    let called = |result: &str, tools: Value| {
        json!({"model": "m", "tools": tools, "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": result,
                "is_error": result != "ok"}]}]})
    };
    let memory =
        record(&[(None, called("ok", json!([{"name": "Bash"}])), 200, JSON, "fine")], nothing_secret()).await;
    for (tools, kind) in
        [(json!([{"name": "Bash"}]), DriftKind::ToolResult), (json!([]), DriftKind::ToolGone)]
    {
        let crossing = replay_by(&memory, Matching::UserSide, OnDrift::Fail);
        assert_eq!(said(crossing.answer(asked(None, &called("no such tool", tools)))).await.0, 400);
        let report = crossing.report();
        assert_eq!(report.drifts[0].kind, kind);
        assert_eq!(report.drifts[0].differences[0].call.as_ref().unwrap().name, "Bash");
    }
}

#[tokio::test]
async fn another_course_of_the_conversation_is_a_drift_that_says_so() {
    let talk = |calls: &[&str]| {
        let turn = |id: &&str| {
            [
                json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "Bash", "input": {}}]}),
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": id}]}),
            ]
        };
        let messages: Vec<Value> = [json!({"role": "user", "content": "go"})]
            .into_iter()
            .chain(calls.iter().flat_map(turn))
            .collect();
        json!({"model": "m", "tools": [{"name": "Bash"}], "messages": messages})
    };
    let memory = record(&[(None, talk(&["one", "two"]), 200, JSON, "fine")], nothing_secret()).await;
    let mut told = talk(&["one", "two"]);
    told["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": "a task ended"}));
    for other in [talk(&["two", "one"]), talk(&["one"]), talk(&["one", "two", "three"]), told] {
        let crossing = replay_by(&memory, Matching::UserSide, OnDrift::Fail);
        assert_eq!(said(crossing.answer(asked(None, &other))).await.0, 400, "{other}");
        let report = crossing.report();
        assert_eq!((report.exact, report.drifts[0].kind), (0, DriftKind::Course), "{other}");
    }
}
